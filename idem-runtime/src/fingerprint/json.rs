//! JSON (RFC 8259) in canonical form.
//!
//! One pass over the text appends the canonical document to a buffer; no tree is built and nothing
//! is allocated per value. The form looks like JSON without white space, with these rules:
//!
//! * Every member and every element is followed by a comma, the last one too, so that a member can
//!   be moved as one span.
//! * Members are ordered by the bytes of their canonical names. Which order it is does not matter
//!   as long as it is one.
//! * Strings escape `"`, `\` and control characters, with the short escape where there is one, and
//!   lone surrogates as `\u` with lower-case digits. Everything else is UTF-8 as it is.
//! * Numbers are as [`number`](super::number) writes them.
//!
//! It is unambiguous, which is all that a fingerprint asks of it.

use std::cmp::Ordering;

use super::number;
use super::pointer::{IgnoreSet, Token};

/// The deepest nesting of arrays and objects that is read. It is the limit of `serde_json`: a
/// handler that reads JSON with it never sees a deeper document.
pub const MAX_DEPTH: usize = 127;

/// Invalid or ambiguous JSON, which is hashed as bytes.
#[derive(Debug)]
pub(super) struct NotCanonical;

type Outcome<T> = Result<T, NotCanonical>;

/// Appends the canonical form of `text` without what `ignore` names. On an error, what was appended
/// is of no use.
pub(super) fn canonicalize(text: &[u8], ignore: &IgnoreSet, out: &mut Vec<u8>) -> Outcome<()> {
    // Once for the whole text is faster than string by string, and no byte outside strings may be
    // non-ASCII anyway.
    std::str::from_utf8(text).map_err(|_| NotCanonical)?;
    let mut writer = Writer {
        text,
        at: 0,
        out,
        frames: Vec::new(),
        members: Vec::new(),
        ignore,
        live: (0..ignore.len()).collect(),
    };
    writer.document()
}

/// Appends a string that is no part of a JSON text, quoted and escaped canonically.
pub(super) fn push_string(string: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for char in string.chars() {
        push_char(char, out);
    }
    out.push(b'"');
}

struct Writer<'a> {
    text: &'a [u8],
    at: usize,
    out: &'a mut Vec<u8>,
    /// The open arrays and objects.
    frames: Vec<Frame>,
    /// The members so far of all open objects.
    members: Vec<Member>,
    ignore: &'a IgnoreSet,
    /// Indices of the pointers that may still match below each open container, outermost first.
    /// After the innermost container's: those that go on below its current value.
    live: Vec<usize>,
}

struct Frame {
    array: bool,
    /// Where the content starts in the output.
    content: usize,
    /// Index of an object's first member.
    first_member: usize,
    /// Whether the members are in order so far, and none of them is left out.
    in_order: bool,
    /// How many elements of an array were started.
    elements: usize,
    /// Where the current element starts, if it is to be left out.
    ignored_element: Option<usize>,
    /// This container's range of live pointers.
    live: (usize, usize),
}

/// One member in the output: `"name":value,`.
#[derive(Clone, Copy)]
struct Member {
    /// The first bytes of the name; decides most comparisons without a look at the output.
    prefix: u64,
    start: usize,
    /// End of the name and its colon.
    value: usize,
    /// End of the member. A member that is left out has no value, so that this is `value`.
    end: usize,
}

impl Member {
    fn is_left_out(&self) -> bool {
        self.end == self.value
    }

    fn compare(&self, other: &Self, out: &[u8]) -> Ordering {
        self.prefix
            .cmp(&other.prefix)
            .then_with(|| out[self.start..self.value].cmp(&out[other.start..other.value]))
    }
}

