//! Turns what was parsed into a route in which nothing is missing, unknown or contradictory, and
//! collects every mistake on the way.

use proc_macro2::TokenStream;
use syn::{Ident, TypePath};

use crate::{
    args::{Args, Opt},
    diagnostics::Errors,
    handler::Handler,
};

mod options;
mod signature;

pub(crate) use options::policy;
pub(crate) use signature::is_plain as is_plain_handler;

/// A route that can be expanded: no field can hold a mistake of the user's.
pub(crate) struct Route<'h> {
    /// The path under which the runtime is known.
    pub(crate) krate: TokenStream,
    pub(crate) policy: Policy,
    pub(crate) signature: Signature<'h>,
    pub(crate) handler: &'h Handler,
}

/// The options, checked. An option that the user left out is `None`: the builder of the runtime
/// has its default.
pub(crate) struct Policy {
    pub(crate) scope: Scope,
    pub(crate) ttl_ms: u64,
    pub(crate) required: bool,
    pub(crate) key_format: Option<Variant>,
    /// Lower case.
    pub(crate) header: Option<String>,
    pub(crate) wait_ms: Option<u64>,
    pub(crate) lease_ms: Option<u64>,
    pub(crate) abandoned: Option<Variant>,
    pub(crate) reconcile: Option<TypePath>,
    pub(crate) mismatch: Option<Variant>,
    pub(crate) server_error: Option<Variant>,
    pub(crate) release_on: Option<Vec<u16>>,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) ignore: Option<Vec<String>>,
    /// Lower case.
    pub(crate) headers: Option<Vec<String>>,
    pub(crate) max_body: Option<u64>,
    pub(crate) max_response: Option<u64>,
    pub(crate) on_store_error: Option<Variant>,
    /// The name of the argument that receives the open transaction.
    pub(crate) transaction: Option<Ident>,
}

/// Who owns a key.
pub(crate) enum Scope {
    /// Names registered with the builder.
    Named(Vec<String>),
    Global,
    /// A type that implements `Principal`.
    Principal(TypePath),
}

/// What of the request identifies it.
pub(crate) enum Fingerprint {
    Mode(Variant),
    /// A function of the user's.
    Custom(TypePath),
}

/// A variant of one of the runtime's enums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) of: &'static str,
    pub(crate) name: &'static str,
}

/// What the expansion needs to know of the handler's arguments and result.
pub(crate) struct Signature<'h> {
    /// The arguments in the user's order.
    pub(crate) args: Vec<Arg<'h>>,
    /// The result, unless it has no name (`impl Responder`) to assert anything about.
    pub(crate) output: Option<&'h syn::Type>,
}

/// Where an argument of the handler comes from.
pub(crate) enum Arg<'h> {
    /// An extractor of this type.
    Extracted(&'h syn::Type),
    /// The open transaction: a `&mut` of this connection type.
    Connection(&'h syn::Type),
}

/// The argument that is to receive the open transaction, for the check of the arguments.
enum Transaction<'p> {
    /// The user does not ask for one.
    Absent,
    Named(&'p Ident),
    /// The user asks for one in a way that has been reported: any argument may be meant.
    Unknown,
}

/// Checks everything. `None` if something indispensable is missing; otherwise the route is only
/// meant to be used if no error was reported.
pub(crate) fn route<'h>(
    args: &Args,
    handler: &'h Handler,
    errors: &mut Errors,
) -> Option<Route<'h>> {
    let krate = options::krate(args, errors);
    let policy = policy(args, errors);
    let transaction = match args.get(Opt::Transaction) {
        None => Transaction::Absent,
        Some(_) => match policy
            .as_ref()
            .and_then(|policy| policy.transaction.as_ref())
        {
            Some(name) => Transaction::Named(name),
            None => Transaction::Unknown,
        },
    };
    let signature = signature::check(handler, &transaction, errors);
    Some(Route {
        krate: krate?,
        policy: policy?,
        signature: signature?,
        handler,
    })
}
