//! Records as they stand in an engine, past the store that wrote them.

use idem_runtime::{
    record::FORMAT,
    store::redis::{RedisOptions, RedisStore},
};
use idem_tests::{
    services::{Fresh, Store},
    stores::{self, Database},
};
use redis::{FromRedisValue, aio::ConnectionLike, cluster::ClusterClient};
use sqlx::{AssertSqlSafe, Row as _};
use std::fmt::Write as _;
use tokio::sync::Mutex;

/// Columns, each with whether it is a time; times differ from run to run.
const COLUMNS: &[(&str, bool)] = &[
    ("scope", false),
    ("idempotency_key", false),
    ("request_path", false),
    ("request_hash", false),
    ("status", false),
    ("response_code", false),
    ("response_headers", false),
    ("response_body", false),
    ("created_at", true),
    ("locked_until", true),
    ("completed_at", true),
    ("expires_at", true),
    ("owner", false),
    ("attempt", false),
    ("route", false),
    ("format", false),
    ("steps", false),
];
/// When the value of a key in Redis goes: in the year 2100, in milliseconds.
const FAR: &str = "4102444800000";
/// Where the value of a key in Redis has its format, and the times that differ from run to run.
const FORMAT_AT: usize = 6;
const TIMES_AT: std::ops::Range<usize> = 28..52;

/// The inside of a place in a store.
pub(super) enum Raw {
    Table(Database),
    Keys {
        /// Knows which key a record has.
        store: RedisStore,
        prefix: String,
        connection: Mutex<Box<dyn ConnectionLike + Send>>,
    },
}

impl Raw {
    pub(super) async fn open(place: &Fresh) -> Raw {
        let url = place.url();
        match place.store() {
            Store::Redis | Store::RedisCluster => {
                let prefix = format!("{}:", place.name());
                let options = RedisOptions::new().prefix(&prefix);
                let connection: Box<dyn ConnectionLike + Send> =
                    match url.strip_prefix("redis-cluster://") {
                        None => {
                            let client = redis::Client::open(url).unwrap();
                            let connected = client.get_multiplexed_async_connection().await;
                            Box::new(connected.unwrap())
                        }
                        Some(nodes) => {
                            let nodes = nodes.split(',').map(|node| format!("redis://{node}"));
                            let client = ClusterClient::new(nodes).unwrap();
                            Box::new(client.get_async_connection().await.unwrap())
                        }
                    };
                Raw::Keys {
                    store: options.connect(url).await.unwrap(),
                    prefix,
                    connection: Mutex::new(connection),
                }
            }
            _ => {
                let opened = stores::open(&stores::Request::of(url)).await.unwrap();
                Raw::Table(opened.database)
            }
        }
    }

    /// Every record, in a form that [`Raw::load`] takes.
    pub(super) async fn dump(&self) -> Vec<String> {
        match self {
            Raw::Table(database) => {
                let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
                let rows = literals(database, &names).await;
                let into = format!("INSERT INTO idempotency_records ({})", names.join(", "));
                let insert = |row: String| format!("{into} VALUES ({row});");
                rows.into_iter().map(insert).collect()
            }
            Raw::Keys { .. } => {
                let lines = self.values().await.into_iter().map(|(key, value)| {
                    let mut line = format!("{key} ");
                    for byte in value {
                        write!(line, "{byte:02x}").unwrap();
                    }
                    line
                });
                lines.collect()
            }
        }
    }

    /// Every record without the times.
    pub(super) async fn lasting(&self) -> Vec<String> {
        match self {
            Raw::Table(database) => {
                let names = COLUMNS.iter().filter(|(_, is_time)| !is_time);
                let names: Vec<_> = names.map(|(name, _)| *name).collect();
                literals(database, &names).await
            }
            Raw::Keys { .. } => {
                let lines = self.values().await.into_iter().map(|(key, mut value)| {
                    value[TIMES_AT].fill(0);
                    format!("{key} {}", value.escape_ascii())
                });
                lines.collect()
            }
        }
    }

