//! A handler's own statement that the database refuses in favour of another transaction.

use crate::shop::{Database, Gate, Options, Reply, Shop};
use actix_web::{HttpResponse, ResponseError, post, web};
use idem_runtime::{idempotent, outcome};
use idem_tests::{
    harness::{each, transactional},
    services::{Store, is_selected},
};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
use std::{error::Error, fmt};

/// An application's error. All there is to it is that it tells its cause.
#[derive(Debug)]
pub(crate) enum ShopError {
    Database(sqlx::Error),
    Closed,
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the shop has failed")
    }
}

impl Error for ShopError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ShopError::Database(error) => Some(error),
            ShopError::Closed => None,
        }
    }
}

impl ResponseError for ShopError {}

impl From<sqlx::Error> for ShopError {
    fn from(error: sqlx::Error) -> Self {
        ShopError::Database(error)
    }
}

/// What each of these handlers is given: the rows it goes for, its signals, and what it writes.
type Given = (web::Path<(String, String)>, web::Data<Gate>, String);

/// The same handlers on each kind of connection, and with each kind of error.
macro_rules! handlers {
    ($module:ident, $connection:ty, $touch:literal, $insert:literal) => {
        pub(crate) mod $module {
            use super::*;

            /// Locks the first row, or only looks where it is `-`; waits; locks the second.
            async fn cross(
                (rows, gate, body): Given,
                tx: &mut $connection,
            ) -> Result<HttpResponse, ShopError> {
                let (first, second) = rows.into_inner();
                if first == "-" {
                    sqlx::query("SELECT pieces FROM stock")
                        .fetch_all(&mut *tx)
                        .await?;
                } else {
                    sqlx::query($touch).bind(first).execute(&mut *tx).await?;
                }
                gate.started.add_permits(1);
                gate.open
                    .acquire()
                    .await
                    .map_err(|_| ShopError::Closed)?
                    .forget();
                sqlx::query($touch).bind(second).execute(&mut *tx).await?;
                sqlx::query($insert)
                    .bind(body.clone())
                    .execute(&mut *tx)
                    .await?;
                Ok(HttpResponse::Created().body(body))
            }

            #[idempotent(scope = "user", ttl = "1h", transaction = tx)]
            #[post("/typed/{first}/{second}")]
            pub(crate) async fn typed(
                given: Given,
                tx: &mut $connection,
            ) -> Result<HttpResponse, ShopError> {
                cross(given, tx).await
            }

            #[idempotent(scope = "user", ttl = "1h", transaction = tx)]
            #[post("/nested/{first}/{second}")]
            pub(crate) async fn nested(
                given: Given,
                tx: &mut $connection,
            ) -> Result<HttpResponse, ShopError> {
                let mut inner = tx.begin().await?;
                let created = cross(given, &mut inner).await?;
                inner.commit().await?;
                Ok(created)
            }

            #[idempotent(scope = "user", ttl = "1h", transaction = tx)]
            #[post("/boxed/{first}/{second}")]
            pub(crate) async fn boxed(
                given: Given,
                tx: &mut $connection,
            ) -> Result<HttpResponse, Box<dyn Error>> {
                Ok(cross(given, tx).await?)
            }

            /// Keeps failures, but for those that a retry can mend.
            #[idempotent(scope = "user", ttl = "1h", transaction = tx, server_error = "keep")]
            #[post("/keeping/{first}/{second}")]
            pub(crate) async fn keeping(
                given: Given,
                tx: &mut $connection,
            ) -> actix_web::Result<HttpResponse> {
                let done = cross(given, tx).await;
                done.map_err(outcome::internal_error)
            }

            #[idempotent(scope = "user", ttl = "1h", transaction = tx)]
            #[post("/said/{first}/{second}")]
            pub(crate) async fn said(
                given: Given,
                tx: &mut $connection,
            ) -> actix_web::Result<HttpResponse> {
                let done = cross(given, tx).await;
                done.map_err(|error| outcome::keep_error(outcome::internal_error(error)))
            }

            /// What actix makes of an error when it is asked to does not tell the cause.
            #[idempotent(scope = "user", ttl = "1h", transaction = tx)]
            #[post("/erased/{first}/{second}")]
            pub(crate) async fn erased(
                given: Given,
                tx: &mut $connection,
            ) -> actix_web::Result<HttpResponse> {
                Ok(cross(given, tx).await?)
            }

            pub(crate) fn routes(config: &mut web::ServiceConfig) {
                config
                    .service(typed)
                    .service(nested)
                    .service(boxed)
                    .service(keeping)
                    .service(said)
                    .service(erased);
            }
        }
    };
}

