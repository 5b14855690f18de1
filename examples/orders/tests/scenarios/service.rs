//! The service as a process, and what a client and an auditor can do with it.

use idem_tests::harness::unshared_address;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

pub(crate) const ALICE: &str = "sec_token_xyz";
pub(crate) const BOB: &str = "sec_token_abc";

/// A directory with a database and logs, which may outlive several processes.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.path().join("orders.db")
    }

    /// Everything the processes have logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap()
    }

    fn log_file(&self) -> PathBuf {
        self.0.path().join("stderr.log")
    }

    fn append_log(&self) -> File {
        File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .unwrap()
    }
}

pub(crate) fn orders_program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orders"));
    for variable in [
        "ORDERS_BIND",
        "ORDERS_DATABASE",
        "ORDERS_GATEWAY",
        "ORDERS_STORE",
    ] {
        command.env_remove(variable);
    }
    command.kill_on_drop(true);
    command
}

/// A running `orders`.
pub(crate) struct Service {
    pub(crate) process: Child,
    pub(crate) url: String,
    gateway: String,
    // The pipe must stay open, or the process could not print to it.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Service {
    pub(crate) async fn start(place: &Place, flags: &[&str]) -> Service {
        let mut process = orders_program()
            .arg("--bind")
            .arg(unshared_address().to_string())
            .arg("--database")
            .arg(place.database())
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(place.append_log())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut line = async |expected: &str| {
            let line = tokio::time::timeout(Duration::from_secs(60), output.next_line()).await;
            let line = line.expect("the service says where it listens").unwrap();
            let line = line.unwrap_or_else(|| panic!("the service ended: {}", place.log()));
            let url = line.strip_prefix(expected);
            url.unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        let url = line("orders listening on ").await;
        let gateway = line("payment gateway at ").await;
        Service {
            process,
            url,
            gateway,
            _output: output,
        }
    }

    /// `kill -9`, and the process is gone.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    pub(crate) async fn charges(&self) -> Charges {
        Charges::at(&self.gateway).await
    }
}

/// What a client sends: a token, a key, and a body, such as an order of item 42.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: &'static str,
    pub(crate) token: &'static str,
    pub(crate) key: Option<String>,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn new(key: &str) -> Request {
        Request {
            path: "/api/v1/orders",
            token: ALICE,
            key: Some(key.to_owned()),
            body: json!({"items": [{"id": 42, "quantity": 1}], "currency": "RUB", "amount": 1500}),
        }
    }

    pub(crate) async fn send(&self, http: &reqwest::Client, url: &str) -> reqwest::Result<Answer> {
        let mut request = http
            .post(format!("{url}{}", self.path))
            .bearer_auth(self.token)
            .json(&self.body);
        if let Some(key) = &self.key {
            request = request.header("Idempotency-Key", key);
        }
        let response = request.send().await?;
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.text().await?,
        })
    }

    /// Sends until the answer is another than "in progress", pausing as told.
    pub(crate) async fn until_final(&self, http: &reqwest::Client, url: &str) -> Answer {
        for _ in 0..100 {
            let answer = self.send(http, url).await.unwrap();
            if answer.problem() != "urn:idempotency:in-progress" {
                return answer;
            }
            let pause: u64 = answer.header("retry-after").parse().unwrap();
            assert!((1..=30).contains(&pause), "Retry-After: {pause}");
            tokio::time::sleep(Duration::from_secs(pause)).await;
        }
        panic!("in progress for ever");
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    /// Empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == "true"
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn order_id(&self) -> i64 {
        let id = self.json()["order_id"].as_i64();
        id.unwrap_or_else(|| panic!("no order_id: {self:?}"))
    }

    /// The `type` of a problem; empty if the answer is none.
    pub(crate) fn problem(&self) -> String {
        self.json()["type"].as_str().unwrap_or("").to_owned()
    }
}

/// The gateway's own books.
#[derive(Debug)]
pub(crate) struct Charges(Vec<Value>);

impl Charges {
    pub(crate) async fn at(gateway: &str) -> Charges {
        let answer = reqwest::get(format!("{gateway}/charges")).await.unwrap();
        let listed: Value = answer.json().await.unwrap();
        Charges(listed["charges"].as_array().unwrap().clone())
    }

    pub(crate) fn count(&self) -> usize {
        let charged = |charge: &&Value| !charge["charge_id"].is_null();
        self.0.iter().filter(charged).count()
    }

    /// How often each charge was asked for, by its key.
    pub(crate) fn asked(&self) -> HashMap<&str, u64> {
        let asked = |charge: &Value| charge["asked"].as_u64().unwrap();
        self.0
            .iter()
            .map(|charge| (charge["key"].as_str().unwrap(), asked(charge)))
            .collect()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|charge| charge["key"].as_str().unwrap())
    }
}

/// An order as it stands in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredOrder {
    pub(crate) id: i64,
    pub(crate) status: String,
    pub(crate) charge_key: String,
}

/// Reads the orders past the service, from the file.
pub(crate) async fn stored_orders(file: &Path) -> Vec<StoredOrder> {
    let database = open(file).await;
    let rows: Vec<(i64, String, String)> =
        sqlx::query_as("SELECT id, status, charge_key FROM orders ORDER BY id")
            .fetch_all(&database)
            .await
            .unwrap();
    database.close().await;
    rows.into_iter()
        .map(|(id, status, charge_key)| StoredOrder {
            id,
            status,
            charge_key,
        })
        .collect()
}

/// A payment as it stands in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredPayment {
    pub(crate) id: i64,
    pub(crate) charge_key: String,
}

pub(crate) async fn stored_payments(file: &Path) -> Vec<StoredPayment> {
    let database = open(file).await;
    let rows: Vec<(i64, String)> =
        sqlx::query_as("SELECT id, charge_key FROM payments ORDER BY id")
            .fetch_all(&database)
            .await
            .unwrap();
    database.close().await;
    rows.into_iter()
        .map(|(id, charge_key)| StoredPayment { id, charge_key })
        .collect()
}

/// Waits until no order is pending any more.
pub(crate) async fn all_settled(file: &Path) -> Vec<StoredOrder> {
    for _ in 0..1000 {
        let orders = stored_orders(file).await;
        if orders.iter().all(|order| order.status != "pending") {
            return orders;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("pending for ever: {:?}", stored_orders(file).await);
}

/// The URL of a port that nobody listens on.
pub(crate) fn closed_port() -> String {
    let closed = std::net::TcpListener::bind(unshared_address()).unwrap();
    format!("http://{}", closed.local_addr().unwrap())
}

/// Lets the time of every idempotency record run out.
pub(crate) async fn expire_records(file: &Path) {
    let database = open(file).await;
    let expired = sqlx::query("UPDATE idempotency_records SET expires_at = created_at")
        .execute(&database)
        .await
        .unwrap();
    assert!(expired.rows_affected() > 0, "there are no records");
    database.close().await;
}

pub(crate) async fn stock(file: &Path, item: i64) -> i64 {
    let database = open(file).await;
    let stock = sqlx::query_scalar("SELECT stock FROM items WHERE id = ?")
        .bind(item)
        .fetch_one(&database)
        .await
        .unwrap();
    database.close().await;
    stock
}

async fn open(file: &Path) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(SqliteConnectOptions::new().filename(file))
        .await
        .unwrap()
}

/// `full` or the default, by IDEM_TEST_SCALE.
pub(crate) fn scaled<T>(default: T, full: T) -> T {
    match std::env::var("IDEM_TEST_SCALE").as_deref() {
        Ok("full") => full,
        _ => default,
    }
}
