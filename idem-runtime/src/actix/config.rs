//! The program's configuration: one `Idempotency` for all its routes.

use crate::{
    actix::{render::ProblemStyle, response::ReplayRules, serve::DEFAULT_DRAIN_LIMIT},
    drain::InFlight,
    engine::Engine,
    fingerprint::{HmacKey, Mode, check_pointer},
    orphans,
    policy::{
        Abandonment, EffectivePolicy, KeyFormat, Mismatch, OnStoreError, Options, ServerError,
    },
    problem::Problem,
    reconcile::{self, DEFAULT_RECONCILE_PATIENCE, Values},
    registry::{Route, routes},
    scope::{GLOBAL, Scope, ScopeValue, column},
    store::Store,
    sweeper,
};
use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse, dev::Payload, http::header::HeaderName, web,
};
use futures_util::future::LocalBoxFuture;
use std::{
    any::TypeId,
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};
use tokio::runtime::Handle;

/// Budget of one store call where the builder does not set another.
pub const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two sweeps of expired records where the builder does not set another.
pub const DEFAULT_SWEEP_PERIOD: Duration = Duration::from_secs(60);
/// Time between two rounds of reconciliation where the builder does not set another.
pub const DEFAULT_RECONCILE_PERIOD: Duration = Duration::from_secs(1);
/// Time between two looks for orphaned records where the builder does not set another.
pub const DEFAULT_ORPHANS_PERIOD: Duration = Duration::from_secs(3600);
/// Header that marks a replay where the builder does not name another.
pub const DEFAULT_MARKER: &str = "idempotent-replayed";

type Resolver = Arc<
    dyn Fn(&HttpRequest) -> LocalBoxFuture<'static, Result<Option<String>, Error>> + Send + Sync,
>;
type ReplayHook = Arc<dyn Fn(&mut HttpResponse, &HttpRequest) + Send + Sync>;

/// The configuration that annotated handlers find in the application's data.
///
/// Cheap to clone; all clones are one. Give each `App` a clone:
///
/// ```
/// use actix_web::App;
/// use idem_runtime::{Idempotency, store::MemoryStore};
///
/// # #[actix_web::main]
/// # async fn main() -> Result<(), idem_runtime::BuildError> {
/// let idempotency = Idempotency::builder(MemoryStore::new())
///     .scope("user", |request: actix_web::HttpRequest| {
///         request.headers().get("x-user")?.to_str().ok().map(str::to_owned)
///     })
///     .build()?;
/// let app = App::new().app_data(idempotency.clone());
/// # drop(app);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Idempotency(Arc<Shared>);

/// What all clones and all workers share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) problems: ProblemStyle,
    pub(crate) replay: ReplayRules,
    pub(crate) hmac_key: Option<HmacKey>,
    pub(crate) previous_hmac_key: Option<HmacKey>,
    pub(crate) drain_limit: Duration,
    /// By the addresses of the routes: two handlers may have one name.
    served: HashMap<usize, Served>,
    scopes: HashMap<String, Resolver>,
    replay_hook: Option<ReplayHook>,
}

/// What holds for a handler that this configuration is meant for, put together once.
pub(crate) struct Served {
    pub(crate) policy: Arc<EffectivePolicy>,
    pub(crate) key_header: HeaderName,
}

impl Idempotency {
    /// Starts a configuration on a store.
    pub fn builder(store: impl Store) -> IdempotencyBuilder {
        Self::builder_on(Arc::new(store))
    }

    /// Starts a configuration on a store that the application keeps a handle of.
    pub fn builder_on(store: Arc<dyn Store>) -> IdempotencyBuilder {
        IdempotencyBuilder {
            store,
            defaults: Options::NONE,
            scopes: HashMap::new(),
            problems: ProblemStyle::default(),
            replay: ReplayRules::new(HeaderName::from_static(DEFAULT_MARKER)),
            replay_hook: None,
            hmac_key: None,
            previous_hmac_key: None,
            store_timeout: DEFAULT_STORE_TIMEOUT,
            sweep_period: Some(DEFAULT_SWEEP_PERIOD),
            reconcile_period: DEFAULT_RECONCILE_PERIOD,
            orphans_period: Some(DEFAULT_ORPHANS_PERIOD),
            reconcile_patience: DEFAULT_RECONCILE_PATIENCE,
            values: Values::new(),
            not_served: Vec::new(),
            drain_limit: DEFAULT_DRAIN_LIMIT,
            renew_leases: true,
            mistakes: Vec::new(),
        }
    }

