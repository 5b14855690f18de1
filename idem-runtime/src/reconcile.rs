//! Asking somebody who knows what became of an operation whose owner has died.
//!
//! A background task takes abandoned records, a bounded batch at a time, under a lease and a
//! fencing token of its own: any number of instances may do so at once, and each record is asked
//! about by one of them.

use crate::{
    drain::InFlight,
    engine::{Engine, error_chain},
    fail_points::point,
    record::{Answer, Record, StoredResponse},
    registry::{Route, routes},
    repair::within,
    steps,
    store::{AbandonedQuery, Renewal},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use serde::de::DeserializeOwned;
use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{runtime::Handle, sync::Notify};
use uuid::Uuid;

/// Records taken by one call.
const BATCH: u32 = 32;
/// Functions of one instance running at once.
const AT_ONCE: usize = 8;
/// How long one function may take where the builder does not say.
pub const DEFAULT_RECONCILE_PATIENCE: Duration = Duration::from_secs(30);
/// Bounds of the pause before a pending record is asked about again.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(300);

/// A route's function as generated code hands it over.
#[doc(hidden)]
pub type Reconcile = fn(Abandoned) -> BoxFuture<'static, Resolution>;

/// What a path after `reconcile = …` can stand for: an `async fn(Abandoned) -> Resolution`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`reconcile` takes an `async fn(Abandoned) -> Resolution`, which this is not",
    label = "not an `async fn(Abandoned) -> Resolution`",
    note = "write `async fn name(abandoned: Abandoned) -> Resolution`, with `Abandoned` (no reference) and `Resolution` of `idem_runtime`"
)]
pub trait Reconciler<A, Kind> {
    /// Calls the function, whose future is an `A`.
    fn ask(self, abandoned: Abandoned) -> A;
}

// Not recommended: else the compiler would speak of bounds that nobody has written.
#[diagnostic::do_not_recommend]
impl<F, A> Reconciler<A, Abandoned> for F
where
    F: Fn(Abandoned) -> A,
    A: Future<Output = Resolution>,
{
    fn ask(self, abandoned: Abandoned) -> A {
        self(abandoned)
    }
}

/// What nobody has.
#[doc(hidden)]
#[derive(Debug)]
#[allow(clippy::exhaustive_enums)] // there will be none of it
pub enum Nothing {}

// Nothing fits here. But where there is one impl only, the compiler speaks of its bounds all the same if a
// function has other arguments, and proposes a closure. Where there are two it says what the trait says.
#[diagnostic::do_not_recommend]
impl<F: AsRef<Nothing>, A> Reconciler<A, Nothing> for F {
    fn ask(self, _: Abandoned) -> A {
        match *self.as_ref() {}
    }
}

/// Calls a route's function from generated code.
#[doc(hidden)]
pub fn reconcile<F, A, Kind>(function: F, abandoned: Abandoned) -> BoxFuture<'static, Resolution>
where
    F: Reconciler<A, Kind>,
    // Not a bound of the trait's: what is held and not `Send` the compiler says best itself.
    A: Future<Output = Resolution> + Send + 'static,
{
    Box::pin(function.ask(abandoned))
}

/// Values that reconciling functions need, such as a client of the payment gateway, by their type.
pub(crate) type Values = HashMap<TypeId, Box<dyn Any + Send + Sync>>;

/// An operation whose owner has died before its answer was saved: what a function named by
/// `reconcile = …` is asked about.
pub struct Abandoned {
    record: Record,
    values: Arc<Values>,
}

impl Abandoned {
    /// The scope: who owned the key.
    pub fn scope(&self) -> &str {
        self.record.id.scope()
    }

    /// The client's idempotency key. Do not log it.
    pub fn key(&self) -> &str {
        self.record.id.key()
    }

    /// Method and path of the request, such as `POST /api/v1/payments`.
    pub fn request_path(&self) -> &str {
        self.record.id.request_path()
    }

    /// How many times the operation was started.
    pub fn attempt(&self) -> u32 {
        self.record.attempt
    }

    /// How long ago it was first started, by the store's clock.
    pub fn age(&self) -> Duration {
        self.record.now.since(self.record.created_at)
    }

    /// The key under which the handler called another service, see
    /// [`Context::downstream_key`](crate::Context::downstream_key).
    pub fn downstream_key(&self, name: &str) -> Uuid {
        self.record.id.downstream_key(name)
    }

    /// The kept result of a durable step, see [`Context::step`](crate::Context::step): `None` if
    /// the step is not known to have finished, or its result is of another type.
    pub fn step<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let results = steps::decode(self.record.steps.as_ref())?;
        serde_json::from_str(results.get(name)?).ok()
    }

    /// A value given to the builder with
    /// [`reconcile_with`](crate::IdempotencyBuilder::reconcile_with).
    pub fn value<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl fmt::Debug for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Abandoned")
            .field("record", &self.record.id)
            .field("attempt", &self.record.attempt)
            .finish_non_exhaustive()
    }
}

/// What became of an abandoned operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Resolution {
    /// It has taken effect: this is its answer, replayed to every retry.
    Complete(StoredResponse),
    /// It has not taken effect and will not any more: the key is freed, a retry runs.
    Release,
    /// It is not known yet: ask again later. The pauses grow with the record's age, from one second
    /// to five minutes.
    Pending,
}

