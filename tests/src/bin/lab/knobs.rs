//! Faults on demand: what the request's `X-Lab-…` headers ask for.

use actix_web::{HttpRequest, error::ErrorBadRequest, http::StatusCode};
use std::time::Duration;

/// Most bytes that a handler is made to have at one time.
const MOST_BYTES: usize = 256 << 20;

/// Everything one request asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Knobs {
    /// Total delay of the handler.
    pub(crate) delay: Duration,
    pub(crate) respond: Respond,
    pub(crate) crash: Option<CrashAt>,
}

/// How the handler answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Respond {
    #[default]
    Created,
    Status(StatusCode),
    Fail(StatusCode),
    NoEffect(StatusCode),
    Release(StatusCode),
    Final(StatusCode),
    Panic,
    Empty,
    Null,
    Bytes256,
    Csv,
    /// Bytes.
    Large(usize),
    /// Characters of three bytes, and an emoji after each thousand.
    Utf8(usize),
    /// Chunks of one KiB.
    Stream(usize),
    /// Chunks of one KiB, after which the stream breaks off.
    Broken(usize),
    Sse,
    Headers,
    /// As usual, with a transaction inside the handler's left open.
    Nested,
}

impl Respond {
    /// Whether the handler has its effect.
    pub(crate) fn has_effect(self) -> bool {
        !matches!(self, Respond::NoEffect(_) | Respond::Release(_))
    }
}

/// Where the process aborts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashAt {
    BeforeEffect,
    AfterEffect,
    AfterCommit,
    BetweenSteps,
}

impl Knobs {
    /// Reads the headers; a knob that does not exist is a mistake of the suite's, answered with 400.
    pub(crate) fn of(request: &HttpRequest) -> Result<Knobs, actix_web::Error> {
        let read = |name: &str| {
            let line = request.headers().get(name);
            line.map(|line| line.to_str().map(str::trim))
                .transpose()
                .map_err(|_| ErrorBadRequest(format!("{name} is not text")))
        };
        let unknown = |name: &str, value: &str| ErrorBadRequest(format!("{name}: no {value:?}"));
        let mut knobs = Knobs::default();
        if let Some(value) = read("x-lab-delay-ms")? {
            let millis = value
                .parse()
                .map_err(|_| unknown("X-Lab-Delay-Ms", value))?;
            knobs.delay = Duration::from_millis(millis);
        }
        if let Some(value) = read("x-lab-respond")? {
            knobs.respond = respond(value).ok_or_else(|| unknown("X-Lab-Respond", value))?;
        }
        if let Some(value) = read("x-lab-crash")? {
            knobs.crash = Some(crash(value).ok_or_else(|| unknown("X-Lab-Crash", value))?);
        }
        Ok(knobs)
    }
}

fn respond(value: &str) -> Option<Respond> {
    let (name, number) = match value.split_once(':') {
        Some((name, number)) => (name, Some(number)),
        None => (value, None),
    };
    let status = || {
        StatusCode::from_bytes(number?.as_bytes())
            .ok()
            // An interim response is not an answer (RFC 9110, section 15.2).
            .filter(|status| status.as_u16() >= 200)
    };
    let count = || number?.parse().ok();
    let held = |unit: usize| {
        let count: usize = count()?;
        (count.checked_mul(unit)? <= MOST_BYTES).then_some(count)
    };
    let plain = |respond| number.is_none().then_some(respond);
    match name {
        "status" => Some(Respond::Status(status()?)),
        "err" => Some(Respond::Fail(status()?)),
        "no-effect" => Some(Respond::NoEffect(status()?)),
        "release" => Some(Respond::Release(status()?)),
        "final" => Some(Respond::Final(status()?)),
        "large" => Some(Respond::Large(held(1)?)),
        "utf8" => Some(Respond::Utf8(held(3)?)),
        "stream" => Some(Respond::Stream(count()?)),
        "broken" => Some(Respond::Broken(count()?)),
        "panic" => plain(Respond::Panic),
        "empty" => plain(Respond::Empty),
        "null" => plain(Respond::Null),
        "bytes256" => plain(Respond::Bytes256),
        "csv" => plain(Respond::Csv),
        "sse" => plain(Respond::Sse),
        "headers" => plain(Respond::Headers),
        "nested" => plain(Respond::Nested),
        _ => None,
    }
}

fn crash(value: &str) -> Option<CrashAt> {
    match value {
        "before-effect" => Some(CrashAt::BeforeEffect),
        "after-effect" => Some(CrashAt::AfterEffect),
        "after-commit" => Some(CrashAt::AfterCommit),
        "between-steps" => Some(CrashAt::BetweenSteps),
        _ => None,
    }
}