    /// The effective policy of every annotated handler of the program, in the order of their
    /// names: what the program can publish about its resources
    /// (draft-ietf-httpapi-idempotency-key-header-07, section 2.4).
    pub fn policies(&self) -> Vec<RoutePolicy> {
        let mut policies: Vec<_> = routes()
            .filter_map(|route| {
                Some(RoutePolicy {
                    handler: route.name,
                    file: route.file,
                    line: route.line,
                    policy: *self.0.served(route)?.policy,
                })
            })
            .collect();
        policies.sort_by_key(|route| route.handler);
        policies
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.0.engine.store()
    }

    /// The configuration of a request, and what it says of a handler; `None` if there is none, or it
    /// is not meant for the handler.
    pub(crate) fn serving<'r>(
        request: &'r HttpRequest,
        route: &'static Route,
    ) -> Option<(&'r Arc<Shared>, &'r Served)> {
        let Idempotency(shared) = request.app_data::<Idempotency>().or_else(|| {
            request
                .app_data::<web::Data<Idempotency>>()
                .map(|data| data.get_ref())
        })?;
        Some((shared, shared.served(route)?))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("store", self.store())
            .finish_non_exhaustive()
    }
}

/// One annotated handler and what holds for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RoutePolicy {
    /// Path of the handler, `module::function`.
    pub handler: &'static str,
    /// File of its attribute.
    pub file: &'static str,
    /// Line of its attribute.
    pub line: u32,
    /// What holds for it.
    pub policy: EffectivePolicy,
}

impl Shared {
    /// What holds for a handler; `None` if this configuration is not meant for it.
    fn served(&self, route: &'static Route) -> Option<&Served> {
        self.served.get(&address(route))
    }

    /// The `scope` column for a request; `None` if nobody owns its key.
    pub(crate) async fn resolve_scope(
        &self,
        scope: Scope,
        request: &HttpRequest,
    ) -> Result<Option<String>, Error> {
        match scope {
            Scope::Global => Ok(Some(GLOBAL.to_owned())),
            Scope::Principal(resolve) => Ok(resolve(request)
                .await?
                .and_then(|principal| column(&[principal]))),
            Scope::Named(names) => {
                let mut components = Vec::with_capacity(names.len());
                for name in names {
                    // `build()` has seen every route: an unknown name means another `Idempotency`.
                    let Some(resolver) = self.scopes.get(*name) else {
                        return Ok(None);
                    };
                    match resolver(request).await? {
                        Some(component) => components.push(component),
                        None => return Ok(None),
                    }
                }
                Ok(column(&components))
            }
        }
    }

    pub(crate) fn touch_up(&self, response: &mut HttpResponse, request: &HttpRequest) {
        let Some(hook) = &self.replay_hook else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| hook(response, request))).is_err() {
            tracing::error!("the replay hook panicked; the replay is sent as far as it got");
        }
    }

    pub(crate) fn count(&self, outcome: &'static str) {
        metrics::counter!("idempotency_requests_total", "outcome" => outcome).increment(1);
    }
}

/// Builds an [`Idempotency`]. See [`Idempotency::builder`].
pub struct IdempotencyBuilder {
    store: Arc<dyn Store>,
    defaults: Options,
    scopes: HashMap<String, Resolver>,
    problems: ProblemStyle,
    replay: ReplayRules,
    replay_hook: Option<ReplayHook>,
    hmac_key: Option<HmacKey>,
    previous_hmac_key: Option<HmacKey>,
    store_timeout: Duration,
    sweep_period: Option<Duration>,
    reconcile_period: Duration,
    orphans_period: Option<Duration>,
    reconcile_patience: Duration,
    values: Values,
    not_served: Vec<&'static str>,
    drain_limit: Duration,
    renew_leases: bool,
    mistakes: Vec<String>,
}

