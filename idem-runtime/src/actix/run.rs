//! The whole flow of one request.

use crate::{
    actix::{
        body::{BodyError, KeptBody},
        config::{Idempotency, Served, Shared},
        render::not_configured,
        response::{Collected, LiveBody, LiveSender, Retention, collect, next_chunk, pass},
    },
    context::{ClaimContext, Context, StepsOf},
    drain::Ticket,
    engine::{Decision, LiveClaim, Request, Settled},
    fail_points::point,
    fingerprint::{self, FingerprintError, RequestParts},
    key::IdempotencyKey,
    outcome::{Verdict, verdict},
    panics::panic_message,
    path::{normalised, request_path},
    policy::{EffectivePolicy, KeyFormat},
    problem::{Problem, ProblemKind},
    record::{Answer, MAX_ROUTE, RecordId},
    registry::Route,
    scope::bounded,
};
use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse, Responder,
    body::{BodySize, BoxBody, MessageBody},
    http::{
        ConnectionType, Method, Version,
        header::{self, AsHeaderName},
    },
    rt,
    web::{self, Bytes},
};
use futures_util::{FutureExt, future::LocalBoxFuture};
use std::{
    cell::Cell,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
};
use tokio::sync::oneshot;

/// Runs an annotated handler: what generated code calls.
///
/// This is the only part that is generic over the handler, and therefore small.
#[doc(hidden)]
pub async fn run<Args, Handler, Running>(
    route: &'static Route,
    request: HttpRequest,
    payload: web::Payload,
    handler: Handler,
) -> Result<HttpResponse, Error>
where
    Args: FromRequest + 'static,
    Handler: FnOnce(Args) -> Running + 'static,
    Running: Future + 'static,
    Running::Output: Responder,
{
    let admitted = match admit(route, &request) {
        Admission::Unprotected => {
            let mut payload = payload.into_inner();
            let args = Args::from_request(&request, &mut payload)
                .await
                .map_err(Into::into)?;
            let response = handler(args).await.respond_to(&request);
            return Ok(response.map_into_boxed_body());
        }
        Admission::Refused(response) => return Ok(response),
        Admission::Protected(admitted) => admitted,
    };
    let body = KeptBody::new(&request, payload, admitted.policy.max_body);
    if admitted.unfolds_too_far(&body).await {
        return Ok(admitted.refuse_body());
    }
    let extracted = Args::from_request(&request, &mut body.payload());
    let args = match point!("run.extractors", extracted).await {
        Ok(args) => args,
        Err(_) if body.is_over_limit() => return Ok(admitted.refuse_body()),
        Err(error) => return Err(error.into()),
    };
    let running = async move {
        handler(args)
            .await
            .respond_to(&request)
            .map_into_boxed_body()
    };
    let running = Box::pin(running);
    let section: Section = Box::new(move |admitted, request, send| {
        Box::pin(section(admitted, request, running, send))
    });
    admitted.protect(body, section).await
}

/// Takes the answer to the client, if it is still there.
pub(crate) type Reply = Box<dyn FnOnce(HttpResponse)>;

/// From the claim to the saved result.
pub(crate) type Section =
    Box<dyn FnOnce(Box<Admitted>, Request, Reply) -> LocalBoxFuture<'static, ()>>;

/// Whether and how a request is protected, known before its body is touched.
pub(crate) enum Admission {
    /// No key, or a safe method: as if the attribute were not there.
    Unprotected,
    Refused(HttpResponse),
    Protected(Box<Admitted>),
}

/// A request with a valid key.
pub(crate) struct Admitted {
    pub(crate) shared: Arc<Shared>,
    pub(crate) policy: Arc<EffectivePolicy>,
    pub(crate) key: IdempotencyKey,
    pub(crate) context: Context,
    route: &'static Route,
    request: HttpRequest,
    /// Counts the request as in flight, until its result is saved.
    ticket: Cell<Option<Ticket>>,
}

