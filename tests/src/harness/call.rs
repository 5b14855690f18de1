//! A request to the lab, and its answer.

use bytes::Bytes;
use reqwest::{
    Client, Method, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use std::net::SocketAddr;

/// A request; it can be sent as often as one likes, each time the same.
#[derive(Debug, Clone)]
pub struct Call {
    client: Client,
    address: SocketAddr,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
    tag: String,
}

impl Call {
    pub(super) fn new(
        client: Client,
        address: SocketAddr,
        method: Method,
        path: &str,
        tag: &str,
    ) -> Call {
        Call {
            client,
            address,
            method,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            tag: tag.to_owned(),
        }
        .user("alice")
    }

    /// To another process.
    #[must_use]
    pub fn at(mut self, address: SocketAddr) -> Call {
        self.address = address;
        self
    }

    /// To another path, the query included.
    #[must_use]
    pub fn path(mut self, path: &str) -> Call {
        path.clone_into(&mut self.path);
        self
    }

    /// From another user than `alice`. Users of different sites are never the same.
    #[must_use]
    pub fn user(self, user: &str) -> Call {
        let token = match user.split_once('@') {
            Some((user, tenant)) => format!("Bearer {user}-{}@{tenant}", self.tag),
            None => format!("Bearer {user}-{}", self.tag),
        };
        self.header("authorization", token)
    }

    /// From nobody.
    #[must_use]
    pub fn anonymous(mut self) -> Call {
        self.headers.remove("authorization");
        self
    }

    /// Under this idempotency key.
    #[must_use]
    pub fn key(self, key: &str) -> Call {
        self.header("idempotency-key", key)
    }

    /// Under no idempotency key.
    #[must_use]
    pub fn without_key(self) -> Call {
        self.without("idempotency-key")
    }

    /// Without this header.
    #[must_use]
    pub fn without(mut self, name: &'static str) -> Call {
        self.headers.remove(name);
        self
    }

    /// With this header in the place of any of its name.
    ///
    /// # Panics
    ///
    /// If it cannot be a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Call {
        let value = HeaderValue::from_bytes(&value.into()).expect("a header value");
        self.headers.insert(HeaderName::from_static(name), value);
        self
    }

    /// With this JSON text for its body.
    #[must_use]
    pub fn json(self, text: impl Into<Bytes>) -> Call {
        self.body("application/json", text)
    }

    /// With this body of this type.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Call {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    /// The handler answers so (`X-Lab-Respond`).
    #[must_use]
    pub fn respond(self, how: &str) -> Call {
        self.header("x-lab-respond", how)
    }

    /// The handler takes so long.
    #[must_use]
    pub fn delay_ms(self, millis: u64) -> Call {
        self.header("x-lab-delay-ms", millis.to_string())
    }

    /// The process aborts there (`X-Lab-Crash`).
    #[must_use]
    pub fn crash(self, at: &str) -> Call {
        self.header("x-lab-crash", at)
    }

    /// The process aborts at this point of the toolkit's own flow when it comes there for the `nth`
    /// time (`X-Lab-Fail-Point`).
    #[must_use]
    pub fn fail_point(self, name: &str, moment: &str, nth: u32) -> Call {
        self.header("x-lab-fail-point", format!("{name} {moment} {nth}"))
    }

    /// The same request without any fault knob.
    #[must_use]
    pub fn calm(self) -> Call {
        self.without("x-lab-respond")
            .without("x-lab-delay-ms")
            .without("x-lab-crash")
            .without("x-lab-fail-point")
    }

    /// Sends it.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    pub async fn send(&self) -> Reply {
        self.try_send()
            .await
            .unwrap_or_else(|error| panic!("{} {}: {error:?}", self.method, self.path))
    }

    /// Sends it, to a server that may not answer.
    ///
    /// # Errors
    ///
    /// If there is no whole answer.
    pub async fn try_send(&self) -> Result<Reply, reqwest::Error> {
        let answer = self.sent().send().await?;
        Ok(Reply {
            status: answer.status(),
            headers: answer.headers().clone(),
            body: answer.bytes().await?,
        })
    }

    /// The request for `reqwest`, for an answer that is to be read piece by piece.
    pub fn sent(&self) -> reqwest::RequestBuilder {
        let url = format!("http://{}{}", self.address, self.path);
        self.client
            .request(self.method.clone(), url)
            .headers(self.headers.clone())
            .body(self.body.clone())
    }

    /// Sends it in a task of its own.
    pub fn spawn(&self) -> tokio::task::JoinHandle<Reply> {
        let call = self.clone();
        tokio::spawn(async move { call.send().await })
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body as it came.
    pub body: Bytes,
}

impl Reply {
    /// The only value of a header, if there is one.
    ///
    /// # Panics
    ///
    /// If there are several.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next();
        assert!(values.next().is_none(), "{name} twice in {self:?}");
        first.map(HeaderValue::as_bytes)
    }

    /// The only value of a header as text.
    ///
    /// # Panics
    ///
    /// If there is none, or several, or it is no text.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let value = self.header(name);
        value
            .and_then(|value| std::str::from_utf8(value).ok())
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// If it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON in {self:?}"))
    }

    /// Which order this answer is about.
    ///
    /// # Panics
    ///
    /// If it is about none.
    #[must_use]
    pub fn id(&self) -> u64 {
        let id = self.json()["id"].as_u64();
        id.unwrap_or_else(|| panic!("no id in {self:?}"))
    }

    /// Whether it is marked as a replay.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some(b"true".as_slice())
    }

    /// The last part of its problem's `type`; none if it is not one of the toolkit's.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if self.header("content-type") != Some(b"application/problem+json") {
            return None;
        }
        let json = self.json();
        let slug = json["type"].as_str()?.strip_prefix("urn:idempotency:")?;
        Some(slug.to_owned())
    }

    /// Checks that it is this problem, with this status.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn assert_problem(&self, status: u16, slug: &str) {
        let seen = (self.status.as_u16(), self.problem());
        assert_eq!(seen, (status, Some(slug.to_owned())), "{self:?}");
        assert!(!self.is_replay(), "{self:?}");
    }

    /// Checks that a handler ran for it and made an order.
    ///
    /// # Panics
    ///
    /// If it is not so.
    pub fn assert_created(&self) {
        assert_eq!(self.status, StatusCode::CREATED, "{self:?}");
        assert!(!self.is_replay(), "{self:?}");
    }
}

/// Checks that `again` is `first` repeated, and marked so.
///
/// # Panics
///
/// If it is not.
pub fn assert_replay(first: &Reply, again: &Reply) {
    assert!(again.is_replay(), "not marked: {again:?}\nfirst: {first:?}");
    assert!(!first.is_replay(), "the first is marked: {first:?}");
    assert_eq!(again.status, first.status, "{again:?}\nfirst: {first:?}");
    assert_eq!(again.body, first.body, "{again:?}\nfirst: {first:?}");
    for name in ["content-type", "location"] {
        assert_eq!(again.header(name), first.header(name), "{name}: {again:?}");
    }
    // A stream of unknown length has become a body of a known one.
    if let Some(length) = first.header("content-length") {
        assert_eq!(again.header("content-length"), Some(length), "{again:?}");
    }
}
