//! JSON pointers (RFC 6901) to what is left out of a document, with `*` for every array element.

use super::json::push_string;

/// Why a JSON pointer is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointerError {
    /// It neither is empty nor starts with `/`.
    #[error("a JSON pointer starts with `/`: write \"/member\" or \"/items/*/member\"")]
    NoSlash,
    /// It is empty, which names the whole document.
    #[error("an empty JSON pointer would leave out the whole document: name a member of it")]
    WholeDocument,
    /// A `~` is followed by neither `0` nor `1`.
    #[error("`~` in a JSON pointer is written `~0`, and `/` in a name `~1`")]
    InvalidEscape,
}

/// Checks one entry of [`Options::ignore`](super::Options::ignore).
///
/// # Errors
///
/// A [`PointerError`] if it is not a JSON pointer or names the whole document.
pub fn check_pointer(pointer: &str) -> Result<(), PointerError> {
    parse(pointer).map(|_| ())
}

/// One step of a pointer.
pub(super) struct Token {
    /// The member name as the canonical document has it, quotes included.
    name: Vec<u8>,
    /// The element, if the token can name one.
    element: Option<Element>,
}

enum Element {
    Any,
    At(usize),
}

impl Token {
    pub(super) fn is_member(&self, quoted_name: &[u8]) -> bool {
        self.name == quoted_name
    }

    pub(super) fn is_element(&self, index: usize) -> bool {
        match self.element {
            None => false,
            Some(Element::Any) => true,
            Some(Element::At(at)) => at == index,
        }
    }
}

/// The pointers of one fingerprint.
pub(super) struct IgnoreSet(Vec<Vec<Token>>);

impl IgnoreSet {
    pub(super) fn new(pointers: &[&str]) -> Self {
        Self(
            pointers
                .iter()
                .filter_map(|pointer| parse(pointer).ok())
                .collect(),
        )
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn pointer(&self, index: usize) -> &[Token] {
        &self.0[index]
    }
}

fn parse(pointer: &str) -> Result<Vec<Token>, PointerError> {
    if pointer.is_empty() {
        return Err(PointerError::WholeDocument);
    }
    let path = pointer.strip_prefix('/').ok_or(PointerError::NoSlash)?;
    path.split('/').map(token).collect()
}

fn token(text: &str) -> Result<Token, PointerError> {
    let mut name = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        name.push(match char {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err(PointerError::InvalidEscape),
            },
            plain => plain,
        });
    }
    let element = match text {
        "*" => Some(Element::Any),
        // RFC 6901 §4: no leading zeros.
        "0" => Some(Element::At(0)),
        _ if text.starts_with(|char: char| matches!(char, '1'..='9')) => {
            text.parse().ok().map(Element::At)
        }
        _ => None,
    };
    let mut quoted = Vec::with_capacity(name.len() + 2);
    push_string(&name, &mut quoted);
    Ok(Token {
        name: quoted,
        element,
    })
}
