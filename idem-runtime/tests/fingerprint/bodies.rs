//! Everything of a request but JSON: fields, forms, multipart, codings, modes, keys.

use std::io::Write as _;

use idem_runtime::fingerprint::{
    Fingerprint, FingerprintError, HmacKey, Mode, Options, RequestParts, fingerprint,
};

use crate::{of, of_json};

fn compute(parts: &RequestParts<'_>) -> Fingerprint {
    fingerprint(parts, &Options::default()).unwrap()
}

#[test]
fn every_field_counts() {
    // D7, D15, P11
    let base = || RequestParts::new("POST", "/orders", b"x");
    let variants = [
        base(),
        base().query("dry_run=1"),
        base().query("dry_run=2"),
        RequestParts::new("PATCH", "/orders", b"x"),
        RequestParts::new("POST", "/order", b"sx"),
        RequestParts::new("POST", "/orders", b"y"),
        base().content_type(Some(b"text/plain")),
        base().content_type(Some(b"text/html")),
        base().content_type(Some(b"")),
        base().header("Accept-Version", [&b"1"[..]]),
        base().header("Accept-Version", [&b"2"[..]]),
        base().header("Accept-Version", [&b"1"[..], b"2"]),
        base().header("Accept-Version", [&b"1, 2"[..]]),
        base().header("X-Tenant", [&b"1"[..]]),
        // A field's end is no part of it: these differ in where one stops.
        RequestParts::new("POST", "/orders?dry_run=1", b"x"),
    ];
    for (i, a) in variants.iter().enumerate() {
        for (j, b) in variants.iter().enumerate() {
            assert_eq!(compute(a) == compute(b), i == j, "{a:?} {b:?}");
        }
    }
}

#[test]
fn header_names_have_neither_case_nor_order() {
    let a = RequestParts::new("POST", "/", b"")
        .header("X-A", [&b"1"[..]])
        .header("X-B", [&b"2"[..]])
        .header("X-Absent", []);
    let b = RequestParts::new("POST", "/", b"")
        .header("x-b", [&b"2"[..]])
        .header("x-a", [&b"1"[..]]);
    assert_eq!(compute(&a), compute(&b));
}

#[test]
fn media_types_are_compared_by_essence() {
    // D10
    assert_eq!(of("image/PNG", "x"), of("image/png; q=1", "x"));
    assert_ne!(of("image/png", "x"), of("image/gif", "x"));
    assert_ne!(of("text/plain", "x"), of("text/plain; charset=utf-8", "x"));
    assert_ne!(
        of("text/plain; charset=iso-8859-1", "x"),
        of("text/plain; charset=utf-8", "x")
    );
    assert_eq!(
        of("text/plain; charset=\"UTF-8\"", "x"),
        of("text/plain;charset=utf-8", "x")
    );
    // What is no media type is compared as it is.
    for malformed in [
        "json",
        "a/b; c",
        "a/b; c=d e",
        "a/b; charset=a; charset=b",
        "a b/c",
        "é/x",
    ] {
        assert_eq!(of(malformed, "x"), of(malformed, "x"));
        assert_ne!(
            of(malformed, "x"),
            of(&format!("{malformed} "), "x"),
            "{malformed}"
        );
    }
}

const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn forms_are_compared_by_their_pairs() {
    for (a, b) in [
        ("a=b+c", "a=b%20c"),
        ("a=%41", "a=A"),
        ("a&b=", "a=&b"),
        ("a=1&&b=2&", "a=1&b=2"),
    ] {
        assert_eq!(of(FORM, a), of(FORM, b), "{a} {b}");
    }
    for (a, b) in [
        ("a=1&b=2", "b=2&a=1"),
        ("a=1", "a=2"),
        ("a=1%26b=2", "a=1&b=2"),
        ("a%3D1", "a=1"),
        ("a=%FF", "a=%FE"),
        ("a=%FF", "a=%EF%BF%BD"),
        ("a=100%", "a=100%25"),
        ("a=%zz", "a=%25zz"),
        ("a=b=c", "a=b&c"),
        ("", "="),
        ("a=%2B", "a=+"),
    ] {
        assert_ne!(of(FORM, a), of(FORM, b), "{a} {b}");
    }
    assert_eq!(
        of(&format!("{FORM}; charset=UTF-8"), "a=1"),
        of(FORM, "a=1")
    );
    assert_ne!(
        of(&format!("{FORM}; charset=windows-1252"), "a=1"),
        of(FORM, "a=1")
    );
}

