//! Multipart bodies (RFC 2046 §5.1.1, RFC 7578) as their parts, without the boundary, which clients
//! choose anew for each attempt.
//!
//! Strict on purpose: where parsers disagree (bare line feeds, text after a boundary, folded
//! headers) the body is not split, and counts as its bytes. The well-kept multipart crates are all
//! asynchronous, and lenient.

use memchr::memmem;

use super::digest::Hasher;

/// The most headers of one part; forms have three at most.
const MAX_PART_HEADERS: usize = 32;

/// A body taken apart. What lies before the first and after the last boundary is usually empty.
pub(super) struct Multipart<'a> {
    preamble: &'a [u8],
    parts: Vec<Part<'a>>,
    epilogue: &'a [u8],
}

struct Part<'a> {
    /// Names lower-cased, sorted by name; lines of one name keep their order.
    headers: Vec<(String, &'a [u8])>,
    content: &'a [u8],
}

/// Splits a body; `None` if it is not strictly one.
pub(super) fn split<'a>(body: &'a [u8], boundary: &str) -> Option<Multipart<'a>> {
    // RFC 2046 §5.1.1 allows 70 characters.
    if boundary.is_empty() || boundary.len() > 70 {
        return None;
    }
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    // The first delimiter may start the body, without the line end before it.
    let (preamble, mut rest) = match body.strip_prefix(&delimiter[2..]) {
        Some(rest) => (&[][..], rest),
        None => {
            let at = memmem::find(body, &delimiter)?;
            (&body[..at], &body[at + delimiter.len()..])
        }
    };
    let finder = memmem::Finder::new(&delimiter);
    let mut parts = Vec::new();
    loop {
        if let Some(epilogue) = rest.strip_prefix(b"--") {
            return Some(Multipart {
                preamble,
                parts,
                epilogue,
            });
        }
        rest = rest.strip_prefix(b"\r\n")?;
        let end = finder.find(rest)?;
        parts.push(part(&rest[..end])?);
        rest = &rest[end + delimiter.len()..];
    }
}

fn part(bytes: &[u8]) -> Option<Part<'_>> {
    let head = if bytes.starts_with(b"\r\n") {
        2
    } else {
        memmem::find(bytes, b"\r\n\r\n")? + 4
    };
    let (head, content) = bytes.split_at(head);
    let line_ends = memmem::find_iter(head, b"\r\n").count();
    if memchr::memchr_iter(b'\n', head).count() != line_ends {
        return None;
    }
    let mut buffer = [httparse::EMPTY_HEADER; MAX_PART_HEADERS];
    let Ok(httparse::Status::Complete((length, parsed))) =
        httparse::parse_headers(head, &mut buffer)
    else {
        return None;
    };
    if length != head.len() {
        return None;
    }
    let mut headers: Vec<_> = parsed
        .iter()
        .map(|header| (header.name.to_ascii_lowercase(), header.value))
        .collect();
    headers.sort_by(|a, b| a.0.cmp(&b.0));
    Some(Part { headers, content })
}

impl Multipart<'_> {
    /// Feeds everything but the boundary to the hash, each piece with its length.
    pub(super) fn hash(&self, hasher: &mut Hasher) {
        let mut piece = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        piece(self.preamble);
        piece(self.epilogue);
        for part in &self.parts {
            piece(&(part.headers.len() as u64).to_be_bytes());
            for (name, value) in &part.headers {
                piece(name.as_bytes());
                piece(value);
            }
            piece(part.content);
        }
    }
}
