//! Finding out why a handler on a transactional route has failed: whether the database has refused
//! one of its statements in favour of another transaction.

use crate::{outcome, store::is_conflict};
use std::{error::Error, ops::Deref};

/// Whether the error of a response is, or was caused by, such a refusal.
pub(crate) fn is_in(error: &actix_web::Error) -> bool {
    // What actix wraps it does not show, but for a few types that can be asked for by name.
    let boxed = error.as_error::<Box<dyn Error>>().map(Box::as_ref);
    let known = boxed.or_else(|| outcome::cause(error));
    known.is_some_and(is_in_chain)
}

fn is_in_chain(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if is_conflict(error) || error.downcast_ref().is_some_and(is_in) {
            return true;
        }
        next = error.source();
    }
    false
}

/// What a handler has returned, for generated code to ask `is_refused()` of.
///
/// The method of [`Finished`] itself answers for a `Result` whose error tells its causes. The compiler
/// passes over it for any other type, and takes the one that stands behind `Deref`.
#[derive(Debug)]
pub struct Finished<O>(pub O);

/// What is known of a type that tells no causes.
#[derive(Debug)]
pub struct Untold;

impl<T, E: Error + 'static> Finished<Result<T, E>> {
    /// Whether the error is, or was caused by, a refusal of the database's.
    pub fn is_refused(&self) -> bool {
        self.0.as_ref().is_err_and(|error| is_in_chain(error))
    }
}

impl<O> Deref for Finished<O> {
    type Target = Untold;

    fn deref(&self) -> &Untold {
        &Untold
    }
}

impl Untold {
    /// Not that it is known.
    pub fn is_refused(&self) -> bool {
        false
    }
}
