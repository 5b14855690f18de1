//! Parses the annotated function: attributes, visibility and signature, but not the body.
//!
//! The body stays a group of tokens. Half-written code in it is the compiler's to report, and it
//! does so better than a second parser would.

use proc_macro2::{Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Ident, Signature, Token, Visibility,
    parse::{Parse, ParseStream},
};

/// A function as the user wrote it, whatever its signature.
pub(crate) struct Handler {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// The body with its braces.
    pub(crate) body: Group,
}

impl Handler {
    /// # Errors
    ///
    /// The item is not a function with a body.
    pub(crate) fn parse(item: &TokenStream) -> syn::Result<Self> {
        syn::parse2(item.clone())
    }

    pub(crate) fn name(&self) -> &Ident {
        &self.sig.ident
    }
}

impl Parse for Handler {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        expect_function(input)?;
        let sig: Signature = input.parse()?;
        if input.peek(Token![;]) {
            return Err(syn::Error::new_spanned(
                &sig.ident,
                format_args!(
                    "`{}` has no body: `#[idempotent]` goes on the `async fn` that handles the request",
                    sig.ident
                ),
            ));
        }
        let body = match input.parse()? {
            TokenTree::Group(body) => body,
            other => {
                return Err(syn::Error::new_spanned(
                    other,
                    "expected the function's body",
                ));
            }
        };
        Ok(Self {
            attrs,
            vis,
            sig,
            body,
        })
    }
}

/// Tells a thing that is no function from a function with a bad signature, at its own keyword.
fn expect_function(input: ParseStream<'_>) -> syn::Result<()> {
    let ahead = input.fork();
    // The qualifiers of a function, in whatever order and number.
    loop {
        let qualifier = ahead.parse::<Token![const]>().is_ok()
            || ahead.parse::<Token![async]>().is_ok()
            || ahead.parse::<Token![unsafe]>().is_ok()
            || ahead.parse::<syn::Abi>().is_ok();
        if !qualifier {
            break;
        }
    }
    if ahead.peek(Token![fn]) {
        return Ok(());
    }
    // `unsafe impl`: point at `impl`. `const LIMIT: u8 = 1`: point at `const`, not at the name.
    let keyword = match ahead.parse::<TokenTree>() {
        Ok(token) if described(&token).is_some() => token,
        _ => input.parse()?,
    };
    let described = described(&keyword).unwrap_or("this item");
    Err(syn::Error::new_spanned(
        keyword,
        format_args!(
            "`#[idempotent]` goes on an `async fn` that handles a request, not on {described}"
        ),
    ))
}

fn described(keyword: &TokenTree) -> Option<&'static str> {
    Some(match keyword.to_string().as_str() {
        "const" => "a `const`",
        "enum" => "an `enum`",
        "extern" => "an `extern` block",
        "impl" => "an `impl` block",
        "mod" => "a module: put it on each handler in it",
        "static" => "a `static`",
        "struct" => "a `struct`",
        "trait" => "a trait",
        "type" => "a type alias",
        "union" => "a `union`",
        "use" => "a `use`: put it on the function itself",
        _ => return None,
    })
}

impl ToTokens for Handler {
    /// The function as it was, with all its attributes.
    fn to_tokens(&self, tokens: &mut TokenStream) {
        for attr in &self.attrs {
            attr.to_tokens(tokens);
        }
        self.vis.to_tokens(tokens);
        self.sig.to_tokens(tokens);
        self.body.to_tokens(tokens);
    }
}