handlers!(
    on_postgres,
    sqlx::PgConnection,
    "UPDATE stock SET pieces = pieces - 1 WHERE id = $1",
    "INSERT INTO orders (id) VALUES ($1)"
);
handlers!(
    on_mysql,
    sqlx::MySqlConnection,
    "UPDATE stock SET pieces = pieces - 1 WHERE id = ?",
    "INSERT INTO orders (id) VALUES (?)"
);

/// Writes into another file, whose writer somebody else may be.
#[idempotent(scope = "user", ttl = "1h", transaction = tx)]
#[post("/elsewhere")]
pub(crate) async fn on_sqlite(
    body: String,
    tx: &mut SqliteConnection,
) -> Result<HttpResponse, ShopError> {
    // Attached it stays, with the connection.
    let attached = sqlx::query("ATTACH DATABASE ? AS other").bind(body);
    let _ = attached.execute(&mut *tx).await;
    sqlx::raw_sql("PRAGMA busy_timeout = 0")
        .execute(&mut *tx)
        .await?;
    let written = sqlx::raw_sql("INSERT INTO other.stock VALUES ('a', 1)")
        .execute(&mut *tx)
        .await;
    sqlx::raw_sql("PRAGMA busy_timeout = 5000")
        .execute(&mut *tx)
        .await?;
    sqlx::raw_sql("INSERT INTO orders VALUES ('a')")
        .execute(&mut *tx)
        .await?;
    written?;
    Ok(HttpResponse::Created().finish())
}

async fn stocked(store: Store, setting: &'static str) -> Shop {
    let options = Options {
        setting,
        ..Options::default()
    };
    let shop = Shop::with(store, &options).await;
    shop.database
        .execute("CREATE TABLE stock (id VARCHAR(10) PRIMARY KEY, pieces INT)")
        .await;
    shop.database
        .execute("INSERT INTO stock VALUES ('a', 10), ('b', 10)")
        .await;
    shop
}

/// Two requests that get into each other's way, each with what a retry of it takes. The one that the
/// database lets through comes first.
async fn crossed<'a>(
    shop: &Shop,
    paths: [&'a str; 2],
    keyed: bool,
) -> [(Reply, &'a str, &'static str); 2] {
    let key = |key: &'static str| keyed.then_some(key);
    let both = async {
        tokio::join!(
            shop.post_to(paths[0], key("k1"), "1"),
            shop.post_to(paths[1], key("k2"), "2")
        )
    };
    let open = async {
        shop.gate.wait_for_a_start().await;
        shop.gate.wait_for_a_start().await;
        shop.gate.open.add_permits(2);
    };
    let ((one, two), ()) = tokio::join!(both, open);
    let mut replies = [(one, paths[0], "1"), (two, paths[1], "2")];
    replies.sort_by_key(|(reply, ..)| reply.0);
    assert_eq!(replies[0].0.0, 201, "{replies:?}");
    assert_eq!(shop.orders().await.len(), 1, "{replies:?}");
    replies
}

/// The refused one of them was told to retry, and its retry runs.
async fn expect_a_retry_to_run(shop: &Shop, paths: [&str; 2]) {
    let [_, (refused, path, body)] = crossed(shop, paths, true).await;
    assert_eq!(refused.0, 503, "{path} {refused:?}");
    let problem: serde_json::Value = serde_json::from_str(&refused.2).unwrap();
    assert_eq!(problem["retryable"], true, "{problem}");
    shop.gate.open.add_permits(1);
    let retry = shop.post_to(path, Some(&format!("k{body}")), body).await;
    assert_eq!(retry, (201, false, body.to_owned()), "{path}");
    assert_eq!((shop.orders().await.len(), shop.records().await), (2, 2));
    shop.expect_free_connections().await;
}

/// What becomes of a handler's answer to a deadlock: its status, and whether it is kept.
type Kept = (u16, bool);

async fn deadlocks(store: Store, setting: &'static str, said: Kept, erased: Kept) {
    for way in ["typed", "nested", "boxed", "keeping"] {
        let shop = stocked(store, setting).await;
        let paths = [format!("/{way}/a/b"), format!("/{way}/b/a")];
        expect_a_retry_to_run(&shop, [&paths[0], &paths[1]]).await;
    }
    let shop = stocked(store, setting).await;
    let [_, (refused, ..)] = crossed(&shop, ["/typed/a/b", "/typed/b/a"], false).await;
    assert_eq!(refused.0, 503, "without a key: {refused:?}");
    for (way, (status, kept)) in [("said", said), ("erased", erased)] {
        let shop = stocked(store, setting).await;
        let paths = [format!("/{way}/a/b"), format!("/{way}/b/a")];
        let [_, (refused, path, body)] = crossed(&shop, [&paths[0], &paths[1]], true).await;
        assert_eq!(refused.0, status, "{way} {refused:?}");
        shop.gate.open.add_permits(1);
        let retry = shop.post_to(path, Some(&format!("k{body}")), body).await;
        let expected = if kept { (status, true) } else { (201, false) };
        assert_eq!((retry.0, retry.1), expected, "{way} {retry:?}");
    }
}

