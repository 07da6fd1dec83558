//! Servers that end connections and streams in every way.

use std::io::ErrorKind;

use h2::Reason;
use reqwest::dns::{Name, Resolve, Resolving};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// The address of an HTTP/2 server that resets each stream for this reason.
pub async fn resetting(reason: Reason) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    respond.send_reset(reason);
                }
            });
        }
    });
    format!("http://{address}/")
}

/// The address of an HTTP/2 server that says goodbye to each request: what it names was the last stream that it has
/// looked at. It hangs up if it has looked at the request, which would else wait for its answer.
pub async fn going_away(reason: Reason, last_stream: u8) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let head = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last_stream];
    let goodbye = [settings.as_slice(), &head, &u32::from(reason).to_be_bytes()].concat();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
            // The preface is 24 bytes; the first frame of headers has type 1.
            while !seen.windows(5).any(|bytes| bytes[0] == 1 && bytes[2..] == [0, 0, 0]) {
                let read = socket.read(&mut buffer).await.unwrap_or(0);
                seen.extend_from_slice(&buffer[..read]);
            }
            let _ = socket.write_all(&goodbye).await;
            while last_stream == 0 && matches!(socket.read(&mut buffer).await, Ok(1..)) {}
        }
    });
    format!("http://{address}/")
}

/// The address of a server that reads a request, or none, writes this and closes.
pub async fn raw(answer: &'static [u8], reads: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            if reads {
                let _ = socket.read(&mut [0; 4096]).await;
            }
            let _ = socket.write_all(answer).await;
        }
    });
    format!("http://{address}/")
}

/// Resolves nothing, with an error of this kind.
pub struct Unresolvable(pub ErrorKind);

impl Resolve for Unresolvable {
    fn resolve(&self, _: Name) -> Resolving {
        let kind = self.0;
        Box::pin(async move { Err(std::io::Error::new(kind, "a scripted failure").into()) })
    }
}

/// What a server does with the body of a request that it has answered at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    Read,
    Left,
    /// It closes the connection on it.
    Cut,
}

/// The address of a server that answers as soon as the body begins. It never says `100 Continue` by itself.
pub async fn early(answer: &'static [u8], rest: Rest) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
            while !has_body(&seen) {
                let read = socket.read(&mut buffer).await.unwrap_or(0);
                seen.extend_from_slice(&buffer[..read]);
            }
            let _ = socket.write_all(answer).await;
            if rest == Rest::Cut {
                continue;
            }
            tokio::spawn(async move {
                while rest == Rest::Read && matches!(socket.read(&mut buffer).await, Ok(1..)) {}
                std::future::pending::<()>().await;
            });
        }
    });
    format!("http://{address}/")
}

fn has_body(request: &[u8]) -> bool {
    let head = request.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    head.is_some_and(|end| request.len() > end + 4)
}

/// The address of a server that reads a request, writes this and says no more.
pub async fn stalling(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(answer).await;
            held.push(socket);
        }
    });
    format!("http://{address}/")
}

/// Resolves nothing, and does not say so.
pub struct Undecided;

impl Resolve for Undecided {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(std::future::pending())
    }
}
