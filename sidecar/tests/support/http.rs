//! A client of a few lines, so that requests are exactly what a test writes, and a server in this process.

use cortex_sidecar::config::Config;
use cortex_sidecar::db::Db;
use cortex_sidecar::encoder::Encoder;
use cortex_sidecar::error::Outcome;
use cortex_sidecar::http::{self, App};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running server.
pub struct Server {
    pub address: String,
    pub stop: CancellationToken,
    pub ended: JoinHandle<Outcome<()>>,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Server {
    /// Starts a server on a free port.
    pub async fn start(config: &Config, encoder: Encoder) -> Self {
        let db = Db::open(&config.database, "service").unwrap();
        let listener = http::bind(config).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let app = App::new(db, encoder, config.clone(), None);
        let ended = tokio::spawn(http::serve(listener, app, stop.clone()));
        Server {
            address,
            stop,
            ended,
        }
    }

    pub async fn send(&self, request: &[u8]) -> Reply {
        send(&self.address, request).await
    }

    pub async fn get(&self, path: &str, expected: u16) -> Reply {
        self.ask("GET", path, "", "", expected).await
    }

    /// Sends JSON.
    pub async fn post(&self, path: &str, body: &str, expected: u16) -> Reply {
        self.ask(
            "POST",
            path,
            "Content-Type: application/json\r\n",
            body,
            expected,
        )
        .await
    }

    /// Sends a request with more headers, which end in CR LF.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
        expected: u16,
    ) -> Reply {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            self.address,
            body.len()
        );
        let reply = self.send(request.as_bytes()).await;
        assert_eq!(
            reply.status, expected,
            "{method} {path} {body:.300}: {reply:?}"
        );
        if expected >= 400 {
            let json = reply.json();
            for member in ["error", "code", "hint"] {
                assert!(json.get(member).is_some(), "no {member} in {json}");
            }
        }
        reply
    }
}

pub async fn send(address: &str, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that refuses early closes before everything is sent; its answer is what counts.
    let _ = stream.write_all(request).await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let (line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or_else(|| panic!("{line}"));
    Reply {
        status,
        headers: headers.to_lowercase(),
        body: body.to_owned(),
    }
}
