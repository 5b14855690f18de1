//! What a request costs the store, by the engine's own statistics.

use crate::LAB;
use idem_tests::{
    harness::{Call, Site, each},
    services::{self, Fresh, OwnServers, Store},
};
use redis::{Client, aio::MultiplexedConnection};
use sqlx::{Connection, MySqlConnection, PgConnection, Row};
use std::path::Path;
use tokio::task::spawn_blocking;

const REQUESTS: u64 = 40;

/// How an engine tells what it was asked.
enum Statistics {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Redis(Vec<MultiplexedConnection>),
}

impl Statistics {
    async fn of(place: &Fresh) -> Statistics {
        match place.store() {
            Store::Postgres => {
                let mut connection = PgConnection::connect(place.url()).await.unwrap();
                sqlx::raw_sql("CREATE EXTENSION pg_stat_statements")
                    .execute(&mut connection)
                    .await
                    .unwrap();
                Statistics::Postgres(connection)
            }
            Store::MySql => Statistics::MySql(MySqlConnection::connect(place.url()).await.unwrap()),
            _ => {
                let (_, nodes) = place.url().split_once("://").unwrap();
                let mut connections = Vec::new();
                for node in nodes.trim_end_matches('/').split(',') {
                    let client = Client::open(format!("redis://{node}")).unwrap();
                    let connection = client.get_multiplexed_async_connection().await;
                    connections.push(connection.unwrap());
                }
                Statistics::Redis(connections)
            }
        }
    }

    /// Statements or commands so far, but for those that ask for this.
    async fn count(&mut self) -> u64 {
        match self {
            Statistics::Postgres(connection) => {
                let calls: i64 = sqlx::query_scalar(
                    "SELECT sum(calls)::bigint FROM pg_stat_statements AS s \
                     JOIN pg_database AS d ON d.oid = s.dbid \
                     WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'",
                )
                .fetch_one(connection)
                .await
                .unwrap();
                u64::try_from(calls).unwrap()
            }
            Statistics::MySql(connection) => {
                let rows = sqlx::raw_sql(
                    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_select', 'Com_insert', \
                     'Com_update', 'Com_delete', 'Com_begin', 'Com_commit', 'Com_set_option')",
                )
                .fetch_all(connection)
                .await
                .unwrap();
                rows.iter()
                    .map(|row| row.get::<String, _>("Value").parse::<u64>().unwrap())
                    .sum()
            }
            Statistics::Redis(connections) => {
                let mut calls = 0;
                for connection in connections {
                    let mut info = redis::cmd("INFO");
                    info.arg("commandstats");
                    let told: String = info.query_async(connection).await.unwrap();
                    calls += told
                        .lines()
                        .filter_map(|line| line.split_once(":calls="))
                        .filter(|(command, _)| {
                            let command = command.trim_start_matches("cmdstat_");
                            matches!(command, "set" | "eval" | "evalsha")
                        })
                        .map(|(_, rest)| rest.split(',').next().unwrap().parse::<u64>().unwrap())
                        .sum::<u64>();
                }
                calls
            }
        }
    }

    /// What each of so many requests costs. The lab's search for abandoned work goes on beside them,
    /// about once in a second.
    async fn per_request(&mut self, requests: impl Future<Output = ()>) -> u64 {
        let before = self.count().await;
        requests.await;
        let asked = self.count().await - before;
        let each = asked / REQUESTS;
        assert!(
            asked % REQUESTS < REQUESTS / 2,
            "{asked} for {REQUESTS} requests: not {each} for each of them"
        );
        each
    }
}

async fn send(calls: impl Iterator<Item = Call>, status: u16) {
    for call in calls {
        let reply = call.send().await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
}

#[tokio::test]
async fn a_first_request_costs_two_calls_and_any_other_one_by_the_engine_s_own_count() {
    let mut stores = services::selected();
    stores.retain(|store| !matches!(store, Store::Memory | Store::Sqlite));
    each(stores, async |store| {
        // PostgreSQL counts for each database; the others are asked on a server of this test's own.
        let (place, _servers) = if store == Store::Postgres {
            (services::fresh(store).await, None)
        } else {
            let servers = spawn_blocking(move || OwnServers::start(&[store.name()]));
            let servers = servers.await.unwrap();
            (
                Fresh::on_own_server(store, servers.url(store)),
                Some(servers),
            )
        };
        let mut statistics = Statistics::of(&place).await;
        let flags = ["--pool", "1", "--lease", "60s"];
        let site = Site::open_in(Path::new(LAB), place, &flags).await;
        let order = site.post("/default").json("{}");
        let order = |key: String| order.clone().key(&key);
        let numbered = |prefix: &'static str| (0..REQUESTS).map(move |n| format!("{prefix}{n}"));
        // Statements are prepared, scripts are loaded.
        for key in ["warm", "hot"] {
            let warm = order(key.to_owned());
            send([warm.clone(), warm].into_iter(), 201).await;
        }

        let first = statistics
            .per_request(send(numbered("k").map(order), 201))
            .await;
        let replay = statistics
            .per_request(send(numbered("k").map(order), 201))
            .await;
        let reused = |key| order(key).json("[]");
        let mismatch = statistics
            .per_request(send(numbered("k").map(reused), 422))
            .await;
        let running = order("running".to_owned());
        let slow = running.clone().delay_ms(8000).spawn();
        site.journal.wait_for("start", "running").await;
        let again = (0..REQUESTS).map(|_| running.clone());
        let conflict = statistics.per_request(send(again, 409)).await;
        let other = (0..REQUESTS).map(|_| running.clone().json("[]"));
        let mismatch_running = statistics.per_request(send(other, 422)).await;
        assert!(!slow.is_finished(), "the machine is too slow for this test");
        slow.abort();

        let costs = [first, replay, mismatch, conflict, mismatch_running];
        let expected = match store {
            // No RETURNING: what stands in the way of an insert takes a read.
            Store::MySql => [2, 2, 2, 2, 2],
            // It also counts what a script does, which is one SET in the one that keeps the answer.
            Store::Redis | Store::RedisCluster => [2 + 1, 1, 1, 1, 1],
            _ => [2, 1, 1, 1, 1],
        };
        assert_eq!(costs, expected, "{store}");
    })
    .await;
}