#[actix_web::test]
async fn a_deadlock_in_a_statement_of_the_handler_s_is_503_and_its_retry_runs() {
    each(transactional(), async |store| match store {
        Store::Postgres => {
            let soon = "SET deadlock_timeout = '100ms'";
            // The handler's word stands. The cause that actix hides, nobody else tells.
            deadlocks(store, soon, (500, true), (500, false)).await;
        }
        // The server has rolled all of it back, the claim too, so that nothing can be kept. It tells
        // the cause itself.
        Store::MySql => deadlocks(store, "SELECT 1", (503, false), (503, false)).await,
        // One writer at a time: see below.
        _ => {}
    })
    .await;
}

#[actix_web::test]
async fn a_serialization_failure_in_a_statement_of_the_handler_s_is_503_and_its_retry_runs() {
    if !is_selected(Store::Postgres) {
        return;
    }
    let setting = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ";
    for way in ["typed", "boxed"] {
        let shop = stocked(Store::Postgres, setting).await;
        let path = format!("/{way}/-/a");
        expect_a_retry_to_run(&shop, [&path, &path]).await;
    }
}

#[actix_web::test]
async fn a_lock_that_is_not_to_be_had_is_503_and_the_retry_runs() {
    for (store, setting) in [
        (Store::MySql, "SET @@SESSION.innodb_lock_wait_timeout = 1"),
        (Store::Postgres, "SET lock_timeout = '200ms'"),
    ] {
        if !is_selected(store) {
            continue;
        }
        let shop = stocked(store, setting).await;
        shop.gate.open.add_permits(4);
        let lock = "UPDATE stock SET pieces = 0 WHERE id = 'a'";
        macro_rules! locked {
            ($pool:expr) => {{
                let mut other = $pool.begin().await.unwrap();
                sqlx::query(lock).execute(&mut *other).await.unwrap();
                let refused = shop.post_to("/typed/b/a", Some("k"), "1").await;
                other.rollback().await.unwrap();
                refused
            }};
        }
        let refused = match &shop.database {
            Database::Postgres(pool) => locked!(pool),
            Database::MySql(pool) => locked!(pool),
            Database::Sqlite(_) => unreachable!("not among the stores"),
        };
        assert_eq!((refused.0, refused.1), (503, false), "{refused:?}");
        let retry = shop.post_to("/typed/b/a", Some("k"), "1").await;
        assert_eq!((retry.0, retry.1), (201, false), "{retry:?}");
        assert_eq!(shop.orders().await, ["1"]);
        shop.expect_free_connections().await;
    }
}

#[actix_web::test]
async fn a_file_that_somebody_else_writes_is_503_and_the_retry_runs() {
    if !is_selected(Store::Sqlite) {
        return;
    }
    let shop = Shop::open(Store::Sqlite).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.db");
    let url = format!("sqlite:{}?mode=rwc", file.display());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    let mut tell = async |sql: &str| {
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).execute(&mut other).await.unwrap();
    };
    tell("CREATE TABLE stock (id VARCHAR(10) PRIMARY KEY, pieces INT)").await;
    tell("BEGIN IMMEDIATE").await;
    let body = file.display().to_string();
    let refused = shop.post_to("/elsewhere", Some("k"), &body).await;
    tell("ROLLBACK").await;
    assert_eq!((refused.0, refused.1), (503, false), "{refused:?}");
    assert_eq!((shop.orders().await.len(), shop.records().await), (0, 0));
    let retry = shop.post_to("/elsewhere", Some("k"), &body).await;
    assert_eq!((retry.0, retry.1), (201, false), "{retry:?}");
    // Any other failure is the handler's own: the row in the other file is there already.
    for _ in 0..2 {
        let failed = shop.post_to("/elsewhere", Some("k2"), &body).await;
        assert_eq!(
            failed,
            (500, false, "the shop has failed".to_owned()),
            "a retry does not mend it"
        );
    }
}

#[actix_web::test]
async fn a_failure_that_no_retry_mends_is_the_handler_s_own() {
    each(transactional(), async |store| {
        if store == Store::Sqlite {
            return; // above
        }
        let shop = stocked(store, "SELECT 1").await;
        shop.gate.open.add_permits(10);
        assert_eq!(shop.post_to("/typed/a/b", Some("k1"), "1").await.0, 201);
        for way in ["typed", "nested", "erased"] {
            // The order is there already.
            let path = format!("/{way}/a/b");
            for _ in 0..2 {
                let failed = shop.post_to(&path, Some("k2"), "1").await;
                assert_eq!((failed.0, failed.1), (500, false), "{way} {failed:?}");
            }
        }
    })
    .await;
}
