//! One commit for claim, business writes and answer.

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, post, web};
use idem_runtime::{
    BuildError, Idempotency, idempotent, outcome,
    store::{MemoryStore, SqliteStore},
};
use sqlx::{Connection, Row, SqliteConnection, SqlitePool};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use tokio::sync::Semaphore;

#[derive(Clone)]
struct Gate {
    started: Arc<Semaphore>,
    open: Arc<Semaphore>,
    runs: Arc<AtomicUsize>,
}

/// A user's repository function that takes any executor.
async fn insert(executor: impl sqlx::SqliteExecutor<'_>, id: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO orders (id) VALUES (?)")
        .bind(id.to_owned())
        .execute(executor)
        .await
        .map(drop)
}

#[idempotent(scope = "user", ttl = "1h", transaction = tx)]
#[post("/tx/{what}")]
async fn order(
    what: web::Path<String>,
    gate: web::Data<Gate>,
    body: String,
    tx: &mut SqliteConnection,
) -> actix_web::Result<HttpResponse> {
    let internal = actix_web::error::ErrorInternalServerError::<sqlx::Error>;
    gate.runs.fetch_add(1, Ordering::SeqCst);
    insert(&mut *tx, &body).await.map_err(internal)?;
    match what.as_str() {
        "ok" => Ok(HttpResponse::Created().body(body)),
        "gated" => {
            gate.started.add_permits(1);
            gate.open.acquire().await.expect("open").forget();
            Ok(HttpResponse::Created().body(body))
        }
        "declined" => Ok(HttpResponse::PaymentRequired().body("declined")),
        "broken" => Err(actix_web::error::ErrorInternalServerError("broken")),
        "kept" => Ok(outcome::keep(
            HttpResponse::InternalServerError().body("kept"),
        )),
        "released" => Ok(outcome::release(HttpResponse::Created().finish())),
        "panic" => panic!("as the test wants it"),
        "nested" => {
            let mut inner = tx.begin().await.map_err(internal)?;
            insert(&mut *inner, "rolled back").await.map_err(internal)?;
            inner.rollback().await.map_err(internal)?;
            let mut inner = tx.begin().await.map_err(internal)?;
            insert(&mut *inner, &format!("{body} nested"))
                .await
                .map_err(internal)?;
            inner.commit().await.map_err(internal)?;
            Ok(HttpResponse::Created().body(body))
        }
        "large" => Ok(HttpResponse::Ok().body("x".repeat(2 << 20))),
        other => Ok(HttpResponse::NotFound().body(other.to_owned())),
    }
}

struct Shop {
    address: std::net::SocketAddr,
    gate: Gate,
    pool: SqlitePool,
    server: actix_web::dev::ServerHandle,
    _directory: TempDir,
}

async fn shop() -> Shop {
    let directory = TempDir::new().expect("a temporary folder");
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    let store = SqliteStore::connect(&url).await.expect("a store");
    let pool = SqlitePool::connect(&url).await.expect("a pool");
    sqlx::query("CREATE TABLE orders (id TEXT PRIMARY KEY)")
        .execute(&pool)
        .await
        .expect("a table");
    let gate = Gate {
        started: Arc::new(Semaphore::new(0)),
        open: Arc::new(Semaphore::new(0)),
        runs: Arc::default(),
    };
    let idempotency = Idempotency::builder(store)
        .scope("user", |request: HttpRequest| {
            Some(request.headers().get("x-user")?.to_str().ok()?.to_owned())
        })
        .build()
        .expect("valid");
    let server = HttpServer::new({
        let gate = gate.clone();
        move || {
            App::new()
                .app_data(idempotency.clone())
                .app_data(web::Data::new(gate.clone()))
                .service(order)
        }
    })
    .workers(2)
    .disable_signals()
    .bind("127.0.0.1:0")
    .expect("a port");
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix_web::rt::spawn(server);
    Shop {
        address,
        gate,
        pool,
        server: handle,
        _directory: directory,
    }
}

impl Shop {
    async fn post(&self, what: &str, key: Option<&str>, body: &str) -> (u16, bool, String) {
        let mut request = reqwest::Client::new()
            .post(format!("http://{}/tx/{what}", self.address))
            .header("x-user", "alice")
            .body(body.to_owned());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await.expect("the server answers");
        (
            response.status().as_u16(),
            response.headers().contains_key("idempotent-replayed"),
            response.text().await.expect("a body"),
        )
    }

    async fn orders(&self) -> Vec<String> {
        sqlx::query("SELECT id FROM orders ORDER BY id")
            .fetch_all(&self.pool)
            .await
            .expect("a table")
            .iter()
            .map(|row| row.get(0))
            .collect()
    }

    async fn records(&self) -> i64 {
        sqlx::query("SELECT count(*) FROM idempotency_records")
            .fetch_one(&self.pool)
            .await
            .expect("a table")
            .get(0)
    }

    fn runs(&self) -> usize {
        self.gate.runs.load(Ordering::SeqCst)
    }
}

