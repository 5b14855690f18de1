//! Asking somebody who knows what became of an operation whose owner has died.

use futures_util::future::BoxFuture;

/// A route's function as generated code hands it over.
#[doc(hidden)]
pub type Reconcile = fn(Abandoned) -> BoxFuture<'static, Resolution>;

/// An operation whose owner has died before its answer was saved.
#[derive(Debug)]
#[non_exhaustive]
pub struct Abandoned {}

/// What became of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Resolution {}
