//! Collecting mistakes, so that one compile reports all of them.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Every mistake found so far, in the order in which it was found.
#[derive(Default)]
pub(crate) struct Errors(Vec<syn::Error>);

impl Errors {
    /// Adds a mistake that is underlined at `tokens`.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds a mistake that is underlined at `span`.
    pub(crate) fn at_span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new(span, message));
    }

    /// Adds a mistake that is underlined at `tokens`, or at `span` if there are none.
    pub(crate) fn at_tokens_or(
        &mut self,
        tokens: TokenStream,
        span: Span,
        message: impl std::fmt::Display,
    ) {
        if tokens.is_empty() {
            self.at_span(span, message);
        } else {
            self.at(tokens, message);
        }
    }

    /// Adds what a parser of `syn` found.
    pub(crate) fn absorb(&mut self, error: syn::Error) {
        self.0.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are: compared before and after a check, it tells whether the check failed.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The messages alone, for tests.
    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0
            .iter()
            .flat_map(|error| error.clone().into_iter())
            .map(|error| error.to_string())
            .collect()
    }
}

impl ToTokens for Errors {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        for error in &self.0 {
            tokens.extend(error.to_compile_error());
        }
    }
}

/// The known word that `word` was probably meant to be.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), candidate))
        // One slip per three letters: more, and the suggestion is a guess.
        .filter(|(slips, candidate)| *slips <= (candidate.len() / 3).max(1))
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Lists words as in "`a`, `b` or `c`".
pub(crate) fn one_of<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let mut words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.pop() {
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} or {last}", words.join(", ")),
        None => String::new(),
    }
}
