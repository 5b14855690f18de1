//! The flow of a request on a transactional route.

use crate::{
    actix::{
        body::KeptBody,
        config::{Idempotency, Shared},
        conflict,
        render::not_configured,
        response::{Collected, Retention, collect},
        run::{Admission, Admitted, Reply, Section, admit, respond},
    },
    context::{ClaimContext, StepsOf},
    engine::{Engine, Request},
    fail_points::point,
    outcome::{Verdict, verdict},
    policy::EffectivePolicy,
    problem::{Problem, ProblemKind},
    record::Answer,
    registry::Route,
    repair::within,
    store::{Connection, OpenTransaction, StoreError},
    transaction::{self, Ending, TransactionDecision},
};
use actix_web::{Error, FromRequest, HttpRequest, HttpResponse, Responder, web};
use futures_util::future::LocalBoxFuture;
use std::sync::Arc;

type Open<C> = Box<dyn OpenTransaction<C>>;

/// The user's function with its arguments: takes the transaction, lends its connection, and gives
/// it back with what it has given.
type Work<C> = Box<dyn FnOnce(Open<C>) -> LocalBoxFuture<'static, (Open<C>, Given)>>;

/// What a handler has given.
struct Given {
    response: HttpResponse,
    /// Its error says that the database has refused a statement in favour of another transaction.
    refused: bool,
}

impl Given {
    /// Whether the handler has failed because of such a refusal: then nothing is wrong with the
    /// request, and a retry can succeed. What the handler has itself said or answered stands.
    async fn is_refused<C>(&self, engine: &Engine, transaction: &mut Open<C>) -> bool {
        if verdict(&self.response).is_some() || self.response.status().as_u16() < 500 {
            return false;
        }
        let asked = async {
            self.refused
                || tokio::time::timeout(engine.call_budget(), transaction.is_refused())
                    .await
                    .unwrap_or(false)
        };
        let refused = point!("tx.refused", asked).await;
        if refused {
            tracing::warn!(
                error = self.response.error().map(tracing::field::display),
                "a statement of the handler's was refused in favour of another transaction"
            );
        }
        refused
    }
}

/// Runs an annotated handler with `transaction = …`: what generated code calls.
#[doc(hidden)]
pub async fn run_in_transaction<Args, C, Handler, Output>(
    route: &'static Route,
    request: HttpRequest,
    payload: web::Payload,
    handler: Handler,
) -> Result<HttpResponse, Error>
where
    Args: FromRequest + 'static,
    C: Connection,
    // With the answer to whether the error says that a statement was refused.
    Handler: AsyncFnOnce(Args, &mut C) -> (Output, bool) + 'static,
    Output: Responder,
{
    let admitted = match admit(route, &request) {
        Admission::Unprotected => None,
        Admission::Refused(response) => return Ok(response),
        Admission::Protected(admitted) => Some(admitted),
    };
    let Some(admitted) = admitted else {
        let mut payload = payload.into_inner();
        let args = Args::from_request(&request, &mut payload)
            .await
            .map_err(Into::into)?;
        return Ok(without_key(route, &request.clone(), work(request, handler, args)).await);
    };
    let body = KeptBody::new(&request, payload, admitted.policy.max_body);
    if admitted.unfolds_too_far(&body).await {
        return Ok(admitted.refuse_body());
    }
    let extracted = Args::from_request(&request, &mut body.payload());
    let args = match point!("tx.extractors", extracted).await {
        Ok(args) => args,
        Err(_) if body.is_over_limit() => return Ok(admitted.refuse_body()),
        Err(error) => return Err(error.into()),
    };
    let work = work(request, handler, args);
    let section: Section =
        Box::new(move |admitted, request, send| Box::pin(section(admitted, request, work, send)));
    admitted.protect(body, section).await
}

fn work<Args, C, Handler, Output>(request: HttpRequest, handler: Handler, args: Args) -> Work<C>
where
    Args: 'static,
    C: Connection,
    Handler: AsyncFnOnce(Args, &mut C) -> (Output, bool) + 'static,
    Output: Responder,
{
    Box::new(move |mut transaction| {
        Box::pin(async move {
            let (output, refused) = handler(args, transaction.connection()).await;
            let response = output.respond_to(&request).map_into_boxed_body();
            let refused = refused || response.error().is_some_and(conflict::is_in);
            (transaction, Given { response, refused })
        })
    })
}

