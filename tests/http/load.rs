//! Under load: numbers that must hold. The full ones are run with `IDEM_TEST_SCALE=full`.

use actix_web::{App, HttpResponse, web};
use futures_util::{StreamExt, future::join_all, stream};
use idem_runtime::{Context, idempotent, testing::Method};
use idem_tests::{
    harness::{Connection, InProcess, each, request, scaled},
    services::{Store, is_selected, selected},
};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use std::{
    collections::HashMap,
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// Writes to the very file that the records are in.
#[idempotent(scope = "user", ttl = "24h")]
async fn enter(body: String, pool: web::Data<SqlitePool>) -> HttpResponse {
    let entered = sqlx::query("INSERT INTO entries (name) VALUES (?)")
        .bind(&body)
        .execute(pool.get_ref())
        .await;
    match entered {
        Ok(_) => HttpResponse::Created().body(body),
        Err(error) => HttpResponse::InternalServerError().body(error.to_string()),
    }
}

#[tokio::test]
async fn sqlite_serves_many_connections_while_handlers_write_to_its_file() {
    // L2
    if !is_selected(Store::Sqlite) {
        return;
    }
    let length = scaled(Duration::from_secs(3), Duration::from_secs(30));
    let (builder, place) = InProcess::configuration(Store::Sqlite).await;
    let options = SqliteConnectOptions::from_str(place.url())
        .unwrap()
        .busy_timeout(Duration::from_secs(10));
    let pool = SqlitePoolOptions::new()
        .max_connections(4)
        .connect_with(options)
        .await
        .unwrap();
    sqlx::query("CREATE TABLE entries (name TEXT NOT NULL)")
        .execute(&pool)
        .await
        .unwrap();
    let idempotency = builder.build().unwrap();
    let data = web::Data::new(pool.clone());
    let app = InProcess::serve(place, move || {
        App::new()
            .app_data(idempotency.clone())
            .app_data(data.clone())
            .route("/enter", web::post().to(enter))
    });
    let until = Instant::now() + length;
    let clients = (0..32).map(|client| {
        let address = app.address;
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            let mut entered = Vec::new();
            let mut turn = 0;
            while Instant::now() < until {
                // One in ten repeats the one before.
                if turn % 10 != 9 || entered.is_empty() {
                    entered.push(format!("{client}-{turn}"));
                }
                turn += 1;
                let name = entered.last().unwrap().clone();
                let headers: [(&str, &[u8]); 3] = [
                    ("Authorization", b"alice"),
                    ("Idempotency-Key", name.as_bytes()),
                    ("Content-Type", b"text/plain"),
                ];
                let post = request("POST", "/enter", &headers, name.as_bytes());
                connection.send(&post).await.unwrap();
                let reply = connection.reply().await;
                let text = String::from_utf8_lossy(&reply.body);
                assert_eq!(reply.status, 201, "{text}");
                assert_eq!(text, name);
            }
            entered
        })
    });
    let entered: Vec<String> = join_all(clients)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect();
    let rows: Vec<String> = sqlx::query_scalar("SELECT name FROM entries")
        .fetch_all(&pool)
        .await
        .unwrap();
    let mut count: HashMap<&str, usize> = HashMap::new();
    for row in &rows {
        *count.entry(row.as_str()).or_default() += 1;
    }
    for name in &entered {
        assert_eq!(count.get(name.as_str()), Some(&1), "{name}");
    }
    assert_eq!(rows.len(), entered.len());
    assert!(
        entered.len() > 100,
        "only {} requests: this tested nothing",
        entered.len()
    );
    drop(app);
}

/// The lease of [`long`].
const LEASE: Duration = Duration::from_secs(1);

/// Handlers that have begun, and how long each takes.
struct Long {
    begun: AtomicUsize,
    length: Duration,
}

#[idempotent(scope = "user", ttl = "1h", lease = "1s", abandoned = "rerun")]
async fn long(context: Context, long: web::Data<Long>) -> HttpResponse {
    long.begun.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(long.length).await;
    HttpResponse::Created().body(context.attempt().to_string())
}

#[tokio::test]
async fn handlers_beyond_their_lease_are_not_taken_over_and_are_renewed_together() {
    // C6
    let (handlers, length) = scaled(
        (50, Duration::from_millis(2500)),
        (500, Duration::from_secs(4)),
    );
    let renewed_together = async |store| {
        let (builder, calls, place) = InProcess::counted(store).await;
        // A machine busy with many tests must not look like a store that is down.
        let builder = builder.store_timeout(Duration::from_secs(10));
        let idempotency = builder.build().unwrap();
        let state = web::Data::new(Long {
            begun: AtomicUsize::new(0),
            length,
        });
        let data = state.clone();
        let app = InProcess::serve(place, move || {
            App::new()
                .app_data(idempotency.clone())
                .app_data(data.clone())
                .route("/long", web::post().to(long))
        });
        let client = reqwest::Client::new();
        let post = |index: usize| {
            let post = client.post(format!("http://{}/long", app.address));
            let post = post.header("authorization", "alice");
            post.header("idempotency-key", format!("k{index}")).send()
        };
        let begun = Instant::now();
        let firsts: Vec<_> = (0..handlers).map(|n| tokio::spawn(post(n))).collect();
        while state.begun.load(Ordering::SeqCst) < handlers {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "not all have begun"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Without renewal every one of them could be taken over then.
        tokio::time::sleep(LEASE * 3 / 2).await;
        let (mut refused, mut replayed) = (0, 0);
        let duplicates = stream::iter((0..handlers).map(post)).buffer_unordered(50);
        for duplicate in duplicates.collect::<Vec<_>>().await {
            let duplicate = duplicate.unwrap();
            match duplicate.status().as_u16() {
                409 => refused += 1,
                // The first of them may have ended meanwhile.
                201 if duplicate.headers().contains_key("idempotent-replayed") => replayed += 1,
                other => panic!("{other}"),
            }
        }
        for first in firsts {
            let first = first.await.unwrap().unwrap();
            assert_eq!(first.status().as_u16(), 201);
            assert!(first.headers().get("idempotent-replayed").is_none());
            assert_eq!(first.text().await.unwrap(), "1");
        }
        let took = begun.elapsed();
        assert_eq!(
            state.begun.load(Ordering::SeqCst),
            handlers,
            "one was taken over"
        );
        let renewals = calls.calls(Method::Renew);
        let intervals = took.as_secs_f64() / (LEASE / 3).as_secs_f64();
        eprintln!(
            "{store}: {handlers} handlers, {refused} duplicates refused, {replayed} replayed, \
             {renewals} renewals in {intervals:.1} intervals"
        );
        // Claims that are half an interval apart or more are renewed apart.
        let most = 2.0 * intervals + 2.0;
        assert!(
            (renewals as f64) <= most,
            "{renewals} renewals, at most {most}"
        );
        assert!(renewals >= 2, "{renewals} renewals");
    };
    // One after the other: with thousands of requests at once on a small machine, a renewal comes too
    // late for so short a lease, and a takeover is right.
    for store in selected() {
        each(vec![store], renewed_together).await;
    }
}
