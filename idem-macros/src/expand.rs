//! Prints a validated route: a static policy and one call into the runtime.
//!
//! Everything generated has the hygiene of the definition site (`mixed_site`) and absolute paths,
//! so that nothing in the user's scope can change its meaning. Tokens of the user's keep their own
//! spans, so that a wrong type is underlined where it was written.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::{ext::IdentExt, spanned::Spanned};

use crate::{
    attributes::Sorted,
    handler::Handler,
    validate::{Arg, Fingerprint, Policy, Route, Scope, Variant},
};

pub(crate) fn expand(route: &Route<'_>) -> TokenStream {
    let site = Span::mixed_site();
    let krate = &route.krate;
    let private = quote_spanned!(site=> #krate::__private);
    let Sorted { outer, inner } = Sorted::new(&route.handler.attrs);
    let Handler { vis, sig, body, .. } = route.handler;
    let (asyncness, fn_token, name) = (&sig.asyncness, &sig.fn_token, &sig.ident);
    let assertions = assertions(&private, route);
    let policy = policy(&private, route);
    let call = call(&private, route);
    let path = name.unraw().to_string();
    // The macro's own call site would give the line of the attribute.
    let line = quote_spanned!(name.span()=> ::core::line!());
    let mut block = Group::new(
        Delimiter::Brace,
        quote_spanned! {site=>
            #(#inner)*
            #sig #body

            #assertions
            // A block of its own, so that the user's body cannot name the static.
            {
                static __ROUTE: #private::Route = #private::Route::new(
                    ::core::concat!(::core::module_path!(), "::", #path),
                    ::core::file!(),
                    #line,
                    #policy,
                );
                #private::submit! { &__ROUTE }
                #call
            }
        },
    );
    // A function that ends in generated code counts as such, and then the compiler does not warn
    // if it is never used.
    block.set_span(body.span());
    quote_spanned! {site=>
        #(#outer)*
        #vis #asyncness #fn_token #name(
            __request: #private::HttpRequest,
            __payload: #private::Payload,
        ) -> ::core::result::Result<#private::HttpResponse, #private::Error> #block
    }
}

