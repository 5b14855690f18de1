//! The toolkit's own answers, told apart from the application's by their `type` (RFC 9457).

use crate::{key::KeyError, policy::Mismatch};
use std::time::Duration;

/// A key to show to whoever has sent none.
const EXAMPLE_KEY: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";

/// What went wrong. Every kind has one `type` and one `title`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The route requires a key and the request has none.
    KeyMissing,
    /// The key is malformed, repeated, too long, or not of the route's format.
    KeyInvalid,
    /// Nobody owns the key: the scope resolved to nothing.
    ScopeUnresolved,
    /// The body is over the route's limit.
    BodyTooLarge,
    /// The application has no `Idempotency` in its data.
    NotConfigured,
    /// The first request with this key is still running.
    InProgress,
    /// The key was used before for another request.
    KeyReused,
    /// The request was carried out; its response was not retained.
    ResponseNotRetained,
    /// The request was started and its outcome is not known.
    OutcomeUnknown,
    /// The store is unreachable or over its time budget.
    StoreUnavailable,
    /// The record for this key cannot be read.
    RecordUnreadable,
    /// The handler panicked.
    HandlerPanicked,
    /// The server is shutting down and takes no new work.
    ShuttingDown,
}

impl ProblemKind {
    /// The last part of the problem's `type`.
    pub fn slug(self) -> &'static str {
        match self {
            ProblemKind::KeyMissing => "key-missing",
            ProblemKind::KeyInvalid => "key-invalid",
            ProblemKind::ScopeUnresolved => "scope-unresolved",
            ProblemKind::BodyTooLarge => "body-too-large",
            ProblemKind::NotConfigured => "not-configured",
            ProblemKind::InProgress => "in-progress",
            ProblemKind::KeyReused => "key-reused",
            ProblemKind::ResponseNotRetained => "response-not-retained",
            ProblemKind::OutcomeUnknown => "outcome-unknown",
            ProblemKind::StoreUnavailable => "store-unavailable",
            ProblemKind::RecordUnreadable => "record-unreadable",
            ProblemKind::HandlerPanicked => "handler-panicked",
            ProblemKind::ShuttingDown => "shutting-down",
        }
    }

    /// The problem's `title`, the same for every occurrence.
    pub fn title(self) -> &'static str {
        match self {
            ProblemKind::KeyMissing => "An idempotency key is required",
            ProblemKind::KeyInvalid => "The idempotency key is invalid",
            ProblemKind::ScopeUnresolved => "The owner of the idempotency key is unknown",
            ProblemKind::BodyTooLarge => "The request body is too large",
            ProblemKind::NotConfigured => "Idempotency is not configured",
            ProblemKind::InProgress => "A request with this idempotency key is in progress",
            ProblemKind::KeyReused => "The idempotency key was used for another request",
            ProblemKind::ResponseNotRetained => "The response was not retained",
            ProblemKind::OutcomeUnknown => "The outcome of the request is unknown",
            ProblemKind::StoreUnavailable => "Idempotency records are unavailable",
            ProblemKind::RecordUnreadable => "The idempotency record cannot be read",
            ProblemKind::HandlerPanicked => "The request failed",
            ProblemKind::ShuttingDown => "The server is shutting down",
        }
    }

    fn status(self) -> u16 {
        match self {
            ProblemKind::KeyMissing | ProblemKind::KeyInvalid => 400,
            ProblemKind::ScopeUnresolved => 403,
            ProblemKind::BodyTooLarge => 413,
            ProblemKind::KeyReused => 422,
            ProblemKind::InProgress
            | ProblemKind::ResponseNotRetained
            | ProblemKind::OutcomeUnknown => 409,
            ProblemKind::NotConfigured | ProblemKind::HandlerPanicked => 500,
            ProblemKind::StoreUnavailable
            | ProblemKind::RecordUnreadable
            | ProblemKind::ShuttingDown => 503,
        }
    }

    fn detail(self) -> &'static str {
        match self {
            ProblemKind::KeyMissing => {
                "Send the header with a new unique value, such as a UUID, and the same value on every retry."
            }
            ProblemKind::KeyInvalid => "Send one key of 1 to 255 visible ASCII characters.",
            ProblemKind::ScopeUnresolved => {
                "The request carries an idempotency key, but no identity that could own it."
            }
            ProblemKind::BodyTooLarge => {
                "The body is larger than this resource accepts together with an idempotency key."
            }
            ProblemKind::NotConfigured => "The server lacks a part of its configuration.",
            ProblemKind::InProgress => {
                "Retry later with the same key: the answer of the running request will be returned."
            }
            ProblemKind::KeyReused => {
                "A key belongs to one request. Use a new key for a new request; a retry must repeat the first request exactly."
            }
            ProblemKind::ResponseNotRetained => {
                "The first request with this key was carried out and answered; it will not run again. Its response was too large, or a stream, and cannot be repeated."
            }
            ProblemKind::OutcomeUnknown => {
                "The first request with this key was interrupted. It may or may not have taken effect, and it will not run again on its own. Look the result up before using a new key."
            }
            ProblemKind::StoreUnavailable => {
                "The request was not carried out. Retry later with the same key."
            }
            ProblemKind::RecordUnreadable => {
                "The request was not carried out, because it is not known whether it was before."
            }
            ProblemKind::HandlerPanicked => {
                "The request was started and failed unexpectedly; it may or may not have taken effect."
            }
            ProblemKind::ShuttingDown => {
                "The request was not carried out. Retry later with the same key."
            }
        }
    }

    /// Whether the same request with the same key can usually still succeed.
    pub fn retryable(self) -> bool {
        matches!(
            self,
            ProblemKind::InProgress | ProblemKind::StoreUnavailable | ProblemKind::ShuttingDown
        )
    }
}

