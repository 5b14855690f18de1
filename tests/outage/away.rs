//! The store is out of reach when a request comes.

use crate::{
    BUDGET, BUDGET_FLAG, SLACK, hang_up,
    line::{Line, behind_a_relay, breakable, on_each_line, on_each_relay},
    logged, recovered,
};
use futures_util::future::join_all;
use idem_tests::{
    harness::{Fault, Reply, Site, assert_replay, each, eventually, scaled},
    services::{self, Fresh, Store},
};
use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
use std::{collections::BTreeSet, path::Path, time::Duration};
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(2);

/// Checks that it says to come back later, and that it took no longer than a store call may.
fn assert_refused(reply: &Reply, took: Duration) {
    reply.assert_problem(503, "store-unavailable");
    let after: u64 = reply.text("retry-after").parse().unwrap();
    assert!(after >= 1, "{reply:?}");
    assert_eq!(reply.text("cache-control"), "no-store");
    assert!(took < BUDGET + SLACK, "it took {took:?}");
}

#[tokio::test]
async fn while_the_store_is_away_requests_are_refused_in_time_and_nothing_runs() {
    // I1, A11
    on_each_line(breakable(), &BUDGET_FLAG, async |mut line, site| {
        let warm = site.post("/default").key("warm").json("{}");
        let first = warm.send().await;
        first.assert_created();
        for frozen in [false, true] {
            if frozen {
                line.freeze().await;
            } else {
                line.cut().await;
            }
            let orders = ["/default", "/rerun", "/wait"].map(|path| {
                let key = format!("{path}-{frozen}");
                (site.post(path).key(&key).json("{}"), key)
            });
            let calls = orders.iter().map(async |(order, _)| {
                let begun = Instant::now();
                (order.send().await, begun.elapsed())
            });
            for (reply, took) in join_all(calls).await {
                assert_refused(&reply, took);
            }
            let unprotected = site.post("/default").json("{}").send().await;
            unprotected.assert_created();
            line.heal().await;
            for (order, key) in &orders {
                let back = recovered(order, LEASE).await;
                back.assert_created();
                assert_replay(&back, &recovered(order, LEASE).await);
                assert_eq!(site.journal.of("start", key).len(), 1, "{key}");
            }
            assert_replay(&first, &recovered(&warm, LEASE).await);
        }
    })
    .await;
}

#[tokio::test]
async fn a_cluster_that_went_while_it_was_asked_is_found_again() {
    let stores = breakable().into_iter();
    let clusters = stores.filter(|store| *store == Store::RedisCluster);
    on_each_line(clusters.collect(), &BUDGET_FLAG, async |mut line, site| {
        for round in 0..scaled(4, 40) {
            let asking = (0..8).map(async |client| {
                for turn in 0.. {
                    let key = format!("{round}-{client}-{turn}");
                    let _ = site.post("/default").key(&key).json("{}").send().await;
                }
            });
            // All the while its nodes die, one after the other.
            tokio::select! {
                _ = join_all(asking) => unreachable!("they ask for ever"),
                () = line.cut() => {}
            }
            line.heal().await;
            let order = site.post("/default").key(&format!("{round}")).json("{}");
            recovered(&order, LEASE).await.assert_created();
        }
    })
    .await;
}

#[tokio::test]
async fn a_route_that_accepts_it_runs_unprotected_and_shows_it() {
    // I8
    let flags = [&BUDGET_FLAG[..], &["--on-store-error", "run"]].concat();
    on_each_line(breakable(), &flags, async |mut line, site| {
        line.cut().await;
        let begun = Instant::now();
        let order = site.post("/default").key("k").json("{}");
        order.send().await.assert_created();
        assert!(begun.elapsed() < BUDGET + SLACK, "{:?}", begun.elapsed());
        let unprotected = site.journal.of("effect", "k");
        assert_eq!(unprotected.len(), 1);
        let warning = logged(&site.lab, "runs without protection", 1).await;
        assert!(warning.contains("WARN"), "{warning}");
        let degraded = "idempotency_requests_total{outcome=\"degraded\"}";
        assert_eq!(site.metric(degraded).await.to_bits(), 1.0_f64.to_bits());
        line.heal().await;
        // Back to the contract. Nobody knows of the first run, which is the price; but whoever the
        // handler calls can tell the repeat.
        eventually("a replay", async || {
            order.send().await.is_replay().then_some(())
        })
        .await;
        let again = site.journal.of("effect", "k");
        assert!(again.len() > 1);
        for line in again {
            assert_eq!(line.downstream_key, unprotected[0].downstream_key);
        }
    })
    .await;
}

#[tokio::test]
async fn a_link_that_is_slow_within_the_budget_is_waited_for_and_beyond_it_is_refused() {
    on_each_relay(&BUDGET_FLAG, async |proxy, site| {
        let order = site.post("/default").key("k").json("{}");
        proxy.delay(Duration::from_millis(40));
        let first = order.send().await;
        first.assert_created();
        assert_replay(&first, &order.send().await);
        proxy.delay(BUDGET * 2);
        let begun = Instant::now();
        assert_refused(&order.send().await, begun.elapsed());
        proxy.heal();
        assert_replay(&first, &recovered(&order, LEASE).await);
    })
    .await;
}

