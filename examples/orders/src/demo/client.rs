//! A client that shows what it sends and gets.

use crate::model::Purpose;
use reqwest::{
    StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER},
};
use serde_json::{Value, json};
use std::time::Duration;

/// Headers worth showing of an answer.
const SHOWN: [&str; 4] = [
    "Location",
    "Idempotent-Replayed",
    "Retry-After",
    "Content-Type",
];
const ORDERS: &str = "/api/v1/orders";
const PAYMENTS: &str = "/api/v1/payments";
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

    pub(super) async fn send(&self, sent: &Request) -> Result<Answer, reqwest::Error> {
        let mut request = self
            .http
            .post(format!("{}{}", self.url, sent.path))
            .header(AUTHORIZATION, sent.authorization())
            .header(CONTENT_TYPE, "application/json")
            .body(sent.body.clone());
        if let Some(key) = sent.key {
            request = request.header("Idempotency-Key", key);
        }
        let response = request.send().await?;
        Ok(Answer {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.text().await?,
        })
    }

    async fn orders(&self, token: &str) -> Result<Vec<Value>, reqwest::Error> {
        let request = self.http.get(format!("{}{ORDERS}", self.url));
        let listed: Value = request.bearer_auth(token).send().await?.json().await?;
        Ok(listed["orders"].as_array().cloned().unwrap_or_default())
    }

    pub(super) async fn count_orders(&self, token: &str) -> Result<usize, reqwest::Error> {
        Ok(self.orders(token).await?.len())
    }

    /// Payments on all orders of a user.
    pub(super) async fn count_payments(&self, token: &str) -> Result<usize, reqwest::Error> {
        let orders = self.orders(token).await?;
        let payments = orders
            .iter()
            .filter_map(|order| order["payments"].as_array());
        Ok(payments.map(Vec::len).sum())
    }

    /// What the gateway has in its books.
    pub(super) async fn charges(&self, gateway: &str) -> Result<Charges, reqwest::Error> {
        let request = self.http.get(format!("{gateway}/charges"));
        let listed: Value = request.send().await?.json().await?;
        Ok(Charges(
            listed["charges"].as_array().cloned().unwrap_or_default(),
        ))
    }
}

/// The gateway's books.
pub(super) struct Charges(Vec<Value>);

/// What they say of one purpose.
#[derive(Default)]
pub(super) struct Account {
    /// Charges that have moved money.
    pub(super) booked: usize,
    /// How often any was asked for.
    pub(super) asked: u64,
}

impl Charges {
    pub(super) fn of(&self, purpose: Purpose) -> Account {
        let mut account = Account::default();
        for charge in self
            .0
            .iter()
            .filter(|charge| charge["purpose"] == json!(purpose))
        {
            account.booked += usize::from(!charge["charge_id"].is_null());
            account.asked += charge["asked"].as_u64().unwrap_or(0);
        }
        account
    }
}

/// What a client asks for.
#[derive(Clone)]
pub(super) struct Request {
    path: &'static str,
    token: &'static str,
    key: Option<&'static str>,
    body: String,
}

impl Request {
    /// An order of one of item 42.
    pub(super) fn order_of_one(token: &'static str) -> Request {
        Request {
            path: ORDERS,
            token,
            key: None,
            body: String::new(),
        }
        .with_quantity(1)
    }

    /// A further payment on an order.
    pub(super) fn payment_on(token: &'static str, order_id: i64) -> Request {
        Request {
            path: PAYMENTS,
            token,
            key: None,
            body: format!(r#"{{"order_id":{order_id},"amount":150,"currency":"RUB"}}"#),
        }
    }

    pub(super) fn with_key(self, key: &'static str) -> Request {
        Request {
            key: Some(key),
            ..self
        }
    }

    /// The order, of so many.
    pub(super) fn with_quantity(self, quantity: u32) -> Request {
        let amount = quantity * PRICE;
        Request {
            body: format!(
                r#"{{"items":[{{"id":42,"quantity":{quantity}}}],"currency":"RUB","amount":{amount}}}"#
            ),
            ..self
        }
    }

    pub(super) fn by(self, token: &'static str) -> Request {
        Request { token, ..self }
    }

    fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    pub(super) fn show(&self, introduction: &str) {
        say!("\n  {introduction}");
        say!("    → POST {}", self.path);
        say!("      Authorization: {}", self.authorization());
        if let Some(key) = self.key {
            say!("      Idempotency-Key: {key}");
        }
        say!("      {}", self.body);
    }

    pub(super) fn show_again(&self, introduction: &str) {
        say!("\n  {introduction}");
        say!("    → POST {} (the same request)", self.path);
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

    /// The answer of the one that was carried out.
    pub(super) fn is_first(&self) -> bool {
        self.status == StatusCode::CREATED && !self.is_replay()
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
