//! A client that shows what it sends and gets.

use reqwest::{
    StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER},
};
use serde_json::Value;
use std::time::Duration;

/// Headers worth showing of an answer.
const SHOWN: [&str; 4] = [
    "Location",
    "Idempotent-Replayed",
    "Retry-After",
    "Content-Type",
];
const PATH: &str = "/api/v1/orders";
/// What item 42 costs.
const PRICE: u32 = 1500;

pub(super) struct Client {
    http: reqwest::Client,
    url: String,
}

impl Client {
    pub(super) fn new(url: String) -> Client {
        Client {
            http: reqwest::Client::new(),
            url,
        }
    }

    pub(super) async fn send(&self, order: &Order) -> Result<Answer, reqwest::Error> {
        let mut request = self
            .http
            .post(format!("{}{PATH}", self.url))
            .header(AUTHORIZATION, order.authorization())
            .header(CONTENT_TYPE, "application/json")
            .body(order.body());
        if let Some(key) = order.key {
            request = request.header("Idempotency-Key", key);
        }
        let response = request.send().await?;
        Ok(Answer {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.text().await?,
        })
    }

    pub(super) async fn count_orders(&self, token: &str) -> Result<usize, reqwest::Error> {
        let request = self.http.get(format!("{}{PATH}", self.url));
        let listed: Value = request.bearer_auth(token).send().await?.json().await?;
        Ok(listed["orders"].as_array().map_or(0, Vec::len))
    }

    pub(super) async fn count_charges(&self, gateway: &str) -> Result<usize, reqwest::Error> {
        let request = self.http.get(format!("{gateway}/charges"));
        let listed: Value = request.send().await?.json().await?;
        let count = listed["count"].as_u64().unwrap_or(0);
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }
}

/// A request for some of item 42.
#[derive(Clone)]
pub(super) struct Order {
    token: &'static str,
    key: Option<&'static str>,
    quantity: u32,
}

impl Order {
    pub(super) fn of_one(token: &'static str) -> Order {
        Order {
            token,
            key: None,
            quantity: 1,
        }
    }

    pub(super) fn with_key(self, key: &'static str) -> Order {
        Order {
            key: Some(key),
            ..self
        }
    }

    pub(super) fn with_quantity(self, quantity: u32) -> Order {
        Order { quantity, ..self }
    }

    pub(super) fn by(self, token: &'static str) -> Order {
        Order { token, ..self }
    }

    fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    fn body(&self) -> String {
        format!(
            r#"{{"items":[{{"id":42,"quantity":{}}}],"currency":"RUB","amount":{}}}"#,
            self.quantity,
            self.quantity * PRICE
        )
    }

    pub(super) fn show(&self, introduction: &str) {
        say!("\n  {introduction}");
        say!("    → POST {PATH}");
        say!("      Authorization: {}", self.authorization());
        if let Some(key) = self.key {
            say!("      Idempotency-Key: {key}");
        }
        say!("      {}", self.body());
    }

    pub(super) fn show_again(&self, introduction: &str) {
        say!("\n  {introduction}");
        say!("    → POST {PATH} (the same request)");
    }
}

/// What came back.
pub(super) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    pub(super) fn is_replay(&self) -> bool {
        self.header("Idempotent-Replayed") == Some("true")
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.header(RETRY_AFTER.as_str())?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }

    pub(super) fn location(&self) -> &str {
        self.header(LOCATION.as_str()).unwrap_or("missing")
    }

    pub(super) fn body(&self) -> &str {
        &self.body
    }

    /// Problems over several lines, other answers as they came.
    fn readable_body(&self) -> String {
        match self.header(CONTENT_TYPE.as_str()) {
            Some("application/problem+json") => format!("{:#}", self.json()),
            _ => self.body.clone(),
        }
    }

    pub(super) fn order_id(&self) -> Option<i64> {
        self.json()["order_id"].as_i64()
    }

    /// The `type` of a problem, or `none`.
    pub(super) fn problem(&self) -> String {
        self.json()["type"].as_str().unwrap_or("none").to_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn show(&self) {
        say!("\n    ← {}", self.status);
        for name in SHOWN {
            if let Some(value) = self.header(name) {
                say!("      {name}: {value}");
            }
        }
        for line in self.readable_body().lines() {
            say!("      {line}");
        }
    }
}