/// One answer of the toolkit's own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// What went wrong.
    pub kind: ProblemKind,
    /// HTTP status.
    pub status: u16,
    /// A sentence for the client's developer. It never holds anything of another request.
    pub detail: String,
    /// Whether the same request with the same key can still succeed.
    pub retryable: bool,
    /// When to retry; sent as `Retry-After` in whole seconds (RFC 9110, section 10.2.3).
    pub retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind) -> Problem {
        Problem {
            kind,
            status: kind.status(),
            detail: kind.detail().to_owned(),
            retryable: kind.retryable(),
            retry_after: kind.retryable().then_some(Duration::from_secs(1)),
        }
    }

    /// The handler panicked, and the key is free for another try: nothing has happened, says `why`.
    pub(crate) fn panicked_and_freed(why: &str) -> Problem {
        Problem {
            retryable: true,
            ..Problem::new(ProblemKind::HandlerPanicked).with_detail(format!(
                "The request failed unexpectedly {why}. Retry with the same key."
            ))
        }
    }

    /// `header` in lower case, as policies have it.
    pub(crate) fn key_missing(header: &str) -> Problem {
        Problem::new(ProblemKind::KeyMissing).with_detail(format!(
            "Send a new unique value, such as a UUID, in the header {name}, and the same value on every retry, as in \"{name}: {EXAMPLE_KEY}\".",
            name = displayed(header)
        ))
    }

    pub(crate) fn key_invalid(header: &str, error: &KeyError) -> Problem {
        let header = displayed(header);
        Problem::new(ProblemKind::KeyInvalid).with_detail(format!("{header}: {error}"))
    }

    pub(crate) fn key_no_uuid(header: &str) -> Problem {
        let header = displayed(header);
        Problem::new(ProblemKind::KeyInvalid).with_detail(format!(
            "This resource takes a UUID as the key, as in \"{header}: {EXAMPLE_KEY}\"."
        ))
    }

    pub(crate) fn body_too_large(max_body: usize) -> Problem {
        Problem::new(ProblemKind::BodyTooLarge).with_detail(format!(
            "Together with an idempotency key, this resource accepts a body of at most {max_body} bytes, compressed or not."
        ))
    }

    pub(crate) fn key_reused(mismatch: Mismatch) -> Problem {
        Problem {
            status: mismatch.status(),
            ..Problem::new(ProblemKind::KeyReused)
        }
    }

    #[must_use]
    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Problem {
        self.detail = detail.into();
        self
    }

    #[must_use]
    pub(crate) fn with_retry_after(mut self, retry_after: Duration) -> Problem {
        self.retry_after = Some(retry_after);
        self
    }

    /// `Retry-After` in whole seconds, rounded up.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
            .map(|after| after.as_secs() + u64::from(after.subsec_nanos() > 0))
    }
}

/// A header's name as people write it: `Idempotency-Key`.
fn displayed(name: &str) -> String {
    let mut begins = true;
    name.chars()
        .map(|c| {
            let shown = if begins { c.to_ascii_uppercase() } else { c };
            begins = c == '-';
            shown
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::{Problem, displayed};
    use crate::key::IdempotencyKey;

    #[test]
    fn what_is_wrong_with_a_key_names_the_route_s_own_header() {
        let error = IdempotencyKey::parse([b"".as_slice()]).expect_err("an empty key");
        for (header, name) in [
            ("idempotency-key", "Idempotency-Key"),
            ("x-request-key", "X-Request-Key"),
        ] {
            assert_eq!(displayed(header), name);
            let example = format!("\"{name}: 9b1deb4d-");
            let missing = Problem::key_missing(header).detail;
            assert!(missing.contains(&example), "{missing}");
            let no_uuid = Problem::key_no_uuid(header).detail;
            assert!(no_uuid.contains(&example), "{no_uuid}");
            let invalid = Problem::key_invalid(header, &error).detail;
            assert!(invalid.starts_with(&format!("{name}: ")), "{invalid}");
        }
    }

    #[test]
    fn a_body_that_is_too_large_is_told_the_limit() {
        let problem = Problem::body_too_large(65_536);
        assert_eq!(problem.status, 413);
        assert!(
            problem.detail.contains("at most 65536 bytes"),
            "{}",
            problem.detail
        );
    }
}
