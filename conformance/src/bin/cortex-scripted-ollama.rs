//! Runs the scripted model server in the foreground.

use std::process::ExitCode;

use cortex_conformance::ollama::{Script, Server};
use tokio::net::TcpListener;

const HELP: &str = "\
A model server whose replies stand in a file, for tests. Speaks Ollama's interface and OpenAI's.

Usage:
  cortex-scripted-ollama SCRIPT [--listen 127.0.0.1:11434]

The script is a JSON object:
  {\"models\": [\"qwen2.5:7b\"],
   \"rules\": [{\"contains\": \"kestrel\", \"reply\": {\"json\": {\"claims\": []}}},
             {\"pattern\": \"number (\\\\d+)\", \"times\": 2, \"reply\": {\"text\": \"It was $1.\", \"fault\": \"prose_around\"}}],
   \"otherwise\": {\"text\": \"I do not know.\"}}
Rules look at the last message; the first that fits decides. Faults: prose_around, prose_only, fenced, thinking,
truncated, no_wrapper, null_claims, blank_claims, invented_number, repeated, wrong_chunks, long_claim, empty,
cut_prompt, hang, server_error, hang_up, drip, not_json.

Prints one line, `listening on http://...`, once it answers. Exit code 2 if the script cannot be used.
";

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (file, address) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        [file] => (file, "127.0.0.1:11434"),
        [file, "--listen", address] | ["--listen", address, file] => (file, address),
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match start(file, address).await {
        Ok(server) => {
            println!("listening on {}", server.url());
            tokio::select! {
                () = server.ended() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cortex-scripted-ollama: {error}");
            ExitCode::from(2)
        }
    }
}

async fn start(file: &str, address: &str) -> Result<Server, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let script = Script::from_json(&text).map_err(|error| format!("{file}: {error}"))?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("{address}: {error}"))?;
    Server::on(listener, script).map_err(|error| error.to_string())
}
