//! What a JSON text means, slowly and obviously: a tree of values that are compared as such.
//!
//! It shares neither code nor method with the implementation: it works on characters, recursion and
//! maps, and keeps strings as UTF-16 code units.

use std::collections::BTreeMap;

use crate::random::Random;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Decimal),
    String(Vec<u16>),
    Array(Vec<Value>),
    Object(BTreeMap<Vec<u16>, Value>),
}

/// digits × 10^exponent. Digits neither start nor end with a zero; zero has none, and no sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i128,
}

impl Decimal {
    fn new(mut negative: bool, digits: &str, mut exponent: i128) -> Self {
        let mut digits = digits.trim_start_matches('0').to_owned();
        while digits.ends_with('0') {
            digits.pop();
            exponent += 1;
        }
        if digits.is_empty() {
            (negative, exponent) = (false, 0);
        }
        Self {
            negative,
            digits,
            exponent,
        }
    }
}

/// The value of a text, or `None` if it is not JSON, has a name twice or is too deep.
pub(crate) fn parse(text: &[u8]) -> Option<Value> {
    let chars: Vec<char> = std::str::from_utf8(text).ok()?.chars().collect();
    let mut parser = Parser { chars, at: 0 };
    let value = parser.value(1)?;
    parser.space();
    (parser.at == parser.chars.len()).then_some(value)
}

