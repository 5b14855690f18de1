//! Finding out what became of an operation whose process has died.

use idem_runtime::{Abandoned, Resolution, record::StoredResponse};
use serde::Deserialize;
use std::path::PathBuf;

/// Where the journal is; a value for the reconciling function.
#[derive(Debug)]
pub(crate) struct JournalFile(pub(crate) Option<PathBuf>);

#[derive(Deserialize)]
struct Seen {
    phase: String,
    downstream_key: String,
}

/// The journal is to the lab what a payment gateway is to a shop: it knows whether the effect
/// happened, under the key that is the same for every attempt.
pub(crate) async fn look_into_the_journal(abandoned: Abandoned) -> Resolution {
    let Some(path) = abandoned
        .value::<JournalFile>()
        .and_then(|file| file.0.as_ref())
    else {
        tracing::warn!("there is no journal to tell what became of an abandoned request");
        return Resolution::Pending;
    };
    let text = match tokio::fs::read_to_string(path).await {
        Ok(text) => text,
        Err(error) => {
            tracing::error!("the journal cannot be read: {error}");
            return Resolution::Pending;
        }
    };
    let key = abandoned.downstream_key("charge").to_string();
    let happened = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Seen>(line).ok())
        .any(|seen| seen.phase == "effect" && seen.downstream_key == key);
    if !happened {
        return Resolution::Release;
    }
    Resolution::Complete(StoredResponse {
        code: 200,
        headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
        body: Some(actix_web::web::Bytes::from_static(b"{\"reconciled\":true}")),
    })
}
