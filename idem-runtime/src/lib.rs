//! x

pub mod fingerprint;
pub mod key;