pub(crate) fn admit(route: &'static Route, request: &HttpRequest) -> Admission {
    if is_safe(request.method()) {
        return Admission::Unprotected;
    }
    let serving = Idempotency::serving(request, route);
    let Some((shared, Served { policy, key_header })) = serving else {
        return Admission::Refused(not_configured(request, route.name));
    };
    let refuse = |problem: Problem| {
        shared.count(outcome_label(problem.kind));
        Admission::Refused(shared.problem(&problem, request))
    };
    let lines = request
        .headers()
        .get_all(key_header)
        .map(|value| value.as_bytes());
    let key = match IdempotencyKey::parse(lines) {
        Ok(Some(key)) => key,
        Ok(None) if policy.required => return refuse(Problem::key_missing(policy.header)),
        Ok(None) => return Admission::Unprotected,
        Err(error) => return refuse(Problem::key_invalid(policy.header, &error)),
    };
    if policy.key_format == KeyFormat::Uuid && !key.is_uuid() {
        return refuse(Problem::key_no_uuid(policy.header));
    }
    Admission::Protected(Box::new(Admitted {
        policy: Arc::clone(policy),
        route,
        request: request.clone(),
        key,
        context: Context::install(request),
        ticket: Cell::new(None),
        shared: Arc::clone(shared),
    }))
}

/// RFC 9110, section 9.2.1.
fn is_safe(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE
    )
}

impl Admitted {
    pub(crate) fn refuse(&self, kind: ProblemKind) -> HttpResponse {
        self.answer(Problem::new(kind))
    }

    pub(crate) fn refuse_body(&self) -> HttpResponse {
        self.answer(Problem::body_too_large(self.policy.max_body))
    }

    pub(crate) fn answer(&self, problem: Problem) -> HttpResponse {
        self.shared.count(outcome_label(problem.kind));
        self.shared.problem(&problem, &self.request)
    }

    /// Everything from the scope to the answer, for a handler whose extractors have succeeded.
    pub(crate) async fn protect(
        self: Box<Self>,
        body: KeptBody,
        section: Section,
    ) -> Result<HttpResponse, Error> {
        let scope = self.shared.resolve_scope(self.policy.scope, &self.request);
        let Some(scope) = point!("run.scope", scope).await? else {
            return Ok(self.refuse(ProblemKind::ScopeUnresolved));
        };
        match point!("run.body", body.finish()).await {
            Ok(()) => {}
            Err(BodyError::TooLarge) => return Ok(self.refuse_body()),
            Err(BodyError::Broken(error)) => return Err(error.into()),
        }
        let request = match self.claim_request(scope, &body.bytes()) {
            Ok(request) => request,
            // A compressed body that unfolds beyond the limit.
            Err(_) => return Ok(self.refuse_body()),
        };
        match self.shared.in_flight.enter() {
            Some(ticket) => self.ticket.set(Some(ticket)),
            None => return Ok(self.refuse(ProblemKind::ShuttingDown)),
        }
        let (answer, answered) = oneshot::channel();
        let (shared, http_request) = (Arc::clone(&self.shared), self.request.clone());
        let knows_chunks = http_request.version() >= Version::HTTP_11;
        let send = Box::new({
            let shared = Arc::clone(&shared);
            move |mut response: HttpResponse| {
                if !knows_chunks && matches!(response.body().size(), BodySize::Stream) {
                    // The body ends with the connection (RFC 9112, section 6.3). actix would send
                    // chunks whatever the version.
                    let head = response.head_mut();
                    head.no_chunking(true);
                    head.set_connection_type(ConnectionType::Close);
                }
                if shared.in_flight.is_draining() {
                    response
                        .head_mut()
                        .set_connection_type(ConnectionType::Close);
                }
                // Nobody may be there any more to receive it; the record has it.
                let _ = answer.send(response);
            }
        });
        let mut section = section(self, request, send);
        // From the claim to the saved result the client's presence means nothing: a task of its own.
        // What needs no waiting, such as a replay from memory, is over before there has to be one.
        let begun = poll_fn(|context| {
            let poll = AssertUnwindSafe(|| section.as_mut().poll(context));
            Poll::Ready(catch_unwind(poll))
        });
        match begun.await {
            Ok(Poll::Pending) => drop(rt::spawn(section)),
            Ok(Poll::Ready(())) | Err(_) => drop(section),
        }
        Ok(point!("run.answered", answered).await.unwrap_or_else(|_| {
            tracing::error!("the section of a request ended without an answer");
            shared.problem(&Problem::new(ProblemKind::HandlerPanicked), &http_request)
        }))
    }

