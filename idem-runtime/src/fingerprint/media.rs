//! The media type (RFC 9110 §8.3.1), as far as it decides how a body is read.

use std::borrow::Cow;

/// A `Content-Type`.
pub(super) enum MediaType<'a> {
    Absent,
    /// Not a media type; counts as the bytes that it is.
    Malformed(&'a [u8]),
    Known(Known<'a>),
}

pub(super) struct Known<'a> {
    /// `type/subtype`, lower-cased.
    pub(super) essence: Cow<'a, str>,
    /// Names are lower-cased, values unquoted; sorted by name, no name twice.
    parameters: Vec<(String, Cow<'a, str>)>,
}

/// The grammar of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    Json,
    Form,
    Multipart,
    Opaque,
}

impl<'a> MediaType<'a> {
    pub(super) fn parse(value: Option<&'a [u8]>) -> Self {
        match value {
            None => Self::Absent,
            Some(bytes) => match std::str::from_utf8(bytes).ok().and_then(parse) {
                Some(known) => Self::Known(known),
                None => Self::Malformed(bytes),
            },
        }
    }

    pub(super) fn syntax(&self) -> Syntax {
        match self {
            Self::Known(known) => known.syntax(),
            Self::Absent | Self::Malformed(_) => Syntax::Opaque,
        }
    }

    /// The boundary of a multipart type.
    pub(super) fn boundary(&self) -> Option<&str> {
        match self {
            Self::Known(known) if known.syntax() == Syntax::Multipart => {
                known.parameter("boundary")
            }
            _ => None,
        }
    }
}

impl Known<'_> {
    fn syntax(&self) -> Syntax {
        match &*self.essence {
            "application/json" | "text/json" => Syntax::Json,
            "application/x-www-form-urlencoded" => Syntax::Form,
            other if other.ends_with("+json") => Syntax::Json,
            other if other.starts_with("multipart/") => Syntax::Multipart,
            _ => Syntax::Opaque,
        }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| &**value)
    }

    /// The parameters that can change what the body means.
    pub(super) fn significant_parameters(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        let multipart = self.syntax() == Syntax::Multipart;
        let text = self.essence.starts_with("text/");
        self.parameters.iter().filter_map(move |(name, value)| {
            if name == "charset" {
                let charset = value.to_ascii_lowercase();
                let default = matches!(&*charset, "utf-8" | "utf8");
                return (text || !default).then_some((&**name, Cow::Owned(charset)));
            }
            // Some, like `start` of multipart/related, select the part that matters. The boundary
            // changes with every attempt.
            (multipart && name != "boundary").then_some((&**name, Cow::Borrowed(&**value)))
        })
    }
}

fn parse(value: &str) -> Option<Known<'_>> {
    let (essence, mut rest) = split_at_semicolon(value);
    let essence = essence.trim_matches([' ', '\t']);
    let (kind, subtype) = essence.split_once('/')?;
    if !is_token(kind) || !is_token(subtype) {
        return None;
    }
    let mut parameters: Vec<(String, Cow<'_, str>)> = Vec::new();
    while !rest.is_empty() {
        // Skips `;` and white space; empty parameters are allowed.
        rest = rest.trim_start_matches([';', ' ', '\t']);
        if rest.is_empty() {
            break;
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = parameter_value(after)?;
        if !is_token(name) {
            return None;
        }
        rest = after.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(';') {
            return None;
        }
        parameters.push((name.to_ascii_lowercase(), value));
    }
    parameters.sort_by(|a, b| a.0.cmp(&b.0));
    if parameters.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return None;
    }
    let lower = if essence.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(essence.to_ascii_lowercase())
    } else {
        Cow::Borrowed(essence)
    };
    Some(Known {
        essence: lower,
        parameters,
    })
}

fn split_at_semicolon(value: &str) -> (&str, &str) {
    value.split_at(value.find(';').unwrap_or(value.len()))
}

/// Reads a token or a quoted string (RFC 9110 §5.6.4); also returns what follows.
fn parameter_value(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let Some(inside) = text.strip_prefix('"') else {
        let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
        let (token, rest) = text.split_at(end);
        return is_token(token).then_some((Cow::Borrowed(token), rest));
    };
    let mut value = String::new();
    let mut chars = inside.chars();
    loop {
        match chars.next()? {
            '"' => return Some((Cow::Owned(value), chars.as_str())),
            '\\' => value.push(chars.next()?),
            plain => value.push(plain),
        }
    }
}

/// RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'!' | b'#'
                        | b'$'
                        | b'%'
                        | b'&'
                        | b'\''
                        | b'*'
                        | b'+'
                        | b'-'
                        | b'.'
                        | b'^'
                        | b'_'
                        | b'`'
                        | b'|'
                        | b'~'
                )
        })
}
