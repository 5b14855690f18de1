//! x

pub mod services;
