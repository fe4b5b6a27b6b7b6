//! A stand-in for a pooler in transaction mode: whenever a connection is idle between transactions, all
//! state of its session is discarded, as if the next transaction went to another server connection.
//!
//! DISCARD ALL drops prepared statements, LISTEN, SET and temporary tables; that it is sent as a simple query
//! drops the unnamed statement as well.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Mutex;

/// Starts a pooler in front of the server of `url` and returns the URL to use instead.
pub async fn before(url: &str) -> String {
    let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    let socket = options
        .get_socket()
        .map(|folder| folder.join(format!(".s.PGSQL.{}", options.get_port())));
    let host = format!("{}:{}", options.get_host(), options.get_port());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (socket, host) = (socket.clone(), host.clone());
            tokio::spawn(async move {
                let (client_read, client_write) = client.into_split();
                match socket {
                    Some(path) => {
                        let Ok(server) = UnixStream::connect(path).await else {
                            return;
                        };
                        let (read, write) = server.into_split();
                        relay(client_read, client_write, read, write).await;
                    }
                    None => {
                        let Ok(server) = TcpStream::connect(host).await else {
                            return;
                        };
                        let (read, write) = server.into_split();
                        relay(client_read, client_write, read, write).await;
                    }
                }
            });
        }
    });
    let database = options.get_database().unwrap();
    format!(
        "postgresql://{}@127.0.0.1:{port}/{database}?sslmode=disable",
        options.get_username()
    )
}

async fn relay<R, W>(
    mut client: OwnedReadHalf,
    mut to_client: OwnedWriteHalf,
    mut server: R,
    to_server: W,
) where
    R: AsyncReadExt + Unpin + Send + 'static,
    W: AsyncWriteExt + Unpin + Send + 'static,
{
    let to_server = Arc::new(Mutex::new(to_server));
    let forward = to_server.clone();
    let up = tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read) = client.read(&mut buffer).await {
            if read == 0
                || forward
                    .lock()
                    .await
                    .write_all(&buffer[..read])
                    .await
                    .is_err()
            {
                break;
            }
        }
        let _ = forward.lock().await.shutdown().await;
    });
    while let Some((kind, body)) = message(&mut server).await {
        if kind == b'Z' && body == [b'I'] && discard(&mut server, &to_server).await.is_none() {
            break;
        }
        if write(&mut to_client, kind, &body).await.is_err() {
            break;
        }
    }
    up.abort();
}

/// Sends DISCARD ALL and swallows the answer.
async fn discard<R: AsyncReadExt + Unpin, W: AsyncWriteExt + Unpin>(
    server: &mut R,
    to_server: &Mutex<W>,
) -> Option<()> {
    write(&mut *to_server.lock().await, b'Q', b"DISCARD ALL\0")
        .await
        .ok()?;
    loop {
        match message(server).await? {
            (b'Z', _) => return Some(()),
            (b'E', body) => panic!("DISCARD ALL: {}", String::from_utf8_lossy(&body)),
            _ => {}
        }
    }
}

async fn message<R: AsyncReadExt + Unpin>(from: &mut R) -> Option<(u8, Vec<u8>)> {
    let kind = from.read_u8().await.ok()?;
    let length = from.read_u32().await.ok()?;
    let mut body = vec![0; length as usize - 4];
    from.read_exact(&mut body).await.ok()?;
    Some((kind, body))
}

async fn write<W: AsyncWriteExt + Unpin>(to: &mut W, kind: u8, body: &[u8]) -> std::io::Result<()> {
    let mut bytes = vec![kind];
    bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    bytes.extend(body);
    to.write_all(&bytes).await
}
