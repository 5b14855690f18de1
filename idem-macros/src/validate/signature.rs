//! Checks that the function can be a handler, and finds out where each argument comes from.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{FnArg, Pat, PatType, ReturnType, Safety, Type, TypeReference, ext::IdentExt};

use super::{Arg, Signature, Transaction};
use crate::{
    attributes,
    diagnostics::{Errors, nearest},
    handler::Handler,
};

/// How many extractors a handler may have.
const MOST_EXTRACTORS: usize = 12;

/// Checks attributes, qualifiers, arguments and result. `transaction` is the argument that the
/// user named to receive the open transaction.
pub(super) fn check<'h>(
    handler: &'h Handler,
    transaction: &Transaction<'_>,
    errors: &mut Errors,
) -> Option<Signature<'h>> {
    let before = errors.count();
    attributes(handler, errors);
    qualifiers(handler, errors);
    let args = arguments(handler, transaction, errors);
    let output = output(handler, errors);
    (errors.count() == before).then_some(Signature { args, output })
}

/// Whether actix-web would take the function as it is, without the attribute.
pub(crate) fn is_plain(handler: &Handler) -> bool {
    let sig = &handler.sig;
    let mut errors = Errors::default();
    qualifiers(handler, &mut errors);
    arguments(handler, &Transaction::Absent, &mut errors);
    output(handler, &mut errors);
    errors.is_empty() && sig.asyncness.is_some()
}

fn attributes(handler: &Handler, errors: &mut Errors) {
    for attr in &handler.attrs {
        if attributes::is_idempotent(attr.path()) {
            errors.at(
                attr,
                "`#[idempotent]` stands on this handler twice: keep one",
            );
        }
    }
    for attr in attributes::all_safe(&handler.attrs) {
        errors.at(
            attr,
            "this route has only safe methods, which are never protected (they have no effect to repeat): remove `#[idempotent]`, or route a method such as POST",
        );
    }
}

fn qualifiers(handler: &Handler, errors: &mut Errors) {
    let sig = &handler.sig;
    if let Some(token) = &sig.constness {
        errors.at(token, "a handler cannot be `const`: remove it");
    }
    if sig.asyncness.is_none() {
        errors.at(
            sig.fn_token,
            format_args!("a handler is asynchronous: write `async fn {}`", sig.ident),
        );
    }
    if let Safety::Unsafe(token) = &sig.safety {
        errors.at(
            token,
            "a handler cannot be `unsafe`, since any client can call it: remove it and put `unsafe` blocks inside",
        );
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, "a handler has Rust's own ABI: remove `extern`");
    }
    if !sig.generics.params.is_empty() {
        errors.at(
            &sig.generics,
            "a handler cannot be generic, since each route keeps its own records: write a handler with concrete types that calls the generic function",
        );
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.at(
            clause,
            "a handler has no type parameters to bound: remove the `where` clause",
        );
    }
    if let Some(variadic) = &sig.variadic {
        errors.at(
            variadic,
            "a handler has a fixed number of arguments: remove `...`",
        );
    }
}

/// Sorts the arguments. Those that cannot be any are reported and left out.
fn arguments<'h>(
    handler: &'h Handler,
    transaction: &Transaction<'_>,
    errors: &mut Errors,
) -> Vec<Arg<'h>> {
    let mut args = Vec::new();
    let mut extractors = 0;
    let mut connection_found = false;
    for input in &handler.sig.inputs {
        let arg = match input {
            FnArg::Receiver(receiver) => {
                errors.at(
                    receiver,
                    "a handler has no `self`: make it a function outside of the `impl` block and take shared state as `web::Data<…>`",
                );
                continue;
            }
            FnArg::Typed(arg) => arg,
        };
        conditional(arg, errors);
        if let Transaction::Named(name) = transaction
            && is_named(arg, name)
        {
            connection_found = true;
            args.extend(connection(arg, errors).map(Arg::Connection));
            continue;
        }
        extractors += 1;
        if extractors == MOST_EXTRACTORS + 1 {
            errors.at(
                arg,
                format_args!(
                    "a handler has at most {MOST_EXTRACTORS} extractors: combine some in a tuple, as in `(a, b): (A, B)`"
                ),
            );
        }
        args.extend(extractor(arg, transaction, errors).map(Arg::Extracted));
    }
    if let Transaction::Named(name) = transaction
        && !connection_found
    {
        no_connection(handler, name, errors);
    }
    args
}

/// An argument that is there only in some builds cannot be passed by code that is there in all.
fn conditional(arg: &PatType, errors: &mut Errors) {
    for attr in &arg.attrs {
        if attr.path().is_ident("cfg") {
            errors.at(
                attr,
                "an argument of a handler cannot be conditional: put `#[cfg]` on two versions of the whole handler",
            );
        }
    }
}