impl Writer<'_> {
    fn document(&mut self) -> Outcome<()> {
        loop {
            self.skip_space();
            let opened = self.value()?;
            if !opened && !self.after_value()? {
                return Ok(());
            }
        }
    }

    /// Reads a scalar or an empty container whole, or else a container up to its first value;
    /// returns whether it did the latter.
    fn value(&mut self) -> Outcome<bool> {
        match self.peek() {
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => {
                self.at +=
                    number::canonicalize(&self.text[self.at..], self.out).ok_or(NotCanonical)?;
            }
            b'{' => {
                self.open(false)?;
                if self.peek() != b'}' {
                    self.name()?;
                    return Ok(true);
                }
                self.close();
            }
            b'[' => {
                self.open(true)?;
                if self.peek() != b']' {
                    self.element();
                    return Ok(true);
                }
                self.close();
            }
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'n' => self.literal(b"null")?,
            _ => return Err(NotCanonical),
        }
        Ok(false)
    }

    /// Goes on to the next value, closing the containers that end here; returns whether there is
    /// a next value.
    fn after_value(&mut self) -> Outcome<bool> {
        loop {
            self.skip_space();
            let Some(frame) = self.frames.last_mut() else {
                return if self.at == self.text.len() {
                    Ok(false)
                } else {
                    Err(NotCanonical)
                };
            };
            self.out.push(b',');
            if frame.array {
                if let Some(start) = frame.ignored_element.take() {
                    self.out.truncate(start);
                }
                match self.peek() {
                    b',' => {
                        self.at += 1;
                        self.element();
                        return Ok(true);
                    }
                    b']' => self.close(),
                    _ => return Err(NotCanonical),
                }
            } else {
                self.end_member();
                match self.peek() {
                    b',' => {
                        self.at += 1;
                        self.skip_space();
                        self.name()?;
                        return Ok(true);
                    }
                    b'}' => {
                        self.order_members()?;
                        self.close();
                    }
                    _ => return Err(NotCanonical),
                }
            }
        }
    }

    /// The next byte, or 0, which is valid nowhere.
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    fn literal(&mut self, literal: &[u8]) -> Outcome<()> {
        if !self.text[self.at..].starts_with(literal) {
            return Err(NotCanonical);
        }
        self.at += literal.len();
        self.out.extend_from_slice(literal);
        Ok(())
    }

    /// Opens a container and moves to its first value or its end.
    fn open(&mut self, array: bool) -> Outcome<()> {
        if self.frames.len() == MAX_DEPTH {
            return Err(NotCanonical);
        }
        self.at += 1;
        self.out.push(if array { b'[' } else { b'{' });
        let live = (
            self.frames.last().map_or(0, |parent| parent.live.1),
            self.live.len(),
        );
        self.frames.push(Frame {
            array,
            content: self.out.len(),
            first_member: self.members.len(),
            in_order: true,
            elements: 0,
            ignored_element: None,
            live,
        });
        self.skip_space();
        Ok(())
    }

    /// Closes the innermost container at its closing bracket.
    fn close(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.at += 1;
            self.out.push(if frame.array { b']' } else { b'}' });
            self.members.truncate(frame.first_member);
        }
    }

    /// Starts an element of the innermost array.
    fn element(&mut self) {
        let depth = self.frames.len() - 1;
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let index = frame.elements;
        frame.elements += 1;
        if frame.live.0 != frame.live.1 {
            let out = &*self.out;
            if select(&mut self.live, frame.live, self.ignore, depth, |token| {
                token.is_element(index)
            }) {
                frame.ignored_element = Some(out.len());
            }
        }
    }

    /// Starts a member of the innermost object: its name and colon.
    fn name(&mut self) -> Outcome<()> {
        if self.peek() != b'"' {
            return Err(NotCanonical);
        }
        let start = self.out.len();
        self.string()?;
        self.skip_space();
        if self.peek() != b':' {
            return Err(NotCanonical);
        }
        self.at += 1;
        self.out.push(b':');

        let name = &self.out[start..];
        let value = self.out.len();
        let mut member = Member {
            prefix: prefix(name),
            start,
            value,
            end: usize::MAX,
        };
        let depth = self.frames.len() - 1;
        let Some(frame) = self.frames.last_mut() else {
            return Err(NotCanonical);
        };
        if frame.live.0 != frame.live.1 {
            let quoted = &name[..name.len() - 1];
            if select(&mut self.live, frame.live, self.ignore, depth, |token| {
                token.is_member(quoted)
            }) {
                member.end = value;
            }
        }
        if frame.in_order
            && let Some(previous) = self.members[frame.first_member..].last()
            && previous.compare(&member, self.out) != Ordering::Less
        {
            frame.in_order = false;
        }
        self.members.push(member);
        Ok(())
    }

    /// Ends the member whose value was just written.
    fn end_member(&mut self) {
        if let Some(member) = self.members.last_mut() {
            if member.is_left_out() {
                self.out.truncate(member.value);
                if let Some(frame) = self.frames.last_mut() {
                    frame.in_order = false;
                }
            } else {
                member.end = self.out.len();
            }
        }
    }

    /// Puts the members of the innermost object in order, without those that are left out.
    fn order_members(&mut self) -> Outcome<()> {
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        if frame.in_order {
            return Ok(());
        }
        let out = &mut *self.out;
        let members = &mut self.members[frame.first_member..];
        members.sort_unstable_by(|a, b| a.compare(b, out));
        if members
            .windows(2)
            .any(|pair| pair[0].compare(&pair[1], out) == Ordering::Equal)
        {
            return Err(NotCanonical);
        }
        let sorted = out.len();
        for member in members.iter().filter(|member| !member.is_left_out()) {
            out.extend_from_within(member.start..member.end);
        }
        out.copy_within(sorted.., frame.content);
        let length = out.len() - sorted;
        out.truncate(frame.content + length);
        Ok(())
    }

    /// Reads and appends a string, from quote to quote.
    fn string(&mut self) -> Outcome<()> {
        let mut from = self.at;
        let mut at = self.at + 1;
        loop {
            at = plain_end(self.text, at);
            match self.text.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    self.out.extend_from_slice(&self.text[from..self.at]);
                    return Ok(());
                }
                Some(b'\\') => {
                    self.out.extend_from_slice(&self.text[from..at]);
                    at = self.escape(at + 1)?;
                    from = at;
                }
                _ => return Err(NotCanonical),
            }
        }
    }

    /// Appends the character whose escape goes on after its backslash at `at`; returns its end.
    fn escape(&mut self, at: usize) -> Outcome<usize> {
        let char = match self.text.get(at) {
            Some(&char @ (b'"' | b'\\' | b'/')) => char::from(char),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = self.hex(at + 1)?;
                let end = at + 5;
                if matches!(unit, 0xD800..=0xDBFF)
                    && self.text[end..].starts_with(b"\\u")
                    && let low @ 0xDC00..=0xDFFF = self.hex(end + 2)?
                {
                    let code = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                    push_char(char::from_u32(code).ok_or(NotCanonical)?, self.out);
                    return Ok(end + 6);
                }
                match char::from_u32(unit) {
                    Some(char) => push_char(char, self.out),
                    // A surrogate without its other half: UTF-8 has no form for it.
                    None => push_unit(unit, self.out),
                }
                return Ok(end);
            }
            _ => return Err(NotCanonical),
        };
        push_char(char, self.out);
        Ok(at + 1)
    }

    /// The UTF-16 code unit that the four hexadecimal digits at `at` name.
    fn hex(&self, at: usize) -> Outcome<u32> {
        let digits = self.text.get(at..at + 4).ok_or(NotCanonical)?;
        digits.iter().try_fold(0, |unit, &digit| {
            Ok(unit << 4 | char::from(digit).to_digit(16).ok_or(NotCanonical)?)
        })
    }
}

