//! The endpoint as part of a record's identity.

use crate::{record::MAX_REQUEST_PATH, scope::bounded};
use std::borrow::Cow;

/// The `request_path` column: method and normalised path, hashed where it is too long.
pub(crate) fn request_path(method: &str, normalised: &str) -> String {
    bounded([method, " ", normalised].concat(), MAX_REQUEST_PATH)
}

/// A path in the one spelling of all equivalent ones: percent-encoded unreserved characters are
/// decoded, other encodings are in upper case (RFC 3986, section 6.2.2).
pub(crate) fn normalised(path: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let encoded = &rest[at..];
        let hex = encoded
            .get(1..3)
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if is_unreserved(byte) => out.push(char::from(byte)),
            Some(byte) => out.push_str(&format!("%{byte:02X}")),
            None => {
                out.push('%');
                rest = &encoded[1..];
                continue;
            }
        }
        rest = &encoded[3..];
    }
    if out.is_empty() {
        return Cow::Borrowed(path);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_path(method: &str, path: &str) -> String {
        super::request_path(method, &normalised(path))
    }

    #[test]
    fn equivalent_spellings_are_one_endpoint() {
        assert_eq!(request_path("POST", "/orders/%61%2d1"), "POST /orders/a-1");
        assert_eq!(request_path("POST", "/a%2fb"), "POST /a%2Fb");
        assert_ne!(request_path("POST", "/a%2Fb"), request_path("POST", "/a/b"));
        assert_ne!(request_path("POST", "/a"), request_path("PUT", "/a"));
    }

    #[test]
    fn odd_input_is_kept_as_it_is() {
        for path in ["/%", "/%4", "/%zz", "/100%", "/%é", "/%+1"] {
            assert_eq!(request_path("POST", path), format!("POST {path}"));
        }
    }

    #[test]
    fn a_long_path_is_hashed_and_stays_distinct() {
        let long = |last: char| format!("/{}{last}", "x".repeat(300));
        let a = request_path("POST", &long('a'));
        assert!(a.len() <= MAX_REQUEST_PATH);
        assert_ne!(a, request_path("POST", &long('b')));
    }
}
