//! What makes two requests "the same request": a digest over everything that decides their effect.
//!
//! A retry must have the fingerprint of the first attempt although clients re-serialise, choose
//! new multipart boundaries and compress or do not; any other request must have another one,
//! although it may differ in a single digit.
//!
//! # What is hashed
//!
//! SHA-256 (or HMAC-SHA-256 with an [`HmacKey`]) over tagged, length-prefixed fields, so that no
//! two sequences of fields run together: the [`FORMAT`] version, method, path, raw query, media
//! type, the headers that were asked for, and the body:
//!
//! | media type | hashed as |
//! |---|---|
//! | `application/json`, `text/json`, `…+json` | the canonical document: members sorted, insignificant white space gone, strings unescaped, numbers as exact decimals |
//! | `application/x-www-form-urlencoded` | the decoded pairs, in order |
//! | `multipart/…` | the parts, in order: headers (which hold name, file name and type) and content, without the boundary |
//! | anything else, or none | the bytes |
//!
//! A body that is not what its type says is hashed as bytes, under a tag of its own, and so is JSON
//! that has no one meaning: repeated member names, or nesting beyond [`MAX_DEPTH`].
//!
//! # Decisions
//!
//! * The media type is the lower-cased essence. `charset` belongs to it for `text/*`; elsewhere it
//!   does unless it is UTF-8, the default.
//! * `Content-Encoding` (`gzip`, `deflate`, `br`, `zstd`) is undone first and is not hashed: a
//!   request is the same with and without compression. What cannot be decoded is hashed as
//!   received, together with the coding's name.
//! * JSON numbers are equal if their decimal values are: `1`, `1.0`, `1e0` and `100e-2`; `0`, `-0`
//!   and `0e9`. Nothing passes through binary floating point, so that `9007199254740993` differs
//!   from `9007199254740992`, and `0.1` from the double nearest to it.
//! * JSON strings are equal if they are the same UTF-16 code units: `"\u0041"` is `"A"`, composed
//!   and decomposed characters differ, a lone surrogate equals itself only.
//! * The form's `a`, `a=` and `a=&` are one pair, as in every URL-encoded parser.

mod decode;
mod digest;
mod form;
mod json;
mod media;
mod multipart;
mod number;
mod pointer;

use std::borrow::Cow;

pub use digest::{Fingerprint, HmacKey};
pub use json::MAX_DEPTH;
pub use pointer::{PointerError, check_pointer};

use decode::Decoded;
use digest::digest;
use media::{MediaType, Syntax};
use pointer::IgnoreSet;

/// The version of everything described in this module, for the record beside the fingerprint.
///
/// Fingerprints of different versions cannot be compared.
pub const FORMAT: u16 = 1;

/// The default of [`Options::max_decoded`]: 1 MiB.
pub const DEFAULT_MAX_DECODED: usize = 1024 * 1024;

/// The parts of a request that can belong to its fingerprint, as they were received.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RequestParts<'a> {
    /// The method, such as `POST`.
    pub method: &'a str,
    /// The path. What counts as one path (case, trailing slash) is the caller's decision.
    pub path: &'a str,
    /// The query without its `?`, not decoded. Empty and absent are the same.
    pub query: &'a str,
    /// The value of `Content-Type`; of several lines, the first, which is the one that counts for
    /// extractors.
    pub content_type: Option<&'a [u8]>,
    /// The lines of `Content-Encoding`, in order; usually none.
    pub content_encoding: Vec<&'a [u8]>,
    /// Names and lines of the headers that belong to the fingerprint. Names are compared without
    /// case; a header without lines is the same as one that is not listed.
    pub headers: Vec<(&'a str, Vec<&'a [u8]>)>,
    /// The whole body, as received.
    pub body: &'a [u8],
}

impl<'a> RequestParts<'a> {
    /// A request of which nothing else is known.
    #[must_use]
    pub fn new(method: &'a str, path: &'a str, body: &'a [u8]) -> Self {
        Self {
            method,
            path,
            query: "",
            content_type: None,
            content_encoding: Vec::new(),
            headers: Vec::new(),
            body,
        }
    }

    /// Sets the raw query, without its `?`.
    #[must_use]
    pub fn query(mut self, query: &'a str) -> Self {
        self.query = query;
        self
    }

    /// Sets the value of `Content-Type`.
    #[must_use]
    pub fn content_type(mut self, value: Option<&'a [u8]>) -> Self {
        self.content_type = value;
        self
    }

    /// Sets the lines of `Content-Encoding`.
    #[must_use]
    pub fn content_encoding(mut self, lines: impl IntoIterator<Item = &'a [u8]>) -> Self {
        self.content_encoding = lines.into_iter().collect();
        self
    }

    /// Adds a header that belongs to the fingerprint, with all its lines.
    #[must_use]
    pub fn header(mut self, name: &'a str, lines: impl IntoIterator<Item = &'a [u8]>) -> Self {
        self.headers.push((name, lines.into_iter().collect()));
        self
    }
}

