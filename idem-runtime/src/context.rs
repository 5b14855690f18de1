//! What a handler can learn about the attempt it runs in.

use crate::{
    key::IdempotencyKey,
    lease::Lost,
    record::RecordId,
    steps::{StepError, Steps},
};
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, OnceLock},
};
use uuid::Uuid;

/// The attempt a handler runs in; an extractor.
///
/// Without a key (where it is optional) the context is that of an unprotected call: attempt 1, no
/// key, and downstream keys that are random.
///
/// ```
/// use actix_web::{HttpResponse, Responder};
/// use idem_runtime::Context;
///
/// async fn pay(context: Context) -> impl Responder {
///     // The payment gateway recognises a repeat of this very operation by this key.
///     let gateway_key = context.downstream_key("charge");
///     HttpResponse::Created().body(gateway_key.to_string())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Context(Arc<Slot>);

/// Filled when it is known that the handler runs, which is after the extractors have run.
#[derive(Debug, Default)]
struct Slot {
    claim: OnceLock<ClaimContext>,
    /// What stands for the identity of a call without a key; made when it is asked for.
    unprotected: OnceLock<Uuid>,
}

#[derive(Debug)]
pub(crate) struct ClaimContext {
    pub(crate) id: RecordId,
    pub(crate) key: IdempotencyKey,
    pub(crate) attempt: u32,
    /// None on a transactional route, whose claim is the transaction, and where there is no claim
    /// because the store is unavailable and the route runs all the same.
    pub(crate) lost: Option<Arc<Lost>>,
    pub(crate) steps: StepsOf,
}

/// What becomes of the steps of an attempt.
#[derive(Debug)]
pub(crate) enum StepsOf {
    /// Their results are kept with the record.
    Record(Steps),
    /// A transactional route has none.
    Transaction,
    /// There is no record: they just run.
    Nothing,
}

impl Context {
    /// Puts a context into the request for the extractors to find.
    pub(crate) fn install(request: &HttpRequest) -> Context {
        let context = Context(Arc::default());
        request.extensions_mut().insert(context.clone());
        context
    }

    pub(crate) fn claimed(&self, claim: ClaimContext) {
        // Only the one claim of the request is ever set.
        let _ = self.0.claim.set(claim);
    }

    /// How many times this operation has been started, this time included: 1 unless an earlier
    /// attempt died.
    pub fn attempt(&self) -> u32 {
        self.0.claim.get().map_or(1, |claim| claim.attempt)
    }

    /// The client's idempotency key; `None` if the request carries none.
    pub fn key(&self) -> Option<&IdempotencyKey> {
        self.0.claim.get().map(|claim| &claim.key)
    }

    /// A key for a call to another service, made for the purpose `name`.
    ///
    /// It is the same for every attempt at this operation, so that the other service recognises a
    /// repeat, and differs by name, scope and endpoint. It follows from these and the client's key
    /// alone: a key that is used again after the route's `ttl` gives the same downstream key, so
    /// that a retry which comes that late still charges once. What must be new with every record,
    /// such as the number of an order, is not to be made from it.
    ///
    /// It is a UUID (version 8, RFC 9562, section 5.8) and does not reveal the client's key. It
    /// needs no store: where a route runs unprotected while that is unavailable, it is what still
    /// tells a repeat. Without a key it is random for each request.
    pub fn downstream_key(&self, name: &str) -> Uuid {
        let identity = match self.0.claim.get() {
            Some(claim) => claim.id.clone(),
            None => {
                let unprotected = self.0.unprotected.get_or_init(Uuid::new_v4);
                RecordId::new("", unprotected.to_string(), "")
            }
        };
        identity.downstream_key(name)
    }

    /// Runs a part of the operation once for all its attempts: if an earlier attempt has finished
    /// the step `name`, its result is returned and `step` is not run.
    ///
    /// A step begins only while the claim is held: a process that has stood still for longer than
    /// its lease asks the store first, and does not run the step if another attempt has taken the
    /// operation over. The result is saved, as JSON, before this returns. A step that fails keeps
    /// nothing. Between the step's effect and the saved result the process can still die: give the
    /// effect a [`downstream_key`](Context::downstream_key), so that a repeat is recognised. Steps
    /// matter where a route lets abandoned work run again (`abandoned = "rerun"`) or reconciles it.
    ///
    /// Without a key, or where the route runs unprotected because the store is unavailable, the step
    /// just runs.
    ///
    /// ```
    /// use actix_web::HttpResponse;
    /// use idem_runtime::Context;
    /// # async fn charge(key: uuid::Uuid) -> Result<String, std::io::Error> { Ok(key.to_string()) }
    ///
    /// async fn pay(context: Context) -> actix_web::Result<HttpResponse> {
    ///     let key = context.downstream_key("charge");
    ///     let receipt: String = context.step("charge", async || charge(key).await).await?;
    ///     Ok(HttpResponse::Created().body(receipt))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StepError`]; a kept result that is not a `T` is an error, not a second run.
    pub async fn step<T, E>(
        &self,
        name: &str,
        step: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
    {
        match self.0.claim.get().map(|claim| &claim.steps) {
            None | Some(StepsOf::Nothing) => step().await.map_err(StepError::Failed),
            Some(StepsOf::Transaction) => Err(StepError::Transactional),
            Some(StepsOf::Record(steps)) => steps.run(name, step).await,
        }
    }

    /// Resolves when the claim can no longer be kept: it was taken over, or could not be renewed
    /// before its lease ran out. A long handler can stop before its next effect:
    ///
    /// ```
    /// # async fn next_effect() {}
    /// # async fn long(context: idem_runtime::Context) {
    /// tokio::select! {
    ///     () = context.lease_lost() => return, // somebody else may own the operation by now
    ///     () = next_effect() => {}
    /// }
    /// # }
    /// ```
    ///
    /// Never resolves for a request without a key, nor on a transactional route: there the commit is
    /// refused.
    pub async fn lease_lost(&self) {
        if let Some(lost) = self.0.claim.get().and_then(|claim| claim.lost.as_ref()) {
            return lost.wait().await;
        }
        std::future::pending().await
    }
}

impl FromRequest for Context {
    type Error = Infallible;
    type Future = Ready<Result<Context, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let installed = request.extensions().get::<Context>().cloned();
        ready(Ok(installed.unwrap_or_else(|| Context(Arc::default()))))
    }
}

impl RecordId {
    /// See [`Context::downstream_key`].
    pub(crate) fn downstream_key(&self, name: &str) -> Uuid {
        let hash = self.hash(&format!("downstream:{name}"));
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downstream_keys_are_stable_and_differ_by_name_scope_and_endpoint() {
        let id = RecordId::new("alice", "k1", "POST /orders");
        let key = id.downstream_key("charge");
        assert_eq!(key, id.downstream_key("charge"));
        assert_eq!(key.get_version_num(), 8);
        let others = [
            id.downstream_key("refund"),
            RecordId::new("bob", "k1", "POST /orders").downstream_key("charge"),
            RecordId::new("alice", "k2", "POST /orders").downstream_key("charge"),
            RecordId::new("alice", "k1", "POST /refunds").downstream_key("charge"),
        ];
        assert!(!others.contains(&key));
    }
}
