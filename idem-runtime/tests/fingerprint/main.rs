//! The idempotency key and the request fingerprint, seen from outside.
//!
//! `IDEM_FUZZ_CASES` sets how many random pairs the comparison with the reference model takes; the
//! default suits every run of the tests. A long run:
//!
//! ```text
//! IDEM_FUZZ_CASES=10000000 cargo test --release -p idem-runtime --test fingerprint against_the_model
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bodies;
mod corpus;
mod entries;
mod golden;
mod hostile;
mod json;
mod key;
mod model;
mod numbers;
mod random;
mod rfc8785;

use idem_runtime::fingerprint::{Fingerprint, Options, RequestParts, fingerprint};

/// The fingerprint of a JSON body with default options.
fn of_json(body: impl AsRef<[u8]>) -> Fingerprint {
    of("application/json", body)
}

fn of(content_type: &str, body: impl AsRef<[u8]>) -> Fingerprint {
    let parts = RequestParts::new("POST", "/orders", body.as_ref())
        .content_type(Some(content_type.as_bytes()));
    fingerprint(&parts, &Options::default()).unwrap()
}

fn json_with(body: &str, ignore: &[&str]) -> Fingerprint {
    let parts = RequestParts::new("POST", "/orders", body.as_bytes())
        .content_type(Some(b"application/json"));
    fingerprint(&parts, &Options::default().ignore(ignore)).unwrap()
}