impl IdempotencyBuilder {
    /// Registers a scope under the name that attributes use.
    ///
    /// `identity` gets anything that actix can extract from a request, so the extraction may be
    /// asynchronous and may fail, and its failure is the answer. It sees no body. It returns the
    /// stable identity of the caller: a `String`, an integer, a `Uuid`, or an `Option` of one of
    /// them; `None` or an empty text is answered with 403 `scope-unresolved`.
    #[must_use]
    pub fn scope<T, V>(
        mut self,
        name: impl Into<String>,
        identity: impl Fn(T) -> V + Send + Sync + 'static,
    ) -> Self
    where
        T: FromRequest + 'static,
        V: ScopeValue,
    {
        let identity = Arc::new(identity);
        let resolver: Resolver = Arc::new(move |request| {
            let identity = Arc::clone(&identity);
            let extracted = T::from_request(request, &mut Payload::None);
            Box::pin(async move { Ok(identity(extracted.await.map_err(Into::into)?).into_scope()) })
        });
        let name = name.into();
        if self.scopes.insert(name.clone(), resolver).is_some() {
            self.mistakes
                .push(format!("the scope \"{name}\" is registered twice"));
        }
        self
    }

    /// Requires a key on routes that do not say. Default: false.
    #[must_use]
    pub fn required(mut self, required: bool) -> Self {
        self.defaults.required = Some(required);
        self
    }

    /// What keys must look like on routes that do not say. Default: [`KeyFormat::Any`].
    #[must_use]
    pub fn key_format(mut self, format: KeyFormat) -> Self {
        self.defaults.key_format = Some(format);
        self
    }

    /// Header that carries the key on routes that do not say. Default: `Idempotency-Key`.
    #[must_use]
    pub fn header(mut self, name: &'static str) -> Self {
        self.check_header(name);
        self.defaults.header = Some(name);
        self
    }