fn multipart(boundary: &str, parts: &[(&str, &str)]) -> Fingerprint {
    let mut body = String::new();
    for (head, content) in parts {
        body.push_str(&format!("--{boundary}\r\n{head}\r\n\r\n{content}\r\n"));
    }
    body.push_str(&format!("--{boundary}--\r\n"));
    of(&format!("multipart/form-data; boundary={boundary}"), body)
}

const NAMED: &str = "Content-Disposition: form-data; name=\"f\"";
const FILE: &str =
    "Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain";

#[test]
fn multipart_is_compared_by_its_parts() {
    // D11
    let reference = multipart("one", &[(NAMED, "value"), (FILE, "file\r\ncontent\r\n")]);
    assert_eq!(
        multipart(
            "another-1",
            &[(NAMED, "value"), (FILE, "file\r\ncontent\r\n")]
        ),
        reference
    );
    let shouted = NAMED.replace("Content-Disposition", "CONTENT-DISPOSITION");
    assert_eq!(
        multipart("one", &[(&shouted, "value"), (FILE, "file\r\ncontent\r\n")]),
        reference
    );
    let (disposition, kind) = FILE.split_once("\r\n").unwrap();
    let swapped = format!("{kind}\r\n{disposition}");
    assert_eq!(
        multipart(
            "one",
            &[(NAMED, "value"), (&swapped, "file\r\ncontent\r\n")]
        ),
        reference
    );
    for parts in [
        &[(NAMED, "valuf"), (FILE, "file\r\ncontent\r\n")][..],
        &[(NAMED, "value"), (FILE, "file\r\ncontent\r\n ")],
        &[(NAMED, "value"), (FILE, "file\ncontent\r\n")],
        &[(FILE, "file\r\ncontent\r\n"), (NAMED, "value")],
        &[(NAMED, "value")],
        &[
            (NAMED, "value"),
            (&FILE.replace("a.txt", "b.txt"), "file\r\ncontent\r\n"),
        ],
        &[
            (NAMED, "value"),
            (&FILE.replace("plain", "html"), "file\r\ncontent\r\n"),
        ],
        &[
            (&NAMED.replace("\"f\"", "\"g\""), "value"),
            (FILE, "file\r\ncontent\r\n"),
        ],
    ] {
        assert_ne!(multipart("one", parts), reference, "{parts:?}");
    }
}

#[test]
fn multipart_parameters_but_the_boundary_count() {
    let body = "--b\r\n\r\nx\r\n--b--";
    let of_type = |kind: &str| of(kind, body);
    assert_ne!(
        of_type("multipart/related; boundary=b; start=\"<a>\""),
        of_type("multipart/related; boundary=b; start=\"<b>\"")
    );
    assert_eq!(
        of_type("multipart/related; boundary=b"),
        of_type("multipart/related; boundary=\"b\"")
    );
    assert_ne!(
        of_type("multipart/related; boundary=b"),
        of_type("multipart/mixed; boundary=b")
    );
}

#[test]
fn what_is_not_strictly_multipart_counts_as_bytes() {
    for template in [
        "--B\r\n\r\nx",
        "--B\r\n\r\nx\r\n--B",
        "--B \r\n\r\nx\r\n--B--",
        "--Bx\r\n\r\nx\r\n--Bx--",
        "--B\n\nx\n--B--",
        "--B\r\nA: b\n\nc\r\n\r\nx\r\n--B--",
        "--B\r\nA: b\nC: d\r\n\r\nx\r\n--B--",
        "--B\r\nA: b\r\n c\r\n\r\nx\r\n--B--",
        "--B\r\nno colon\r\n\r\nx\r\n--B--",
        "--B\r\n\r\nx\r\n--B junk\r\n--B--",
        "x",
        "",
    ] {
        let with = |boundary: &str| {
            of(
                &format!("multipart/form-data; boundary={boundary}"),
                template.replace('B', boundary),
            )
        };
        assert_eq!(with("one"), with("one"));
        assert_ne!(with("one"), with("two"), "{template}");
    }
    // The same bytes mean something else with another boundary.
    assert_ne!(
        of("multipart/form-data; boundary=a", "x"),
        of("multipart/form-data; boundary=b", "x")
    );
    assert_ne!(
        of("multipart/form-data", "--b--"),
        of("multipart/form-data; boundary=b", "--b--")
    );
}

