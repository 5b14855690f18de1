//! What MySQL and MariaDB alone have: a deadlock that ends a transaction behind the handler's back,
//! and settings of the session that a transaction changes.

use crate::shop::{Gate, Shop, StorePool};
use actix_web::{HttpResponse, error::ErrorInternalServerError, post, web};
use idem_runtime::idempotent;
use idem_tests::services::{Store, is_selected};
use sqlx::MySqlConnection;

pub(crate) fn routes(config: &mut web::ServiceConfig) {
    config.service(cross);
}

/// Locks a row, waits, locks another one, and goes on writing although that may have failed.
#[idempotent(scope = "user", ttl = "1h", transaction = tx)]
#[post("/cross/{first}/{second}")]
async fn cross(
    rows: web::Path<(String, String)>,
    gate: web::Data<Gate>,
    body: String,
    tx: &mut MySqlConnection,
) -> actix_web::Result<HttpResponse> {
    let (first, second) = rows.into_inner();
    let touch = "UPDATE stock SET pieces = pieces - 1 WHERE id = ?";
    sqlx::query(touch)
        .bind(first)
        .execute(&mut *tx)
        .await
        .map_err(ErrorInternalServerError)?;
    gate.started.add_permits(1);
    gate.open
        .acquire()
        .await
        .map_err(ErrorInternalServerError)?
        .forget();
    let _ = sqlx::query(touch).bind(second).execute(&mut *tx).await;
    sqlx::query("INSERT INTO orders (id) VALUES (?)")
        .bind(&body)
        .execute(&mut *tx)
        .await
        .map_err(ErrorInternalServerError)?;
    Ok(HttpResponse::Created().body(body))
}

#[actix_web::test]
async fn what_is_written_after_a_deadlock_is_not_committed_by_itself() {
    if !is_selected(Store::MySql) {
        return;
    }
    for keyed in [true, false] {
        let shop = Shop::open(Store::MySql).await;
        shop.database
            .execute(
                "CREATE TABLE stock (id VARCHAR(10) PRIMARY KEY, pieces INT); \
                 INSERT INTO stock VALUES ('a', 10), ('b', 10)",
            )
            .await;
        let both = async {
            tokio::join!(
                shop.post_to("/cross/a/b", keyed.then_some("k1"), "1"),
                shop.post_to("/cross/b/a", keyed.then_some("k2"), "2")
            )
        };
        let open = async {
            shop.gate.wait_for_a_start().await;
            shop.gate.wait_for_a_start().await;
            shop.gate.open.add_permits(2);
        };
        let ((one, two), ()) = tokio::join!(both, open);
        let mut statuses = [one.0, two.0];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 503], "{one:?} {two:?}");
        assert_eq!(shop.orders().await.len(), 1);
        let taken = "SELECT CAST(SUM(pieces) AS SIGNED) FROM stock";
        assert_eq!(shop.database.number(taken).await, 18);
        if keyed {
            let again = if one.0 == 503 {
                ("a/b", "k1", "1")
            } else {
                ("b/a", "k2", "2")
            };
            shop.gate.open.add_permits(1);
            let path = format!("/cross/{}", again.0);
            let retry = shop.post_to(&path, Some(again.1), again.2).await;
            assert_eq!((retry.0, retry.1), (201, false), "{retry:?}");
            assert_eq!(shop.orders().await.len(), 2);
        }
        shop.expect_free_connections().await;
    }
}

#[actix_web::test]
async fn the_session_is_what_it_was_when_the_connection_goes_back() {
    if !is_selected(Store::MySql) {
        return;
    }
    let options = crate::shop::Options {
        connections: 1,
        setting: "SET @@SESSION.innodb_lock_wait_timeout = 7, @@SESSION.wait_timeout = 1234",
        ..Default::default()
    };
    let shop = Shop::with(Store::MySql, &options).await;
    let StorePool::MySql(pool) = &shop.store_pool else {
        panic!("a MySQL pool")
    };
    let version: String = sqlx::query_scalar("SELECT VERSION()")
        .fetch_one(pool)
        .await
        .unwrap();
    let look = if version.contains("MariaDB") {
        "SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit, @@innodb_lock_wait_timeout, \
         @@wait_timeout, @@idle_transaction_timeout, @@idle_write_transaction_timeout)"
    } else {
        "SELECT CONCAT_WS(' ', CONNECTION_ID(), @@autocommit, @@innodb_lock_wait_timeout, \
         @@wait_timeout)"
    };
    let before: String = sqlx::query_scalar(look).fetch_one(pool).await.unwrap();
    for (what, key) in [
        ("ok", Some("k1")),
        ("declined", Some("k2")),
        ("broken", Some("k3")),
        ("gone", None),
        ("ok", None),
    ] {
        shop.post(what, key, what).await;
        let after: String = sqlx::query_scalar(look).fetch_one(pool).await.unwrap();
        assert_eq!(after, before, "{what} {key:?}");
    }
}
