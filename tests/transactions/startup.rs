//! What is found before the first request, and what is allowed.

use crate::shop::{Gate, not_served, on_sqlite};
use actix_web::{App, HttpRequest, test, web};
use idem_runtime::{BuildError, Idempotency, store::MemoryStore};
use idem_tests::services::Store;

#[actix_web::test]
async fn a_handler_for_another_database_is_found_at_start_up() {
    let Err(BuildError::Mistakes(mistakes)) = Idempotency::builder(MemoryStore::new())
        .scope("user", |_: HttpRequest| "somebody")
        .build()
    else {
        panic!("a transactional route cannot run on the memory store")
    };
    for database in ["SQLite", "PostgreSQL", "MySQL"] {
        let of_this = |line: &&String| line.contains(database) && line.contains("shop.rs:");
        assert_eq!(mistakes.iter().filter(of_this).count(), 1, "{mistakes:?}");
    }
}

#[actix_web::test]
async fn one_that_is_not_served_and_reached_all_the_same_does_not_run() {
    let builder = Idempotency::builder(MemoryStore::new());
    let idempotency = not_served(builder, Store::Memory)
        .scope("user", |_: HttpRequest| "somebody")
        .build()
        .unwrap();
    let app = App::new()
        .app_data(idempotency)
        .app_data(web::Data::new(Gate::new()))
        .service(on_sqlite::order);
    let app = test::init_service(app).await;
    for key in [Some("k"), None] {
        let mut request = test::TestRequest::post().uri("/tx/ok").set_payload("a");
        if let Some(key) = key {
            request = request.insert_header(("idempotency-key", key));
        }
        let answer = test::call_service(&app, request.to_request()).await;
        assert_eq!(answer.status(), 500, "{key:?}");
        let problem: serde_json::Value = test::read_body_json(answer).await;
        assert_eq!(problem["type"], "urn:idempotency:not-configured", "{key:?}");
    }
}
