//! Durable steps: parts of an operation whose results outlive the attempt that made them.

use crate::{
    engine::{Engine, error_chain},
    fail_points::point,
    lease::Lost,
    record::RecordId,
    repair::within,
    store::StoreError,
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, error::Error, fmt, sync::Arc, time::Duration};
use tokio::sync::Mutex;
use uuid::Uuid;

/// Pause between two tries to save a result.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The results of one operation's steps, and the claim they are saved under.
pub(crate) struct Steps {
    engine: Arc<Engine>,
    id: RecordId,
    owner: Uuid,
    lease: Duration,
    lost: Arc<Lost>,
    results: Mutex<Results>,
}

/// Results by name, each as JSON text. `None` where what stands in the record is none of ours.
type Results = Option<BTreeMap<String, String>>;

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What stands in the `steps` column.
pub(crate) fn decode(column: Option<&Bytes>) -> Results {
    column.map_or_else(
        || Some(BTreeMap::new()),
        |bytes| serde_json::from_slice(bytes).ok(),
    )
}

impl Steps {
    pub(crate) fn new(
        engine: Arc<Engine>,
        id: RecordId,
        owner: Uuid,
        lease: Duration,
        lost: Arc<Lost>,
        column: Option<&Bytes>,
    ) -> Steps {
        Steps {
            engine,
            id,
            owner,
            lease,
            lost,
            results: Mutex::new(decode(column)),
        }
    }

    pub(crate) async fn run<T, E>(
        &self,
        name: &str,
        step: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
    {
        let undecodable = || StepError::Undecodable {
            step: name.to_owned(),
        };
        if let Some(kept) = point!("steps.look", self.results.lock())
            .await
            .as_ref()
            .ok_or_else(undecodable)?
            .get(name)
        {
            return serde_json::from_str(kept).map_err(|_| undecodable());
        }
        if let Err(source) = self.engine.assure_held(self.owner).await {
            self.lost.refuse_a_step();
            tracing::error!(
                record = %self.id.digest(),
                step = name,
                error = error_chain(&source),
                "lease lost: a step was not run, another attempt may own the operation"
            );
            return Err(StepError::LeaseLost {
                step: name.to_owned(),
                source,
            });
        }
        let value = point!("steps.step", step())
            .await
            .map_err(StepError::Failed)?;
        let text = serde_json::to_string(&value).map_err(|source| StepError::Unencodable {
            step: name.to_owned(),
            source,
        })?;
        let mut results = point!("steps.enter", self.results.lock()).await;
        let results = results.as_mut().ok_or_else(undecodable)?;
        results.insert(name.to_owned(), text);
        let column = serde_json::to_vec(results).map_err(|source| StepError::Unencodable {
            step: name.to_owned(),
            source,
        })?;
        match self.save(column.into()).await {
            Ok(()) => Ok(value),
            Err(source) => {
                tracing::error!(
                    record = %self.id.digest(),
                    step = name,
                    error = error_chain(&source),
                    "the result of a step could not be saved"
                );
                Err(StepError::NotSaved {
                    step: name.to_owned(),
                    source,
                })
            }
        }
    }

    /// Saves for as long as the claim may be ours: the step has happened, so giving up is the last
    /// resort.
    async fn save(&self, column: Bytes) -> Result<(), StoreError> {
        let deadline = tokio::time::Instant::now() + self.lease;
        loop {
            let store = self.engine.store();
            let call = store.save_steps(&self.id, self.owner, &column);
            let call = within(self.engine.call_budget(), call);
            match point!("steps.save", call).await {
                Err(StoreError::Unavailable { .. }) if tokio::time::Instant::now() < deadline => {
                    point!("steps.pause", tokio::time::sleep(RETRY_PAUSE)).await;
                }
                other => return other,
            }
        }
    }
}

/// Why a step gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError<E> {
    /// The step itself failed; nothing was kept, and the next attempt runs it again.
    #[error("the step failed")]
    Failed(#[source] E),
    /// An earlier attempt kept a result for this step, and it is not of the type asked for. The
    /// step is not run again.
    #[error("the kept result of the step `{step}` cannot be decoded; it was not run again")]
    Undecodable {
        /// Name of the step.
        step: String,
    },
    /// The step was not run: the lease has run out by this process's clock, which may have stood
    /// still, and the store did not say that the claim is still held. Another attempt may own the
    /// operation by now.
    #[error("the step `{step}` was not run: the lease is lost")]
    LeaseLost {
        /// Name of the step.
        step: String,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// The step ran, and its result cannot be written as JSON.
    #[error("the result of the step `{step}` cannot be encoded")]
    Unencodable {
        /// Name of the step.
        step: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The step ran, and its result could not be saved: the lease is lost or the store unreachable
    /// for longer than the lease. A later attempt runs it again.
    #[error("the result of the step `{step}` could not be saved")]
    NotSaved {
        /// Name of the step.
        step: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// Steps need a record of their own commit: they are not for transactional routes, where a
    /// failed attempt leaves nothing behind.
    #[error("steps are not available on a transactional route")]
    Transactional,
}

impl<E: Error + 'static> From<StepError<E>> for actix_web::Error {
    /// 500, the outcome unknown; the details are for the log.
    fn from(error: StepError<E>) -> Self {
        tracing::error!(error = error_chain(&error), "a durable step failed");
        actix_web::error::ErrorInternalServerError("a step of the operation failed")
    }
}
