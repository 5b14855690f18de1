//! Claim, effect and answer in one commit: a handler for each kind of database that the toolkit
//! opens transactions on, of which the one for the lab's store is served.

use super::posted;
use crate::handler::{Job, Outcome};
use actix_web::{
    HttpResponse,
    web::{self, Bytes},
};
use idem_runtime::idempotent;
use idem_tests::stores::Database;
use serde_json::json;
use sqlx::{MySqlConnection, PgConnection, SqliteConnection};

const PATH: &str = "/transactional";
const ON_SQLITE: &str = concat!(module_path!(), "::on_sqlite");
const ON_POSTGRES: &str = concat!(module_path!(), "::on_postgres");
const ON_MYSQL: &str = concat!(module_path!(), "::on_mysql");

pub(super) fn configure(config: &mut web::ServiceConfig, database: &Database) {
    config.service(match database {
        Database::Sqlite(_) => posted(PATH, on_sqlite),
        Database::Postgres(_) => posted(PATH, on_postgres),
        Database::MySql(_) => posted(PATH, on_mysql),
        Database::None => posted(PATH, nowhere),
    });
}

/// The handlers for other databases than this one.
pub(super) fn not_served(database: &Database) -> Vec<&'static str> {
    let served = match database {
        Database::None => None,
        Database::Sqlite(_) => Some(ON_SQLITE),
        Database::Postgres(_) => Some(ON_POSTGRES),
        Database::MySql(_) => Some(ON_MYSQL),
    };
    [ON_SQLITE, ON_POSTGRES, ON_MYSQL]
        .into_iter()
        .filter(|handler| Some(*handler) != served)
        .collect()
}

#[idempotent(scope = "user", ttl = "24h", transaction = tx)]
async fn on_sqlite(job: Job, body: Bytes, tx: &mut SqliteConnection) -> Outcome {
    job.run_in_transaction(&body, tx).await
}

#[idempotent(scope = "user", ttl = "24h", transaction = tx)]
async fn on_postgres(job: Job, body: Bytes, tx: &mut PgConnection) -> Outcome {
    job.run_in_transaction(&body, tx).await
}

#[idempotent(scope = "user", ttl = "24h", transaction = tx)]
async fn on_mysql(job: Job, body: Bytes, tx: &mut MySqlConnection) -> Outcome {
    job.run_in_transaction(&body, tx).await
}

async fn nowhere() -> HttpResponse {
    HttpResponse::NotImplemented()
        .content_type("application/problem+json")
        .body(
            json!({
                "type": "about:blank",
                "title": "Not Implemented",
                "status": 501,
                "detail": "The toolkit opens no transactions on the store of this lab.",
            })
            .to_string(),
        )
}
