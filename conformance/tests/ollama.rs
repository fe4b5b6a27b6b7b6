//! The scripted model server: both interfaces, streaming and not, as a plain client sees them.

use std::time::Duration;

use cortex_conformance::ollama::{Fault, Reply, Rule, Script, ScriptError, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Status and body, whatever the transfer encoding.
async fn send(server: &Server, method: &str, path: &str, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    // A fault may end the connection in the middle.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.unwrap_or(0), body.to_owned())
}

fn ask(words: &str, stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "messages": [{"role": "system", "content": "kestrel"}, {"role": "user", "content": words}]})
}

async fn server(script: Script) -> Server {
    Server::start(script).await.unwrap()
}

#[tokio::test]
async fn the_first_rule_that_fits_the_last_message_decides() {
    let mut script =
        Script::always(Reply::text("I do not know.")).when("kestrel", Reply::text("A bird."));
    script.rules.insert(
        0,
        Rule {
            pattern: Some(r"number (\d+)".to_owned()),
            times: Some(1),
            reply: Reply::text("It was $1."),
            ..Rule::default()
        },
    );
    let server = server(script).await;
    for (words, expected) in [
        ("kestrel number 12", "It was 12."),
        ("kestrel number 13", "A bird."),
        ("heron", "I do not know."),
    ] {
        let (status, body) = send(&server, "POST", "/api/chat", &ask(words, false)).await;
        let reply: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &reply["message"]["content"]),
            (200, &json!(expected))
        );
        assert_eq!(
            (&reply["done"], &reply["done_reason"]),
            (&json!(true), &json!("stop"))
        );
        assert!(reply["prompt_eval_count"].as_u64() > Some(0));
    }
    assert_eq!(server.requests().len(), 3);
    assert_eq!(server.requests()[2]["messages"][1]["content"], "heron");
}

#[tokio::test]
async fn streams_join_to_the_whole_reply() {
    let words = "Ein Turmfalke rüttelte über dem Feld — 3 Wühlmäuse.";
    let server = server(Script::always(Reply::text(words))).await;
    let (_, body) = send(&server, "POST", "/api/chat", &ask("", true)).await;
    let lines: Vec<Value> = body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.len() > 3);
    let joined: String = lines
        .iter()
        .map(|line| line["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(joined, words);
    assert_eq!(lines.last().unwrap()["done"], true);

    let (_, body) = send(&server, "POST", "/v1/chat/completions", &ask("", true)).await;
    let events: Vec<&str> = body
        .split_terminator("\n\n")
        .map(|event| event.strip_prefix("data: ").unwrap())
        .collect();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let joined: String = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str::<Value>(event).unwrap())
        .filter_map(|event| {
            event["choices"][0]["delta"]["content"]
                .as_str()
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(joined, words);
    let (_, body) = send(&server, "POST", "/v1/chat/completions", &ask("", false)).await;
    let reply: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(reply["choices"][0]["message"]["content"], words);
}

#[tokio::test]
async fn models_versions_and_calls_of_tools_are_as_ollama_writes_them() {
    let calls = json!([{"function": {"name": "read", "arguments": {"question": "kestrel"}}}]);
    let script = Script {
        models: vec!["qwen2.5:7b".to_owned()],
        ..Script::always(Reply {
            tool_calls: Some(calls.clone()),
            ..Reply::default()
        })
    };
    let server = server(script).await;
    let tags: Value =
        serde_json::from_str(&send(&server, "GET", "/api/tags", &json!({})).await.1).unwrap();
    assert_eq!(tags["models"][0]["name"], "qwen2.5:7b");
    let (status, _) = send(&server, "GET", "/api/version", &json!({})).await;
    assert_eq!(status, 200);
    let (status, _) = send(
        &server,
        "POST",
        "/api/show",
        &json!({"model": "qwen2.5:7b"}),
    )
    .await;
    assert_eq!(status, 200);
    let (status, body) = send(&server, "POST", "/api/chat", &ask("", false)).await;
    assert_eq!((status, body.contains("not found")), (404, true));
    let mut asked = ask("", false);
    asked["model"] = json!("qwen2.5:7b");
    let (_, body) = send(&server, "POST", "/api/chat", &asked).await;
    let reply: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(reply["message"]["tool_calls"], calls);
}

#[tokio::test]
async fn faults_of_the_server_arrive() {
    let good = Reply::json(json!({"claims": ["A kestrel hovered there."]}));
    let fault = |fault| Script::always(good.clone().with(fault));
    let refused = server(fault(Fault::ServerError)).await;
    assert_eq!(
        send(&refused, "POST", "/api/chat", &ask("", false)).await.0,
        500
    );
    let broken = server(fault(Fault::HangUp)).await;
    let (_, body) = send(&broken, "POST", "/api/chat", &ask("", false)).await;
    assert!(serde_json::from_str::<Value>(&body).is_err(), "{body}");
    let hanging = server(fault(Fault::Hang)).await;
    let asked = ask("", false);
    let answer = send(&hanging, "POST", "/api/chat", &asked);
    assert!(
        tokio::time::timeout(Duration::from_millis(300), answer)
            .await
            .is_err()
    );
}

#[test]
fn scripts_are_checked() {
    assert!(
        Script::from_json(
            r#"{"rules": [{"contains": "a", "reply": {"text": "b", "fault": "fenced"}}]}"#
        )
        .is_ok()
    );
    for wrong in [
        r#"{"ruels": []}"#,
        r#"{"rules": [{"reply": {"fault": "magic"}}]}"#,
        "3",
    ] {
        assert!(
            matches!(Script::from_json(wrong), Err(ScriptError::Json(_))),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_pattern_that_is_none_is_named() {
    let mut script = Script::default().when("a", Reply::text("b"));
    script.rules.push(Rule {
        pattern: Some("(".to_owned()),
        ..Rule::default()
    });
    let wrong = Server::start(script).await.err().unwrap().to_string();
    assert!(wrong.starts_with("rule 2:"), "{wrong}");
}
