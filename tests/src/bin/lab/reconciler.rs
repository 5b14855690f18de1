//! Finding out what became of an operation whose process has died.

use crate::journal::{Journal, Line, now_ms};
use actix_web::web;
use idem_runtime::{Abandoned, Resolution, record::StoredResponse};
use serde::Deserialize;
use std::path::PathBuf;

/// What the reconciling function asks.
#[derive(Debug)]
pub(crate) struct Witness {
    /// Where the question itself is written down.
    pub(crate) journal: web::Data<Journal>,
    pub(crate) file: Option<PathBuf>,
    /// It never knows.
    pub(crate) undecided: bool,
}

impl Witness {
    fn note(&self, abandoned: &Abandoned) -> std::io::Result<()> {
        self.journal.write(&Line {
            run: "",
            phase: "asked",
            route: abandoned.request_path(),
            user: abandoned.scope(),
            tenant: None,
            key: Some(abandoned.key()),
            attempt: abandoned.attempt(),
            pid: std::process::id(),
            at_ms: now_ms(),
            body_sha256: "",
            downstream_key: &abandoned.downstream_key("charge").to_string(),
        })
    }
}

#[derive(Deserialize)]
struct Seen {
    phase: String,
    downstream_key: String,
}

/// The journal is to the lab what a payment gateway is to a shop: it knows whether the effect
/// happened, under the key that is the same for every attempt.
pub(crate) async fn look_into_the_journal(abandoned: Abandoned) -> Resolution {
    let witness = abandoned.value::<Witness>();
    if let Some(error) = witness.and_then(|witness| witness.note(&abandoned).err()) {
        tracing::error!("the journal cannot be written: {error}");
    }
    let witness = witness.filter(|witness| !witness.undecided);
    let Some(path) = witness.and_then(|witness| witness.file.as_ref()) else {
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
        // Most are about others, and a journal can be long.
        .filter(|line| line.contains(&key))
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
