//! Bodies made to hurt: each has a stable fingerprint, in bounded time.
//! P21

use std::time::{Duration, Instant};

use idem_runtime::fingerprint::{Options, RequestParts, fingerprint};

/// A body and how it is sent.
struct Hostile {
    name: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
    ignore: Vec<&'static str>,
}

const MIB: usize = 1024 * 1024;

/// Per MiB. Unoptimised builds get what makes a quadratic algorithm fail and a slow machine pass.
const BUDGET: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(8)
} else {
    Duration::from_millis(100)
};

fn json(name: &'static str, body: impl Into<Vec<u8>>) -> Hostile {
    Hostile {
        name,
        content_type: "application/json",
        body: body.into(),
        ignore: Vec::new(),
    }
}

fn object(names: impl Iterator<Item = String>) -> String {
    let members: Vec<String> = names.map(|name| format!("\"{name}\":0")).collect();
    format!("{{{}}}", members.join(","))
}

fn hostile() -> Vec<Hostile> {
    // One case has a million members in any build; building all of them so large takes
    // unoptimised builds long.
    const MANY: u64 = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let mut layered = "x".repeat(MIB - 2048);
    layered = format!("\"{layered}\"");
    for _ in 0..126 {
        layered = format!("{{\"b\":0,\"a\":{layered}}}");
    }
    let mut cases = vec![
        json(
            "10 000 arrays deep",
            "[".repeat(10_000) + &"]".repeat(10_000),
        ),
        json(
            "10 000 objects deep",
            "{\"a\":".repeat(10_000) + "1" + &"}".repeat(10_000),
        ),
        json("arrays that are never closed", "[".repeat(MIB)),
        json(
            "127 levels again and again",
            format!(
                "[{}1]",
                (String::from("[").repeat(126) + &"]".repeat(126) + ",").repeat(4000)
            ),
        ),
        json("number of 100 000 digits", "7".repeat(100_000)),
        json("number of a million zeros", format!("1{}", "0".repeat(MIB))),
        json(
            "fraction of a million zeros",
            format!("0.{}1", "0".repeat(MIB)),
        ),
        json(
            "exponent of 100 000 digits",
            format!("1.5e{}", "9".repeat(100_000)),
        ),
        json(
            "negative exponent of 100 000 digits",
            format!("150e-1{}", "0".repeat(100_000)),
        ),
        json(
            "exponents that borrow",
            format!("[{}1]", format!("10e-1{},", "0".repeat(20)).repeat(40_000)),
        ),
        json("1e999999999", "1e999999999"),
        json(
            "a million members",
            object((0..1_000_000).map(|i| format!("{i}"))),
        ),
        json(
            "many members backwards",
            object((0..MANY).rev().map(|i| format!("{i:07}"))),
        ),
        json(
            "many members with one start",
            object((0..MANY).map(|i| format!("prefix{:07}", i * 7919 % 1_000_003))),
        ),
        json(
            "long names with one start",
            object(
                (0..256)
                    .rev()
                    .map(|i| "n".repeat(4000) + &format!("{i:03}")),
            ),
        ),
        json(
            "the same member many times",
            object((0..MANY).map(|_| "a".to_owned())),
        ),
        json("unordered at every level around one big string", layered),
        json(
            "many empty objects",
            format!("[{}{{}}]", "{},".repeat(MANY as usize)),
        ),
        json(
            "nothing but escapes",
            format!("\"{}\"", "\\u0041".repeat(MIB / 6)),
        ),
        json(
            "nothing but short escapes",
            format!("\"{}\"", "\\n".repeat(MIB / 2)),
        ),
        json(
            "nothing but lone surrogates",
            format!("\"{}\"", "\\ud800".repeat(MIB / 6)),
        ),
        json(
            "names with escapes",
            object((0..100_000).rev().map(|i| format!("\\u0061{i:06}"))),
        ),
        json(
            "strings that start like a false mark",
            format!("[{}0]", "\"#\",".repeat(MIB / 4)),
        ),
        json("nothing but white space", " \n".repeat(MIB / 2)),
        json(
            "white space around one value",
            format!("{}1{}", " ".repeat(MIB / 2), "\t".repeat(MIB / 2)),
        ),
        json(
            "invalid UTF-8 at the end",
            [" ".repeat(MIB).as_bytes(), b"\xff"].concat(),
        ),
        json(
            "three-byte characters",
            format!("\"{}\"", "\u{20ac}".repeat(MIB / 3)),
        ),
        json("byte order mark", "\u{feff}{}"),
        json(
            "string that is never closed",
            format!("\"{}", "a".repeat(MIB)),
        ),
    ];
    let mut ignoring = json(
        "a million elements left out",
        format!("[{}{{}}]", "{\"a\":1,\"b\":[2]},".repeat(MIB / 16)),
    );
    ignoring.ignore = vec![
        "/*/a",
        "/*/b/0",
        "/*/b/*",
        "/*/c/*/d",
        "/0",
        "/a",
        "/*/b/1/2/3",
        "/*/b/0/x",
    ];
    cases.push(ignoring);
    let form = "application/x-www-form-urlencoded";
    for (name, body) in [
        ("form of separators", "&".repeat(MIB)),
        ("form of empty pairs", "=&".repeat(MIB / 2)),
        ("form of escapes", "%41=%42&".repeat(MIB / 8)),
        ("form of plus signs", "+".repeat(MIB)),
    ] {
        cases.push(Hostile {
            content_type: form,
            ..json(name, body)
        });
    }
    let multipart = "multipart/form-data; boundary=-----------------------------------------------------------------b";
    let boundary = &multipart[multipart.len() - 66..];
    for (name, body) in [
        (
            "multipart of almost-boundaries",
            format!(
                "--{boundary}\r\n\r\n{}",
                "\r\n-------------------".repeat(MIB / 21)
            ),
        ),
        (
            "multipart of line ends",
            format!(
                "--{boundary}\r\n\r\n{}\r\n--{boundary}--",
                "\r\n".repeat(MIB / 2)
            ),
        ),
        (
            "multipart of empty parts",
            format!("--{boundary}\r\n\r\n\r\n").repeat(MIB / 74) + &format!("--{boundary}--"),
        ),
        (
            "multipart part of many headers",
            format!(
                "--{boundary}\r\n{}\r\n\r\n--{boundary}--",
                "a: b\r\n".repeat(MIB / 6)
            ),
        ),
    ] {
        cases.push(Hostile {
            content_type: multipart,
            ..json(name, body)
        });
    }
    cases
}

