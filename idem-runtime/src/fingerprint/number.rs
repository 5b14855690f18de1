//! JSON numbers as exact decimals: every spelling of a value becomes one.
//!
//! The canonical form is `-`? digits (`e` exponent)?, where the digits neither start nor end with a
//! zero, and an exponent of zero is left out; zero is `0`, whatever its sign. `12.50` is `125e-1`.
//! Only digits are ever copied, none is computed, so that a number of a hundred thousand digits
//! costs what its length costs and `1e999999999` is as short as it was.

/// Reads the number at the start of `text` (RFC 8259 §6) and appends its canonical form; returns
/// its length. `None` if there is no number.
pub(super) fn canonicalize(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let negative = text.first() == Some(&b'-');
    let start = usize::from(negative);
    let int_end = digits_end(text, start);
    let int = &text[start..int_end];
    if int.is_empty() || (int.len() > 1 && int[0] == b'0') {
        return None;
    }
    let mut end = int_end;
    let mut fraction: &[u8] = &[];
    let mut exponent = Exponent::default();
    match text.get(int_end) {
        Some(b'.' | b'e' | b'E') => {}
        // By far the most frequent: an integer that is its own canonical form.
        _ if int[int.len() - 1] != b'0' => {
            out.extend_from_slice(&text[..int_end]);
            return Some(int_end);
        }
        _ => {}
    }
    if text.get(end) == Some(&b'.') {
        let fraction_end = digits_end(text, end + 1);
        fraction = &text[end + 1..fraction_end];
        if fraction.is_empty() {
            return None;
        }
        end = fraction_end;
    }
    if let Some(b'e' | b'E') = text.get(end) {
        let sign = text.get(end + 1);
        let digits = end + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
        end = digits_end(text, digits);
        if end == digits {
            return None;
        }
        exponent = Exponent {
            negative: sign == Some(&b'-'),
            digits: &text[digits..end],
        };
    }
    write(negative, int, fraction, exponent, out);
    Some(end)
}

fn digits_end(text: &[u8], from: usize) -> usize {
    let mut end = from;
    while text.get(end).is_some_and(u8::is_ascii_digit) {
        end += 1;
    }
    end
}

/// The exponent as written: its digits may be too many for any integer type.
#[derive(Default)]
struct Exponent<'a> {
    negative: bool,
    digits: &'a [u8],
}

fn write(negative: bool, int: &[u8], fraction: &[u8], exponent: Exponent<'_>, out: &mut Vec<u8>) {
    // The significant digits are int ++ fraction without the zeros at both ends; the value is
    // these digits × 10^(exponent + shift).
    let fraction_kept = without_trailing_zeros(fraction);
    let int = without_leading_zeros(int);
    let (int_kept, fraction_kept, shift) = if fraction_kept.is_empty() {
        let kept = without_trailing_zeros(int);
        (kept, fraction_kept, Shift::Up(int.len() - kept.len()))
    } else {
        let shift = Shift::Down(fraction_kept.len());
        let kept = if int.is_empty() {
            without_leading_zeros(fraction_kept)
        } else {
            fraction_kept
        };
        (int, kept, shift)
    };
    if int_kept.is_empty() && fraction_kept.is_empty() {
        out.push(b'0');
        return;
    }
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(int_kept);
    out.extend_from_slice(fraction_kept);
    write_exponent(exponent, shift, out);
}

/// By how many places the decimal point moved.
enum Shift {
    Up(usize),
    Down(usize),
}

/// Appends `e` and exponent + shift, unless that is zero.
fn write_exponent(exponent: Exponent<'_>, shift: Shift, out: &mut Vec<u8>) {
    let digits = without_leading_zeros(exponent.digits);
    // 18 digits and a shift by the length of a text in memory fit an i128 with ease.
    if digits.len() <= 18 {
        let magnitude = digits
            .iter()
            .fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        let written = if exponent.negative {
            -magnitude
        } else {
            magnitude
        };
        let total = written
            + match shift {
                Shift::Up(places) => places as i128,
                Shift::Down(places) => -(places as i128),
            };
        if total != 0 {
            out.extend_from_slice(if total < 0 { b"e-" } else { b"e" });
            push_decimal(total.unsigned_abs(), out);
        }
        return;
    }
    // The exponent's magnitude is at least 10^18, beyond any shift: its sign stays.
    out.extend_from_slice(if exponent.negative { b"e-" } else { b"e" });
    let first = out.len();
    out.extend_from_slice(digits);
    match (shift, exponent.negative) {
        (Shift::Up(places), false) | (Shift::Down(places), true) => {
            if let Some(carry) = add(&mut out[first..], places) {
                out.insert(first, carry);
            }
        }
        (Shift::Down(places), false) | (Shift::Up(places), true) => {
            subtract(&mut out[first..], places);
            // At most one digit is lost, the leading one.
            if out[first] == b'0' {
                out.remove(first);
            }
        }
    }
}

/// Adds to decimal digits in place; returns the digit that did not fit.
fn add(digits: &mut [u8], mut carry: usize) -> Option<u8> {
    for digit in digits.iter_mut().rev() {
        if carry == 0 {
            return None;
        }
        carry += usize::from(*digit - b'0');
        *digit = b'0' + (carry % 10) as u8;
        carry /= 10;
    }
    (carry > 0).then_some(b'0' + carry as u8)
}

/// Subtracts from decimal digits in place; the result must not be negative.
fn subtract(digits: &mut [u8], mut amount: usize) {
    for digit in digits.iter_mut().rev() {
        if amount == 0 {
            return;
        }
        let value = *digit - b'0';
        let take = (amount % 10) as u8;
        amount /= 10;
        if value >= take {
            *digit = b'0' + value - take;
        } else {
            *digit = b'0' + value + 10 - take;
            amount += 1;
        }
    }
}

fn push_decimal(mut value: u128, out: &mut Vec<u8>) {
    if value < 10 {
        out.push(b'0' + value as u8);
        return;
    }
    let first = out.len();
    while value > 0 {
        out.push(b'0' + (value % 10) as u8);
        value /= 10;
    }
    out[first..].reverse();
}

fn without_leading_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros..]
}

fn without_trailing_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits
        .iter()
        .rev()
        .take_while(|&&digit| digit == b'0')
        .count();
    &digits[..digits.len() - zeros]
}