    /// How long a duplicate waits for a running request on routes that do not say. Default: not at
    /// all, it is answered with 409 `in-progress` at once.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.defaults.wait = Some(wait);
        self
    }

    /// How long a silent owner keeps its claim, on routes that do not say. Default: 30 s. On routes
    /// with a `reconcile` function it has to be shorter than their `ttl`.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        if lease < Duration::from_millis(100) {
            self.mistakes.push(format!(
                "a lease of {lease:?} is too short to be renewed: use 100 ms or more"
            ));
        }
        self.defaults.lease = Some(lease);
        self
    }

    /// What happens to abandoned claims on routes that do not say. Default: [`Abandonment::Hold`].
    #[must_use]
    pub fn abandoned(mut self, abandoned: Abandonment) -> Self {
        self.defaults.abandoned = Some(abandoned);
        self
    }

    /// How a reused key is answered on routes that do not say. Default: 422.
    #[must_use]
    pub fn mismatch(mut self, mismatch: Mismatch) -> Self {
        self.defaults.mismatch = Some(mismatch);
        self
    }

    /// What happens to server errors on routes that do not say. Default: kept, except on
    /// transactional routes, which roll back.
    #[must_use]
    pub fn server_error(mut self, server_error: ServerError) -> Self {
        self.defaults.server_error = Some(server_error);
        self
    }

    /// Statuses that free the key on routes that do not say, from 400 to 599: what succeeds is
    /// always kept. Default: 425 and 429.
    #[must_use]
    pub fn release_on(mut self, statuses: &'static [u16]) -> Self {
        for status in statuses {
            if !(400..=599).contains(status) {
                self.mistakes.push(format!(
                    "release_on lists failures, from 400 to 599, and {status} is none: a success has to be kept, or its retry would run the handler a second time; write `.release_on(&[425, 429])`, and return `outcome::release(response)` where nothing has happened in spite of such an answer"
                ));
            }
        }
        self.defaults.release_on = Some(statuses);
        self
    }

    /// How bodies enter the fingerprint on routes that do not say. Default: [`Mode::Canonical`].
    #[must_use]
    pub fn fingerprint(mut self, mode: Mode) -> Self {
        self.defaults.fingerprint = Some(mode);
        self
    }

    /// JSON pointers (RFC 6901) left out of the fingerprint on routes that do not say. Default: none.
    #[must_use]
    pub fn ignore(mut self, pointers: &'static [&'static str]) -> Self {
        for pointer in pointers {
            if let Err(error) = check_pointer(pointer) {
                self.mistakes.push(format!("ignore: {error}"));
            }
        }
        self.defaults.ignore = Some(pointers);
        self
    }

    /// Request headers that belong to the fingerprint on routes that do not say, in lower case.
    /// Default: none.
    #[must_use]
    pub fn headers(mut self, names: &'static [&'static str]) -> Self {
        for name in names {
            self.check_header(name);
        }
        self.defaults.headers = Some(names);
        self
    }

    /// Limit of a request's body on routes that do not say, in bytes. Default: 1 MiB.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.defaults.max_body = Some(bytes);
        self
    }

    /// Limit of a kept response's body on routes that do not say, in bytes. Default: 1 MiB.
    #[must_use]
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.defaults.max_response = Some(bytes);
        self
    }

    /// What happens while the store is unreachable, on routes that do not say. Default:
    /// [`OnStoreError::Refuse`].
    #[must_use]
    pub fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.defaults.on_store_error = Some(on_store_error);
        self
    }

    /// Budget of one store call, waiting for a connection included. Default: 2 s.
    #[must_use]
    pub fn store_timeout(mut self, budget: Duration) -> Self {
        if budget.is_zero() {
            self.mistakes
                .push("a store timeout of zero lets no call succeed".to_owned());
        }
        self.store_timeout = budget;
        self
    }

    /// Time between two sweeps of expired records; `None`: this process does not sweep. Default:
    /// one minute. Sweeping only saves room: an expired record is ignored, swept or not.
    #[must_use]
    pub fn sweep_every(mut self, period: Option<Duration>) -> Self {
        self.sweep_period = period.filter(|period| !period.is_zero());
        self
    }

    /// Leaves annotated handlers out that are in the program but not in this application: the handler
    /// of this path (`module::function`), or all in this module. [`build`](Self::build) does not
    /// check them against this configuration, and a request that reaches one all the same is
    /// answered with 500 `not-configured`.
    ///
    /// Attributes register their handlers for the whole program, so this is needed where a program
    /// has several configurations, such as one for each database it can run on.
    #[must_use]
    pub fn not_served(mut self, path: &'static str) -> Self {
        self.not_served.push(path);
        self
    }

    /// Time between two rounds in which this process takes abandoned records of routes with a
    /// `reconcile` function and asks about them. Default: one second.
    #[must_use]
    pub fn reconcile_every(mut self, period: Duration) -> Self {
        if period.is_zero() {
            self.mistakes
                .push("a reconcile period of zero never pauses".to_owned());
        }
        self.reconcile_period = period;
        self
    }

    /// Time between two looks of this process for orphaned records: abandoned ones whose handler the
    /// program does not have any more, since it was removed or renamed, so that nobody will resolve
    /// them. Each is told of once, in a warning with its route and digest and in the counter
    /// `idempotency_orphaned_total`, and left as it is; [`Store::list`] finds them all
    /// ([`Which::Abandoned`](crate::store::Which::Abandoned)). `None`: this process does not look,
    /// such as where several programs share a store and do not know each other's handlers.
    /// Default: one hour, for the first time after a minute.
    #[must_use]
    pub fn report_orphans_every(mut self, period: Option<Duration>) -> Self {
        self.orphans_period = period.filter(|period| !period.is_zero());
        self
    }

    /// How long one reconciling function may take; one that takes longer is given up, and its record
    /// asked about again later. A record that is being asked about is nobody else's for twice this
    /// long, so that is also how long it stays where the process that asks dies. Default: 30 seconds.
    #[must_use]
    pub fn reconcile_patience(mut self, patience: Duration) -> Self {
        if patience.is_zero() {
            self.mistakes
                .push("a reconcile patience of zero leaves no time to ask".to_owned());
        }
        self.reconcile_patience = patience;
        self
    }

    /// Gives reconciling functions a value they need, such as a client of the payment gateway; they
    /// get it with [`Abandoned::value`](crate::Abandoned::value), by its type.
    #[must_use]
    pub fn reconcile_with<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.values.insert(TypeId::of::<T>(), Box::new(value));
        self
    }

    /// How long a shutdown waits for requests in flight, see [`Idempotency::serve`]. Default: 30 s.
    #[must_use]
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.drain_limit = limit;
        self
    }

    /// Whether leases are renewed while their owners live. Default: true. Turning it off makes
    /// every handler that outlives its lease lose its claim: it is meant for tests of exactly that.
    #[must_use]
    pub fn renew_leases(mut self, renew: bool) -> Self {
        self.renew_leases = renew;
        self
    }

    /// Hashes fingerprints with a secret (HMAC-SHA-256), so that a leaked table cannot be searched
    /// for guessable bodies. Default: none.
    #[must_use]
    pub fn hmac_key(mut self, key: HmacKey) -> Self {
        self.hmac_key = Some(key);
        self
    }

    /// The secret before the present one, accepted for comparison: after a change keep it for one
    /// TTL, until the records written under it have expired.
    #[must_use]
    pub fn previous_hmac_key(mut self, key: HmacKey) -> Self {
        self.previous_hmac_key = Some(key);
        self
    }

    /// Base of the problems' `type` URIs, to which the kind is appended. Default:
    /// `urn:idempotency:`.
    #[must_use]
    pub fn problem_type_base(mut self, base: impl Into<String>) -> Self {
        self.problems.type_base = base.into();
        self
    }

    /// Address of the API's documentation, sent with every problem as `Link: <…>; rel="describedby"`.
    #[must_use]
    pub fn docs_url(mut self, url: impl Into<String>) -> Self {
        let url = url.into();
        if url.contains(['<', '>', '"']) || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.mistakes
                .push("docs_url: not a URL that fits into a Link header".to_owned());
        }
        self.problems.docs_url = Some(url);
        self
    }

    /// Renders problems the application's own way; `None` leaves one to the default.
    #[must_use]
    pub fn render_problems(
        mut self,
        render: impl Fn(&Problem, &HttpRequest) -> Option<HttpResponse> + Send + Sync + 'static,
    ) -> Self {
        self.problems.renderer = Some(Arc::new(render));
        self
    }

    /// Header that marks a replay. Default: `Idempotent-Replayed`.
    #[must_use]
    pub fn marker(mut self, name: &'static str) -> Self {
        match HeaderName::try_from(name) {
            Ok(name) => self.replay.marker = name,
            Err(_) => self
                .mistakes
                .push(format!("\"{name}\" is not a header name")),
        }
        self
    }

    /// Leaves a response header out of records, besides those that are by default.
    #[must_use]
    pub fn drop_header(mut self, name: &'static str) -> Self {
        match HeaderName::try_from(name) {
            Ok(name) => self.replay.drop_header(name),
            Err(_) => self
                .mistakes
                .push(format!("\"{name}\" is not a header name")),
        }
        self
    }

    /// Keeps a response header that is left out of records by default.
    #[must_use]
    pub fn keep_header(mut self, name: &'static str) -> Self {
        match HeaderName::try_from(name) {
            Ok(name) => self.replay.keep_header(name),
            Err(_) => self
                .mistakes
                .push(format!("\"{name}\" is not a header name")),
        }
        self
    }

    /// Touches up replays before they are sent, such as to add a header. The record is not changed;
    /// a panic in it does not break the replay.
    #[must_use]
    pub fn on_replay(
        mut self,
        hook: impl Fn(&mut HttpResponse, &HttpRequest) + Send + Sync + 'static,
    ) -> Self {
        self.replay_hook = Some(Arc::new(hook));
        self
    }

    fn check_header(&mut self, name: &str) {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            self.mistakes
                .push(format!("\"{name}\" is not a header name"));
        }
    }

    /// Checks everything and starts the background work (lease renewal, sweeping, reconciliation, the look for
    /// orphaned records) on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if a route of this program names a scope that is not registered, if an option
    /// is impossible, or outside of a tokio runtime.
    pub fn build(self) -> Result<Idempotency, BuildError> {
        let mut mistakes = self.mistakes;
        let mut served = HashMap::new();
        for route in routes().filter(|route| serves(&self.not_served, route)) {
            let policy = EffectivePolicy::new(&route.policy, &self.defaults);
            let contradictions = policy.contradictions(route.name);
            mistakes.extend(
                contradictions.map(|said| format!("{}:{}: {said}", route.file, route.line)),
            );
            if let Some(check) = route.policy.transaction
                && let Err(database) = check(&*self.store)
            {
                mistakes.push(format!(
                    "{}:{}: `{}` opens transactions on {database}, but the store is {}: use a store on the same database, or leave `transaction` out",
                    route.file, route.line, route.name, self.store.name()
                ));
            }
            if let Scope::Named(names) = route.policy.scope {
                let unknown = names
                    .iter()
                    .filter(|name| !self.scopes.contains_key(**name));
                mistakes.extend(unknown.map(|name| unknown_scope(route, name, &self.scopes)));
            }
            // The attribute or `header` has said what is wrong with it, if there is something.
            if let Ok(key_header) = HeaderName::from_bytes(policy.header.as_bytes()) {
                let policy = Arc::new(policy);
                served.insert(address(route), Served { policy, key_header });
            }
        }
        if !mistakes.is_empty() {
            mistakes.sort();
            return Err(BuildError::Mistakes(mistakes));
        }
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let in_flight = Arc::new(InFlight::default());
        let engine = Arc::new(Engine::start(
            Arc::clone(&self.store),
            self.store_timeout,
            self.renew_leases,
            &in_flight,
            &runtime,
        ));
        match self.sweep_period {
            _ if !self.store.needs_purging() => {}
            Some(period) => sweeper::start(&engine, period, &runtime),
            None => tracing::warn!(
                store = self.store.name(),
                "nothing in this process removes expired records: leave `sweep_every` at its default, or make sure that another process sweeps"
            ),
        }
        reconcile::start(
            &engine,
            self.values,
            &in_flight,
            self.reconcile_period,
            self.reconcile_patience,
            |route| serves(&self.not_served, route),
            &runtime,
        );
        if let Some(period) = self.orphans_period {
            orphans::start(&engine, &in_flight, period, &runtime);
        }
        Ok(Idempotency(Arc::new(Shared {
            engine,
            in_flight,
            problems: self.problems,
            replay: self.replay,
            hmac_key: self.hmac_key,
            previous_hmac_key: self.previous_hmac_key,
            drain_limit: self.drain_limit,
            served,
            scopes: self.scopes,
            replay_hook: self.replay_hook,
        })))
    }
}

impl fmt::Debug for IdempotencyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyBuilder")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

fn address(route: &'static Route) -> usize {
    std::ptr::from_ref(route).addr()
}

fn serves(not_served: &[&str], route: &Route) -> bool {
    !not_served.iter().any(|path| {
        let rest = route.name.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

fn unknown_scope(route: &Route, name: &str, known: &HashMap<String, Resolver>) -> String {
    let mut known: Vec<_> = known.keys().map(|name| format!("\"{name}\"")).collect();
    known.sort();
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    format!(
        "{}:{}: `{}` has the scope \"{name}\", which is not registered (registered: {known}); add `.scope(\"{name}\", …)` to the builder",
        route.file, route.line, route.name
    )
}

/// Why an [`Idempotency`] could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Everything that is wrong, a sentence each: with the builder's options, or with routes of the
    /// program that do not fit them (these name file, line and handler).
    #[error("{}", .0.join("\n"))]
    Mistakes(Vec<String>),
    /// There is no tokio runtime to renew leases on.
    #[error("call `build()` inside the actix or tokio runtime: leases are renewed there")]
    NoRuntime,
}