/// Bounds on the user's types, each checked at the place where the type was written.
///
/// They are statements of the body that makes the call, because then the compiler checks them
/// first and does not repeat what they say for the call.
fn assertions(private: &TokenStream, route: &Route<'_>) -> TokenStream {
    let args = route.signature.args.iter().map(|arg| match arg {
        Arg::Extracted(ty) => {
            quote_spanned!(ty.span().resolved_at(Span::mixed_site())=> #private::assert_extractor::<#ty>();)
        }
        Arg::Connection(ty) => {
            quote_spanned!(ty.span().resolved_at(Span::mixed_site())=> #private::assert_connection::<#ty>();)
        }
    });
    let output = route.signature.output.iter().map(|ty| {
        quote_spanned!(ty.span().resolved_at(Span::mixed_site())=> #private::assert_responder::<#ty>();)
    });
    args.chain(output).collect()
}

/// The one call into the runtime.
fn call(private: &TokenStream, route: &Route<'_>) -> TokenStream {
    let site = Span::mixed_site();
    let name = route.handler.name();
    let mut extracted: Vec<Ident> = Vec::new();
    let mut passed: Vec<Ident> = Vec::new();
    for (index, arg) in route.signature.args.iter().enumerate() {
        match arg {
            Arg::Extracted(_) => {
                let binding = format_ident!("__arg{index}", span = site);
                extracted.push(binding.clone());
                passed.push(binding);
            }
            Arg::Connection(_) => passed.push(Ident::new("__connection", site)),
        }
    }
    match route.signature.connection() {
        None => quote_spanned! {site=>
            #private::run(&__ROUTE, __request, __payload, |(#(#extracted,)*)| #name(#(#passed),*)).await
        },
        Some(ty) => quote_spanned! {site=>
            #private::run_in_transaction(
                &__ROUTE,
                __request,
                __payload,
                async |(#(#extracted,)*), __connection: &mut #ty| {
                    let __finished = #private::Finished(#name(#(#passed),*).await);
                    let __refused = __finished.is_refused();
                    (__finished.0, __refused)
                },
            )
            .await
        },
    }
}

/// The policy as a chain of constant builder calls: one for each option that the user wrote.
fn policy(private: &TokenStream, route: &Route<'_>) -> TokenStream {
    let site = Span::mixed_site();
    let Policy {
        scope,
        ttl_ms,
        required,
        key_format,
        header,
        wait_ms,
        lease_ms,
        abandoned,
        reconcile,
        mismatch,
        server_error,
        release_on,
        fingerprint,
        ignore,
        headers,
        max_body,
        max_response,
        on_store_error,
        // Known by its argument, below.
        transaction: _,
    } = &route.policy;
    let scope = self::scope(private, scope);
    let mut chain = quote_spanned!(site=> #private::Policy::new(#scope, #ttl_ms));
    let mut set = |method: &str, value: TokenStream| {
        let method = Ident::new(method, site);
        chain.extend(quote_spanned!(site=> .#method(#value)));
    };
    let variant = |variant: &Variant| self::variant(private, variant);

    if *required {
        set("required", TokenStream::new());
    }
    if let Some(format) = key_format {
        set("key_format", variant(format));
    }
    if let Some(header) = header {
        set("header", header.to_token_stream());
    }
    if let Some(millis) = wait_ms {
        set("wait_ms", millis.to_token_stream());
    }
    if let Some(millis) = lease_ms {
        set("lease_ms", millis.to_token_stream());
    }
    if let Some(abandoned) = abandoned {
        set("abandoned", variant(abandoned));
    }
    if let Some(path) = reconcile {
        set("reconcile", {
            // The call stands where the path does, and so does what is wrong with it.
            let at = path.span();
            let private = located(private, at);
            let at = at.resolved_at(site);
            quote_spanned!(at=> |__abandoned| #private::reconcile(#path, __abandoned))
        });
    }
    if let Some(mismatch) = mismatch {
        set("mismatch", variant(mismatch));
    }
    if let Some(server_error) = server_error {
        set("server_error", variant(server_error));
    }
    if let Some(statuses) = release_on {
        set("release_on", quote_spanned!(site=> &[#(#statuses),*]));
    }
    if let Some(fingerprint) = fingerprint {
        set(
            "fingerprint",
            match fingerprint {
                Fingerprint::Mode(mode) => variant(mode),
                Fingerprint::Custom(path) => {
                    quote_spanned!(site=> #private::FingerprintMode::Custom(#path))
                }
            },
        );
    }
    if let Some(pointers) = ignore {
        set("ignore", quote_spanned!(site=> &[#(#pointers),*]));
    }
    if let Some(names) = headers {
        set("headers", quote_spanned!(site=> &[#(#names),*]));
    }
    if let Some(bytes) = max_body {
        set("max_body", usize_literal(*bytes));
    }
    if let Some(bytes) = max_response {
        set("max_response", usize_literal(*bytes));
    }
    if let Some(on_store_error) = on_store_error {
        set("on_store_error", variant(on_store_error));
    }
    if let Some(ty) = route.signature.connection() {
        set(
            "transaction",
            quote_spanned!(site=> #private::transactions::<#ty>),
        );
    }
    chain
}

/// The same tokens with the same meaning, but for the compiler's messages they stand at `place`.
fn located(tokens: &TokenStream, place: Span) -> TokenStream {
    let tokens = tokens.clone().into_iter().map(|mut token| {
        token.set_span(place.resolved_at(token.span()));
        token
    });
    tokens.collect()
}

/// A literal without a suffix: sizes are at most 1 GiB, which every `usize` holds.
fn usize_literal(bytes: u64) -> TokenStream {
    proc_macro2::Literal::u64_unsuffixed(bytes).to_token_stream()
}

fn scope(private: &TokenStream, scope: &Scope) -> TokenStream {
    let site = Span::mixed_site();
    match scope {
        Scope::Named(names) => quote_spanned!(site=> #private::Scope::Named(&[#(#names),*])),
        Scope::Global => quote_spanned!(site=> #private::Scope::Global),
        Scope::Principal(ty) => {
            quote_spanned!(site=> #private::Scope::Principal(#private::principal::<#ty>))
        }
    }
}

fn variant(private: &TokenStream, Variant { of, name }: &Variant) -> TokenStream {
    let site = Span::mixed_site();
    let (of, name) = (Ident::new(of, site), Ident::new(name, site));
    quote_spanned!(site=> #private::#of::#name)
}
