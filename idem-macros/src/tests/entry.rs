//! What must hold of any tokens at all: the entry function that the seeds of the corpus, their
//! mutations, and a fuzzer (`tests/fuzz` of the repository) are given to.

use proc_macro2::{TokenStream, TokenTree};

use crate::stages::attribute;

/// What stands between the options and the item in a text.
const CUT: &str = "\n---\n";
/// Deeper than anybody writes. The compiler has limits of its own before the attribute is called.
const DEEPEST: usize = 60;

/// Options and item as one text. What is no Rust token never reaches an attribute.
pub(crate) fn attribute_text(bytes: &[u8]) {
    let parts = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.split_once(CUT));
    let Some((args, item)) = parts else {
        return;
    };
    let is_shallow = |text: &str| text.matches(['(', '[', '{']).count() <= DEEPEST;
    if !is_shallow(args) || !is_shallow(item) {
        return;
    }
    if let (Ok(args), Ok(item)) = (args.parse(), item.parse()) {
        attribute_tokens(args, item);
    }
}

/// Whatever is wrong, the attribute says so and does not panic; a function keeps its name, so that
/// the rest of the program finds it; and what comes out without an error calls the runtime.
fn attribute_tokens(args: TokenStream, item: TokenStream) {
    let function = syn::parse2::<syn::ItemFn>(item.clone()).ok();
    let expansion = attribute(args, item);
    // A compiler reads it again.
    let again: Result<TokenStream, _> = expansion.to_string().parse();
    assert!(again.is_ok(), "{expansion}");
    if let Some(function) = function {
        let name = function.sig.ident.to_string();
        assert!(contains(&expansion, &name), "{name} is gone: {expansion}");
    }
    let says = |word| contains(&expansion, word);
    assert!(says("compile_error") || says("__private"), "{expansion}");
}

fn contains(tokens: &TokenStream, word: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => contains(&group.stream(), word),
        TokenTree::Ident(ident) => ident == word,
        _ => false,
    })
}
