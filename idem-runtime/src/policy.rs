//! What one route asks for, and what the program's defaults add to it.

use crate::{fingerprint::Mode, reconcile::Reconcile, scope::Scope, store::Store};
use std::time::Duration;

/// Default lease: how long a silent owner keeps its claim.
///
/// Long enough for a pause of the process or a short outage of the store, short enough that a
/// client still waits when its first attempt has died.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Default limit of a protected request's body, in bytes: 1 MiB.
pub const DEFAULT_MAX_BODY: usize = 1 << 20;
/// Default limit of a kept response's body, in bytes: 1 MiB.
pub const DEFAULT_MAX_RESPONSE: usize = 1 << 20;
/// Default name of the request header that carries the key
/// (draft-ietf-httpapi-idempotency-key-header-07, section 2).
pub const DEFAULT_HEADER: &str = "idempotency-key";
/// Statuses that free the key by default: 425 Too Early and 429 Too Many Requests say by their
/// definition (RFC 8470, RFC 6585) that the request was not processed.
pub const DEFAULT_RELEASE_ON: &[u16] = &[425, 429];

/// What a key must look like, beyond the rules that hold for every key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFormat {
    /// 1–255 visible ASCII characters or spaces.
    Any,
    /// A UUID (RFC 9562) in its hyphenated form.
    Uuid,
}

/// The status that answers a key reused for another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// 422, as the draft says (section 2.7).
    Unprocessable,
    /// 409.
    Conflict,
    /// 400.
    BadRequest,
}

impl Mismatch {
    pub(crate) fn status(self) -> u16 {
        match self {
            Mismatch::Unprocessable => 422,
            Mismatch::Conflict => 409,
            Mismatch::BadRequest => 400,
        }
    }
}

/// What happens to a response of 500 and above, or a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerError {
    /// The outcome is unknown: the response is kept and replayed, nothing runs twice.
    Keep,
    /// The route vouches that a failed attempt has no effect: the key is freed.
    Release,
}

/// What happens to a claim whose owner has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abandonment {
    /// It is held as "outcome unknown" until somebody resolves it: at most one run.
    Hold,
    /// The next request runs as another attempt: at least one run.
    Rerun,
}

/// What happens to a request with a key while the store is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStoreError {
    /// 503; the handler does not run.
    Refuse,
    /// The handler runs unprotected, with a warning and a count.
    Run,
}

/// Whether a store can open the transactions that a route asks for; else the database it needs.
#[doc(hidden)]
pub type TransactionCheck = fn(&dyn Store) -> Result<(), &'static str>;

/// One route's options as written in its attribute. Built by generated code, in a `static`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    pub(crate) scope: Scope,
    pub(crate) ttl: Duration,
    pub(crate) transaction: Option<TransactionCheck>,
    pub(crate) reconcile: Option<Reconcile>,
    pub(crate) options: Options,
}

/// The options that both an attribute and the builder can set. `None`: not said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) required: Option<bool>,
    pub(crate) key_format: Option<KeyFormat>,
    pub(crate) header: Option<&'static str>,
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) abandoned: Option<Abandonment>,
    pub(crate) mismatch: Option<Mismatch>,
    pub(crate) server_error: Option<ServerError>,
    pub(crate) release_on: Option<&'static [u16]>,
    pub(crate) fingerprint: Option<Mode>,
    pub(crate) ignore: Option<&'static [&'static str]>,
    pub(crate) headers: Option<&'static [&'static str]>,
    pub(crate) max_body: Option<usize>,
    pub(crate) max_response: Option<usize>,
    pub(crate) on_store_error: Option<OnStoreError>,
}

impl Options {
    pub(crate) const NONE: Options = Options {
        required: None,
        key_format: None,
        header: None,
        wait: None,
        lease: None,
        abandoned: None,
        mismatch: None,
        server_error: None,
        release_on: None,
        fingerprint: None,
        ignore: None,
        headers: None,
        max_body: None,
        max_response: None,
        on_store_error: None,
    };
}

/// Each method is one option of the attribute; the macro has checked the values.
#[doc(hidden)]
#[allow(missing_docs)] // documented where users meet them: at the attribute
impl Policy {
    pub const fn new(scope: Scope, ttl_ms: u64) -> Policy {
        Policy {
            scope,
            ttl: Duration::from_millis(ttl_ms),
            transaction: None,
            reconcile: None,
            options: Options::NONE,
        }
    }