/// How the body enters the fingerprint.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Mode {
    /// By meaning, as the [module documentation](self) describes.
    #[default]
    Canonical,
    /// By bytes, as received: another member order or boundary is another request.
    Raw,
    /// By what the function returns. It takes the place of query, media type and body; method,
    /// path and the chosen headers are hashed in any case.
    Custom(fn(&RequestParts<'_>) -> Vec<u8>),
}

/// How to fingerprint.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Options<'a> {
    /// How the body enters the fingerprint.
    pub mode: Mode,
    /// JSON pointers (RFC 6901) to what is left out of a JSON body, as if it were absent; `*`
    /// stands for every element of an array. Without effect on other bodies and in other modes
    /// than [`Mode::Canonical`]. [`check_pointer`] tells whether one is valid; one that is not
    /// matches nothing.
    pub ignore: &'a [&'a str],
    /// Makes the fingerprint useless to whoever has the record but not the key.
    pub hmac_key: Option<&'a HmacKey>,
    /// The most bytes that a compressed body may decode to, each step of it.
    pub max_decoded: usize,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            mode: Mode::Canonical,
            ignore: &[],
            hmac_key: None,
            max_decoded: DEFAULT_MAX_DECODED,
        }
    }
}

impl<'a> Options<'a> {
    /// Sets how the body enters the fingerprint.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the JSON pointers to what is left out.
    #[must_use]
    pub fn ignore(mut self, pointers: &'a [&'a str]) -> Self {
        self.ignore = pointers;
        self
    }

    /// Sets the key of the keyed hash.
    #[must_use]
    pub fn hmac_key(mut self, key: Option<&'a HmacKey>) -> Self {
        self.hmac_key = key;
        self
    }

    /// Sets the most bytes that a compressed body may decode to.
    #[must_use]
    pub fn max_decoded(mut self, bytes: usize) -> Self {
        self.max_decoded = bytes;
        self
    }
}

/// Why a request has no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FingerprintError {
    /// The compressed body decodes to more than [`Options::max_decoded`] bytes.
    #[error("the body decodes to more than {limit} bytes")]
    DecodedTooLarge {
        /// The limit that was passed, in bytes.
        limit: usize,
    },
}

/// Computes the fingerprint of a request.
///
/// ```
/// use idem_runtime::fingerprint::{Options, RequestParts, fingerprint};
///
/// let of = |body: &'static str| {
///     let parts = RequestParts::new("POST", "/orders", body.as_bytes())
///         .content_type(Some(b"application/json"));
///     fingerprint(&parts, &Options::default())
/// };
/// assert_eq!(of(r#"{"a": 1, "b": "A"}"#)?, of(r#"{"b":"\u0041","a":1.0}"#)?);
/// assert_ne!(of(r#"{"a": 1}"#)?, of(r#"{"a": 2}"#)?);
/// # Ok::<(), idem_runtime::fingerprint::FingerprintError>(())
/// ```
///
/// # Errors
///
/// [`FingerprintError::DecodedTooLarge`], to be answered with 413. Everything else has a
/// fingerprint: a body that is not what its headers say counts as bytes.
pub fn fingerprint(
    parts: &RequestParts<'_>,
    options: &Options<'_>,
) -> Result<Fingerprint, FingerprintError> {
    let mut fields = Fields::new();
    fields.add(Tag::Format, &FORMAT.to_be_bytes());
    fields.add(Tag::Method, parts.method.as_bytes());
    fields.add(Tag::Path, parts.path.as_bytes());
    fields.add_headers(&parts.headers);
    match options.mode {
        Mode::Canonical => canonical(parts, options, fields),
        Mode::Raw => {
            fields.add(Tag::Query, parts.query.as_bytes());
            let media = MediaType::parse(parts.content_type);
            fields.add_media(&media);
            fields.add_boundary(&media);
            fields.add_codings(parts);
            Ok(fields.finish(BodyKind::RawMode, parts.body, options))
        }
        Mode::Custom(function) => Ok(fields.finish(BodyKind::Custom, &function(parts), options)),
    }
}