#[test]
fn preamble_and_epilogue_count() {
    let of_body = |body: &str| of("multipart/mixed; boundary=b", body);
    let reference = of_body("--b\r\n\r\nx\r\n--b--");
    assert_ne!(of_body("hidden\r\n--b\r\n\r\nx\r\n--b--"), reference);
    assert_ne!(of_body("--b\r\n\r\nx\r\n--b--\r\nhidden"), reference);
    assert_ne!(of_body("--b--"), reference);
}

fn encoded(coding: &str, body: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" | "x-gzip" => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut out = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 5, 22);
            encoder.write_all(body).unwrap();
            drop(encoder);
            out
        }
        "zstd" => zstd::encode_all(body, 3).unwrap(),
        other => panic!("no such coding: {other}"),
    }
}

const CODINGS: [&str; 5] = ["gzip", "x-gzip", "deflate", "br", "zstd"];

fn coded(body: &[u8], lines: &[&str], max_decoded: usize) -> Result<Fingerprint, FingerprintError> {
    let parts = RequestParts::new("POST", "/orders", body)
        .content_type(Some(b"application/json"))
        .content_encoding(lines.iter().map(|line| line.as_bytes()));
    fingerprint(&parts, &Options::default().max_decoded(max_decoded))
}

#[test]
fn codings_are_undone() {
    let body = br#"{"b":[1,2,3],"a":"text text text text"}"#;
    let plain = of_json(br#"{"a":"text text text text","b":[1,2,3]}"#);
    for coding in CODINGS {
        let bytes = encoded(coding, body);
        assert_eq!(coded(&bytes, &[coding], 1000), Ok(plain), "{coding}");
        assert_eq!(
            coded(&bytes, &[&coding.to_uppercase()], 1000),
            Ok(plain),
            "{coding}"
        );
        assert_eq!(
            coded(&bytes, &["identity", coding], 1000),
            Ok(plain),
            "{coding}"
        );
        // Exactly as much as allowed.
        assert_eq!(coded(&bytes, &[coding], body.len()), Ok(plain), "{coding}");
        for second in CODINGS {
            let twice = encoded(second, &bytes);
            let list = format!("{coding} ,{second}");
            assert_eq!(coded(&twice, &[&list], 1000), Ok(plain), "{list}");
            assert_eq!(coded(&twice, &[coding, second], 1000), Ok(plain), "{list}");
        }
    }
    assert_eq!(coded(body, &["identity"], 0), Ok(plain));
    assert_eq!(coded(body, &[""], 0), Ok(plain));
}

#[test]
fn what_cannot_be_decoded_counts_as_bytes() {
    let body = b"{\"a\": 1}".repeat(20);
    for coding in CODINGS {
        let whole = encoded(coding, &body);
        let mut longer = whole.clone();
        longer.extend_from_slice(b"more");
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x55;
        for bytes in [
            &body,
            &Vec::new(),
            &whole[..whole.len() - 1].to_vec(),
            &longer,
        ] {
            let once = coded(bytes, &[coding], 10_000).unwrap();
            assert_eq!(coded(bytes, &[coding], 10_000), Ok(once));
            assert_ne!(once, of_json(bytes), "{coding}");
            assert_ne!(once, of_json(&body), "{coding}");
            // Neither the bytes nor the coding's name is lost.
            assert_ne!(coded(bytes, &["compress"], 10_000), Ok(once), "{coding}");
        }
        assert_ne!(
            coded(&damaged, &[coding], 10_000),
            Ok(of_json(&body)),
            "{coding}"
        );
    }
    // A chain that nobody sends.
    let chain = ["gzip"; 5];
    let mut bytes = b"{}".to_vec();
    for coding in chain {
        bytes = encoded(coding, &bytes);
    }
    assert_ne!(coded(&bytes, &chain, 10_000), Ok(of_json("{}")));
}

#[test]
fn a_decompression_bomb_is_refused() {
    // P22
    let limit = 1024 * 1024;
    let zeros = vec![b' '; 64 * limit];
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let bomb = encoded(coding, &zeros);
        assert!(bomb.len() < limit, "{coding}");
        let refused = Err(FingerprintError::DecodedTooLarge { limit });
        assert_eq!(coded(&bomb, &[coding], limit), refused, "{coding}");
        assert_eq!(
            coded(&encoded("gzip", &bomb), &[coding, "gzip"], limit),
            refused,
            "{coding}"
        );
        let one_too_many = encoded(coding, &zeros[..=limit]);
        assert_eq!(coded(&one_too_many, &[coding], limit), refused, "{coding}");
    }
}

