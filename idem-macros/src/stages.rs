//! The three stages one after the other.

use proc_macro2::TokenStream;

use crate::{args::Args, diagnostics::Errors, expand, fallback, handler::Handler, validate};

/// The attribute on `proc_macro2` tokens, so that tests can call it outside of the compiler.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let handler = match Handler::parse(&item) {
        Ok(handler) => handler,
        Err(error) => {
            // The options are still worth checking: their mistakes belong in the same compile.
            validate::policy(&args, &mut errors);
            errors.absorb(error);
            return fallback::unparsed(&item, &errors);
        }
    };
    let route = validate::route(&args, &handler, &mut errors);
    match route {
        Some(route) if errors.is_empty() => expand::expand(&route),
        _ => fallback::handler(&handler, &errors),
    }
}