/// From the claim to the commit.
async fn section<C: Connection>(
    admitted: Box<Admitted>,
    request: Request,
    work: Work<C>,
    send: Reply,
) {
    let shared = &admitted.shared;
    let claimed = match shared
        .engine
        .begin_transaction(&admitted.policy, request)
        .await
    {
        TransactionDecision::Run(claimed) => claimed,
        TransactionDecision::Otherwise(decision) => {
            return send(admitted.without_running(decision));
        }
    };
    let settlement = claimed.settlement;
    admitted.context.claimed(ClaimContext {
        id: settlement.id().clone(),
        key: admitted.key.clone(),
        attempt: claimed.attempt,
        lost: None,
        steps: StepsOf::Transaction,
    });
    shared.count("executed");
    let running = async { work(claimed.transaction).await };
    let Some((mut transaction, given)) = admitted.caught(running).await else {
        // The transaction went down with the handler: nothing has happened.
        settlement.free();
        let problem = Problem::panicked_and_freed("and was rolled back");
        return send(admitted.answer(problem));
    };
    if given.is_refused(&shared.engine, &mut transaction).await {
        // Whatever became of the rollback: without a commit there is nothing.
        let _ = settlement.end(transaction, Ending::Rollback).await;
        return send(admitted.answer(transaction::not_committed()));
    }
    let response = given.response;
    let disposition = Disposition::of(&response, &admitted.policy);
    let limit = admitted.policy.max_response;
    let retention = Retention::of(&response, limit);
    let (head, body) = response.into_parts();
    let collected = match retention {
        Retention::Never => Collected::left(body),
        // A stream is not passed on live: not a byte may leave before the commit.
        Retention::Whole | Retention::WhilePassing => collect(body, limit).await,
    };
    let code = head.status().as_u16();
    let answer = match &collected {
        Collected::Whole(bytes) => Answer::Kept(shared.replay.stored(&head, bytes.clone())),
        Collected::TooLarge { .. } | Collected::Broken { .. } => Answer::Tombstone { code },
    };
    let ending = match disposition {
        Disposition::Commit => Ending::Commit(answer),
        Disposition::KeepAnswerOnly => Ending::KeepAnswerOnly(answer),
        Disposition::Rollback => Ending::Rollback,
    };
    if let Err(problem) = settlement.end(transaction, ending).await {
        return send(admitted.answer(problem));
    }
    respond(head, collected, send).await;
}

/// What becomes of the handler's writes.
enum Disposition {
    Commit,
    KeepAnswerOnly,
    Rollback,
}

impl Disposition {
    fn of(response: &HttpResponse, policy: &EffectivePolicy) -> Disposition {
        let status = response.status().as_u16();
        let released = match verdict(response) {
            Some(Verdict::Release) => true,
            Some(Verdict::Keep) => false,
            None => policy.releases(status),
        };
        match status {
            _ if released => Disposition::Rollback,
            400.. => Disposition::KeepAnswerOnly,
            _ => Disposition::Commit,
        }
    }
}

/// A request without a key: an ordinary transaction, committed by the same rule.
async fn without_key<C: Connection>(
    route: &'static Route,
    request: &HttpRequest,
    work: Work<C>,
) -> HttpResponse {
    let Some((shared, served)) = Idempotency::serving(request, route) else {
        return not_configured(request, route.name);
    };
    match attempt_without_key(shared, &served.policy, work).await {
        Ok(response) => response,
        Err(problem) => shared.problem(&problem, request),
    }
}

async fn attempt_without_key<C: Connection>(
    shared: &Arc<Shared>,
    policy: &EffectivePolicy,
    work: Work<C>,
) -> Result<HttpResponse, Problem> {
    let engine = &shared.engine;
    let unavailable = |error: StoreError| {
        tracing::error!(
            error = crate::engine::error_chain(&error),
            "no transaction could be opened"
        );
        Problem::new(ProblemKind::StoreUnavailable)
            .with_detail("The request was not carried out. Retry later.")
    };
    let store =
        C::store(&**engine.store()).ok_or_else(|| Problem::new(ProblemKind::NotConfigured))?;
    let transaction = within(engine.call_budget(), store.begin())
        .await
        .map_err(unavailable)?;
    let (mut transaction, given) = work(transaction).await;
    if given.is_refused(engine, &mut transaction).await {
        transaction::end(engine, transaction, Ending::Rollback).await?;
        return Err(transaction::not_committed());
    }
    let response = given.response;
    let code = response.status().as_u16();
    let ending = match Disposition::of(&response, policy) {
        // Without a claim there is no record: the answer is only sent.
        Disposition::Commit => Ending::Commit(Answer::Tombstone { code }),
        Disposition::KeepAnswerOnly | Disposition::Rollback => Ending::Rollback,
    };
    transaction::end(engine, transaction, ending).await?;
    Ok(response)
}
