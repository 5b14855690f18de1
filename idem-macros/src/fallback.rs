//! What is emitted when there was a mistake: the errors, and the handler without the attribute.
//!
//! The rest of the program must still find the handler's name and be able to use it as a service,
//! or one mistake would be reported many times over.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use crate::{
    attributes::{self, Sorted},
    diagnostics::Errors,
    handler::Handler,
    validate,
};

/// The fallback for an item that is no function: the item.
pub(crate) fn unparsed(item: &TokenStream, errors: &Errors) -> TokenStream {
    quote!(#errors #item)
}

/// The fallback for a function.
pub(crate) fn handler(handler: &Handler, errors: &Errors) -> TokenStream {
    let function = if validate::is_plain_handler(handler) {
        as_it_was(handler)
    } else if !validate::is_method(handler) {
        stand_in(handler, Some(handler))
    } else if handler
        .attrs
        .iter()
        .any(|attr| attributes::is_route(attr.path()))
    {
        // A service is made of a function outside of any `impl`, where `self` means nothing.
        stand_in(handler, None)
    } else {
        as_it_was(handler)
    };
    quote!(#errors #function)
}

/// The user's function.
fn as_it_was(handler: &Handler) -> TokenStream {
    let Handler {
        attrs,
        vis,
        sig,
        body,
    } = handler;
    let attrs = attrs
        .iter()
        .filter(|attr| !attributes::is_idempotent(attr.path()));
    quote!(#(#attrs)* #vis #sig #body)
}

/// A handler of the same name that actix takes, around the user's function, which it would not
/// take: the route attribute and `.to(…)` would only add errors that the user cannot act on.
fn stand_in(handler: &Handler, inside: Option<&Handler>) -> TokenStream {
    let Sorted { outer, inner } = Sorted::new(&handler.attrs);
    let (vis, name) = (&handler.vis, handler.name());
    let inside =
        inside.map(|Handler { sig, body, .. }| quote!(#[allow(dead_code)] #(#inner)* #sig #body));
    quote_spanned! {Span::mixed_site()=>
        #(#outer)*
        #vis async fn #name() -> &'static ::core::primitive::str {
            #inside
            ""
        }
    }
}
