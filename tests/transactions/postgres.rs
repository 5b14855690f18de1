//! What PostgreSQL alone has: serializable transactions, failed ones, and poolers.

use crate::shop::{Gate, Options, Shop};
use actix_web::{HttpResponse, error::ErrorInternalServerError, post, web};
use idem_runtime::idempotent;
use idem_tests::services::{Store, is_selected};
use sqlx::PgConnection;

pub(crate) fn routes(config: &mut web::ServiceConfig) {
    config.service(leave).service(swallow).service(plain);
}

/// A doctor leaves if another one stays: the textbook's write skew.
#[idempotent(scope = "user", ttl = "1h", transaction = tx)]
#[post("/leave")]
async fn leave(
    gate: web::Data<Gate>,
    body: String,
    tx: &mut PgConnection,
) -> actix_web::Result<HttpResponse> {
    let internal = ErrorInternalServerError::<sqlx::Error>;
    let there: i64 = sqlx::query_scalar("SELECT count(*) FROM orders")
        .fetch_one(&mut *tx)
        .await
        .map_err(internal)?;
    if there < 2 {
        return Ok(HttpResponse::Conflict().body("the last one"));
    }
    sqlx::query("DELETE FROM orders WHERE id = $1")
        .bind(&body)
        .execute(&mut *tx)
        .await
        .map_err(internal)?;
    gate.started.add_permits(1);
    gate.open
        .acquire()
        .await
        .map_err(ErrorInternalServerError)?
        .forget();
    Ok(HttpResponse::Ok().body(body))
}

/// Goes on after a statement has failed, with which the transaction has.
#[idempotent(scope = "user", ttl = "1h", transaction = tx)]
#[post("/swallow")]
async fn swallow(body: String, tx: &mut PgConnection) -> HttpResponse {
    let _ = sqlx::query("INSERT INTO orders (id) VALUES ($1)")
        .bind(&body)
        .execute(&mut *tx)
        .await;
    let _ = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
    HttpResponse::Created().body(body)
}

fn serializable() -> Options {
    Options {
        setting: "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        ..Options::default()
    }
}

#[actix_web::test]
async fn a_serialization_failure_is_answered_503_and_the_retry_succeeds() {
    if !is_selected(Store::Postgres) {
        return;
    }
    let shop = Shop::with(Store::Postgres, &serializable()).await;
    shop.database
        .execute("INSERT INTO orders VALUES ('alice'), ('bob')")
        .await;
    let both = async {
        tokio::join!(
            shop.post_to("/leave", Some("k1"), "alice"),
            shop.post_to("/leave", Some("k2"), "bob")
        )
    };
    let open = async {
        shop.gate.wait_for_a_start().await;
        shop.gate.wait_for_a_start().await;
        shop.gate.open.add_permits(2);
    };
    let ((alice, bob), ()) = tokio::join!(both, open);
    let mut statuses = [alice.0, bob.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503], "{alice:?} {bob:?}");
    assert_eq!(shop.orders().await.len(), 1);
    let (key, who) = if alice.0 == 503 {
        ("k1", "alice")
    } else {
        ("k2", "bob")
    };
    let refused = if alice.0 == 503 { &alice.2 } else { &bob.2 };
    let problem: serde_json::Value = serde_json::from_str(refused).unwrap();
    assert_eq!(problem["retryable"], true);
    let retry = shop.post_to("/leave", Some(key), who).await;
    assert_eq!(
        (retry.0, retry.1),
        (409, false),
        "it runs, and finds the last one"
    );
    assert!(shop.post_to("/leave", Some(key), who).await.1);
    shop.expect_free_connections().await;
}

#[actix_web::test]
async fn distinct_keys_do_not_fail_to_serialize_for_the_records_sake() {
    if !is_selected(Store::Postgres) {
        return;
    }
    let shop = Shop::with(Store::Postgres, &serializable()).await;
    for round in 0..5 {
        let posts = (0..10).map(|n| {
            let (shop, id) = (&shop, format!("{round}-{n}"));
            async move { shop.post("slow", Some(&id), &id).await.0 }
        });
        let statuses = futures_util::future::join_all(posts).await;
        assert!(statuses.iter().all(|status| *status == 201), "{statuses:?}");
    }
    assert_eq!((shop.orders().await.len(), shop.records().await), (50, 50));
}

#[actix_web::test]
async fn duplicates_at_a_stricter_isolation_level_run_once() {
    if !is_selected(Store::Postgres) {
        return;
    }
    for setting in [
        serializable().setting,
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    ] {
        let options = Options {
            setting,
            ..Options::default()
        };
        let shop = Shop::with(Store::Postgres, &options).await;
        let other = crate::shop::Instance::open(&shop.place, &options).await;
        for key in 0..20 {
            let key = format!("k{key}");
            let posts = (0..10).map(|n| {
                let instance = if n % 2 == 0 { &shop.instance } else { &other };
                instance.post("slow", Some(&key), &key)
            });
            for reply in futures_util::future::join_all(posts).await {
                assert!(matches!(reply.0, 201 | 409), "{key}: {reply:?}");
            }
        }
        assert_eq!((shop.orders().await.len(), shop.records().await), (20, 20));
    }
}

#[actix_web::test]
async fn what_a_failed_statement_has_undone_is_not_said_to_be_done() {
    if !is_selected(Store::Postgres) {
        return;
    }
    let shop = Shop::open(Store::Postgres).await;
    for key in [Some("k"), None] {
        let reply = shop.post_to("/swallow", key, "a").await;
        assert_eq!(reply.0, 503, "{key:?} {reply:?}");
    }
    assert_eq!((shop.orders().await.len(), shop.records().await), (0, 0));
    shop.expect_free_connections().await;
}

#[actix_web::test]
async fn it_works_behind_a_pooler_in_transaction_mode() {
    if !is_selected(Store::Postgres) {
        return;
    }
    let options = Options {
        through_pooler: true,
        ..Options::default()
    };
    let shop = Shop::with(Store::Postgres, &options).await;
    // Handlers prepare no statement of their own here: such a pooler cannot keep it apart.
    for n in 0..10 {
        let key = format!("k{n}");
        let reply = shop.post_to("/plain", Some(&key), &key).await;
        assert_eq!((reply.0, reply.1), (201, false), "{reply:?}");
        assert!(shop.post_to("/plain", Some(&key), &key).await.1);
    }
    assert_eq!((shop.orders().await.len(), shop.records().await), (10, 10));
}

/// Writes with a statement that is not prepared.
#[idempotent(scope = "user", ttl = "1h", transaction = tx)]
#[post("/plain")]
async fn plain(body: String, tx: &mut PgConnection) -> actix_web::Result<HttpResponse> {
    let body = body.replace('\'', "");
    let sql = sqlx::AssertSqlSafe(format!("INSERT INTO orders (id) VALUES ('{body}')"));
    sqlx::raw_sql(sql)
        .execute(&mut *tx)
        .await
        .map_err(ErrorInternalServerError::<sqlx::Error>)?;
    Ok(HttpResponse::Created().body(body))
}