#[test]
fn raw_mode_compares_bytes() {
    // D1, D11
    let raw =
        |parts: RequestParts<'_>| fingerprint(&parts, &Options::default().mode(Mode::Raw)).unwrap();
    let json = |body: &'static str| {
        RequestParts::new("POST", "/", body.as_bytes()).content_type(Some(b"application/json"))
    };
    assert_eq!(raw(json(r#"{"a":1,"b":2}"#)), raw(json(r#"{"a":1,"b":2}"#)));
    assert_ne!(raw(json(r#"{"a":1,"b":2}"#)), raw(json(r#"{"b":2,"a":1}"#)));
    assert_ne!(raw(json("x").query("a")), raw(json("x").query("b")));
    assert_ne!(
        raw(json("x").content_encoding([&b"br"[..]])),
        raw(json("x"))
    );
    // Nothing is decoded, so that no limit applies.
    let bomb = encoded("gzip", &[0; 100_000]);
    let parts = RequestParts::new("POST", "/", &bomb).content_encoding([&b"gzip"[..]]);
    assert!(fingerprint(&parts, &Options::default().mode(Mode::Raw).max_decoded(1)).is_ok());
}

#[test]
fn a_function_can_decide() {
    fn first_byte(parts: &RequestParts<'_>) -> Vec<u8> {
        parts.body.first().copied().into_iter().collect()
    }
    let custom = |parts: RequestParts<'_>| {
        fingerprint(&parts, &Options::default().mode(Mode::Custom(first_byte))).unwrap()
    };
    let reference = custom(RequestParts::new("POST", "/", b"ab"));
    assert_eq!(
        custom(
            RequestParts::new("POST", "/", b"ac")
                .query("q")
                .content_type(Some(b"a/b"))
        ),
        reference
    );
    assert_ne!(custom(RequestParts::new("POST", "/", b"bb")), reference);
    assert_ne!(custom(RequestParts::new("PUT", "/", b"ab")), reference);
    assert_ne!(custom(RequestParts::new("POST", "/x", b"ab")), reference);
    assert_ne!(
        custom(RequestParts::new("POST", "/", b"ab").header("x", [&b"1"[..]])),
        reference
    );
}

#[test]
fn a_keyed_fingerprint_needs_its_key() {
    let parts =
        RequestParts::new("POST", "/", br#"{"b":1,"a":2}"#).content_type(Some(b"application/json"));
    let respelled =
        RequestParts::new("POST", "/", br#"{"a":2,"b":1}"#).content_type(Some(b"application/json"));
    let (old, new) = (HmacKey::new(b"old"), HmacKey::new(b"new"));
    let with = |parts: &RequestParts<'_>, key: Option<&HmacKey>| {
        fingerprint(parts, &Options::default().hmac_key(key)).unwrap()
    };
    assert_eq!(with(&parts, Some(&old)), with(&respelled, Some(&old)));
    assert_ne!(with(&parts, Some(&old)), with(&parts, Some(&new)));
    assert_ne!(with(&parts, Some(&old)), with(&parts, None));
    assert!(!format!("{old:?}").contains("old"));
}

#[test]
fn the_stored_form_is_64_lower_case_digits() {
    let fingerprint = of_json("{}");
    let hex = fingerprint.to_hex();
    assert_eq!(hex.len(), 64);
    assert!(
        hex.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    );
    assert_eq!(Fingerprint::from_hex(&hex), Some(fingerprint));
    assert_eq!(
        fingerprint.as_bytes()[0],
        u8::from_str_radix(&hex[..2], 16).unwrap()
    );
    for other in [
        "",
        &hex[1..],
        &hex.to_uppercase(),
        &hex.replace(&hex[..1], "g"),
        &format!("{hex}0"),
    ] {
        assert_eq!(Fingerprint::from_hex(other), None, "{other}");
    }
    assert!(format!("{fingerprint:?}").len() < 40);
}