    pub(super) async fn load(&self, lines: impl Iterator<Item = &str>) {
        for line in lines {
            match self {
                Raw::Table(database) => execute(database, line).await,
                Raw::Keys { prefix, .. } => {
                    let (key, value) = line.split_once(' ').unwrap();
                    let value: Vec<u8> = (0..value.len())
                        .step_by(2)
                        .map(|at| u8::from_str_radix(&value[at..at + 2], 16).unwrap())
                        .collect();
                    let mut set = redis::cmd("SET");
                    set.arg(format!("{prefix}{key}"))
                        .arg(value)
                        .arg("PXAT")
                        .arg(FAR);
                    self.run::<()>(&set).await;
                }
            }
        }
    }

    /// Makes every record one of the format after the present one.
    pub(super) async fn raise_format(&self) {
        match self {
            Raw::Table(database) => {
                let next = FORMAT + 1;
                execute(
                    database,
                    &format!("UPDATE idempotency_records SET format = {next}"),
                )
                .await;
            }
            Raw::Keys { prefix, .. } => {
                for (key, _) in self.values().await {
                    let mut set = redis::cmd("SETRANGE");
                    set.arg(format!("{prefix}{key}")).arg(FORMAT_AT);
                    set.arg((FORMAT + 1).to_be_bytes().as_slice());
                    self.run::<()>(&set).await;
                }
            }
        }
    }

    /// Keys without their prefix, and values.
    async fn values(&self) -> Vec<(String, Vec<u8>)> {
        let Raw::Keys { store, prefix, .. } = self else {
            return Vec::new();
        };
        let mut values = Vec::new();
        for golden in super::goldens() {
            let key = store.key(&super::id(golden.key));
            let value: Vec<u8> = self.run(redis::cmd("GET").arg(&key)).await;
            values.push((key[prefix.len()..].to_owned(), value));
        }
        values
    }

    async fn run<T: FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let Raw::Keys { connection, .. } = self else {
            panic!("no Redis");
        };
        let mut connection = connection.lock().await;
        let value = connection.req_packed_command(command).await.unwrap();
        redis::from_redis_value(value).unwrap()
    }
}

async fn execute(database: &Database, sql: &str) {
    let query = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    match database {
        Database::Sqlite(pool) => drop(query.execute(pool).await.unwrap()),
        Database::Postgres(pool) => drop(query.execute(pool).await.unwrap()),
        Database::MySql(pool) => drop(query.execute(pool).await.unwrap()),
        Database::None => panic!("no database"),
    }
}

/// Each row's values as literals of its engine, separated by commas, in the order of the keys.
async fn literals(database: &Database, columns: &[&str]) -> Vec<String> {
    const BYTES: &[&str] = &[
        "scope",
        "idempotency_key",
        "request_path",
        "response_headers",
        "response_body",
        "owner",
        "route",
        "steps",
    ];
    let literal = |column: &&str| match database {
        Database::Sqlite(_) => format!("quote({column})"),
        Database::Postgres(_) => format!("quote_nullable({column}::text)"),
        _ if BYTES.contains(column) => {
            format!("IF({column} IS NULL, 'NULL', CONCAT('x''', HEX({column}), ''''))")
        }
        _ => format!("QUOTE(CAST({column} AS CHAR))"),
    };
    let each: Vec<_> = columns.iter().map(literal).collect();
    let joined = match database {
        Database::MySql(_) => format!("CONCAT({})", each.join(", ', ', ")),
        _ => each.join(" || ', ' || "),
    };
    let sql = AssertSqlSafe(format!(
        "SELECT {joined} FROM idempotency_records ORDER BY idempotency_key"
    ));
    match database {
        Database::Sqlite(pool) => {
            let rows = sqlx::raw_sql(sql).fetch_all(pool).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        }
        Database::Postgres(pool) => {
            let rows = sqlx::raw_sql(sql).fetch_all(pool).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        }
        Database::MySql(pool) => {
            let rows = sqlx::raw_sql(sql).fetch_all(pool).await.unwrap();
            let bytes = rows.iter().map(|row| row.get::<Vec<u8>, _>(0));
            bytes.map(|row| String::from_utf8(row).unwrap()).collect()
        }
        Database::None => panic!("no database"),
    }
}