/// Puts those of a container's live pointers that go on below the current value at the end of
/// `live`; returns whether one ends at it, so that the value is to be left out.
fn select(
    live: &mut Vec<usize>,
    (first, end): (usize, usize),
    ignore: &IgnoreSet,
    depth: usize,
    matches: impl Fn(&Token) -> bool,
) -> bool {
    live.truncate(end);
    let mut left_out = false;
    for index in first..end {
        let pointer = ignore.pointer(live[index]);
        if pointer.get(depth).is_some_and(&matches) {
            if pointer.len() == depth + 1 {
                left_out = true;
            } else {
                live.push(live[index]);
            }
        }
    }
    left_out
}

/// The first eight bytes of a quoted name after its quote, as a number of the same order.
fn prefix(name: &[u8]) -> u64 {
    let name = &name[1..];
    match name.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            name.iter()
                .fold(0, |prefix, &byte| prefix << 8 | u64::from(byte))
                << (8 * (8 - name.len()))
        }
    }
}

/// Where the run of bytes ends, from `at`, that stand for themselves in a string: at a quote, a
/// backslash, a control character or the end of the text.
fn plain_end(text: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    // Eight bytes at a time: `x - ONES & !x & HIGHS` marks the zero bytes of x and possibly some
    // above the first of them, so that the first mark is right.
    let zeros = |x: u64| x.wrapping_sub(ONES) & !x & HIGHS;
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let x = u64::from_le_bytes(*chunk);
        let control = x.wrapping_sub(ONES * 0x20) & !x & HIGHS;
        let special =
            zeros(x ^ (ONES * u64::from(b'"'))) | zeros(x ^ (ONES * u64::from(b'\\'))) | control;
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while text
        .get(at)
        .is_some_and(|&byte| byte >= b' ' && byte != b'"' && byte != b'\\')
    {
        at += 1;
    }
    at
}

fn push_char(char: char, out: &mut Vec<u8>) {
    let short = match char {
        '"' => b'"',
        '\\' => b'\\',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\0'..='\u{1f}' => return push_unit(u32::from(char), out),
        _ => {
            return out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

fn push_unit(unit: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        let digit = char::from_digit(unit >> shift & 15, 16).unwrap_or('0');
        out.push(digit as u8);
    }
}