    fn claim_request(&self, scope: String, body: &[u8]) -> Result<Request, FingerprintError> {
        let path = normalised(self.request.path());
        let mut parts = self.parts(&path, body);
        for name in self.policy.headers {
            parts = parts.header(name, self.lines(*name));
        }
        let options = fingerprint::Options::default()
            .mode(self.policy.fingerprint)
            .ignore(self.policy.ignore)
            .hmac_key(self.shared.hmac_key.as_ref())
            .max_decoded(self.policy.max_body);
        let also_accepted = match &self.shared.previous_hmac_key {
            Some(key) => {
                Some(fingerprint::fingerprint(&parts, &options.hmac_key(Some(key)))?.to_hex())
            }
            None => None,
        };
        Ok(Request {
            fingerprint: fingerprint::fingerprint(&parts, &options)?.to_hex(),
            also_accepted,
            id: RecordId::new(
                scope,
                self.key.as_str(),
                request_path(self.request.method().as_str(), &path),
            ),
            route: self.route_column(),
        })
    }

    fn lines(&self, name: impl AsHeaderName) -> impl Iterator<Item = &[u8]> {
        self.request
            .headers()
            .get_all(name)
            .map(|value| value.as_bytes())
    }

    fn parts<'a>(&'a self, path: &'a str, body: &'a [u8]) -> RequestParts<'a> {
        RequestParts::new(self.request.method().as_str(), path, body)
            .query(self.request.query_string())
            .content_type(self.lines(header::CONTENT_TYPE).next())
            .content_encoding(self.lines(header::CONTENT_ENCODING))
    }

    /// Refuses a compressed body that unfolds beyond the limit, before an extractor unfolds it:
    /// those have the whole of it in memory before they look at its size.
    pub(crate) async fn unfolds_too_far(&self, body: &KeptBody) -> bool {
        if !self
            .request
            .headers()
            .contains_key(header::CONTENT_ENCODING)
        {
            return false;
        }
        // What is wrong with it otherwise, the extractors will find and say.
        if point!("run.compressed_body", body.finish()).await.is_err() {
            return false;
        }
        let options = fingerprint::Options::default().max_decoded(self.policy.max_body);
        let (path, bytes) = (normalised(self.request.path()), body.bytes());
        fingerprint::fingerprint(&self.parts(&path, &bytes), &options).is_err()
    }

    /// Pattern and handler: `POST /orders/{id} shop::orders::create`.
    fn route_column(&self) -> String {
        let handler = self.route.name;
        let pattern = route_pattern(&self.request);
        let room = MAX_ROUTE.saturating_sub(handler.len() + 1);
        [bounded(pattern, room).as_str(), " ", handler].concat()
    }

    /// The answer to a request whose handler does not run.
    pub(crate) fn without_running(&self, decision: Decision) -> HttpResponse {
        match decision {
            Decision::Replay(stored) => match self.shared.replay.replay(stored) {
                Some(mut response) => {
                    self.shared.touch_up(&mut response, &self.request);
                    self.shared.count("replayed");
                    response
                }
                None => {
                    tracing::error!(
                        handler = self.route.name,
                        "a kept response cannot be replayed"
                    );
                    self.refuse(ProblemKind::RecordUnreadable)
                }
            },
            Decision::Refuse(problem) => self.answer(problem),
            Decision::Run(_) | Decision::RunUnprotected(_) => {
                self.refuse(ProblemKind::StoreUnavailable)
            }
        }
    }

    /// What the handler gives, or `None` and a log line if it panics.
    pub(crate) async fn caught<T>(&self, running: impl Future<Output = T>) -> Option<T> {
        let running = AssertUnwindSafe(running).catch_unwind();
        match point!("run.handler", running).await {
            Ok(given) => Some(given),
            Err(panic) => {
                tracing::error!(
                    handler = self.route.name,
                    key = %self.key.digest(),
                    "the handler panicked: {}",
                    panic_message(&*panic)
                );
                None
            }
        }
    }

    /// The handler's response; a panic becomes one.
    async fn response(&self, handler: LocalBoxFuture<'static, HttpResponse>) -> HttpResponse {
        self.caught(handler).await.unwrap_or_else(|| {
            let problem = Problem::new(ProblemKind::HandlerPanicked);
            let problem = if self.policy.releases(problem.status) {
                Problem::panicked_and_freed("before anything had happened")
            } else {
                problem
            };
            self.shared.problem(&problem, &self.request)
        })
    }

    /// Keeps or releases, and only then answers.
    async fn settle(&self, claim: Box<LiveClaim>, response: HttpResponse, send: Reply) {
        let released = match verdict(&response) {
            Some(Verdict::Release) => true,
            Some(Verdict::Keep) => false,
            None => self.policy.releases(response.status().as_u16()),
        };
        if released {
            let settled = claim.release().await;
            return send(self.unless_fenced(settled, response).await);
        }
        match Retention::of(&response, self.policy.max_response) {
            Retention::Whole => self.settle_whole(claim, response, send).await,
            // In boxes of their own: what is seldom needed must not make the section larger, which
            // takes memory for each request.
            Retention::Never => Box::pin(self.settle_unkept(claim, response, send)).await,
            Retention::WhilePassing => Box::pin(self.settle_passing(claim, response, send)).await,
        }
    }

    /// The client gets the whole body, the record a tombstone.
    async fn settle_unkept(&self, claim: Box<LiveClaim>, response: HttpResponse, send: Reply) {
        let size = response.body().size();
        let tombstone = Answer::Tombstone {
            code: response.status().as_u16(),
        };
        let settled = claim.complete(tombstone).await;
        if let Settled::Fenced(_) = settled {
            return send(self.unless_fenced(settled, response).await);
        }
        let (client, live) = LiveBody::new(size);
        let (head, body) = response.into_parts();
        send(head.set_body(BoxBody::new(live)));
        self.saved();
        pass(body, client).await;
    }

    /// The result is saved: what is left concerns the client alone, and a shutdown need not wait
    /// for it any longer than for any other connection.
    fn saved(&self) {
        self.ticket.take();
    }

    async fn settle_whole(&self, claim: Box<LiveClaim>, response: HttpResponse, send: Reply) {
        let (head, body) = response.into_parts();
        let code = head.status().as_u16();
        match collect(body, self.policy.max_response).await {
            Collected::Whole(bytes) => {
                let answer = Answer::Kept(self.shared.replay.stored(&head, bytes.clone()));
                let settled = claim.complete(answer).await;
                let response = head.set_body(match bytes {
                    Some(bytes) => BoxBody::new(bytes),
                    None => BoxBody::new(actix_web::body::None::new()),
                });
                send(self.unless_fenced(settled, response).await);
            }
            // It broke off, or held more than it had announced.
            partial @ (Collected::Broken { .. } | Collected::TooLarge { .. }) => {
                tracing::error!(
                    handler = self.route.name,
                    "a response's body could not be retained"
                );
                let settled = claim.complete(Answer::Tombstone { code }).await;
                if let Settled::Fenced(_) = settled {
                    let own = head.set_body(BoxBody::new(actix_web::body::None::new()));
                    return send(self.unless_fenced(settled, own).await);
                }
                Box::pin(respond(head, partial, send)).await;
            }
        }
    }

    /// A streamed body passes live while a copy is kept. Its end is sent after the record is saved,
    /// so that whoever has seen the whole answer can rely on a replay.
    async fn settle_passing(&self, claim: Box<LiveClaim>, response: HttpResponse, send: Reply) {
        let (head, mut body) = response.into_parts();
        let mut stored = self.shared.replay.stored(&head, None);
        let tombstone = Answer::Tombstone { code: stored.code };
        let (client, live) = LiveBody::new(BodySize::Stream);
        send(head.set_body(BoxBody::new(live)));
        let mut copy: Vec<u8> = Vec::new();
        while let Some(chunk) = next_chunk(&mut body).await {
            match chunk {
                Ok(chunk) if copy.len() + chunk.len() > self.policy.max_response => {
                    let settled = claim.complete(tombstone).await;
                    self.saved();
                    if let Settled::Fenced(_) = settled {
                        return self.break_off(&client).await;
                    }
                    let _ = point!("stream.over_limit", client.send(Ok(chunk))).await;
                    return pass(body, client).await;
                }
                Ok(chunk) => {
                    copy.extend_from_slice(&chunk);
                    let _ = point!("stream.chunk", client.send(Ok(chunk))).await;
                }
                Err(error) => {
                    tracing::error!(
                        handler = self.route.name,
                        "the response's stream broke off and cannot be retained: {error}"
                    );
                    claim.complete(tombstone).await;
                    let _ = point!("stream.broken", client.send(Err(error))).await;
                    return;
                }
            }
        }
        stored.body = Some(Bytes::from(copy));
        if let Settled::Fenced(_) = claim.complete(Answer::Kept(stored)).await {
            self.break_off(&client).await;
        }
    }

    /// Ends a body before its end: it is the beginning of an answer that is nobody's, and the client
    /// must not take it for a whole one.
    async fn break_off(&self, client: &LiveSender) {
        self.shared.count("fenced");
        let fenced = "another attempt owns the key: retry with it to get its answer";
        let _ = client.send(Err(fenced.into())).await;
    }

    /// The attempt's own response, unless another attempt owns the key: then that one's answer is
    /// the answer.
    async fn unless_fenced(&self, settled: Settled, response: HttpResponse) -> HttpResponse {
        let Settled::Fenced(attempt) = settled else {
            return response;
        };
        self.shared.count("fenced");
        match Box::pin(self.shared.engine.answer_of_the_winner(&attempt)).await {
            Some(decision) => self.without_running(decision),
            None => response,
        }
    }
}