/// Starts asking every `period`, and whenever a request meets an abandoned record, if any route of
/// the program has a function to ask.
pub(crate) fn start(
    engine: &Arc<Engine>,
    values: Values,
    in_flight: &Arc<InFlight>,
    period: Duration,
    patience: Duration,
    serves: impl Fn(&Route) -> bool,
    runtime: &Handle,
) {
    let functions: HashMap<&'static str, Reconcile> = routes()
        .filter(|route| serves(route))
        .filter_map(|route| Some((route.name, route.policy.reconcile?)))
        .collect();
    if functions.is_empty() {
        return;
    }
    let work = Work {
        engine: Arc::downgrade(engine),
        in_flight: Arc::clone(in_flight),
        functions,
        patience,
        values: Arc::new(values),
    };
    runtime.spawn(work.run(period, engine.abandoned_met()));
}

/// What the task that asks needs.
struct Work {
    engine: Weak<Engine>,
    in_flight: Arc<InFlight>,
    functions: HashMap<&'static str, Reconcile>,
    /// How long one of them may take. Its record is nobody else's for twice as long.
    patience: Duration,
    values: Arc<Values>,
}

impl Work {
    async fn run(self, period: Duration, wake: Arc<Notify>) {
        loop {
            // Instances that started together must not ask together.
            let spread =
                period.mul_f64(0.75 + 0.5 * f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0);
            tokio::select! {
                () = point!("reconcile.idle", tokio::time::sleep(spread)) => {}
                () = wake.notified() => {}
            }
            let Some(engine) = self.engine.upgrade() else {
                return;
            };
            let Some(_ticket) = self.in_flight.enter() else {
                return;
            };
            if self.in_flight.is_draining() {
                return;
            }
            while self.round(&engine).await >= BATCH as usize {}
        }
    }

    /// Takes one batch and asks about each of it. Says how many there were.
    async fn round(&self, engine: &Arc<Engine>) -> usize {
        let query = AbandonedQuery {
            handlers: self
                .functions
                .keys()
                .map(|name| (*name).to_owned())
                .collect(),
            owner: Uuid::new_v4(),
            lease: self.patience * 2,
            limit: BATCH,
        };
        let taken = within(engine.call_budget(), engine.store().take_abandoned(&query));
        let records = match point!("reconcile.take", taken).await {
            Ok(records) => records,
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "abandoned records could not be taken"
                );
                return 0;
            }
        };
        let count = records.len();
        futures_util::stream::iter(records)
            .for_each_concurrent(AT_ONCE, |record| {
                self.reconcile(engine, query.owner, record)
            })
            .await;
        count
    }

    async fn reconcile(&self, engine: &Arc<Engine>, owner: Uuid, record: Record) {
        let Some((&handler, function)) = self.functions.get_key_value(record.handler()) else {
            return;
        };
        if engine.hand_back(&record.id, owner) {
            tracing::info!(
                record = %record.id.digest(),
                "the lease ran out while the store was away: its owner is still at work"
            );
            return;
        }
        let (id, age) = (record.id.clone(), record.now.since(record.created_at));
        let abandoned = Abandoned {
            record,
            values: Arc::clone(&self.values),
        };
        let asked = AssertUnwindSafe(async { function(abandoned).await }).catch_unwind();
        let asked = tokio::time::timeout(self.patience, asked);
        let resolution = match point!("reconcile.ask", asked).await {
            Ok(Ok(resolution)) => resolution,
            Ok(Err(_)) => {
                tracing::error!(record = %id.digest(), handler, "the reconciling function panicked");
                Resolution::Pending
            }
            Err(_) => {
                tracing::error!(record = %id.digest(), handler, "the reconciling function took too long");
                Resolution::Pending
            }
        };
        let (store, budget) = (engine.store(), engine.call_budget());
        let (outcome, resolved) = match resolution {
            Resolution::Complete(response) => {
                let answer = Answer::Kept(response);
                let completed = within(budget, store.complete(&id, owner, &answer));
                ("completed", point!("reconcile.complete", completed).await)
            }
            Resolution::Release => {
                let released = within(budget, store.release(&id, owner));
                ("released", point!("reconcile.release", released).await)
            }
            Resolution::Pending => {
                let pause = age.clamp(*PAUSES.start(), *PAUSES.end());
                let renewal = [Renewal {
                    id: id.clone(),
                    owner,
                    lease: pause,
                }];
                let renewed = within(budget, store.renew(&renewal));
                let renewed = point!("reconcile.pending", renewed).await;
                ("pending", renewed.map(|_| ()))
            }
        };
        match resolved {
            Ok(()) => {
                tracing::info!(record = %id.digest(), handler, outcome, "abandoned record reconciled");
                metrics::counter!("idempotency_reconciled_total", "outcome" => outcome)
                    .increment(1);
            }
            // Its lease of twice our patience runs out, and it is asked about again.
            Err(error) => tracing::warn!(
                record = %id.digest(),
                handler,
                error = error_chain(&error),
                "the resolution of an abandoned record could not be saved"
            ),
        }
    }
}
