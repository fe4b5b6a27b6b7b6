//! The claim pool and the event feed over REST.

mod support;

use std::time::Duration;

use cortex_sidecar::encoder::Encoder;
use serde_json::{Value, json};
use support::http::Server;
use support::{Database, PATIENCE, run, value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A source with the sentences that chunking found in it.
async fn ready() -> (Database, sqlx::postgres::PgConnection, Server) {
    let database = Database::new().await;
    let mut session = database.session().await;
    put(&mut session, "file:kestrel", "The kestrel hovered at 30 m.").await;
    let server = Server::start(&database.config(), Encoder::absent("none")).await;
    (database, session, server)
}

async fn put(session: &mut sqlx::postgres::PgConnection, name: &str, body: &str) {
    run(
        session,
        &format!("SELECT cortex_source_put('{name}', '{body}')"),
    )
    .await;
    run(session, "SELECT cortex_work()").await;
}

#[tokio::test]
async fn units_are_listed_in_pages_shown_and_evicted_as_sql_says() {
    let (_database, mut session, server) = ready().await;
    put(&mut session, "file:heron", "The heron stood in the reeds.").await;
    let first = server.get("/api/v1/pool/units?limit=1", 200).await.json();
    let unit = &first["units"][0];
    assert_eq!(
        (unit["artifact_id"].as_str(), &first["next"]),
        (Some("file:kestrel"), &unit["unit_id"])
    );
    let path = format!("/api/v1/pool/units?after={}&limit=5", first["next"]);
    let second = server.get(&path, 200).await.json();
    assert_eq!(second["units"].as_array().unwrap().len(), 1);
    assert_eq!(second["next"], Value::Null);

    let path = format!("/api/v1/pool/units/{}", unit["unit_id"]);
    let shown = server.get(&path, 200).await.json();
    assert_eq!(shown["unit"], *unit);
    assert_eq!(shown["chunks"][0]["body"], "The kestrel hovered at 30 m.");
    let evicted = server.ask("DELETE", &path, "", "", 200).await.json();
    assert_eq!(evicted["already"], false);
    assert_eq!(
        server.ask("DELETE", &path, "", "", 200).await.json()["already"],
        true
    );
    let found: bool = value(&mut session, "SELECT coalesce(bool_or(artifact_id = 'file:kestrel' AND item_id IN (SELECT id FROM cortex.claim)), false) FROM cortex_search('kestrel')").await;
    assert!(!found);

    // The same bytes as SQL gives.
    let stats = server.get("/api/v1/pool/stats", 200).await;
    assert!(
        stats.json()["settings"]["builder"] == "extract",
        "{}",
        stats.body
    );

    for (path, status) in [
        ("/api/v1/pool/units?limit=0", 400),
        ("/api/v1/pool/units?limit=1001", 400),
        ("/api/v1/pool/units?limti=1", 400),
        ("/api/v1/pool/units?namespace=nowhere", 404),
        ("/api/v1/pool/units/999999", 404),
        ("/api/v1/pool/units/x", 400),
        ("/api/v1/pool/stats?namespace=nowhere", 404),
        ("/api/v1/events?namespace=nowhere", 404),
        ("/api/v1/events?after=x", 400),
    ] {
        server.get(path, status).await;
    }
    server.get("/api/v1/pool/units?limit=1000", 200).await;
    server
        .ask("GET", "/api/v1/events", "Last-Event-ID: abc\r\n", "", 400)
        .await;
}

/// A client of the feed.
struct Feed {
    stream: TcpStream,
    text: String,
}

impl Feed {
    async fn open(server: &Server, query: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        let request = format!(
            "GET /api/v1/events{query} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n",
            server.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut feed = Feed {
            stream,
            text: String::new(),
        };
        feed.until("\r\n\r\n").await;
        feed
    }

    /// Reads on until the text holds a part.
    async fn until(&mut self, part: &str) {
        let mut buffer = [0; 4_096];
        while !self.text.contains(part) {
            let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer));
            let read = read.await.expect("something comes").unwrap();
            assert!(read > 0, "the feed ended before {part:?}: {}", self.text);
            self.text
                .push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
    }

    /// Numbers of the events so far.
    fn ids(&self) -> Vec<i64> {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("id: ")?.parse().ok())
            .collect()
    }
}

#[tokio::test]
async fn events_are_followed_resumed_and_end_with_the_service() {
    let (_database, mut session, server) = ready().await;
    let mut live = Feed::open(&server, "", "").await;
    assert!(live.text.starts_with("HTTP/1.1 200"), "{}", live.text);
    assert!(live.text.contains("text/event-stream"));
    // Eviction is an event; the sealer numbers it.
    let unit: i64 = value(&mut session, "SELECT min(unit_id) FROM cortex.units").await;
    let evict = format!("SELECT cortex_unit_evict({unit})");
    run(&mut session, &evict).await;
    run(&mut session, "SELECT cortex_seal()").await;
    live.until("event: unit_evicted").await;
    live.until("\n\n").await;
    let data = live
        .text
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap();
    let row: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&row["kind"], &row["detail"]["unit_id"]),
        (&json!("unit_evicted"), &json!(unit))
    );
    let last = *live.ids().last().unwrap();
    assert_eq!(row["event_id"], last);

    // From the beginning, and from the last one seen.
    let mut all = Feed::open(&server, "?after=0", "").await;
    all.until("event: unit_evicted").await;
    put(&mut session, "file:heron", "The heron stood in the reeds.").await;
    let unit: i64 = value(&mut session, "SELECT max(unit_id) FROM cortex.units").await;
    run(&mut session, &format!("SELECT cortex_unit_evict({unit})")).await;
    run(&mut session, "SELECT cortex_seal()").await;
    let mut resumed = Feed::open(&server, "?after=0", &format!("Last-Event-ID: {last}\r\n")).await;
    resumed.until("event: unit_evicted").await;
    assert!(
        resumed.ids().iter().all(|&id| id > last),
        "{:?}",
        resumed.ids()
    );

    server.stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(10), server.ended);
    ended
        .await
        .expect("the service stops although clients follow")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn no_more_clients_follow_than_there_are_places() {
    let (_database, _session, server) = ready().await;
    let mut clients = Vec::new();
    for _ in 0..32 {
        clients.push(Feed::open(&server, "", "").await);
    }
    let refused = server.get("/api/v1/events", 503).await.json();
    assert_eq!(refused["code"], "too_many_clients");
    clients.pop();
    let started = std::time::Instant::now();
    loop {
        let mut again = Feed::open(&server, "", "").await;
        if again.text.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "a place that was left stays taken"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
        again.text.clear();
    }
}
