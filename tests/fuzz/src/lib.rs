//! The entry functions that the tests give the seeds to, for a fuzzer. See README.md.
//!
//! They and what they reach into are the very files of the crates, included by their paths: what is
//! private there stays so.
#![allow(dead_code)] // each file is here for a part of it

// What the included files find at the root of their own crates.
use idem_runtime::record;
mod store {
    pub(crate) use idem_runtime::store::Claim;
}

#[path = "../../../idem-runtime/tests/fingerprint/entries.rs"]
mod entries;
#[path = "../../../idem-runtime/tests/fingerprint/model.rs"]
mod model;
#[path = "../../../idem-runtime/tests/fingerprint/random.rs"]
mod random;

#[path = "../../../idem-runtime/src/store/redis/codec.rs"]
mod codec;
#[path = "../../../idem-runtime/src/store/redis/entry.rs"]
mod redis_entry;

#[path = "../../../idem-macros/src"]
mod macros {
    pub(crate) mod args;
    pub(crate) mod attributes;
    pub(crate) mod diagnostics;
    pub(crate) mod duration;
    pub(crate) mod expand;
    pub(crate) mod fallback;
    pub(crate) mod handler;
    pub(crate) mod size;
    pub(crate) mod stages;
    #[path = "tests/entry.rs"]
    pub(crate) mod test_entry;
    pub(crate) mod validate;
}
use macros::*;

/// The idempotency key of a request.
pub fn key(bytes: &[u8]) {
    entries::key(bytes);
}

/// The canonical form of JSON, beside a slow and simple model of it.
pub fn json(bytes: &[u8]) {
    entries::json(bytes);
}

/// The fingerprint of a body of any type and coding.
pub fn body(bytes: &[u8]) {
    entries::body(bytes);
}

/// The columns of a record.
pub fn record_columns(bytes: &[u8]) {
    entries::record(bytes);
}

/// The value at a key in Redis.
pub fn redis_value(bytes: &[u8]) {
    redis_entry::redis_value(bytes);
}

/// The options of the attribute and the item below it.
pub fn attribute(bytes: &[u8]) {
    test_entry::attribute_text(bytes);
}