#[actix_web::test]
async fn rows_and_answer_are_one_commit() {
    let shop = shop().await;
    let first = shop.post("ok", Some("k1"), "a").await;
    assert_eq!(first, (201, false, "a".to_owned()));
    assert_eq!(
        shop.post("ok", Some("k1"), "a").await,
        (201, true, "a".to_owned())
    );
    assert_eq!(shop.post("ok", Some("k1"), "b").await.0, 422);
    assert_eq!(shop.orders().await, ["a"]);
    assert_eq!((shop.runs(), shop.records().await), (1, 1));
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn a_kept_failure_rolls_the_writes_back_and_keeps_the_answer() {
    let shop = shop().await;
    for (what, status) in [("declined", 402), ("kept", 500), ("unknown", 404)] {
        let first = shop.post(what, Some(what), "a").await;
        assert_eq!((first.0, first.1), (status, false), "{what}");
        let retry = shop.post(what, Some(what), "a").await;
        assert_eq!(retry, (status, true, first.2), "{what}");
    }
    assert_eq!(shop.orders().await, Vec::<String>::new());
    assert_eq!((shop.runs(), shop.records().await), (3, 3));
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn what_fails_otherwise_leaves_neither_rows_nor_a_record() {
    let shop = shop().await;
    for (what, status) in [("broken", 500), ("panic", 500), ("released", 201)] {
        for _ in 0..2 {
            let answer = shop.post(what, Some(what), "a").await;
            assert_eq!((answer.0, answer.1), (status, false), "{what}");
        }
    }
    assert_eq!(shop.orders().await, Vec::<String>::new());
    assert_eq!((shop.runs(), shop.records().await), (6, 0));
    assert_eq!(
        shop.post("ok", Some("k"), "a").await.0,
        201,
        "the connection is usable again"
    );
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn a_duplicate_of_an_open_transaction_is_told_so_at_once() {
    let shop = shop().await;
    let first = shop.post("gated", Some("k1"), "a");
    let others = async {
        shop.gate.started.acquire().await.expect("started").forget();
        let began = std::time::Instant::now();
        let duplicate = shop.post("gated", Some("k1"), "a").await;
        let reused = shop.post("gated", Some("k1"), "b").await;
        assert!(
            began.elapsed() < Duration::from_millis(900),
            "{:?}",
            began.elapsed()
        );
        shop.gate.open.add_permits(1);
        (duplicate.0, reused.0)
    };
    let (first, others) = tokio::join!(first, others);
    assert_eq!((first.0, others), (201, (409, 422)));
    assert_eq!(shop.orders().await, ["a"]);
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn a_client_that_leaves_does_not_undo_the_commit() {
    let shop = shop().await;
    let leaving = shop.post("gated", Some("k1"), "a");
    assert!(
        tokio::time::timeout(Duration::from_millis(300), leaving)
            .await
            .is_err()
    );
    shop.gate.open.add_permits(1);
    let retry = loop {
        let answer = shop.post("gated", Some("k1"), "a").await;
        if answer.0 != 409 {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(retry, (201, true, "a".to_owned()));
    assert_eq!((shop.orders().await.len(), shop.runs()), (1, 1));
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn savepoints_work_inside_the_transaction() {
    let shop = shop().await;
    assert_eq!(shop.post("nested", Some("k1"), "a").await.0, 201);
    assert_eq!(shop.orders().await, ["a", "a nested"]);
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn without_a_key_it_is_an_ordinary_transaction() {
    let shop = shop().await;
    assert_eq!(
        shop.post("ok", None, "a").await,
        (201, false, "a".to_owned())
    );
    assert_eq!(shop.post("declined", None, "b").await.0, 402);
    assert_eq!(shop.post("broken", None, "c").await.0, 500);
    assert_eq!(shop.orders().await, ["a"]);
    assert_eq!(shop.records().await, 0);
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn an_answer_over_the_limit_is_committed_as_a_tombstone() {
    let shop = shop().await;
    let first = shop.post("large", Some("k1"), "a").await;
    assert_eq!((first.0, first.2.len()), (200, 2 << 20));
    assert_eq!(shop.post("large", Some("k1"), "a").await.0, 409);
    assert_eq!((shop.orders().await.len(), shop.runs()), (1, 1));
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn distinct_keys_take_turns_and_all_commit() {
    let shop = shop().await;
    let posts = (0..40).map(|n| {
        let shop = &shop;
        async move {
            shop.post("ok", Some(&format!("k{n}")), &format!("order {n:02}"))
                .await
                .0
        }
    });
    let statuses = futures_util::future::join_all(posts).await;
    assert!(statuses.iter().all(|status| *status == 201), "{statuses:?}");
    assert_eq!((shop.orders().await.len(), shop.records().await), (40, 40));
    shop.server.stop(false).await;
}

#[actix_web::test]
async fn a_store_on_no_database_is_found_at_start_up() {
    let Err(BuildError::Mistakes(mistakes)) = Idempotency::builder(MemoryStore::new())
        .scope("user", |_: HttpRequest| "somebody")
        .build()
    else {
        panic!("a transactional route cannot run on the memory store")
    };
    assert!(
        mistakes
            .iter()
            .any(|line| line.contains("transactions.rs:") && line.contains("SQLite")),
        "{mistakes:?}"
    );
    // A program with a handler for each database says which it does not serve.
    let allowed = Idempotency::builder(MemoryStore::new())
        .scope("user", |_: HttpRequest| "somebody")
        .not_served(concat!(module_path!(), "::order"))
        .build();
    assert!(allowed.is_ok(), "{allowed:?}");
}