    #[must_use]
    pub const fn required(mut self) -> Policy {
        self.options.required = Some(true);
        self
    }

    #[must_use]
    pub const fn key_format(mut self, format: KeyFormat) -> Policy {
        self.options.key_format = Some(format);
        self
    }

    #[must_use]
    pub const fn header(mut self, name: &'static str) -> Policy {
        self.options.header = Some(name);
        self
    }

    #[must_use]
    pub const fn wait_ms(mut self, ms: u64) -> Policy {
        self.options.wait = Some(Duration::from_millis(ms));
        self
    }

    #[must_use]
    pub const fn lease_ms(mut self, ms: u64) -> Policy {
        self.options.lease = Some(Duration::from_millis(ms));
        self
    }

    #[must_use]
    pub const fn abandoned(mut self, abandoned: Abandonment) -> Policy {
        self.options.abandoned = Some(abandoned);
        self
    }

    #[must_use]
    pub const fn reconcile(mut self, reconcile: Reconcile) -> Policy {
        self.reconcile = Some(reconcile);
        self
    }

    #[must_use]
    pub const fn mismatch(mut self, mismatch: Mismatch) -> Policy {
        self.options.mismatch = Some(mismatch);
        self
    }

    #[must_use]
    pub const fn server_error(mut self, server_error: ServerError) -> Policy {
        self.options.server_error = Some(server_error);
        self
    }

    #[must_use]
    pub const fn release_on(mut self, statuses: &'static [u16]) -> Policy {
        self.options.release_on = Some(statuses);
        self
    }

    #[must_use]
    pub const fn fingerprint(mut self, mode: Mode) -> Policy {
        self.options.fingerprint = Some(mode);
        self
    }

    #[must_use]
    pub const fn ignore(mut self, pointers: &'static [&'static str]) -> Policy {
        self.options.ignore = Some(pointers);
        self
    }

    #[must_use]
    pub const fn headers(mut self, names: &'static [&'static str]) -> Policy {
        self.options.headers = Some(names);
        self
    }

    #[must_use]
    pub const fn max_body(mut self, bytes: usize) -> Policy {
        self.options.max_body = Some(bytes);
        self
    }

    #[must_use]
    pub const fn max_response(mut self, bytes: usize) -> Policy {
        self.options.max_response = Some(bytes);
        self
    }

    #[must_use]
    pub const fn on_store_error(mut self, on_store_error: OnStoreError) -> Policy {
        self.options.on_store_error = Some(on_store_error);
        self
    }

    #[must_use]
    pub const fn transaction(mut self, check: TransactionCheck) -> Policy {
        self.transaction = Some(check);
        self
    }
}

/// What holds for one route, after the program's defaults.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EffectivePolicy {
    /// Whose the key is.
    pub scope: Scope,
    /// How long an answer is replayed, from the first claim.
    pub ttl: Duration,
    /// Whether claim, business writes and answer are one commit.
    pub transactional: bool,
    /// Whether a request without a key is refused.
    pub required: bool,
    /// What a key must look like.
    pub key_format: KeyFormat,
    /// Name of the header that carries the key, in lower case.
    pub header: &'static str,
    /// How long a duplicate waits for a running request. `None`: not at all.
    pub wait: Option<Duration>,
    /// How long a silent owner keeps its claim.
    pub lease: Duration,
    /// What happens to a claim whose owner has died.
    pub abandoned: Abandonment,
    /// Whether a function of the route's own resolves abandoned claims.
    pub reconciled: bool,
    /// How a reused key is answered.
    pub mismatch: Mismatch,
    /// What happens to server errors.
    pub server_error: ServerError,
    /// Statuses that free the key.
    pub release_on: &'static [u16],
    /// How the body enters the fingerprint.
    pub fingerprint: Mode,
    /// JSON pointers left out of the fingerprint.
    pub ignore: &'static [&'static str],
    /// Request headers that belong to the fingerprint, in lower case.
    pub headers: &'static [&'static str],
    /// Limit of the request's body in bytes.
    pub max_body: usize,
    /// Limit of a kept response's body in bytes.
    pub max_response: usize,
    /// What happens while the store is unreachable.
    pub on_store_error: OnStoreError,
}