/// Measures this thread's time on a processor, or the time on the wall where the system does not
/// tell.
struct Clock {
    wall: Instant,
    processor: Option<Duration>,
}

impl Clock {
    fn start() -> Self {
        Self {
            wall: Instant::now(),
            processor: Self::processor(),
        }
    }

    fn elapsed(&self) -> Duration {
        match (self.processor, Self::processor()) {
            (Some(start), Some(end)) => end - start,
            _ => self.wall.elapsed(),
        }
    }

    /// Linux tells it in nanoseconds, to the last tick of the scheduler.
    fn processor() -> Option<Duration> {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        stat.split(' ')
            .next()?
            .parse()
            .ok()
            .map(Duration::from_nanos)
    }
}

#[test]
fn hostile_bodies_have_stable_fingerprints_in_time() {
    let mut fingerprints = Vec::new();
    for case in hostile() {
        let parts = RequestParts::new("POST", "/", &case.body)
            .content_type(Some(case.content_type.as_bytes()));
        let options = Options::default().ignore(&case.ignore);
        let first = fingerprint(&parts, &options).unwrap();
        let budget = BUDGET.mul_f64((case.body.len() as f64 / MIB as f64).max(1.0));
        // The quickest of a few runs, and processor time where it is known: neither a busy machine
        // nor the other tests are the fingerprint's fault.
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let start = Clock::start();
            assert_eq!(fingerprint(&parts, &options), Ok(first), "{}", case.name);
            best = best.min(start.elapsed());
            if best <= budget {
                break;
            }
        }
        println!(
            "{:>9.3} ms for {:>9} bytes: {}",
            best.as_secs_f64() * 1e3,
            case.body.len(),
            case.name
        );
        assert!(
            best <= budget,
            "{}: {best:?} for {} bytes",
            case.name,
            case.body.len()
        );
        fingerprints.push((first, case.name));
    }
    for (index, (a, name)) in fingerprints.iter().enumerate() {
        for (b, other) in &fingerprints[..index] {
            assert_ne!(a, b, "{name} {other}");
        }
    }
}