#[tokio::test]
async fn a_pool_whose_connections_are_all_taken_refuses_in_time() {
    // L5
    let mut stores = services::selected();
    stores.retain(|store| matches!(store, Store::Postgres | Store::MySql));
    let flags = [&BUDGET_FLAG[..], &["--pool", "1"]].concat();
    each(stores, async |store| {
        let place = services::fresh(store).await;
        let url = place.url().to_owned();
        let site = Site::open_in(Path::new(crate::LAB), place, &flags).await;
        let order = |key: &str| site.post("/default").key(key).json("{}");
        order("before").send().await.assert_created();
        // Whoever has the connection waits for this lock; everybody else, for the connection.
        let holder = TableLock::take(store, &url).await;
        let calls = (0..5).map(|index| {
            let order = order(&format!("k{index}"));
            async move {
                let begun = Instant::now();
                (order.send().await, begun.elapsed())
            }
        });
        for (reply, took) in join_all(calls).await {
            assert_refused(&reply, took);
        }
        assert_eq!(site.journal.all_effects(), 1);
        holder.give_back().await;
        for index in 0..5 {
            let key = format!("k{index}");
            recovered(&order(&key), LEASE).await.assert_created();
            assert_eq!(site.journal.effects(&key), 1);
        }
    })
    .await;
}

/// The whole table of records, locked by somebody else.
enum TableLock {
    Postgres(sqlx::PgConnection),
    MySql(sqlx::MySqlConnection),
}

impl TableLock {
    async fn take(store: Store, url: &str) -> TableLock {
        if store == Store::Postgres {
            let mut holder = sqlx::PgConnection::connect(url).await.unwrap();
            let lock = "BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE";
            holder.execute(sqlx::raw_sql(lock)).await.unwrap();
            return TableLock::Postgres(holder);
        }
        let mut holder = sqlx::MySqlConnection::connect(url).await.unwrap();
        let lock = "LOCK TABLES idempotency_records WRITE";
        holder.execute(sqlx::raw_sql(lock)).await.unwrap();
        TableLock::MySql(holder)
    }

    async fn give_back(self) {
        match self {
            TableLock::Postgres(holder) => holder.close().await.unwrap(),
            TableLock::MySql(holder) => holder.close().await.unwrap(),
        }
    }
}

#[tokio::test]
async fn many_requests_at_once_are_all_refused_in_time() {
    // A11: an outage is not a queue
    on_each_line(behind_a_relay(), &BUDGET_FLAG, async |mut line, site| {
        line.freeze().await;
        let calls = (0..50).map(|index| {
            let order = site.post("/default").key(&format!("k{index}")).json("{}");
            async move {
                let begun = Instant::now();
                (order.send().await, begun.elapsed())
            }
        });
        for (reply, took) in join_all(calls).await {
            assert_refused(&reply, took);
        }
        line.heal().await;
        for index in 0..50 {
            let key = format!("k{index}");
            let order = site.post("/default").key(&key).json("{}");
            recovered(&order, LEASE).await.assert_created();
        }
        assert_eq!(site.journal.all_effects(), 50);
    })
    .await;
}

#[tokio::test]
async fn while_the_database_is_away_no_transaction_begins_and_afterwards_each_is_one_row() {
    // I1
    let mut stores = breakable();
    stores.retain(|store| matches!(store, Store::Sqlite | Store::Postgres | Store::MySql));
    on_each_line(stores, &BUDGET_FLAG, async |mut line, site| {
        for frozen in [false, true] {
            if frozen {
                line.freeze().await;
            } else {
                line.cut().await;
            }
            let user = format!("u-{frozen}");
            let order = site.post("/transactional").user(&user).key("k").json("{}");
            let begun = Instant::now();
            assert_refused(&order.send().await, begun.elapsed());
            line.heal().await;
            let back = recovered(&order, LEASE).await;
            back.assert_created();
            assert_replay(&back, &recovered(&order, LEASE).await);
            assert_eq!(site.orders_of(&user).await, 1);
        }
    })
    .await;
}

/// The server's sessions that are logged in to this database and wait for a statement.
async fn sessions(place: &Fresh) -> BTreeSet<i64> {
    if place.store() == Store::Postgres {
        let mut asking = PgConnection::connect(place.direct_url()).await.unwrap();
        let ids: Vec<i32> = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
             AND state = 'idle' AND pid <> pg_backend_pid()",
        )
        .fetch_all(&mut asking)
        .await
        .unwrap();
        return ids.into_iter().map(i64::from).collect();
    }
    let mut asking = MySqlConnection::connect(place.direct_url()).await.unwrap();
    let ids: Vec<i64> = sqlx::query_scalar(
        "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
         WHERE db = DATABASE() AND command = 'Sleep' AND id <> CONNECTION_ID()",
    )
    .fetch_all(&mut asking)
    .await
    .unwrap();
    ids.into_iter().collect()
}

#[tokio::test]
async fn a_connection_that_takes_longer_to_open_than_a_call_may_last_is_there_for_the_next() {
    let mut stores = behind_a_relay();
    stores.retain(|store| *store != Store::Redis);
    on_each_line(stores, &BUDGET_FLAG, async |line, mut site| {
        let Line::Relay(proxy) = line else {
            unreachable!("a store with one server is behind a relay")
        };
        let warm = site.post("/default").key("warm").send().await;
        warm.assert_created();
        // To log in takes several of these, there and back, and no call may last for one.
        proxy.delay(BUDGET * 6 / 10);
        proxy.fail(Fault::Cut);
        eventually("no session", async || {
            sessions(site.place()).await.is_empty().then_some(())
        })
        .await;
        let order = site.post("/default").key("k").json("{}");
        let begun = Instant::now();
        assert_refused(&order.send().await, begun.elapsed());
        let opened = eventually("a session", async || {
            let sessions = sessions(site.place()).await;
            (!sessions.is_empty()).then_some(sessions)
        })
        .await;
        proxy.heal();
        recovered(&order, LEASE).await.assert_created();
        let used = sessions(site.place()).await;
        assert!(!opened.is_disjoint(&used), "{opened:?} {used:?}");
        assert_eq!(site.journal.effects("k"), 1);
        hang_up([&mut site.lab]).await;
    })
    .await;
}
