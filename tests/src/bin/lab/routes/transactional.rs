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
use sqlx::SqliteConnection;

const PATH: &str = "/transactional";

pub(super) fn configure(config: &mut web::ServiceConfig, database: &Database) {
    config.service(match database {
        Database::Sqlite(_) => posted(PATH, on_sqlite),
        Database::None | Database::Postgres(_) | Database::MySql(_) => posted(PATH, nowhere),
    });
}

/// The handlers for other databases than this one.
pub(super) fn not_served(database: &Database) -> Vec<&'static str> {
    match database {
        Database::Sqlite(_) => vec![],
        Database::None | Database::Postgres(_) | Database::MySql(_) => {
            vec![concat!(module_path!(), "::on_sqlite")]
        }
    }
}

#[idempotent(scope = "user", ttl = "24h", transaction = tx)]
async fn on_sqlite(job: Job, body: Bytes, tx: &mut SqliteConnection) -> Outcome {
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
