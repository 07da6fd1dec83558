//! What may listen where the server was.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What it does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Accepts it and never answers.
    Hangs,
    /// Answers one byte a second.
    Drips,
    /// Answers in another protocol.
    Babbles,
    /// Answers 503.
    Declines,
}

/// Such a peer; it counts what it is asked.
pub struct Peer {
    asks: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Peer {
    pub async fn start(address: SocketAddr, manner: Manner) -> Self {
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let asks = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&asks);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(serve(socket, manner, Arc::clone(&counted)));
            }
        });
        Self { asks, task }
    }

    /// Requests for tokens so far.
    pub fn asks(&self) -> u64 {
        self.asks.load(Ordering::Relaxed)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut socket: TcpStream, manner: Manner, asks: Arc<AtomicU64>) {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
        match socket.read(&mut buffer).await {
            Ok(read @ 1..) => seen.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    asks.fetch_add(u64::from(seen.starts_with(b"POST /v1/tokens ")), Ordering::Relaxed);
    let answer: &[u8] = match manner {
        Manner::Hangs => b"",
        Manner::Drips => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        Manner::Babbles => b"220 mail.test ESMTP\r\n",
        Manner::Declines => {
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
    };
    if manner == Manner::Drips {
        for byte in answer {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = socket.write_all(&[*byte]).await;
        }
    }
    let _ = socket.write_all(answer).await;
    while matches!(manner, Manner::Hangs | Manner::Drips) && matches!(socket.read(&mut buffer).await, Ok(1..))
    {
    }
}
