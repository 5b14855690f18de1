//! What is emitted when there was a mistake: the errors, and the handler without the attribute.
//!
//! The rest of the program must still find the handler's name and be able to use it as a service,
//! or one mistake would be reported many times over.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::Attribute;

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
    let function = if handler.sig.receiver().is_some() {
        method(handler)
    } else if validate::is_plain_handler(handler) {
        as_it_was(handler)
    } else {
        stand_in(handler)
    };
    quote!(#errors #function)
}

/// The user's function. Actix takes it as a handler, so nothing else complains.
fn as_it_was(handler: &Handler) -> TokenStream {
    without(handler, |attr| attributes::is_idempotent(attr.path()))
}

/// A method can only have been meant for another place, where it is no route.
fn method(handler: &Handler) -> TokenStream {
    without(handler, |attr| {
        attributes::is_idempotent(attr.path()) || attributes::is_route(attr.path())
    })
}

fn without(handler: &Handler, unwanted: impl Fn(&Attribute) -> bool) -> TokenStream {
    let Handler {
        attrs,
        vis,
        sig,
        body,
    } = handler;
    let attrs = attrs.iter().filter(|attr| !unwanted(attr));
    quote!(#(#attrs)* #vis #sig #body)
}

/// A handler of the same name that actix takes, around the user's function, which it would not
/// take: the route attribute and `.to(…)` would only add errors that the user cannot act on.
fn stand_in(handler: &Handler) -> TokenStream {
    let Sorted { outer, inner } = Sorted::new(&handler.attrs);
    let Handler { vis, sig, body, .. } = handler;
    let name = sig.ident.to_token_stream();
    let inner = inner.into_iter().filter(|_| true);
    quote_spanned! {Span::mixed_site()=>
        #(#outer)*
        #vis async fn #name() -> &'static ::core::primitive::str {
            #[allow(dead_code)]
            #(#inner)*
            #sig #body
            ""
        }
    }
}