fn extractor<'h>(
    arg: &'h PatType,
    transaction: &Transaction<'_>,
    errors: &mut Errors,
) -> Option<&'h Type> {
    if let Type::Reference(TypeReference {
        mutability: Some(_),
        ..
    }) = &*arg.ty
    {
        match (transaction, name(arg)) {
            (Transaction::Unknown, _) => {}
            (Transaction::Named(other), _) => errors.at(
                &arg.ty,
                format_args!(
                    "no extractor lends a `&mut`: only the transaction does, and that is `{other}`"
                ),
            ),
            (Transaction::Absent, Some(name)) => errors.at(
                &arg.ty,
                format_args!(
                    "no extractor lends a `&mut`: to receive the open transaction here, write `transaction = {name}` in `#[idempotent]`"
                ),
            ),
            (Transaction::Absent, None) => errors.at(
                &arg.ty,
                "no extractor lends a `&mut`: take the value itself, or a `web::Data<…>`",
            ),
        }
        return None;
    }
    if let Some(keyword) = find_word(arg.ty.to_token_stream(), "impl") {
        errors.at(
            keyword,
            "an argument of a handler has a type with a name: write the extractor's own type instead of `impl …`",
        );
        return None;
    }
    if let Some(word) = find_word(arg.ty.to_token_stream(), "Self") {
        errors.at(
            word,
            "a handler is a function outside of any `impl` block: write the type's own name instead of `Self`",
        );
        return None;
    }
    Some(&arg.ty)
}

/// The connection type behind the argument that receives the transaction.
fn connection<'h>(arg: &'h PatType, errors: &mut Errors) -> Option<&'h Type> {
    let reference = match &*arg.ty {
        Type::Reference(reference) if reference.mutability.is_some() => reference,
        Type::Reference(reference) => {
            let elem = reference.elem.to_token_stream();
            errors.at(
                &arg.ty,
                format_args!("the transaction is lent to be written to: write `&mut {elem}`"),
            );
            return None;
        }
        other => {
            errors.at(
                other,
                "the transaction is lent as a connection: write `&mut PgConnection`, `&mut MySqlConnection` or `&mut SqliteConnection`",
            );
            return None;
        }
    };
    if let Some(lifetime) = reference.lifetime.as_ref().filter(|it| it.ident != "_") {
        errors.at(
            lifetime,
            "the transaction is lent for this one call: remove the lifetime",
        );
        return None;
    }
    Some(&reference.elem)
}

fn no_connection(handler: &Handler, name: &Ident, errors: &mut Errors) {
    let names: Vec<String> = handler
        .sig
        .inputs
        .iter()
        .filter_map(|input| match input {
            FnArg::Typed(arg) => self::name(arg).map(|name| name.unraw().to_string()),
            FnArg::Receiver(_) => None,
        })
        .collect();
    let hint = match nearest(&name.unraw().to_string(), names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("add one, as in `{name}: &mut PgConnection`"),
    };
    errors.at(
        name,
        format_args!(
            "`{}` has no argument named `{name}`: {hint}",
            handler.name()
        ),
    );
}

fn output<'h>(handler: &'h Handler, errors: &mut Errors) -> Option<&'h Type> {
    match &handler.sig.output {
        ReturnType::Default => {
            errors.at(
                &handler.sig.ident,
                format_args!(
                    "`{}` returns nothing to answer with: give it a result that implements `Responder`, such as `-> HttpResponse`",
                    handler.name()
                ),
            );
            None
        }
        ReturnType::Type(_, ty) => {
            if let Some(word) = find_word(ty.to_token_stream(), "Self") {
                errors.at(
                    word,
                    "a handler is a function outside of any `impl` block: write the type's own name instead of `Self`",
                );
            }
            let nameless = find_word(ty.to_token_stream(), "impl").is_some();
            (!nameless).then_some(&**ty)
        }
    }
}

/// The name of an argument that is bound as a whole.
fn name(arg: &PatType) -> Option<&Ident> {
    match &*arg.pat {
        Pat::Ident(pat) if pat.subpat.is_none() && pat.by_ref.is_none() => Some(&pat.ident),
        _ => None,
    }
}

fn is_named(arg: &PatType, wanted: &Ident) -> bool {
    name(arg).is_some_and(|name| name.unraw() == wanted.unraw())
}

/// Finds a keyword in a type, however deep.
fn find_word(tokens: TokenStream, word: &str) -> Option<TokenTree> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => find_word(group.stream(), word),
        TokenTree::Ident(ref ident) if ident == word => Some(token),
        _ => None,
    })
}
