//! Who owns a key.

use crate::record::MAX_SCOPE;
use actix_web::{FromRequest, HttpRequest, dev::Payload};
use futures_util::future::LocalBoxFuture;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sha2::{Digest, Sha256};
use std::fmt;

/// The `scope` of a route whose keys are shared by everybody. No escaped component can be equal to it.
pub(crate) const GLOBAL: &str = "*";

/// Characters with a meaning of their own in the `scope` column: the separator, the escape, the
/// global scope and the mark of a hashed scope.
const ESCAPED: &AsciiSet = &CONTROLS.add(b':').add(b'%').add(b'*').add(b'#');

/// Resolves one component of a scope from a request. `None`: nobody.
pub(crate) type ResolvePrincipal =
    fn(&HttpRequest) -> LocalBoxFuture<'static, Result<Option<String>, actix_web::Error>>;

/// The `scope` option of a route.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Scope {
    /// Names registered on the builder, outermost first: `"tenant:user"`.
    Named(&'static [&'static str]),
    /// One key space for everybody.
    Global,
    /// A type that implements [`Principal`].
    Principal(ResolvePrincipal),
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Named(names) => f.write_str(&names.join(":")),
            Scope::Global => f.write_str("global"),
            Scope::Principal(_) => f.write_str("principal"),
        }
    }
}

/// A caller's identity that owns keys: an alternative to a name registered on the builder, for
/// `#[idempotent(scope = path::to::Type, …)]`.
///
/// The type is extracted from the request like any actix extractor; its failure is the answer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot own idempotency keys",
    note = "implement `idem_runtime::Principal` for it, or name a scope registered on the builder: `scope = \"user\"`"
)]
pub trait Principal: FromRequest + 'static {
    /// The stable identity of the caller, such as an account number; never something that changes
    /// between retries, such as a session or an access token. `None` or empty: the request is
    /// refused with 403 `scope-unresolved`.
    fn principal(&self) -> Option<String>;
}

#[doc(hidden)]
pub fn principal<T: Principal + 'static>(
    request: &HttpRequest,
) -> LocalBoxFuture<'static, Result<Option<String>, actix_web::Error>> {
    let extracted = T::from_request(request, &mut Payload::None);
    Box::pin(async move { Ok(extracted.await.map_err(Into::into)?.principal()) })
}

/// What a scope's closure may return: the identity of the caller, or nobody.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an identity that can own idempotency keys",
    note = "return a `String`, an integer, a `Uuid`, or an `Option` of one of them"
)]
pub trait ScopeValue {
    /// The identity as text; `None` for nobody.
    fn into_scope(self) -> Option<String>;
}

impl<T: ScopeValue> ScopeValue for Option<T> {
    fn into_scope(self) -> Option<String> {
        self.and_then(ScopeValue::into_scope)
    }
}

impl ScopeValue for String {
    fn into_scope(self) -> Option<String> {
        Some(self)
    }
}

macro_rules! scope_value_by_display {
    ($($type:ty),*) => {$(
        impl ScopeValue for $type {
            fn into_scope(self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}
scope_value_by_display!(
    &str,
    uuid::Uuid,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize
);

/// The `scope` column for resolved components, outermost first; `None` if one of them is empty.
///
/// Components are escaped, so that `a:b` + `c` and `a` + `b:c` stay apart; what is longer than the
/// column is hashed.
pub(crate) fn column<S: AsRef<str>>(components: &[S]) -> Option<String> {
    let mut column = String::new();
    for (index, component) in components.iter().enumerate() {
        if component.as_ref().trim().is_empty() {
            return None;
        }
        if index > 0 {
            column.push(':');
        }
        column.extend(utf8_percent_encode(component.as_ref(), ESCAPED));
    }
    if column.is_empty() {
        return None;
    }
    Some(bounded(column, MAX_SCOPE))
}

/// `text`, or `#` and its SHA-256 where it is longer than `max` bytes.
pub(crate) fn bounded(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let mut hashed = String::from("#");
    for byte in Sha256::digest(text.as_bytes()) {
        hashed.push_str(&format!("{byte:02x}"));
    }
    hashed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn components_do_not_run_together() {
        assert_eq!(column(&["acme", "alice"]).unwrap(), "acme:alice");
        assert_ne!(column(&["a:b", "c"]), column(&["a", "b:c"]));
        assert_ne!(column(&["a%3Ab"]), column(&["a:b"]));
    }

    #[test]
    fn nobody_owns_nothing() {
        assert_eq!(column::<&str>(&[]), None);
        assert_eq!(column(&[""]), None);
        assert_eq!(column(&["acme", " "]), None);
    }

    #[test]
    fn nobody_can_be_named_like_the_global_scope_or_like_a_hash() {
        assert_ne!(column(&["*"]).unwrap(), GLOBAL);
        let long = column(&["x".repeat(200)]).unwrap();
        assert!(long.len() <= MAX_SCOPE);
        assert_ne!(column(&[long.as_str()]).unwrap(), long);
    }

    #[test]
    fn letters_that_look_alike_stay_apart() {
        assert_ne!(column(&["é"]), column(&["e"]));
        assert_ne!(column(&["Alice"]), column(&["alice"]));
    }
}