/// From the claim to the saved result, on a route whose claim is a lease.
async fn section(
    admitted: Box<Admitted>,
    request: Request,
    handler: LocalBoxFuture<'static, HttpResponse>,
    send: Reply,
) {
    let shared = &admitted.shared;
    match shared.engine.begin(&admitted.policy, request).await {
        Decision::Run(claim) => {
            admitted.context.claimed(ClaimContext {
                id: claim.id().clone(),
                key: admitted.key.clone(),
                attempt: claim.attempt(),
                lost: Some(claim.lost()),
                steps: StepsOf::Record(claim.steps(admitted.policy.lease)),
            });
            shared.count(if claim.attempt() == 1 {
                "executed"
            } else {
                "executed_again"
            });
            let response = admitted.response(handler).await;
            admitted.settle(claim, response, send).await;
        }
        Decision::RunUnprotected(id) => {
            admitted.context.claimed(ClaimContext {
                id,
                key: admitted.key.clone(),
                attempt: 1,
                lost: None,
                steps: StepsOf::Nothing,
            });
            shared.count("degraded");
            send(admitted.response(handler).await);
        }
        decision => send(admitted.without_running(decision)),
    }
}

/// Sends a response whose body has been collected as far as it may be kept.
pub(crate) async fn respond(head: HttpResponse<()>, collected: Collected, send: Reply) {
    match collected {
        Collected::Whole(None) => {
            send(head.set_body(BoxBody::new(actix_web::body::None::new())));
        }
        Collected::Whole(Some(bytes)) => send(head.set_body(BoxBody::new(bytes))),
        Collected::Broken { size, read, error } => {
            let (client, live) = LiveBody::new(size);
            send(head.set_body(BoxBody::new(live)));
            if read.is_empty() || client.send(Ok(read)).await.is_ok() {
                let _ = point!("respond.broken", client.send(Err(error))).await;
            }
        }
        Collected::TooLarge { size, read, rest } => {
            let (client, live) = LiveBody::new(size);
            send(head.set_body(BoxBody::new(live)));
            if !read.is_empty() && point!("respond.read", client.send(Ok(read))).await.is_err() {
                return;
            }
            pass(rest, client).await;
        }
    }
}

/// Method and route pattern, such as `POST /orders/{id}`.
pub(crate) fn route_pattern(request: &HttpRequest) -> String {
    let pattern = request.match_pattern();
    let pattern = pattern.as_deref().unwrap_or("(no pattern)");
    [request.method().as_str(), " ", pattern].concat()
}

/// The outcome under which a problem is counted.
fn outcome_label(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::KeyMissing => "key_missing",
        ProblemKind::KeyInvalid => "key_invalid",
        ProblemKind::ScopeUnresolved => "scope_unresolved",
        ProblemKind::BodyTooLarge => "body_too_large",
        ProblemKind::NotConfigured => "not_configured",
        ProblemKind::InProgress => "in_progress",
        ProblemKind::KeyReused => "key_reused",
        ProblemKind::ResponseNotRetained => "response_not_retained",
        ProblemKind::OutcomeUnknown => "outcome_unknown",
        ProblemKind::StoreUnavailable => "store_unavailable",
        ProblemKind::RecordUnreadable => "record_unreadable",
        ProblemKind::HandlerPanicked => "handler_panicked",
        ProblemKind::ShuttingDown => "shutting_down",
    }
}
