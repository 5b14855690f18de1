//! The adapter between the engine and actix-web.

pub(crate) mod body;
pub(crate) mod config;
pub(crate) mod conflict;
pub(crate) mod render;
pub(crate) mod response;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod tx;