fn canonical(
    parts: &RequestParts<'_>,
    options: &Options<'_>,
    mut fields: Fields,
) -> Result<Fingerprint, FingerprintError> {
    fields.add(Tag::Query, parts.query.as_bytes());
    let media = MediaType::parse(parts.content_type);
    fields.add_media(&media);

    let body = match decode::decode(parts.body, &parts.content_encoding, options.max_decoded)? {
        Decoded::Plain(body) => body,
        Decoded::Unknown => {
            fields.add_codings(parts);
            fields.add_boundary(&media);
            return Ok(fields.finish(BodyKind::Undecodable, parts.body, options));
        }
    };
    let before_body = fields.0.len();
    match media.syntax() {
        Syntax::Json => {
            fields.begin_body(BodyKind::Json);
            // A canonical document is about as long as its text.
            fields.0.reserve(body.len() + body.len() / 8);
            let ignore = IgnoreSet::new(options.ignore);
            if json::canonicalize(&body, &ignore, &mut fields.0).is_ok() {
                return Ok(fields.finish_as_they_are(options));
            }
            fields.0.truncate(before_body);
            Ok(fields.finish(BodyKind::NotJson, &body, options))
        }
        Syntax::Form => {
            fields.begin_body(BodyKind::Form);
            if form::pairs(&body, &mut fields.0).is_ok() {
                return Ok(fields.finish_as_they_are(options));
            }
            fields.0.truncate(before_body);
            Ok(fields.finish(BodyKind::NotForm, &body, options))
        }
        Syntax::Multipart => {
            if let Some(boundary) = media.boundary()
                && let Some(multipart) = multipart::split(&body, boundary)
            {
                fields.begin_body(BodyKind::Multipart);
                return Ok(digest(options.hmac_key, |hash| {
                    hash.update(&fields.0);
                    multipart.hash(hash);
                }));
            }
            fields.add_boundary(&media);
            Ok(fields.finish(BodyKind::NotMultipart, &body, options))
        }
        Syntax::Opaque => Ok(fields.finish(BodyKind::Raw, &body, options)),
    }
}

/// Appends bytes with their length before them.
fn push_piece(bytes: &[u8], out: &mut Vec<u8>) {
    push_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Appends a length in seven bits per byte, the lowest first, all but the last with the high bit
/// set. One byte for most: the fields of an ordinary request then fit the hash's first block.
fn push_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// What a field holds. The numbers are part of the format.
#[derive(Clone, Copy)]
enum Tag {
    Format = 1,
    Method = 2,
    Path = 3,
    HeaderName = 4,
    HeaderLine = 5,
    Query = 6,
    MediaEssence = 7,
    MediaParameterName = 8,
    MediaParameterValue = 9,
    MalformedContentType = 10,
    ContentEncoding = 11,
    Body = 12,
}

/// How the body was read. The numbers are part of the format.
#[derive(Clone, Copy)]
enum BodyKind {
    Raw = 1,
    Json = 2,
    NotJson = 3,
    Form = 4,
    NotForm = 5,
    Multipart = 6,
    NotMultipart = 7,
    Undecodable = 8,
    RawMode = 9,
    Custom = 10,
}

/// The fields so far. They are collected before they are hashed because many small updates cost
/// more than the hash of a small body.
struct Fields(Vec<u8>);

impl Fields {
    fn new() -> Self {
        // Enough for an ordinary request with a small body.
        Self(Vec::with_capacity(512))
    }

    fn add(&mut self, tag: Tag, value: &[u8]) {
        self.0.push(tag as u8);
        push_piece(value, &mut self.0);
    }

    fn add_headers(&mut self, headers: &[(&str, Vec<&[u8]>)]) {
        if headers.is_empty() {
            return;
        }
        // Sorted, so that reordering a route's list does not orphan its records.
        let mut sorted: Vec<(String, &[&[u8]])> = headers
            .iter()
            .filter(|(_, lines)| !lines.is_empty())
            .map(|(name, lines)| (name.to_ascii_lowercase(), lines.as_slice()))
            .collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, lines) in sorted {
            self.add(Tag::HeaderName, name.as_bytes());
            for line in lines {
                self.add(Tag::HeaderLine, line);
            }
        }
    }

    fn add_media(&mut self, media: &MediaType<'_>) {
        match media {
            MediaType::Absent => {}
            MediaType::Malformed(value) => self.add(Tag::MalformedContentType, value),
            MediaType::Known(known) => {
                self.add(Tag::MediaEssence, known.essence.as_bytes());
                for (name, value) in known.significant_parameters() {
                    self.add_parameter(name, &value);
                }
            }
        }
    }

    /// Adds the boundary, without which a multipart body that is hashed as bytes has no meaning.
    fn add_boundary(&mut self, media: &MediaType<'_>) {
        if let Some(boundary) = media.boundary() {
            self.add_parameter("boundary", &Cow::Borrowed(boundary));
        }
    }

    fn add_parameter(&mut self, name: &str, value: &str) {
        self.add(Tag::MediaParameterName, name.as_bytes());
        self.add(Tag::MediaParameterValue, value.as_bytes());
    }

    fn add_codings(&mut self, parts: &RequestParts<'_>) {
        for line in &parts.content_encoding {
            self.add(Tag::ContentEncoding, line);
        }
    }

    /// Starts the last field, which needs no length.
    fn begin_body(&mut self, kind: BodyKind) {
        self.0.extend_from_slice(&[Tag::Body as u8, kind as u8]);
    }

    fn finish(mut self, kind: BodyKind, body: &[u8], options: &Options<'_>) -> Fingerprint {
        self.begin_body(kind);
        digest(options.hmac_key, |hash| {
            hash.update(&self.0);
            hash.update(body);
        })
    }

    /// For a body that was appended already.
    fn finish_as_they_are(self, options: &Options<'_>) -> Fingerprint {
        digest(options.hmac_key, |hash| hash.update(&self.0))
    }
}
