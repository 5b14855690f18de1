//! The `#[idempotent]` attribute of `idem-runtime`.
//!
//! Depend on `idem-runtime`, which re-exports the attribute and documents every option there. This
//! crate is only its compile-time half and names private items of exactly one version of it.
//!
//! The attribute works in three stages, each with a type of its own: `args` and `handler` *parse*
//! (everything optional, the user's tokens kept beside each value), `validate` turns that into a
//! value in which nothing is missing or contradictory and collects every mistake on the way, and
//! `expand` prints it. If there was any mistake, `fallback` prints the handler without the
//! attribute instead, so that one mistake is one error.

mod args;
mod attributes;
mod diagnostics;
mod duration;
mod expand;
mod fallback;
mod handler;
mod size;
mod stages;
mod validate;

#[cfg(test)]
mod tests;

use crate::stages::attribute;

/// Gives an actix-web handler the whole `Idempotency-Key` contract.
///
/// The options, their defaults and a full example are documented where users find the attribute:
/// at its re-export, `idem_runtime::idempotent`.
#[proc_macro_attribute]
pub fn idempotent(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    attribute(args.into(), item.into()).into()
}
