//! Several processes that start on an empty store, and one that dies while it prepares it.

use crate::{LAB, line::behind_a_relay};
use futures_util::future::join_all;
use idem_tests::{
    harness::{Fault, Journal, Lab, Moment, Proxy, each, eventually, start_lab},
    services::{self, Fresh, Store},
};
use sqlx::Connection;
use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::Instant;

/// How long they may take to get ready.
const READY: Duration = Duration::from_secs(10);

/// Four labs at once, and a request to each: they serve one store.
async fn four_get_ready(place: &Fresh, url: &str) -> Vec<Lab> {
    let folder = TempDir::new().unwrap();
    let journal = Journal::at(folder.path().join("journal"));
    let begun = Instant::now();
    let labs = join_all((0..4).map(|_| start_lab(Path::new(LAB), place, url, &journal, &[]))).await;
    assert!(begun.elapsed() < READY, "{:?}", begun.elapsed());
    let client = reqwest::Client::new();
    let mut bodies = Vec::new();
    for lab in &labs {
        let answer = client
            .post(format!("http://{}/default", lab.address()))
            .header("authorization", format!("Bearer {}", place.name()))
            .header("idempotency-key", "k")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 201);
        bodies.push(answer.bytes().await.unwrap());
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!(journal.effects("k"), 1);
    labs
}

/// Sessions that hold an advisory lock in this database.
async fn advisory_locks(url: &str) -> i64 {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database \
         WHERE locktype = 'advisory' AND datname = current_database()",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn four_processes_that_start_at_once_on_an_empty_store_all_get_ready() {
    // I11
    let mut stores = services::selected();
    stores.retain(|store| *store != Store::Memory);
    each(stores, async |store| {
        let place = services::fresh(store).await;
        let labs = four_get_ready(&place, place.url()).await;
        if store == Store::Postgres {
            assert_eq!(advisory_locks(place.url()).await, 0);
        }
        drop(labs);
    })
    .await;
}

#[tokio::test]
async fn four_processes_get_ready_behind_a_pooler_in_transaction_mode_too() {
    // I11
    if !services::is_selected(Store::Postgres) {
        return;
    }
    let place = services::fresh_postgres().await;
    let labs = four_get_ready(&place, &place.pgbouncer_url()).await;
    assert_eq!(advisory_locks(place.url()).await, 0);
    drop(labs);
}

#[tokio::test]
async fn one_that_dies_while_it_prepares_the_store_holds_nobody_up() {
    // I11
    let mut stores = behind_a_relay();
    stores.retain(|store| *store != Store::Redis);
    each(stores, async |store| {
        for moment in [Moment::Before, Moment::After(1)] {
            let place = services::fresh(store).await;
            let proxy = Proxy::to(place.server()).await;
            let place = place.through(proxy.address());
            proxy.trap("CREATE TABLE", moment, Fault::Freeze);
            let mut dying = Command::new(LAB)
                .args(["--store", place.url()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            eventually("a table under way", async || {
                (proxy.sprung() == 1).then_some(())
            })
            .await;
            dying.kill().unwrap();
            dying.wait().unwrap();
            // Its end has to get through.
            proxy.fail(Fault::Cut);
            let labs = four_get_ready(&place, place.direct_url()).await;
            if store == Store::Postgres {
                assert_eq!(advisory_locks(place.direct_url()).await, 0);
            }
            drop(labs);
        }
    })
    .await;
}
