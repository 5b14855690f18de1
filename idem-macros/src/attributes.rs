//! Where the handler's other attributes go, and what the route attributes among them say.
//!
//! The attribute turns one function into two: the *outer* one, which has the handler's name and
//! actix's own signature, and the *inner* one, which is the user's function as it was.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Attribute, Expr, ExprLit, Lit, LitStr, Meta, MetaNameValue, Path, Token,
    parse::{ParseStream, Parser},
    punctuated::Punctuated,
};

/// Route attributes of actix-web. Each makes a service of the function that it stands on.
const ROUTES: [&str; 11] = [
    "connect", "delete", "get", "head", "options", "patch", "post", "put", "route", "routes",
    "trace",
];

/// Attributes that speak of the handler as others see it.
///
/// Lint levels are among them and not on both: they hold for everything inside, so the inner
/// function has them too, while a second `#[expect]` would never be fulfilled.
const OUTER: [&str; 9] = [
    "allow",
    "cfg",
    "deny",
    "deprecated",
    "doc",
    "expect",
    "forbid",
    "must_use",
    "warn",
];

/// The attributes of a handler, each with the function that it belongs to.
#[derive(Default)]
pub(crate) struct Sorted {
    pub(crate) outer: Vec<TokenStream>,
    pub(crate) inner: Vec<TokenStream>,
}

impl Sorted {
    /// Sorts the attributes beneath ours. Those that are not known to belong outside go inside,
    /// where the function has the signature that their author saw.
    pub(crate) fn new(attrs: &[Attribute]) -> Self {
        let mut sorted = Self::default();
        for attr in attrs {
            if let Some((condition, conditional)) = parse_cfg_attr(attr) {
                let (outer, inner): (Vec<_>, Vec<_>) = conditional
                    .into_iter()
                    .partition(|meta| is_outer(meta.path()));
                if !outer.is_empty() {
                    sorted
                        .outer
                        .push(quote!(#[cfg_attr(#condition, #(#outer),*)]));
                }
                if !inner.is_empty() {
                    sorted
                        .inner
                        .push(quote!(#[cfg_attr(#condition, #(#inner),*)]));
                }
            } else if is_outer(attr.path()) || attr.path().is_ident("cfg_attr") {
                sorted.outer.push(attr.to_token_stream());
            } else {
                sorted.inner.push(attr.to_token_stream());
            }
        }
        sorted
    }
}

/// The condition of a `cfg_attr` and what it stands for. One that does not parse is left to the
/// compiler to complain about.
fn parse_cfg_attr(attr: &Attribute) -> Option<(Meta, Vec<Meta>)> {
    if !attr.path().is_ident("cfg_attr") {
        return None;
    }
    let metas = attr
        .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
        .ok()?;
    let mut metas = metas.into_iter();
    Some((metas.next()?, metas.collect()))
}

fn is_outer(path: &Path) -> bool {
    OUTER.iter().any(|name| path.is_ident(name)) || is_route(path) || is_utoipa(path)
}

/// The last segment of a path with at most one segment before it: `post`, `actix_web::post`.
fn short_name(path: &Path) -> Option<String> {
    match path.segments.len() {
        1 | 2 => path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    }
}

/// Whether this is one of actix-web's route attributes.
pub(crate) fn is_route(path: &Path) -> bool {
    short_name(path).is_some_and(|name| ROUTES.contains(&name.as_str()))
}

/// `#[utoipa::path(…)]` generates items beside the function, which must stay reachable.
fn is_utoipa(path: &Path) -> bool {
    let names: Vec<_> = path.segments.iter().map(|segment| &segment.ident).collect();
    matches!(names.as_slice(), [krate, name] if *krate == "utoipa" && *name == "path")
}

/// Whether this is our own attribute.
pub(crate) fn is_idempotent(path: &Path) -> bool {
    short_name(path).is_some_and(|name| name == "idempotent")
}

/// The route attributes if all the methods that they name are safe, so that no request of these
/// routes would ever be protected.
pub(crate) fn all_safe(attrs: &[Attribute]) -> Vec<&Attribute> {
    let mut safe = Vec::new();
    for attr in attrs.iter().filter(|attr| is_route(attr.path())) {
        let methods = match short_name(attr.path()).as_deref() {
            // Names no method itself: the attributes beneath it do.
            Some("routes") => continue,
            Some("route") => route_methods(attr),
            Some(name) => vec![name.to_ascii_uppercase()],
            None => continue,
        };
        if methods.is_empty() || !methods.iter().all(|method| is_safe(method)) {
            return Vec::new();
        }
        safe.push(attr);
    }
    safe
}

/// Safe methods, RFC 9110 section 9.2.1.
fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
}

/// The methods in `#[route("/", method = "GET", …)]`; none if it does not parse, which is actix's
/// to report.
fn route_methods(attr: &Attribute) -> Vec<String> {
    let parse = |input: ParseStream<'_>| {
        input.parse::<LitStr>()?;
        if input.is_empty() {
            return Ok(Punctuated::new());
        }
        input.parse::<Token![,]>()?;
        Punctuated::<MetaNameValue, Token![,]>::parse_terminated(input)
    };
    let options = match &attr.meta {
        Meta::List(list) => parse.parse2(list.tokens.clone()).unwrap_or_default(),
        _ => Punctuated::new(),
    };
    options
        .iter()
        .filter(|option| option.path.is_ident("method"))
        .filter_map(|option| match &option.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(method),
                ..
            }) => Some(method.value()),
            _ => None,
        })
        .collect()
}
