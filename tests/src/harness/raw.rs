//! HTTP by hand: for requests that no well-behaved client sends, and connections that end badly.

use super::PATIENCE;
use socket2::SockRef;
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// A whole request of HTTP/1.1 with a body of known length.
#[must_use]
pub fn request(method: &str, path: &str, headers: &[(&str, &[u8])], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: lab\r\n").into_bytes();
    for (name, value) in headers {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    text.extend_from_slice(body);
    text
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// An answer, taken apart.
#[derive(Debug, Clone)]
pub struct RawReply {
    /// Its status.
    pub status: u16,
    /// Its headers in their order, names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body, freed from any chunked coding.
    pub body: Vec<u8>,
}

impl RawReply {
    /// The first value of a header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Whether it is marked as a replay.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The last part of its problem's `type`.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let json: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        let slug = json["type"].as_str()?.strip_prefix("urn:idempotency:")?;
        Some(slug.to_owned())
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Panics
    ///
    /// If nobody listens.
    pub async fn open(address: SocketAddr) -> Connection {
        Self::try_open(address).await.expect("the lab listens")
    }

    /// Connects to a server that may not be there.
    ///
    /// # Errors
    ///
    /// If nobody listens.
    pub async fn try_open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            received: Vec::new(),
        })
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// If the other side no longer takes any.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Says that nothing more will be sent (FIN).
    ///
    /// # Panics
    ///
    /// If the connection is gone.
    pub async fn finish_sending(&mut self) {
        self.stream.shutdown().await.expect("a connection");
    }

    /// Ends the connection with a reset (RST), as a crashed client does.
    ///
    /// # Panics
    ///
    /// If the connection is gone.
    pub fn reset(self) {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
    }

    /// The next answer.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub async fn reply(&mut self) -> RawReply {
        let reply = timeout(PATIENCE, self.try_reply()).await;
        reply.expect("an answer in time").expect("a whole answer")
    }

    /// The next answer, of a server that may not answer.
    ///
    /// # Errors
    ///
    /// If the connection ends before the answer is whole.
    ///
    /// # Panics
    ///
    /// If what comes is not HTTP.
    pub async fn try_reply(&mut self) -> io::Result<RawReply> {
        let (status, headers) = loop {
            let mut fields = [httparse::EMPTY_HEADER; 64];
            let mut head = httparse::Response::new(&mut fields);
            match head.parse(&self.received).expect("an HTTP response") {
                httparse::Status::Complete(length) => {
                    let status = head.code.expect("a status");
                    let headers: Vec<_> = head
                        .headers
                        .iter()
                        .map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec()))
                        .collect();
                    self.received.drain(..length);
                    break (status, headers);
                }
                httparse::Status::Partial => self.receive().await?,
            }
        };
        let mut reply = RawReply {
            status,
            headers,
            body: Vec::new(),
        };
        if reply.header("transfer-encoding") == Some("chunked") {
            self.chunks(&mut reply.body).await?;
        } else if let Some(length) = reply.header("content-length") {
            let length: usize = length.parse().expect("a length");
            while self.received.len() < length {
                self.receive().await?;
            }
            reply.body = self.received.drain(..length).collect();
        } else if !matches!(status, 100..200 | 204 | 304) {
            // The body ends with the connection.
            while self.receive().await.is_ok() {}
            reply.body = std::mem::take(&mut self.received);
        }
        Ok(reply)
    }

    /// The next bytes as they come; none at the end of the connection.
    pub async fn some_bytes(&mut self) -> Vec<u8> {
        if self.received.is_empty() {
            let _ = self.receive().await;
        }
        std::mem::take(&mut self.received)
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let (start, length) = loop {
                match httparse::parse_chunk_size(&self.received).expect("a chunk") {
                    httparse::Status::Complete(found) => break found,
                    httparse::Status::Partial => self.receive().await?,
                }
            };
            let length = usize::try_from(length).expect("a length");
            // The chunk and the line break after it; the trailer of the last one is empty.
            while self.received.len() < start + length + 2 {
                self.receive().await?;
            }
            body.extend_from_slice(&self.received[start..start + length]);
            self.received.drain(..start + length + 2);
            if length == 0 {
                return Ok(());
            }
        }
    }

    async fn receive(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
