//! The one body that all routes run.

use crate::{
    answers::{self, Created, Failure},
    callers::Caller,
    crash,
    journal::{Journal, Line, now_ms},
    knobs::{CrashAt, Knobs, Respond},
    orders::{Enter, Order},
};
use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse, dev::Payload, error::ErrorInternalServerError,
    web,
};
use idem_runtime::Context;
use sha2::{Digest, Sha256};
use std::future::{Ready, ready};

/// What a handler returns: some of its failures are errors, so that both ways out are used.
pub(crate) type Outcome = Result<HttpResponse, Failure>;

/// Everything that a handler needs but the request's body; an extractor.
pub(crate) struct Job {
    caller: Caller,
    context: Context,
    knobs: Knobs,
    journal: web::Data<Journal>,
    request: HttpRequest,
}

impl FromRequest for Job {
    type Error = Error;
    type Future = Ready<Result<Job, Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready((|| {
            let Ok(context) = Context::from_request(request, payload).into_inner();
            Ok(Job {
                caller: Caller::from_request(request, payload).into_inner()?,
                context,
                knobs: Knobs::of(request)?,
                journal: request
                    .app_data::<web::Data<Journal>>()
                    .cloned()
                    .ok_or_else(|| ErrorInternalServerError("the lab has no journal"))?,
                request: request.clone(),
            })
        })())
    }
}

impl Job {
    /// Does what every route does with the body it was given, the effect being a line in the journal.
    pub(crate) async fn run(self, body: &[u8]) -> Outcome {
        self.around(body, async |run| run.write("effect")).await
    }

    /// The same with a row in the table of orders, written through the handler's transaction.
    pub(crate) async fn run_in_transaction(self, body: &[u8], tx: &mut impl Enter) -> Outcome {
        let user_name = self.caller.user.clone();
        let leaves_open = matches!(self.knobs.respond, Respond::Nested);
        self.around(body, async |run| {
            let order = Order {
                id: run.order,
                user_name,
                body_sha256: run.body_sha256.clone(),
            };
            tx.enter(&order).await?;
            if leaves_open {
                tx.leave_open().await?;
            }
            run.write("effect")
        })
        .await
    }

    /// The same in two durable steps before the effect.
    pub(crate) async fn run_in_steps(self, body: &[u8]) -> Outcome {
        let crash = self.knobs.crash;
        let context = self.context.clone();
        self.around(body, async |run| {
            let step = async |name: &str| {
                let phase = format!("step:{name}");
                let done = context.step(name, async || run.write(&phase)).await;
                done.map_err(|error| Failure::step(&error))
            };
            step("reserve").await?;
            if crash == Some(CrashAt::BetweenSteps) {
                crash::now();
            }
            step("charge").await?;
            run.write("effect")
        })
        .await
    }

    /// Start, half of the delay, the effect, the other half, end, answer.
    async fn around(
        self,
        body: &[u8],
        effect: impl AsyncFnOnce(&Run<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let run = Run::begin(&self, body);
        let half = self.knobs.delay / 2;
        run.write("start")?;
        pause(half).await;
        if self.knobs.crash == Some(CrashAt::BeforeEffect) {
            crash::now();
        }
        if self.knobs.respond.has_effect() {
            effect(&run).await?;
        }
        if self.knobs.crash == Some(CrashAt::AfterEffect) {
            crash::now();
        }
        pause(self.knobs.delay - half).await;
        if matches!(self.knobs.respond, Respond::Panic) {
            answers::panic_on_demand();
        }
        run.write("end")?;
        if self.knobs.crash == Some(CrashAt::AfterCommit) {
            crash::when_the_answer_leaves(&self.request);
        }
        let created = Created {
            id: run.order,
            attempt: self.context.attempt(),
            body_sha256: &run.body_sha256,
        };
        answers::answer(self.knobs.respond, &created)
    }
}

async fn pause(length: std::time::Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}

/// One execution of a handler, as the journal knows it.
struct Run<'a> {
    job: &'a Job,
    id: String,
    order: i64,
    route: String,
    body_sha256: String,
    downstream_key: String,
}

impl<'a> Run<'a> {
    fn begin(job: &'a Job, body: &[u8]) -> Run<'a> {
        let pattern = job.request.match_pattern();
        Run {
            job,
            id: uuid::Uuid::new_v4().to_string(),
            order: answers::random_id(),
            route: format!(
                "{} {}",
                job.request.method(),
                pattern.as_deref().unwrap_or_else(|| job.request.path())
            ),
            body_sha256: hex(&Sha256::digest(body)),
            downstream_key: job.context.downstream_key("charge").to_string(),
        }
    }

    fn write(&self, phase: &str) -> Result<(), Failure> {
        let Job {
            caller, context, ..
        } = self.job;
        let line = Line {
            run: &self.id,
            phase,
            route: &self.route,
            user: &caller.user,
            tenant: caller.tenant.as_deref(),
            key: context.key().map(|key| key.as_str()),
            attempt: context.attempt(),
            pid: std::process::id(),
            at_ms: now_ms(),
            body_sha256: &self.body_sha256,
            downstream_key: &self.downstream_key,
        };
        self.job
            .journal
            .write(&line)
            .map_err(|error| Failure::journal(&error))
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
