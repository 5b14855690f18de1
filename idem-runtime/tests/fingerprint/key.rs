//! The idempotency key, as clients write it.

use idem_runtime::key::{IdempotencyKey, KeyError, MAX_KEY_BYTES};
use proptest::prelude::*;
use serde::Deserialize;

fn parse(line: impl AsRef<[u8]>) -> Result<String, KeyError> {
    let key = IdempotencyKey::parse([line.as_ref()])?;
    Ok(key.expect("there is a line").as_str().to_owned())
}

fn ok(line: &str, key: &str) {
    assert_eq!(parse(line).as_deref(), Ok(key), "{line}");
}

#[test]
fn quoted_and_bare_are_one_key() {
    // K1, P1
    ok(
        r#""8e03978e-40d5-43e8-bc93-6894a57f9324""#,
        "8e03978e-40d5-43e8-bc93-6894a57f9324",
    );
    ok(
        "8e03978e-40d5-43e8-bc93-6894a57f9324",
        "8e03978e-40d5-43e8-bc93-6894a57f9324",
    );
    ok("k1", "k1");
    ok("  k1  ", "k1");
    ok(r#"  "k1" "#, "k1");
    ok(
        "order/17:create?x=1&y=[2]{3}",
        "order/17:create?x=1&y=[2]{3}",
    );
    ok(r"back\slash", r"back\slash");
    ok("it's", "it's");
}

#[test]
fn escapes_are_undone() {
    // P2
    ok(r#""a\"b\\c""#, r#"a"b\c"#);
    ok(r#""a, b; c""#, "a, b; c");
    ok(r#"" padded ""#, " padded ");
}

#[test]
fn parameters_are_ignored() {
    ok(r#""k1";a"#, "k1");
    ok(
        r#""k1"; a=1; b="x;y"; c=tok/en; d=:AQ==:; e=?0; f=-1.5"#,
        "k1",
    );
    ok("k1;a=1", "k1");
    ok("k1; a", "k1");
    for line in [
        "k1;",
        "k1;1",
        "k1;A=1",
        "k1;a=",
        "k1;a=\"",
        r#""k1";"#,
        r#""k1";a=1,b"#,
        "k1;a=b c",
    ] {
        assert_eq!(parse(line), Err(KeyError::InvalidParameters), "{line}");
    }
}

#[test]
fn what_is_not_one_key_is_refused() {
    // K3, K8, P2, P3, P4
    for (line, error) in [
        (&b""[..], KeyError::Blank),
        (b"   ", KeyError::Blank),
        (b"\"\"", KeyError::Blank),
        (b"\"  \"", KeyError::Blank),
        (b";a=1", KeyError::Blank),
        (b"a, b", KeyError::List),
        (b"a,b", KeyError::List),
        (b"\"a\", \"b\"", KeyError::List),
        (b"\"a\" , \"b\"", KeyError::List),
        (b"'abc'", KeyError::SingleQuoted),
        (b"a b", KeyError::BareSpace),
        (b"k1 ;a=1", KeyError::BareSpace),
        (b"\"abc", KeyError::UnbalancedQuotes),
        (b"\"abc\\", KeyError::UnbalancedQuotes),
        (b"abc\"", KeyError::UnbalancedQuotes),
        (b"a\"b\"", KeyError::UnbalancedQuotes),
        (b"\"abc\"d", KeyError::UnbalancedQuotes),
        (b"\"abc\" ;a=1", KeyError::UnbalancedQuotes),
        (b"\"", KeyError::UnbalancedQuotes),
        (b"\"a\\nb\"", KeyError::InvalidEscape),
        (b"a\tb", KeyError::InvalidByte),
        (b"\"a\tb\"", KeyError::InvalidByte),
        (b"k1\t", KeyError::InvalidByte),
        (b"\xff", KeyError::InvalidByte),
        (b"\"a\x7f\"", KeyError::InvalidByte),
        (b"a\0", KeyError::InvalidByte),
        ("\"ключ\"".as_bytes(), KeyError::InvalidByte),
        ("ключ".as_bytes(), KeyError::InvalidByte),
    ] {
        assert_eq!(parse(line), Err(error), "{}", line.escape_ascii());
    }
}

#[test]
fn lines_are_counted() {
    // K8, P3, P5
    assert_eq!(IdempotencyKey::parse([]), Ok(None));
    for lines in [
        [&b"a"[..], b"a"],
        [b"a", b"b"],
        [b"\"a", b"b\""],
        [b"", b"a"],
    ] {
        assert_eq!(IdempotencyKey::parse(lines), Err(KeyError::Repeated));
    }
}

#[test]
fn length_is_counted_after_unquoting() {
    // J4, P4
    let longest = "k".repeat(MAX_KEY_BYTES);
    ok(&longest, &longest);
    ok(&format!("\"{longest}\""), &longest);
    ok(
        &format!("\"{}\"", "\\\\".repeat(MAX_KEY_BYTES)),
        &"\\".repeat(MAX_KEY_BYTES),
    );
    for length in [256, 4096] {
        let long = "k".repeat(length);
        assert_eq!(parse(&long), Err(KeyError::TooLong));
        assert_eq!(parse(format!("\"{long}\"")), Err(KeyError::TooLong));
    }
}

#[test]
fn case_matters() {
    // K6, P6
    assert_ne!(
        IdempotencyKey::parse([&b"AbC1"[..]]),
        IdempotencyKey::parse([&b"aBc1"[..]])
    );
}

#[test]
fn uuids_are_told_from_other_keys() {
    let is_uuid = |text: &str| {
        IdempotencyKey::parse([text.as_bytes()])
            .unwrap()
            .unwrap()
            .is_uuid()
    };
    assert!(is_uuid("8e03978e-40d5-43e8-bc93-6894a57f9324"));
    assert!(is_uuid("\"8E03978E-40D5-43E8-BC93-6894A57F9324\""));
    assert!(is_uuid("01890a5d-ac96-774b-bcce-b302099a8057"));
    for other in [
        "k1",
        "8e03978e40d543e8bc936894a57f9324",
        "{8e03978e-40d5-43e8-bc93-6894a57f9324}",
        "urn:uuid:8e03978e-40d5-43e8-bc93-6894a57f9324",
        "8e03978e-40d5-43e8-bc93-6894a57f932",
        "8e03978e-40d5-43e8-bc93-6894a57f932g",
        "8e03978e-40d5-43e8-bc936-894a57f9324",
    ] {
        assert!(!is_uuid(other), "{other}");
    }
}

#[test]
fn neither_debug_nor_errors_show_the_key() {
    let key = IdempotencyKey::parse([&b"s3cr3t-key"[..]])
        .unwrap()
        .unwrap();
    let shown = format!("{key:?}");
    assert!(!shown.contains("s3cr3t"), "{shown}");
    assert!(shown.contains(&key.digest()));
    assert_eq!(key.digest().len(), 16);
    assert_eq!(
        key.digest(),
        "99ab9660c4e55f77",
        "logs of two versions are to be searched alike"
    );
    for line in [
        "s3cr3t key",
        "\"s3cr3t",
        "s3cr3t, s3cr3t",
        "'s3cr3t'",
        "s3cr3t;S3CR3T",
        "s3cr3t\t",
    ] {
        let error = parse(line).unwrap_err();
        let message = format!("{error} {error:?}").to_lowercase();
        assert!(!message.contains("s3cr3t"), "{message}");
    }
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    raw: Vec<String>,
    expected: Option<(String, Vec<serde_json::Value>)>,
    #[serde(default)]
    must_fail: bool,
}

/// The public vectors for structured-field strings. Where a key is narrower than a string, the
/// vector says which rule refuses it.
#[test]
fn structured_field_vectors() {
    let mut seen = 0;
    for file in [
        include_str!("data/structured-field-tests/string.json"),
        include_str!("data/structured-field-tests/string-generated.json"),
    ] {
        for vector in serde_json::from_str::<Vec<Vector>>(file).unwrap() {
            seen += 1;
            let parsed = IdempotencyKey::parse(vector.raw.iter().map(String::as_bytes));
            let expected = match vector.expected {
                None => {
                    assert!(vector.must_fail);
                    assert!(parsed.is_err(), "{}", vector.name);
                    continue;
                }
                Some(_) if vector.raw.len() > 1 => Err(KeyError::Repeated),
                Some((string, _)) if string.trim_matches(' ').is_empty() => Err(KeyError::Blank),
                Some((string, _)) if string.len() > MAX_KEY_BYTES => Err(KeyError::TooLong),
                Some((string, _)) => Ok(string),
            };
            let parsed = parsed.map(|key| key.unwrap().as_str().to_owned());
            assert_eq!(parsed, expected, "{}", vector.name);
        }
    }
    assert_eq!(seen, 270);
}

proptest! {
    #[test]
    fn any_key_survives_quoting(key in "[ -~]{1,255}") {
        prop_assume!(!key.trim_matches(' ').is_empty());
        let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
        prop_assert_eq!(parse(&quoted), Ok(key.clone()));
        // Bare, it is the same key or none.
        if let Ok(bare) = parse(&key)
            && !key.contains(';')
            && !key.starts_with(['"', ' '])
            && !key.ends_with(' ')
        {
            prop_assert_eq!(bare, key);
        }
    }

    #[test]
    fn any_bytes_are_a_key_or_an_error(lines in prop::collection::vec(any::<Vec<u8>>(), 0..3)) {
        if let Ok(Some(key)) = IdempotencyKey::parse(lines.iter().map(Vec::as_slice)) {
            prop_assert!((1..=MAX_KEY_BYTES).contains(&key.as_str().len()));
            prop_assert!(key.as_str().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
}