struct Parser {
    chars: Vec<char>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(' ' | '\t' | '\n' | '\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: &str) -> bool {
        let end = self.at + wanted.chars().count();
        let found = self
            .chars
            .get(self.at..end)
            .is_some_and(|s| s.iter().copied().eq(wanted.chars()));
        if found {
            self.at = end;
        }
        found
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.space();
        match self.peek()? {
            'n' => self.take("null").then_some(Value::Null),
            't' => self.take("true").then_some(Value::Bool(true)),
            'f' => self.take("false").then_some(Value::Bool(false)),
            '"' => self.string().map(Value::String),
            '[' if depth <= 127 => self.array(depth),
            '{' if depth <= 127 => self.object(depth),
            '-' | '0'..='9' => self.number().map(Value::Number),
            _ => None,
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take("]") {
            return Some(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take("]") {
                return Some(Value::Array(items));
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut members = BTreeMap::new();
        self.at += 1;
        self.space();
        if self.take("}") {
            return Some(Value::Object(members));
        }
        loop {
            self.space();
            if self.peek()? != '"' {
                return None;
            }
            let name = self.string()?;
            self.space();
            if !self.take(":") {
                return None;
            }
            let value = self.value(depth + 1)?;
            if members.insert(name, value).is_some() {
                return None;
            }
            self.space();
            if self.take("}") {
                return Some(Value::Object(members));
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<Vec<u16>> {
        let mut units = Vec::new();
        self.at += 1;
        loop {
            let char = self.peek()?;
            self.at += 1;
            match char {
                '"' => return Some(units),
                '\\' => {
                    let escape = self.peek()?;
                    self.at += 1;
                    units.push(match escape {
                        '"' | '\\' | '/' => escape as u16,
                        'b' => 8,
                        'f' => 12,
                        'n' => 10,
                        'r' => 13,
                        't' => 9,
                        'u' => {
                            let hex: String =
                                self.chars.get(self.at..self.at + 4)?.iter().collect();
                            if !hex.chars().all(|c| c.is_ascii_hexdigit()) {
                                return None;
                            }
                            self.at += 4;
                            u16::from_str_radix(&hex, 16).ok()?
                        }
                        _ => return None,
                    });
                }
                '\0'..='\u{1f}' => return None,
                _ => units.extend(char.encode_utf16(&mut [0; 2]).iter()),
            }
        }
    }

    fn digits(&mut self) -> Option<String> {
        let start = self.at;
        while self.peek().is_some_and(|char| char.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then(|| self.chars[start..self.at].iter().collect())
    }

    fn number(&mut self) -> Option<Decimal> {
        let negative = self.take("-");
        let int = self.digits()?;
        if int.len() > 1 && int.starts_with('0') {
            return None;
        }
        let fraction = if self.take(".") {
            self.digits()?
        } else {
            String::new()
        };
        let mut exponent = 0;
        if self.take("e") || self.take("E") {
            let minus = self.take("-");
            if !minus {
                self.take("+");
            }
            // The generator keeps exponents shorter; of others the model only knows that they are.
            exponent = self.digits()?.parse().unwrap_or(i128::MAX / 2);
            if minus {
                exponent = -exponent;
            }
        }
        let point = fraction.len() as i128;
        Some(Decimal::new(
            negative,
            &format!("{int}{fraction}"),
            exponent - point,
        ))
    }
}

/// A random value; small, because mistakes are found in small documents and many of them.
pub(crate) fn random_value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 6 } else { 10 }) {
        0 => Value::Null,
        1 => Value::Bool(random.one_in(2)),
        2 | 3 => Value::Number(random_decimal(random)),
        4 | 5 => Value::String(random_units(random)),
        6 | 7 => {
            let count = random.below(5);
            Value::Array(
                (0..count)
                    .map(|_| random_value(random, depth - 1))
                    .collect(),
            )
        }
        _ => {
            let count = random.below(6);
            Value::Object(
                (0..count)
                    .map(|_| (random_units(random), random_value(random, depth - 1)))
                    .collect(),
            )
        }
    }
}

fn random_decimal(random: &mut Random) -> Decimal {
    let count = random.pick(&[0, 1, 1, 1, 2, 3, 16, 17, 40]);
    let digits: String = (0..count)
        .map(|_| char::from(b'0' + random.below(10) as u8))
        .collect();
    let small = random.below(7) as i128 - 3;
    let exponent = match random.below(12) {
        0 => random.below(700) as i128 - 350,
        1 => small + 999_999_999_999_999_999,
        2 => small - 999_999_999_999_999_999,
        3 => small * 1_000_000_000_000_000_000_000,
        _ => small,
    };
    Decimal::new(random.one_in(3), &digits, exponent)
}

fn random_units(random: &mut Random) -> Vec<u16> {
    const WORDS: [&str; 16] = [
        "a",
        "b",
        "aa",
        "ab",
        "id",
        "name",
        "amount",
        "currency",
        "eight_by",
        "eight_byt",
        "a name longer than one chunk",
        "a name longer than one chunk!",
        "é",
        "e\u{301}",
        "😀",
        "#",
    ];
    let mut units: Vec<u16> = Vec::new();
    match random.below(8) {
        0 => {}
        1..=5 => units.extend(random.pick(&WORDS).encode_utf16()),
        _ => {
            for _ in 0..random.below(20) {
                units.push(match random.below(8) {
                    0 => random.pick(&[0, 8, 9, 10, 12, 13, 0x1f, 0x22, 0x2f, 0x5c, 0x7f]),
                    1 => 0xD800 + random.below(0x800) as u16,
                    2 => random.below(0x10000) as u16,
                    _ => 0x20 + random.below(0x5f) as u16,
                });
            }
        }
    }
    units
}

/// A value that differs from `value` in one place, or rarely not at all.
pub(crate) fn changed(value: &Value, random: &mut Random) -> Value {
    let mut value = value.clone();
    match &mut value {
        Value::Array(items) if !items.is_empty() && !random.one_in(4) => {
            let at = random.below(items.len());
            match random.below(5) {
                0 => {
                    items.remove(at);
                }
                1 => {
                    let other = random.below(items.len());
                    items.swap(at, other);
                }
                _ => items[at] = changed(&items[at], random),
            }
        }
        Value::Object(members) if !members.is_empty() && !random.one_in(4) => {
            let at = random.below(members.len());
            let name = members.keys().nth(at).unwrap().clone();
            let old = members.remove(&name).unwrap();
            match random.below(5) {
                0 => {}
                1 => {
                    members.insert(random_units(random), old);
                }
                _ => {
                    members.insert(name, changed(&old, random));
                }
            }
        }
        Value::Number(decimal) if !decimal.digits.is_empty() => match random.below(3) {
            0 => decimal.negative ^= true,
            1 => decimal.exponent += 1,
            _ => {
                let mut digits = decimal.digits.clone().into_bytes();
                let at = random.below(digits.len());
                digits[at] = b'0' + (digits[at] - b'0' + 1) % 10;
                let digits = String::from_utf8(digits).unwrap();
                *decimal = Decimal::new(decimal.negative, &digits, decimal.exponent);
            }
        },
        Value::String(units) if !units.is_empty() => {
            let at = random.below(units.len());
            units[at] ^= 1 << random.below(16);
        }
        _ => value = random_value(random, 1),
    }
    value
}

/// One of the many texts of a value.
pub(crate) fn spell(value: &Value, random: &mut Random) -> String {
    let mut out = String::new();
    // Every value is spelled in a style, plain styles among them: compact documents take other
    // paths than loose ones.
    let style = Style {
        loose: random.one_in(2),
        escape: random.pick(&[0, 0, 10, 2]),
    };
    write(value, random, style, &mut out);
    out
}

#[derive(Clone, Copy)]
struct Style {
    loose: bool,
    /// One in how many characters is escaped without need; 0 for none.
    escape: usize,
}

fn write(value: &Value, random: &mut Random, style: Style, out: &mut String) {
    space(random, style, out);
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(decimal) => write_number(decimal, random, style, out),
        Value::String(units) => write_string(units, random, style, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, random, style, out);
            }
            space(random, style, out);
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            random.shuffle(&mut members);
            out.push('{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                space(random, style, out);
                write_string(name, random, style, out);
                space(random, style, out);
                out.push(':');
                write(member, random, style, out);
            }
            space(random, style, out);
            out.push('}');
        }
    }
    space(random, style, out);
}

fn space(random: &mut Random, style: Style, out: &mut String) {
    if style.loose {
        for _ in 0..random.below(3) {
            out.push(random.pick(&[' ', ' ', '\n', '\r', '\t']));
        }
    }
}

fn write_string(units: &[u16], random: &mut Random, style: Style, out: &mut String) {
    out.push('"');
    for char in char::decode_utf16(units.iter().copied()) {
        let needless = style.escape > 0 && random.one_in(style.escape);
        match char {
            Ok(char) if !needless && char >= ' ' && char != '"' && char != '\\' => out.push(char),
            Ok(char) => {
                let short = match char {
                    '"' | '\\' | '/' => Some(char),
                    '\u{8}' => Some('b'),
                    '\u{c}' => Some('f'),
                    '\n' => Some('n'),
                    '\r' => Some('r'),
                    '\t' => Some('t'),
                    _ => None,
                };
                match short {
                    Some(short) if !random.one_in(3) => out.extend(['\\', short]),
                    _ => char
                        .encode_utf16(&mut [0; 2])
                        .iter()
                        .for_each(|&unit| escape(unit, random, out)),
                }
            }
            Err(lone) => escape(lone.unpaired_surrogate(), random, out),
        }
    }
    out.push('"');
}

fn escape(unit: u16, random: &mut Random, out: &mut String) {
    let digits = if random.one_in(2) {
        format!("\\u{unit:04x}")
    } else {
        format!("\\u{unit:04X}")
    };
    out.push_str(&digits);
}

fn write_number(decimal: &Decimal, random: &mut Random, style: Style, out: &mut String) {
    if decimal.digits.is_empty() {
        out.push_str(random.pick(&["0", "-0", "0.0", "0e5", "-0.00E-12", "0E+0"]));
        return;
    }
    let plain = !style.loose && (0..=20).contains(&decimal.exponent) && random.one_in(2);
    let zeros = if plain {
        decimal.exponent as usize
    } else {
        random.below(4)
    };
    let digits = format!("{}{}", decimal.digits, "0".repeat(zeros));
    let point = if plain {
        digits.len()
    } else {
        random.below(digits.len() + 1)
    };
    let (int, fraction) = digits.split_at(point);
    let mut exponent = decimal.exponent - zeros as i128 + fraction.len() as i128;
    if decimal.negative {
        out.push('-');
    }
    out.push_str(if int.is_empty() { "0" } else { int });
    if !fraction.is_empty() || random.one_in(4) {
        out.push('.');
        if int.is_empty() {
            let zeros = random.below(3);
            out.push_str(&"0".repeat(zeros));
            exponent += zeros as i128;
        }
        out.push_str(if fraction.is_empty() { "0" } else { fraction });
    }
    if exponent != 0 || random.one_in(4) {
        out.push(random.pick(&['e', 'E']));
        out.push_str(if exponent < 0 {
            "-"
        } else {
            random.pick(&["", "+"])
        });
        out.push_str(&"0".repeat(random.below(3)));
        out.push_str(&exponent.unsigned_abs().to_string());
    }
}
