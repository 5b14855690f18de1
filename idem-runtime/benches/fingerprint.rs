//! What a fingerprint costs, as ratios to SHA-256 over the same bytes.
//!
//! The ratios come first and are what counts: the candidates take turns within one run, and the
//! quickest turn of each is compared, so that a busy machine disturbs all of them alike. The
//! divan figures after them are for profiling.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use idem_runtime::fingerprint::{Mode, Options, RequestParts, fingerprint};
use sha2::{Digest, Sha256};

const SIZES: [usize; 2] = [1024, 64 * 1024];

/// Canonical within 5 times, raw within 1.2 times SHA-256 alone.
const LIMITS: [(&str, f64); 3] = [
    ("raw", 1.2),
    ("canonical", 5.0),
    ("canonical, indented", 5.0),
];

fn main() {
    for size in SIZES {
        print_ratios(size);
    }
    divan::main();
}

fn print_ratios(size: usize) {
    let body = document(size);
    let indented = indented(size);
    let mut candidates: [(Box<dyn Fn()>, Duration); 4] = [
        Box::new(|| {
            black_box(Sha256::digest(black_box(body.as_bytes())));
        }) as Box<dyn Fn()>,
        Box::new(|| of(&body, Mode::Raw)),
        Box::new(|| of(&body, Mode::Canonical)),
        Box::new(|| of(&indented, Mode::Canonical)),
    ]
    .map(|run| (run, Duration::MAX));
    let rounds = 400;
    let repeat = (256 * 1024 / size).max(1);
    for _ in 0..rounds {
        for (run, best) in &mut candidates {
            let start = Instant::now();
            for _ in 0..repeat {
                run();
            }
            *best = start.elapsed().min(*best);
        }
    }
    let [sha, rest @ ..] = candidates.map(|(_, best)| best.as_secs_f64() / repeat as f64);
    let mut line = format!(
        "{size} bytes: sha256 {:.2} µs ({:.0} MB/s)",
        sha * 1e6,
        body.len() as f64 / sha / 1e6
    );
    for ((name, limit), time) in LIMITS.into_iter().zip(rest) {
        // The indented document is longer: compare with what SHA-256 takes for its length.
        let length = if name.ends_with("indented") {
            indented.len()
        } else {
            body.len()
        };
        let ratio = time / (sha * length as f64 / body.len() as f64);
        let verdict = if ratio <= limit { "ok" } else { "TOO SLOW" };
        write!(line, "; {name} {ratio:.2}× (limit {limit}, {verdict})").unwrap();
    }
    println!("{line}");
}

fn of(body: &str, mode: Mode) {
    let parts = RequestParts::new("POST", "/api/v1/orders", black_box(body.as_bytes()))
        .content_type(Some(b"application/json"));
    black_box(fingerprint(&parts, &Options::default().mode(mode)).unwrap());
}

#[divan::bench(args = SIZES)]
fn sha256(bencher: divan::Bencher<'_, '_>, size: usize) {
    let body = document(size);
    bencher.bench(|| Sha256::digest(black_box(body.as_bytes())));
}

#[divan::bench(args = SIZES)]
fn raw(bencher: divan::Bencher<'_, '_>, size: usize) {
    let body = document(size);
    bencher.bench(|| of(&body, Mode::Raw));
}

#[divan::bench(args = SIZES)]
fn canonical(bencher: divan::Bencher<'_, '_>, size: usize) {
    let body = document(size);
    bencher.bench(|| of(&body, Mode::Canonical));
}

/// An order as an API gets it: nested, members in no order, strings of all lengths, some of them
/// with escapes and non-ASCII characters, integers, amounts, flags; about `size` bytes.
fn document(size: usize) -> String {
    let mut lines = String::new();
    let mut line = 0;
    loop {
        let next = order_line(line);
        if line > 0 && lines.len() + next.len() + HEAD.len() + TAIL.len() > size {
            break;
        }
        if line > 0 {
            lines.push(',');
        }
        lines.push_str(&next);
        line += 1;
    }
    format!("{HEAD}{lines}{TAIL}")
}

const HEAD: &str = r#"{"customer":{"name":"Zoë Müller","email":"zoe@example.com","address":{"street":"Hauptstraße 12","city":"Köln","zip":"50667","country":"DE"}},"currency":"EUR","reference":"ord_8e03978e-40d5-43e8-bc93-6894a57f9324","lines":["#;
const TAIL: &str = r#"],"note":"please leave it with \"Bob\"\nat the door","express":false,"placed_at":"2026-03-01T12:34:56Z","coupon":null}"#;

fn order_line(line: usize) -> String {
    format!(
        r#"{{"sku":"SKU-{line:06}-XL","title":"Widget, blue, size {line}","quantity":{},"unit_price":{}.{:02},"tax":{{"rate":0.19,"included":true}},"tags":["new","sale"],"metadata":{{"warehouse":"FRA-{}","batch":"{:08x}"}}}}"#,
        line % 9 + 1,
        10 + line * 7 % 490,
        line * 13 % 100,
        line % 4,
        line * 2_654_435_761_usize % 0xffff_ffff,
    )
}

/// The same document as a person or a debugging client writes it: two spaces per level.
fn indented(size: usize) -> String {
    let compact = document(size);
    let mut out = String::new();
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for char in compact.chars() {
        if in_string {
            out.push(char);
            (in_string, escaped) = (escaped || char != '"', !escaped && char == '\\');
            continue;
        }
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        match char {
            '{' | '[' => {
                depth += 1;
                out.push(char);
                line(&mut out, depth);
            }
            '}' | ']' => {
                depth -= 1;
                line(&mut out, depth);
                out.push(char);
            }
            ',' => {
                out.push(char);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                in_string = true;
                out.push(char);
            }
            _ => out.push(char),
        }
    }
    out
}
