//! The hash itself, plain or keyed.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::digest::Update;
use sha2::{Digest, Sha256};

/// The digest of a request: 32 bytes.
///
/// Comparison takes the same time wherever two fingerprints differ. `Debug` shows the first digits
/// only.
#[derive(Clone, Copy)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The stored form: 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        // Digits are valid UTF-8.
        String::from_utf8(hex.to_vec()).unwrap_or_default()
    }

    /// Reads the stored form; `None` unless it is exactly what [`to_hex`](Self::to_hex) writes.
    #[must_use]
    pub fn from_hex(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        let difference = self
            .0
            .iter()
            .zip(&other.0)
            .fold(0, |all, (a, b)| all | (a ^ b));
        // Keeps the compiler from leaving the loop at the first difference.
        std::hint::black_box(difference) == 0
    }
}

impl Eq for Fingerprint {}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}…)", &self.to_hex()[..12])
    }
}

/// A secret that keys the fingerprints, so that whoever reads the table cannot try out card
/// numbers on them.
///
/// Rotation: fingerprint with the new key, and compare with the old one as well until the records
/// made with it have expired.
#[derive(Clone)]
pub struct HmacKey(Hmac<Sha256>);

impl HmacKey {
    /// A key from its bytes: at least 32 random ones for full strength; any length works.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        // RFC 2104 §2: longer than a block is hashed, shorter is padded with zeros. Done here
        // because the constructor for slices has an error that HMAC itself does not know.
        let mut block = [0; 64];
        if secret.len() > block.len() {
            block[..32].copy_from_slice(&Sha256::digest(secret));
        } else {
            block[..secret.len()].copy_from_slice(secret);
        }
        Self(Hmac::new(&block.into()))
    }
}

impl fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HmacKey(…)")
    }
}

/// The digest, keyed or not, of everything that `feed` passes to `update`.
pub(super) fn digest(key: Option<&HmacKey>, feed: impl FnOnce(&mut dyn Update)) -> Fingerprint {
    // The hash stays in one place: moving it about costs as much as a block of input.
    Fingerprint(match key {
        None => {
            let mut hash = Sha256::new();
            feed(&mut hash);
            hash.finalize().into()
        }
        Some(HmacKey(keyed)) => {
            let mut hash = keyed.clone();
            feed(&mut hash);
            hash.finalize().into_bytes().into()
        }
    })
}
