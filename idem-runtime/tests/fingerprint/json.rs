//! JSON bodies: by examples, by properties, and against the reference model.

use std::sync::atomic::{AtomicU64, Ordering};

use idem_runtime::fingerprint::check_pointer;
use proptest::prelude::*;

use crate::model::{Value, changed, parse, random_value, spell};
use crate::random::Random;
use crate::{json_with, of, of_json};

#[test]
fn spelling_does_not_matter() {
    // D1, D13, P12
    for (a, b) in [
        (
            r#"{"a":1,"b":{"x":1,"y":2}}"#,
            r#"{"b":{"y":2,"x":1},"a":1}"#,
        ),
        (r#"{"a":[1,2]}"#, " {\t\"a\" :\r\n[ 1 , 2 ] } "),
        (r#""A/""#, r#""\u0041\/""#),
        (r#""é""#, r#""\u00E9""#),
        (r#""😀""#, r#""\ud83D\uDe00""#),
        ("1.0", "1"),
        ("1e2", "100"),
        ("100e-2", "1"),
        ("-0", "0"),
        ("0e999999999", "0"),
        ("1.5e1000000000000000000", "15e999999999999999999"),
        ("1e-1000000000000000000", "10e-1000000000000000001"),
        ("1e00000000000000000000000000000001", "10"),
    ] {
        assert_eq!(of_json(a), of_json(b), "{a} {b}");
    }
}

#[test]
fn values_matter() {
    // D5, D13, P12, P13
    for (a, b) in [
        ("[1,2]", "[2,1]"),
        ("9007199254740993", "9007199254740992"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("1e999999999", "1e999999998"),
        ("1", "-1"),
        ("1", r#""1""#),
        ("null", r#""null""#),
        ("[]", "{}"),
        ("[[1],2]", "[[1,2]]"),
        (r#"{"a":1}"#, r#"["a",1]"#),
        (r#"{"a":null}"#, "{}"),
        (r#""\u00e9""#, r#""e\u0301""#),
        (r#""\ud83d""#, r#""\ude00""#),
        (r#""\ud83d""#, r#""\\ud83d""#),
        (r#""\ud83d\ude00""#, r#""\ude00\ud83d""#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":1}"#),
    ] {
        assert_ne!(of_json(a), of_json(b), "{a} {b}");
    }
}

#[test]
fn what_has_no_single_meaning_counts_as_bytes() {
    let deep = |levels| "[".repeat(levels) + &"]".repeat(levels);
    for body in [
        r#"{"a":1,"a":1}"#.to_owned(),
        r#"{"a":1,"\u0061":1}"#.to_owned(),
        r#"{"b":0,"long name of a member":1,"a":0,"long name of a member":1}"#.to_owned(),
        "\u{feff}{}".to_owned(),
        deep(128),
        "{".to_owned(),
        "[1,]".to_owned(),
        "01".to_owned(),
        "1.".to_owned(),
        "\"\u{1}\"".to_owned(),
        "{} {}".to_owned(),
        String::new(),
    ] {
        assert_eq!(of_json(&body), of_json(&body));
        assert_ne!(of_json(&body), of_json(format!("{body} ")), "{body}");
        // Under its own tag: never the same as the bytes of another type.
        assert_ne!(of_json(&body), of("application/octet-stream", &body));
    }
    // The deepest that is read.
    assert_eq!(of_json(deep(127)), of_json(deep(127) + " "));
}

#[test]
fn invalid_utf8_counts_as_bytes() {
    assert_ne!(of_json(b"\"\xff\""), of_json(b"\"\xff\" "));
    assert_ne!(of_json(b"\"\xff\""), of_json("\"\u{fffd}\""));
    // A surrogate in UTF-8 form is not UTF-8.
    assert_ne!(of_json(b"\"\xed\xa0\xbd\""), of_json(r#""\ud83d""#));
}

#[test]
fn types_with_json_inside_are_read_as_json() {
    for kind in [
        "application/json",
        "APPLICATION/JSON",
        "text/json",
        "application/problem+json",
    ] {
        assert_eq!(of(kind, "{ }"), of(kind, "{}"), "{kind}");
    }
    // P14
    assert_eq!(
        of("application/json", "{}"),
        of("application/json; charset=utf-8", "{}")
    );
    assert_eq!(
        of("application/json", "{}"),
        of("application/json;Charset=\"UTF-8\";", "{}")
    );
    assert_ne!(
        of("application/json", "{}"),
        of("application/merge-patch+json", "{}")
    );
    for kind in ["text/plain", "application/json-seq", "application/xml"] {
        assert_ne!(of(kind, "{ }"), of(kind, "{}"), "{kind}");
    }
}

#[test]
fn ignored_members_count_as_absent() {
    let ignore = ["/ts"];
    for body in [
        r#"{"a":1,"ts":5}"#,
        r#"{"ts":{"x":[1,2]},"a":1}"#,
        r#"{"a":1,"t\u0073":null}"#,
    ] {
        assert_eq!(
            json_with(body, &ignore),
            json_with(r#"{"a":1}"#, &ignore),
            "{body}"
        );
        assert_eq!(json_with(body, &ignore), of_json(r#"{"a":1}"#));
    }
    // Only where the pointer says.
    assert_ne!(
        json_with(r#"{"a":{"ts":1}}"#, &ignore),
        json_with(r#"{"a":{"ts":2}}"#, &ignore)
    );
    assert_ne!(
        json_with(r#"[{"ts":1}]"#, &ignore),
        json_with(r#"[{"ts":2}]"#, &ignore)
    );
    assert_ne!(
        json_with(r#"{"a":1,"ts":5}"#, &ignore),
        json_with(r#"{"a":2,"ts":5}"#, &ignore)
    );
    // The document must still be one, and its names unique.
    assert_ne!(
        json_with(r#"{"ts":1,"ts":2}"#, &ignore),
        json_with(r#"{"ts":1}"#, &ignore)
    );
    assert_ne!(
        json_with(r#"{"ts":{"a":1,"a":2}}"#, &ignore),
        json_with("{}", &ignore)
    );
    assert_ne!(json_with(r#"{"ts":01}"#, &ignore), json_with("{}", &ignore));
}

#[test]
fn pointers_reach_into_nested_objects_and_arrays() {
    let ignore = [
        "/items/*/ts",
        "/meta/trace/id",
        "/tags/1",
        "/a~1b",
        "/m~0n",
        "/*",
        "/grid/*/*/x",
    ];
    let same = |a: &str, b: &str| {
        assert_eq!(json_with(a, &ignore), json_with(b, &ignore), "{a} {b}");
    };
    let differ = |a: &str, b: &str| {
        assert_ne!(json_with(a, &ignore), json_with(b, &ignore), "{a} {b}");
    };
    same(
        r#"{"items":[{"ts":1,"n":1},{"n":2,"ts":2}]}"#,
        r#"{"items":[{"n":1},{"ts":9,"n":2}]}"#,
    );
    differ(r#"{"items":[{"n":1}]}"#, r#"{"items":[{"n":2}]}"#);
    differ(r#"{"items":[[{"ts":1}]]}"#, r#"{"items":[[{"ts":2}]]}"#);
    same(
        r#"{"meta":{"trace":{"id":1,"x":1}}}"#,
        r#"{"meta":{"trace":{"x":1}}}"#,
    );
    differ(
        r#"{"meta":{"trace":{"x":1}}}"#,
        r#"{"meta":{"trace":{"x":2}}}"#,
    );
    same(r#"{"tags":["a","b","c"]}"#, r#"{"tags":["a","z","c"]}"#);
    differ(r#"{"tags":["a","b","c"]}"#, r#"{"tags":["a","b","d"]}"#);
    // In an object, a number or a star is a name.
    same(r#"{"tags":{"1":1}}"#, r#"{"tags":{}}"#);
    same(r#"{"*":1}"#, "{}");
    differ(r#"{"x":1}"#, "{}");
    same("[1,2,3]", "[]");
    same(r#"{"a/b":1,"m~n":2}"#, "{}");
    same(
        r#"{"grid":[[{"x":1,"y":1}],[{"y":2}]]}"#,
        r#"{"grid":[[{"y":1}],[{"y":2,"x":3}]]}"#,
    );
    // What follows a matched branch is not affected by it.
    let sibling = ["/a/x"];
    assert_ne!(
        json_with(r#"{"a":{},"b":{"x":1}}"#, &sibling),
        json_with(r#"{"a":{},"b":{"x":2}}"#, &sibling)
    );
    assert_ne!(
        json_with(r#"[{"x":[1]},{"y":[1]}]"#, &["/0/x/0"]),
        json_with(r#"[{"x":[1]},{"y":[2]}]"#, &["/0/x/0"])
    );
    same(
        r#"{"items":[{"ts":1}],"meta":{"trace":{"id":7}}}"#,
        r#"{"meta":{"trace":{}},"items":[{}]}"#,
    );
    differ(
        r#"{"items":[{}],"meta":{"ts":1}}"#,
        r#"{"items":[{}],"meta":{"ts":2}}"#,
    );
}

#[test]
fn pointers_are_checked() {
    for pointer in ["/a", "/a/*/b", "/", "/a~0b~1c", "/0"] {
        assert_eq!(check_pointer(pointer), Ok(()), "{pointer}");
    }
    for pointer in ["", "a", "a/b", "/a~", "/a~2", "$.a"] {
        assert!(check_pointer(pointer).is_err(), "{pointer}");
        assert_ne!(
            json_with(r#"{"a":1}"#, &[pointer]),
            json_with(r#"{"a":2}"#, &[pointer])
        );
    }
}

/// Compares the fingerprints of two texts with what the model says about them.
fn agree(a: &[u8], b: &[u8]) -> Result<(), String> {
    let expected = match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a == b,
        _ => false,
    };
    if (of_json(a) == of_json(b)) == expected {
        return Ok(());
    }
    let verdict = if expected { "equal" } else { "different" };
    Err(format!(
        "{} and {} are {verdict}",
        a.escape_ascii(),
        b.escape_ascii()
    ))
}

fn random_pair(random: &mut Random) -> Result<(), String> {
    let value = random_value(random, 3);
    let text = spell(&value, random);
    let other: Vec<u8> = match random.below(4) {
        0 => {
            let other = spell(&value, random);
            if parse(other.as_bytes()) != Some(value) {
                return Err(format!("the model contradicts itself about {other}"));
            }
            other.into_bytes()
        }
        1 => spell(&changed(&value, random), random).into_bytes(),
        2 => {
            let mut bytes = text.clone().into_bytes();
            random.mutate(&mut bytes);
            bytes
        }
        _ => {
            let other: Value = random_value(random, 2);
            spell(&other, random).into_bytes()
        }
    };
    // A byte more in an exponent can pass what the model's integers hold; such pairs say nothing.
    if longest_digits(&other) > 37 && !text.as_bytes().eq(&other) {
        return Ok(());
    }
    agree(text.as_bytes(), &other)
}

fn longest_digits(text: &[u8]) -> usize {
    let after_e = text.split(|byte| matches!(byte, b'e' | b'E')).skip(1);
    let count = |rest: &[u8]| {
        let rest = rest
            .strip_prefix(b"+")
            .or(rest.strip_prefix(b"-"))
            .unwrap_or(rest);
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    after_e.map(count).max().unwrap_or(0)
}

#[test]
fn random_pairs_agree_against_the_model() {
    let cases: u64 = match std::env::var("IDEM_FUZZ_CASES") {
        Ok(cases) => cases.parse().expect("IDEM_FUZZ_CASES is a number"),
        Err(_) => 20_000,
    };
    // Each block has a seed of its own, so that a failure can be repeated whatever the number of
    // threads.
    const BLOCK: u64 = 1_000;
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block * BLOCK >= cases {
                return;
            }
            let mut random = Random::new(block);
            for case in 0..BLOCK {
                if let Err(why) = random_pair(&mut random) {
                    panic!("block {block}, case {case}: {why}");
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(work);
        }
    });
}

proptest! {
    #[test]
    fn equal_values_are_equal_in_any_spelling(seed: u64) {
        let mut random = Random::new(seed);
        let value = random_value(&mut random, 4);
        let (a, b) = (spell(&value, &mut random), spell(&value, &mut random));
        prop_assert_eq!(of_json(&a), of_json(&b), "{} {}", a, b);
    }

    #[test]
    fn different_values_differ_in_any_spelling(seed: u64) {
        let mut random = Random::new(seed);
        let value = random_value(&mut random, 4);
        let other = changed(&value, &mut random);
        prop_assume!(value != other);
        let (a, b) = (spell(&value, &mut random), spell(&other, &mut random));
        // The change may have made a number of none: compare what was written.
        prop_assume!(parse(a.as_bytes()) != parse(b.as_bytes()));
        prop_assert_ne!(of_json(&a), of_json(&b), "{} {}", a, b);
    }

    #[test]
    fn any_bytes_have_a_fingerprint(bytes: Vec<u8>) {
        prop_assert_eq!(of_json(&bytes), of_json(&bytes));
    }

    #[test]
    fn any_text_agrees_with_the_model(a in "[\\[\\]{}\",:\\\\u0-9eE.+\\- tn]{0,12}", b in "[\\[\\]{}\",0-9 ]{0,6}") {
        if longest_digits(a.as_bytes()) < 37 {
            agree(a.as_bytes(), b.as_bytes()).map_err(TestCaseError::fail)?;
            let spaced = format!(" {a}");
            agree(a.as_bytes(), spaced.as_bytes()).map_err(TestCaseError::fail)?;
        }
    }
}
