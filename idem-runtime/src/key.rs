//! The idempotency key: what a client sends to say "this is the same request again".
//!
//! A key is a structured-field string (`"abc"`; RFC 8941 §3.3.3, unchanged in RFC 9651 §3.3.3),
//! as the Idempotency-Key draft asks for, or the same characters bare, as most clients send it.
//! `abc` and `"abc"` are one key. Parameters after `;` must be well-formed and are then ignored, as
//! RFC 9651 asks of fields that define none.
//!
//! Everything else is refused rather than repaired: a request whose key was misread would run
//! without the protection that its client believes in.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

/// The longest key that is accepted, in bytes after unquoting.
///
/// Long enough for several UUIDs, short enough for an index of any database.
pub const MAX_KEY_BYTES: usize = 255;

/// A syntactically valid idempotency key: 1 to [`MAX_KEY_BYTES`] bytes of visible ASCII and spaces,
/// not blank.
///
/// Keys are compared as bytes; case matters. A key can be as good as a password to the stored
/// answer, so `Debug` shows a [`digest`](Self::digest) only and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

/// Why a key was refused. The messages say what to send instead and never repeat the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The header came in more than one line, be they equal or not.
    #[error("the key was sent in more than one header line; send exactly one")]
    Repeated,
    /// The header's value is a list.
    #[error(
        "the key contains a comma outside double quotes, which makes it a list; send exactly one key"
    )]
    List,
    /// Nothing was sent, or nothing but spaces.
    #[error("the key is empty; send 1 to {MAX_KEY_BYTES} visible ASCII characters, such as a UUID")]
    Blank,
    /// The unquoted key has more than [`MAX_KEY_BYTES`] bytes.
    #[error("the key is too long; send at most {MAX_KEY_BYTES} bytes, such as a UUID")]
    TooLong,
    /// A byte that is neither visible ASCII nor a space.
    #[error("the key contains a byte other than visible ASCII and spaces; a UUID is a good key")]
    InvalidByte,
    /// A double quote without its partner, or text beside the quoted string.
    #[error(
        "the key's double quotes do not enclose the whole key; write \"key\", with \\\" for a \
         double quote inside"
    )]
    UnbalancedQuotes,
    /// A backslash in a quoted key that is not followed by `"` or `\`.
    #[error("the key contains an unknown escape; inside double quotes write \\\\ for a backslash")]
    InvalidEscape,
    /// The key is enclosed in single quotes.
    #[error("the key is in single quotes; use double quotes or none")]
    SingleQuoted,
    /// A space in a key without quotes.
    #[error("the key contains a space; enclose it in double quotes")]
    BareSpace,
    /// What follows the first `;` is not a list of parameters (RFC 9651 §3.1.2).
    #[error(
        "what follows the `;` is not a valid parameter; enclose a key that contains `;` in double \
         quotes"
    )]
    InvalidParameters,
}

impl IdempotencyKey {
    /// Reads the key from all header field lines of its name, in order, as the client sent them.
    ///
    /// No line at all is `Ok(None)`: the request has no key.
    ///
    /// ```
    /// use idem_runtime::key::IdempotencyKey;
    ///
    /// let bare = IdempotencyKey::parse([&b"k-1"[..]])?;
    /// let quoted = IdempotencyKey::parse([&b"\"k-1\""[..]])?;
    /// assert_eq!(bare, quoted);
    /// assert_eq!(IdempotencyKey::parse([])?, None);
    /// # Ok::<(), idem_runtime::key::KeyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`KeyError`] if there is more than one line or if the line is not one key. The request
    /// must then be refused, also where a key is optional.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Self>, KeyError> {
        let mut lines = lines.into_iter();
        let Some(line) = lines.next() else {
            return Ok(None);
        };
        if lines.next().is_some() {
            return Err(KeyError::Repeated);
        }
        if is_plain(line)
            && let Ok(key) = std::str::from_utf8(line)
        {
            return Ok(Some(Self(key.into())));
        }
        parse_line(line).map(|key| Some(Self(key.into())))
    }

    /// The unquoted key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A short digest of the key (16 hexadecimal digits) that names it in logs without revealing
    /// it.
    #[must_use]
    pub fn digest(&self) -> String {
        let hash = Sha256::digest(self.0.as_bytes());
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the key is a UUID in its usual form: 8-4-4-4-12 hexadecimal digits, of any version.
    #[must_use]
    pub fn is_uuid(&self) -> bool {
        // The length rules out the other forms that the parser takes: simple, braced, URN.
        self.0.len() == uuid::fmt::Hyphenated::LENGTH && uuid::Uuid::try_parse(&self.0).is_ok()
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey(#{})", self.digest())
    }
}

/// Whether the line is a key as it stands, as a UUID is, and most others are: nothing in it has a
/// meaning of its own.
fn is_plain(line: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    // All of it, and not up to the first other byte: many bytes are looked at in one step.
    (1..=MAX_KEY_BYTES).contains(&line.len())
        && line.iter().fold(true, |all, byte| all & plain(byte))
}

fn parse_line(line: &[u8]) -> Result<String, KeyError> {
    if !line.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(KeyError::InvalidByte);
    }
    let text = std::str::from_utf8(line).map_err(|_| KeyError::InvalidByte)?;
    let text = text.trim_matches(' ');
    let (key, rest) = match text.strip_prefix('"') {
        Some(inside) => quoted(inside)?,
        None => bare(text)?,
    };
    match rest.bytes().next() {
        None => {}
        Some(b';') => check_parameters(rest)?,
        Some(_) if rest.trim_start_matches(' ').starts_with(',') => return Err(KeyError::List),
        Some(_) => return Err(KeyError::UnbalancedQuotes),
    }
    if key.trim_matches(' ').is_empty() {
        return Err(KeyError::Blank);
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(KeyError::TooLong);
    }
    Ok(key)
}

/// Unescapes the string whose opening quote has been taken off; also returns what follows it.
fn quoted(inside: &str) -> Result<(String, &str), KeyError> {
    let mut key = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    loop {
        match chars.next() {
            Some('"') => return Ok((key, chars.as_str())),
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                Some(_) => return Err(KeyError::InvalidEscape),
                None => return Err(KeyError::UnbalancedQuotes),
            },
            Some(plain) => key.push(plain),
            None => return Err(KeyError::UnbalancedQuotes),
        }
    }
}

/// Splits a key without quotes from its parameters.
fn bare(text: &str) -> Result<(String, &str), KeyError> {
    let (key, rest) = text.split_at(text.find(';').unwrap_or(text.len()));
    if key.contains(',') {
        return Err(KeyError::List);
    }
    if key.contains('"') {
        return Err(KeyError::UnbalancedQuotes);
    }
    if key.starts_with('\'') {
        return Err(KeyError::SingleQuoted);
    }
    if key.contains(' ') {
        return Err(KeyError::BareSpace);
    }
    Ok((key.to_owned(), rest))
}

fn check_parameters(rest: &str) -> Result<(), KeyError> {
    // Parameters have no grammar of their own in the parser: hang them on a token.
    let item = format!("key{rest}");
    sfv::Parser::new(&item)
        .parse_item_with_visitor(sfv::visitor::Ignored)
        .map_err(|_| KeyError::InvalidParameters)
}
