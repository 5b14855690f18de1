//! `application/x-www-form-urlencoded`, as the WHATWG URL standard §5.1 reads it.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// The body has no single meaning as a form.
pub(super) struct NotForm;

/// Appends the decoded pairs, each name and value with its length.
///
/// A `%` that starts no escape is refused: parsers disagree about it. Bytes that are not UTF-8
/// after decoding are kept as they are; replacing them, as string-based parsers do, would make
/// different bodies equal.
pub(super) fn pairs(body: &[u8], out: &mut Vec<u8>) -> Result<(), NotForm> {
    for pair in body.split(|&byte| byte == b'&') {
        if pair.is_empty() {
            continue;
        }
        let mut sides = pair.splitn(2, |&byte| byte == b'=');
        for _ in 0..2 {
            component(sides.next().unwrap_or_default(), out)?;
        }
    }
    Ok(())
}

fn component(encoded: &[u8], out: &mut Vec<u8>) -> Result<(), NotForm> {
    let escapes = memchr::memchr_iter(b'%', encoded);
    for at in escapes {
        if !encoded
            .get(at + 1..at + 3)
            .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
        {
            return Err(NotForm);
        }
    }
    let spaced: Cow<'_, [u8]> = if encoded.contains(&b'+') {
        encoded
            .iter()
            .map(|&byte| if byte == b'+' { b' ' } else { byte })
            .collect::<Vec<_>>()
            .into()
    } else {
        encoded.into()
    };
    let decoded: Cow<'_, [u8]> = percent_decode(&spaced).into();
    out.extend_from_slice(&(decoded.len() as u64).to_be_bytes());
    out.extend_from_slice(&decoded);
    Ok(())
}