impl EffectivePolicy {
    pub(crate) fn new(policy: &Policy, defaults: &Options) -> EffectivePolicy {
        let own = &policy.options;
        // Rolling back leaves nothing behind, so a failed transactional attempt may run again.
        let server_error = if policy.transaction.is_some() {
            ServerError::Release
        } else {
            ServerError::Keep
        };
        EffectivePolicy {
            scope: policy.scope,
            ttl: policy.ttl,
            transactional: policy.transaction.is_some(),
            required: own.required.or(defaults.required).unwrap_or(false),
            key_format: own
                .key_format
                .or(defaults.key_format)
                .unwrap_or(KeyFormat::Any),
            header: own.header.or(defaults.header).unwrap_or(DEFAULT_HEADER),
            wait: own.wait.or(defaults.wait),
            lease: own.lease.or(defaults.lease).unwrap_or(DEFAULT_LEASE),
            abandoned: own
                .abandoned
                .or(defaults.abandoned)
                .unwrap_or(Abandonment::Hold),
            reconciled: policy.reconcile.is_some(),
            mismatch: own
                .mismatch
                .or(defaults.mismatch)
                .unwrap_or(Mismatch::Unprocessable),
            server_error: own
                .server_error
                .or(defaults.server_error)
                .unwrap_or(server_error),
            release_on: own
                .release_on
                .or(defaults.release_on)
                .unwrap_or(DEFAULT_RELEASE_ON),
            fingerprint: own
                .fingerprint
                .or(defaults.fingerprint)
                .unwrap_or(Mode::Canonical),
            ignore: own.ignore.or(defaults.ignore).unwrap_or(&[]),
            headers: own.headers.or(defaults.headers).unwrap_or(&[]),
            max_body: own
                .max_body
                .or(defaults.max_body)
                .unwrap_or(DEFAULT_MAX_BODY),
            max_response: own
                .max_response
                .or(defaults.max_response)
                .unwrap_or(DEFAULT_MAX_RESPONSE),
            on_store_error: own
                .on_store_error
                .or(defaults.on_store_error)
                .unwrap_or(OnStoreError::Refuse),
        }
    }

    /// What of this route's options cannot be meant together, a sentence each. Known only with the
    /// program's defaults, so the attribute cannot say it.
    pub(crate) fn contradictions(&self, handler: &str) -> impl Iterator<Item = String> {
        let ttl = self.ttl;
        let wait = self.wait.filter(|wait| *wait > ttl).map(|wait| {
            format!(
                "duplicates of `{handler}` wait for up to {wait:?}, but its answer is kept for {ttl:?} only: use a longer `ttl` or a shorter `wait`"
            )
        });
        // A lease keeps its record alive, so one that outlasts the TTL leaves nothing to be abandoned.
        let unasked = (self.reconciled && self.lease >= ttl).then(|| {
            format!(
                "the `reconcile` function of `{handler}` would never be asked: a lease of {:?} ends when the record, which is kept for {ttl:?}, has ended too; use a longer `ttl` or a shorter `lease`",
                self.lease
            )
        });
        wait.into_iter().chain(unasked)
    }

    /// Whether a response of this status frees the key when the handler has not said otherwise.
    pub(crate) fn releases(&self, status: u16) -> bool {
        self.release_on.contains(&status)
            || (status >= 500 && self.server_error == ServerError::Release)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::{EffectivePolicy, Options, Policy};
    use crate::{reconcile::Resolution, scope::Scope};
    use std::time::Duration;

    fn contradictions(policy: Policy, defaults: &Options) -> Vec<String> {
        EffectivePolicy::new(&policy, defaults)
            .contradictions("shop::pay")
            .collect()
    }

    #[test]
    fn a_function_that_would_never_be_asked_is_a_contradiction() {
        let brief = Policy::new(Scope::Global, 10_000);
        let asking = brief.reconcile(|_| Box::pin(async { Resolution::Pending }));
        // The default lease is longer than the ttl.
        let said = contradictions(asking, &Options::NONE);
        assert_eq!(said.len(), 1, "{said:?}");
        for part in ["`shop::pay`", "30s", "10s", "longer `ttl`"] {
            assert!(said[0].contains(part), "{part}: {said:?}");
        }
        assert_eq!(
            contradictions(asking.lease_ms(10_000), &Options::NONE).len(),
            1
        );
        let none = Vec::<String>::new();
        assert_eq!(contradictions(asking.lease_ms(9_999), &Options::NONE), none);
        let defaults = Options {
            lease: Some(Duration::from_secs(2)),
            ..Options::NONE
        };
        assert_eq!(contradictions(asking, &defaults), none);
        // Nobody to be asked: work under way outlives the ttl, which can be meant.
        assert_eq!(contradictions(brief, &Options::NONE), none);
    }
}
