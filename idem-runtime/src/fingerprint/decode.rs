//! Content codings (RFC 9110 §8.4): undoes them within bounds.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};

use super::FingerprintError;

/// The longest chain of codings that is undone. Real requests have one.
const MAX_CODINGS: usize = 4;

/// RFC 9659 §3: a zstd encoder must not need a window over 8 MiB for HTTP, so that a decoder can
/// bound its memory.
const ZSTD_WINDOW_LOG: u32 = 23;

/// A body after its codings.
pub(super) enum Decoded<'a> {
    Plain(Cow<'a, [u8]>),
    /// Some coding is unknown, or the bytes are not what it says.
    Unknown,
}

#[derive(Clone, Copy)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// Undoes the codings that the lines of `Content-Encoding` name. No step may yield more than
/// `limit` bytes.
pub(super) fn decode<'a>(
    body: &'a [u8],
    lines: &[&[u8]],
    limit: usize,
) -> Result<Decoded<'a>, FingerprintError> {
    let mut codings = Vec::new();
    for name in lines
        .iter()
        .flat_map(|line| line.split(|&byte| byte == b','))
    {
        let name = name.trim_ascii();
        if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
            continue;
        }
        match Coding::from_name(name) {
            Some(coding) if codings.len() < MAX_CODINGS => codings.push(coding),
            _ => return Ok(Decoded::Unknown),
        }
    }
    let mut decoded = Cow::Borrowed(body);
    // Listed in the order in which they were applied.
    for coding in codings.into_iter().rev() {
        match coding.undo(&decoded, limit) {
            Ok(bytes) => decoded = Cow::Owned(bytes),
            Err(Failure::TooLarge) => return Err(FingerprintError::DecodedTooLarge { limit }),
            Err(Failure::Malformed) => return Ok(Decoded::Unknown),
        }
    }
    Ok(Decoded::Plain(decoded))
}

enum Failure {
    TooLarge,
    Malformed,
}

impl Coding {
    fn from_name(name: &[u8]) -> Option<Self> {
        // Names are compared without case; RFC 9110 §8.4.1.3 makes `x-gzip` an alias.
        match &*name.to_ascii_lowercase() {
            b"gzip" | b"x-gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Deflate),
            b"br" => Some(Self::Brotli),
            b"zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Bytes after the end of the compressed data make it malformed: the decoded body would not
    /// tell that they were there.
    fn undo(self, body: &[u8], limit: usize) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Gzip => {
                let mut decoder = flate2::bufread::GzDecoder::new(body);
                let bytes = read_bounded(&mut decoder, limit)?;
                at_end(decoder.into_inner(), bytes)
            }
            Self::Deflate => {
                let mut decoder = flate2::bufread::ZlibDecoder::new(body);
                let bytes = read_bounded(&mut decoder, limit)?;
                at_end(decoder.into_inner(), bytes)
            }
            Self::Brotli => brotli(body, limit),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(body)
                    .map_err(|_| Failure::Malformed)?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG)
                    .map_err(|_| Failure::Malformed)?;
                read_bounded(&mut decoder, limit)
            }
        }
    }
}

fn read_bounded(decoder: &mut impl Read, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells "full" from "too much".
    let cap = (limit as u64).saturating_add(1);
    decoder
        .take(cap)
        .read_to_end(&mut bytes)
        .map_err(|_| Failure::Malformed)?;
    if bytes.len() > limit {
        return Err(Failure::TooLarge);
    }
    Ok(bytes)
}

fn at_end(mut rest: impl BufRead, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
    match rest.fill_buf() {
        Ok([]) => Ok(bytes),
        _ => Err(Failure::Malformed),
    }
}

/// The reader that the crate offers hides what follows the stream and admits windows of 1 GiB; this
/// is the same loop without either.
fn brotli(body: &[u8], limit: usize) -> Result<Vec<u8>, Failure> {
    let mut state = BrotliState::new_strict(
        StandardAlloc::default(),
        StandardAlloc::default(),
        StandardAlloc::default(),
    );
    let (mut available_in, mut read) = (body.len(), 0);
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    let mut total = 0;
    loop {
        let (mut available_out, mut written) = (buffer.len(), 0);
        let result = BrotliDecompressStream(
            &mut available_in,
            &mut read,
            body,
            &mut available_out,
            &mut written,
            &mut buffer,
            &mut total,
            &mut state,
        );
        if written > limit - bytes.len() {
            return Err(Failure::TooLarge);
        }
        bytes.extend_from_slice(&buffer[..written]);
        match result {
            BrotliResult::NeedsMoreOutput => {}
            BrotliResult::ResultSuccess if available_in == 0 => return Ok(bytes),
            BrotliResult::ResultSuccess
            | BrotliResult::NeedsMoreInput
            | BrotliResult::ResultFailure => return Err(Failure::Malformed),
        }
    }
}
