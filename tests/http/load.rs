//! Under load: numbers that must hold. The full ones are run with `IDEM_TEST_SCALE=full`.

use actix_web::{App, HttpResponse, web};
use futures_util::future::join_all;
use idem_runtime::idempotent;
use idem_tests::{
    harness::{Connection, InProcess, request, scaled},
    services::{Store, is_selected},
};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use std::{collections::HashMap, str::FromStr, time::Duration};
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
