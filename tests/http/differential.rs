//! A handler with the attribute and the same without, compared byte by byte on the socket: the
//! first answer is the bare handler's, and the replay is the first answer. Only the date, the
//! marker and the fields of the one exchange may differ.

use actix_web::{
    App, Either, Error, HttpResponse, Responder, ResponseError,
    body::{self, BoxBody, SizedStream},
    error::{ErrorConflict, ErrorInternalServerError},
    http::{StatusCode, header::HeaderValue},
    web::{self, Bytes, BytesMut, Json},
};
use futures_util::{
    FutureExt, StreamExt, future,
    stream::{self, Stream},
};
use idem_runtime::idempotent;
use idem_tests::{
    harness::{InProcess, PATIENCE, each},
    services::selected,
};
use std::{borrow::Cow, fmt, net::SocketAddr, panic::AssertUnwindSafe, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

/// What a retry is answered with.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Retry {
    /// The first answer, byte for byte.
    Same,
    /// The first answer, whose length is known by now.
    KnownLength,
    /// The first answer under the reason phrase that belongs to its status: a text without any
    /// meaning (RFC 9112, section 4) is not kept.
    UsualReason,
    /// The first answer with its field names in lower case, which mean the same (RFC 9110, 5.1).
    LowerCase,
    /// 409 `response-not-retained`.
    NotRetained,
    /// Another run: the key was freed.
    AnotherRun,
}
use Retry::{AnotherRun, KnownLength, LowerCase, NotRetained, Same, UsualReason};

/// Each kind of answer as a pair of handlers.
macro_rules! kinds {
    ($($name:ident, $retry:ident: $output:ty = $value:expr;)+) => {
        $(
            mod $name {
                use super::*;

                #[idempotent(scope = "user", ttl = "24h", max_response = "64KiB")]
                pub(super) async fn annotated() -> $output {
                    $value
                }

                pub(super) async fn bare() -> $output {
                    $value
                }
            }
        )+

        fn pairs(config: &mut web::ServiceConfig) {
            $(
                config
                    .route(concat!("/annotated/", stringify!($name)), web::post().to($name::annotated))
                    .route(concat!("/bare/", stringify!($name)), web::post().to($name::bare));
            )+
        }

        const KINDS: &[(&str, Retry)] = &[$((stringify!($name), $retry)),+];
    };
}

kinds! {
    // What may stand for a response
    response, Same: HttpResponse = HttpResponse::Accepted().insert_header(("x-a", "b")).body("text");
    json, Same: Json<Vec<u32>> = Json(vec![1, 2]);
    json_null, Same: HttpResponse = HttpResponse::Ok().json(());
    string, Same: String = "text \u{e9}\u{1f600}".to_owned();
    text, Same: &'static str = "text";
    cow, Same: Cow<'static, str> = Cow::Borrowed("text");
    slice, Same: &'static [u8] = b"\0\xff";
    vector, Same: Vec<u8> = (0..=255).collect();
    bytes, Same: Bytes = Bytes::from_static(b"\0\xff");
    bytes_mut, Same: BytesMut = BytesMut::from(&b"\r\n\r\n"[..]);
    tuple, Same: (Json<u32>, StatusCode) = (Json(1), StatusCode::ACCEPTED);
    success, Same: Result<String, Error> = Ok("text".to_owned());
    failure, Same: Result<String, Error> = Err(ErrorConflict("conflict"));
    own_failure, Same: Result<String, Declined> = Err(Declined);
    left, Same: Either<String, Json<u32>> = Either::Left("text".to_owned());
    right, Same: Either<String, Json<u32>> = Either::Right(Json(1));
    some, Same: Option<String> = Some("text".to_owned());
    none, Same: Option<String> = None;
    customized, Same: impl Responder = Json(1).customize().with_status(StatusCode::IM_A_TEAPOT)
        .append_header(("x-a", "1")).append_header(("x-a", "2"));
    redirect, Same: web::Redirect = web::Redirect::to("/elsewhere").see_other();
    lasting_redirect, Same: web::Redirect = web::Redirect::to("/elsewhere").permanent();
    built_in_pieces, Same: HttpResponse<body::EitherBody<String>> =
        HttpResponse::Ok().body("text".to_owned()).map_body(|_, body| body::EitherBody::right(BoxBody::new(body)));

    // Bodies that are none, empty, or of a length that is said otherwise
    empty, Same: HttpResponse = HttpResponse::Ok().finish();
    no_body, Same: HttpResponse = HttpResponse::Ok().body(body::None::new());
    no_content, Same: HttpResponse = HttpResponse::NoContent().finish();
    no_content_with_type, Same: HttpResponse = HttpResponse::NoContent().content_type("text/plain").body("none");
    reset_content, Same: HttpResponse = HttpResponse::ResetContent().finish();
    not_modified, Same: HttpResponse = HttpResponse::NotModified().insert_header(("etag", "\"1\"")).finish();
    not_modified_of_a_length, Same: HttpResponse =
        HttpResponse::NotModified().insert_header(("content-length", "1234")).finish();
    length_of_its_own, Same: HttpResponse = HttpResponse::Ok().insert_header(("content-length", "9999")).body("text");
    coding_of_its_own, Same: HttpResponse = HttpResponse::Ok().insert_header(("transfer-encoding", "gzip")).body("text");
    trailer, Same: HttpResponse = HttpResponse::Ok().insert_header(("trailer", "x-sum")).body("text");
    of_one_byte, Same: Bytes = Bytes::from_static(b"x");
    at_the_limit, Same: Bytes = Bytes::from(vec![b'x'; 65_536]);
    over_the_limit, NotRetained: Bytes = Bytes::from(vec![b'x'; 65_537]);

    // Streams
    file, Same: HttpResponse = HttpResponse::Ok()
        .content_type("application/pdf")
        .insert_header(("content-disposition", "attachment; filename=\"a, b.pdf\""))
        .insert_header(("last-modified", "Mon, 30 Nov 2026 14:40:34 GMT"))
        .insert_header(("accept-ranges", "bytes"))
        .insert_header(("etag", "\"64:1\""))
        .body(SizedStream::new(9, chunks(["one", "two", "end"])));
    part_of_a_file, Same: HttpResponse = HttpResponse::PartialContent()
        .insert_header(("content-range", "bytes 0-2/9"))
        .body(SizedStream::new(3, chunks(["one"])));
    file_over_the_limit, NotRetained: HttpResponse =
        HttpResponse::Ok().body(SizedStream::new(70_000, chunks([&*LONG, &*LONG])));
    streamed, KnownLength: HttpResponse = HttpResponse::Ok().streaming(chunks(["one", "two", "end"]));
    streamed_of_known_length, Same: HttpResponse =
        HttpResponse::Ok().no_chunking(9).streaming(chunks(["one", "two", "end"]));
    streamed_nothing, KnownLength: HttpResponse = HttpResponse::Ok().streaming(chunks([]));
    streamed_at_the_limit, KnownLength: HttpResponse =
        HttpResponse::Ok().streaming(chunks([&LONG[..32_768], &LONG[..32_768]]));
    streamed_over_the_limit, NotRetained: HttpResponse = HttpResponse::Ok().streaming(chunks([&*LONG, &*LONG]));
    streamed_without_content, Same: HttpResponse = HttpResponse::NoContent().streaming(chunks(["none"]));
    events, NotRetained: HttpResponse =
        HttpResponse::Ok().content_type("text/event-stream").streaming(chunks(["data: 1\n\n", "data: 2\n\n"]));
    broken_stream, NotRetained: HttpResponse = HttpResponse::Ok().streaming(broken());
    panicking_stream, NotRetained: HttpResponse = HttpResponse::Ok().streaming(panicking_part());
    panicking_file, NotRetained: HttpResponse = HttpResponse::Ok().body(SizedStream::new(9, panicking_part()));
    panicking_file_over_the_limit, NotRetained: HttpResponse =
        HttpResponse::Ok().body(SizedStream::new(70_000, panicking_part()));
    panicking_events, NotRetained: HttpResponse =
        HttpResponse::Ok().content_type("text/event-stream").streaming(panicking_part());
    broken_file, NotRetained: HttpResponse = HttpResponse::Ok().body(SizedStream::new(9, broken()));
    short_file, NotRetained: HttpResponse = HttpResponse::Ok().body(SizedStream::new(9, chunks(["one"]).chain(pause())));
    long_file, Same: HttpResponse = HttpResponse::Ok().body(SizedStream::new(5, chunks(["one", "two", "end"])));

    // Fields
    created, Same: HttpResponse = HttpResponse::Created()
        .insert_header(("location", "/orders/7")).insert_header(("etag", "W/\"1\"")).json(7);
    repeated_fields, Same: HttpResponse = HttpResponse::Ok()
        .append_header(("link", "<a>; rel=next")).append_header(("x-own", "first"))
        .append_header(("link", "<b>; rel=last")).append_header(("x-own", "second"))
        .append_header(("link", "<a>; rel=next")).body("text");
    odd_values, Same: HttpResponse = HttpResponse::Ok()
        .append_header(("x-bytes", HeaderValue::from_bytes(b"\x80\xe9 \t \xff").unwrap()))
        .append_header(("x-empty", "")).append_header(("x-long", "v".repeat(5000))).body("text");
    many_fields, Same: HttpResponse = many_fields_response();
    compressed_already, Same: HttpResponse = HttpResponse::Ok()
        .insert_header(("content-encoding", "gzip")).insert_header(("vary", "accept-encoding"))
        .body(&b"\x1f\x8b\x08\0\0\0\0\0\0\0"[..]);
    varied, Same: HttpResponse = HttpResponse::Ok()
        .append_header(("vary", "accept, origin")).append_header(("vary", "accept-language"))
        .append_header(("content-language", "de, en")).body("text");
    cached, Same: HttpResponse = HttpResponse::Ok().insert_header(("cache-control", "private, max-age=60"))
        .insert_header(("expires", "Tue, 01 Dec 2026 00:00:00 GMT")).insert_header(("age", "5")).body("text");
    named_by_connection, Same: HttpResponse = HttpResponse::Ok().append_header(("connection", "X-Hop, x-Other"))
        .append_header(("x-hop", "1")).append_header(("x-other", "1")).append_header(("x-own", "1")).body("text");
    cookies, Same: HttpResponse = HttpResponse::Ok()
        .append_header(("set-cookie", "a=1")).append_header(("set-cookie", "b=2")).body("text");
    cross_origin, Same: HttpResponse = HttpResponse::Ok()
        .insert_header(("access-control-allow-origin", "https://first.example"))
        .insert_header(("access-control-expose-headers", "x-own")).body("text");
    counted, Same: HttpResponse = HttpResponse::Ok().insert_header(("x-ratelimit-remaining", "1"))
        .insert_header(("ratelimit", "\"a\";r=1")).insert_header(("retry-after", "3")).body("text");
    dated, Same: HttpResponse = HttpResponse::Ok().insert_header(("date", "Thu, 01 Jan 1970 00:00:00 GMT")).body("text");
    closing, Same: HttpResponse = HttpResponse::Ok().force_close().body("text");
    own_reason, UsualReason: HttpResponse = HttpResponse::Ok().reason("Very Well").body("text");
    camel_case, LowerCase: HttpResponse = camel_case_response();

    // Statuses
    multi_status, Same: HttpResponse = HttpResponse::MultiStatus().body("text");
    unheard_of, Same: HttpResponse = HttpResponse::build(StatusCode::from_u16(299).unwrap()).body("text");
    bad_request, Same: HttpResponse = HttpResponse::BadRequest().body("text");
    unauthorized, Same: HttpResponse = HttpResponse::Unauthorized().insert_header(("www-authenticate", "Bearer")).body("text");
    upgrade_required, Same: HttpResponse = HttpResponse::UpgradeRequired().insert_header(("upgrade", "h2c")).body("text");
    unprocessable, Same: HttpResponse = HttpResponse::UnprocessableEntity().json("own");
    too_early, AnotherRun: HttpResponse = HttpResponse::build(StatusCode::from_u16(425).unwrap()).body("text");
    too_many, AnotherRun: HttpResponse = HttpResponse::TooManyRequests().insert_header(("retry-after", "1")).body("text");
    server_error, Same: Result<String, Error> = Err(ErrorInternalServerError("out of order"));
    unavailable, Same: HttpResponse = HttpResponse::ServiceUnavailable().insert_header(("retry-after", "9")).finish();
    last_of_all, Same: HttpResponse = HttpResponse::build(StatusCode::from_u16(999).unwrap()).body("text");
}

static LONG: std::sync::LazyLock<Box<str>> = std::sync::LazyLock::new(|| "x".repeat(35_000).into());

fn chunks<const N: usize>(
    parts: [&'static str; N],
) -> impl Stream<Item = Result<Bytes, Error>> + use<N> {
    stream::iter(parts.map(|part| Ok(Bytes::from_static(part.as_bytes()))))
}

fn broken() -> impl Stream<Item = Result<Bytes, Error>> {
    chunks(["one"])
        .chain(pause())
        .chain(stream::iter([Err(ErrorInternalServerError("broken off"))]))
}

fn panicking_part() -> impl Stream<Item = Result<Bytes, Error>> {
    chunks(["one"]).chain(pause()).chain(stream::once(async {
        panic!("a row that cannot be encoded")
    }))
}

/// What came before is sent meanwhile: actix throws it away where the end follows at once.
fn pause() -> impl Stream<Item = Result<Bytes, Error>> {
    stream::once(sleep(Duration::from_millis(100))).filter_map(async |()| None)
}

fn many_fields_response() -> HttpResponse {
    let mut response = HttpResponse::Ok();
    for number in 0..90 {
        response.append_header((format!("x-field-{number}"), number.to_string()));
    }
    response.body("text")
}

fn camel_case_response() -> HttpResponse {
    let mut response = HttpResponse::Ok()
        .insert_header(("x-own-field", "1"))
        .body("text");
    response.head_mut().set_camel_case_headers(true);
    response
}

/// An application's own kind of error.
#[derive(Debug)]
struct Declined;

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("declined")
    }
}

impl ResponseError for Declined {
    fn error_response(&self) -> HttpResponse {
        HttpResponse::PaymentRequired()
            .content_type("application/problem+json")
            .body(r#"{"type":"urn:shop:declined","status":402}"#)
    }
}

/// What came over a connection: one answer and what followed it.
#[derive(PartialEq, Clone)]
struct Answer {
    status_line: String,
    /// The field lines as they were sent, sorted: actix has no order of fields of different names.
    fields: Vec<Vec<u8>>,
    /// Everything after the head as it was sent.
    rest: Vec<u8>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status_line)?;
        for line in &self.fields {
            writeln!(f, "{}", line.escape_ascii())?;
        }
        let shown = self.rest.get(..2000).unwrap_or(&self.rest);
        writeln!(f, "\n{}", shown.escape_ascii())
    }
}

/// Fields of the one exchange, which a replay does not have.
const OF_THE_EXCHANGE: &[&str] = &[
    "access-control-allow-origin",
    "access-control-expose-headers",
    "connection",
    "content-length",
    "date",
    "ratelimit",
    "set-cookie",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
    "x-hop",
    "x-other",
    "x-ratelimit-remaining",
];

impl Answer {
    fn of(mut raw: &[u8]) -> Answer {
        while let Some(rest) = raw.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n") {
            raw = rest;
        }
        let end = position(raw, b"\r\n\r\n").unwrap_or_else(|| {
            panic!("no whole head: {}", raw.escape_ascii());
        });
        let mut lines = raw[..end]
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec());
        let status_line = String::from_utf8(lines.next().unwrap()).unwrap();
        let mut fields: Vec<_> = lines.collect();
        // Stable, so that values under one name keep their order.
        fields.sort_by_key(|line| name(line));
        Answer {
            status_line,
            fields,
            rest: raw[end + 4..].to_vec(),
        }
    }

    fn values(&self, wanted: &str) -> Vec<&[u8]> {
        let fields = self.fields.iter().filter(|line| name(line) == wanted);
        fields.map(|line| &line[wanted.len() + 2..]).collect()
    }

    fn is_replay(&self) -> bool {
        self.values("idempotent-replayed") == [b"true"]
    }

    /// All but what differs from moment to moment.
    fn without_date(mut self) -> Answer {
        self.fields.retain(|line| name(line) != "date");
        // That of the answer that follows.
        while let Some(at) = position(&self.rest, b"\r\ndate: ") {
            let end = at + 2 + position(&self.rest[at + 2..], b"\r\n").unwrap();
            self.rest.drain(at..end);
        }
        self
    }

    /// What a replay has in common with the first answer; the body freed from its framing.
    fn lasting(self) -> Answer {
        let mut answer = self.without_date();
        let (body, after) = answer.body_and_after();
        answer.fields.retain(|line| {
            let name = name(line);
            name != "idempotent-replayed" && !OF_THE_EXCHANGE.contains(&&*name)
        });
        answer.rest = [body.as_slice(), b" | ", &after].concat();
        answer
    }

    fn body_and_after(&self) -> (Vec<u8>, Vec<u8>) {
        let code = self.status_line.split(' ').nth(1).unwrap();
        if matches!(code, "204" | "304") {
            return (Vec::new(), self.rest.clone());
        }
        if self.values("transfer-encoding") == [b"chunked"] {
            let (mut body, mut rest) = (Vec::new(), self.rest.as_slice());
            while let httparse::Status::Complete((start, length)) =
                httparse::parse_chunk_size(rest).unwrap()
            {
                let end = start + usize::try_from(length).unwrap();
                body.extend_from_slice(&rest[start..end]);
                rest = rest[end..].strip_prefix(b"\r\n").unwrap();
                if length == 0 {
                    break;
                }
            }
            return (body, rest.to_vec());
        }
        match self.values("content-length")[..] {
            [length] => {
                let length: usize = std::str::from_utf8(length).unwrap().parse().unwrap();
                let (body, after) = self.rest.split_at(length);
                (body.to_vec(), after.to_vec())
            }
            [] => (self.rest.clone(), Vec::new()),
            _ => panic!("several lengths: {self:?}"),
        }
    }
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn name(line: &[u8]) -> String {
    let end = position(line, b":").unwrap_or(line.len());
    String::from_utf8_lossy(&line[..end]).to_ascii_lowercase()
}

/// Sends a request and, on the same connection, one for its end; everything that comes back.
/// Whether the second is answered shows whether the connection outlived the first.
async fn exchange(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let has = |text: &[u8]| position(request, text).is_some();
    let last: &[u8] = if !has(b" HTTP/1.0\r\n") {
        b"GET /last HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
    } else if has(b"keep-alive") {
        b"GET /last HTTP/1.0\r\n\r\n"
    } else {
        b""
    };
    let mut received = Vec::new();
    let talk = async {
        stream.write_all(&[request, last].concat()).await.unwrap();
        // A connection that ends with a reset has ended all the same.
        while let Ok(1..) = stream.read_buf(&mut received).await {}
    };
    timeout(PATIENCE, talk).await.expect("an end in time");
    received
}

fn post(path: &str, key: Option<&str>, version: &str, more: &str) -> Vec<u8> {
    let key = key.map_or(String::new(), |key| format!("Idempotency-Key: {key}\r\n"));
    format!(
        "POST {path} {version}\r\nHost: lab\r\nAuthorization: alice\r\n{key}{more}\
         Content-Type: text/plain\r\nContent-Length: 4\r\n\r\nbody"
    )
    .into_bytes()
}

async fn application(store: idem_tests::services::Store) -> InProcess {
    let (builder, place) = InProcess::configuration(store).await;
    let idempotency = builder.build().unwrap();
    InProcess::serve(place, move || {
        App::new()
            .app_data(idempotency.clone())
            .configure(pairs)
            .route("/annotated/panicking", web::post().to(panicking))
            .route("/last", web::get().to(async || "last"))
    })
}

#[tokio::test]
async fn the_attribute_changes_nothing_of_the_first_answer_and_a_replay_repeats_it() {
    // E1, E2, E5, E6, E7, E10, C9, P16
    assert!(KINDS.len() >= 40);
    each(selected(), async |store| {
        let app = application(store).await;
        // Many at a time: after an empty answer actix is in no hurry to read what was pipelined.
        let compared = stream::iter(KINDS).map(|(kind, retry)| {
            let compared = AssertUnwindSafe(compare(app.address, kind, *retry)).catch_unwind();
            async move { compared.await.is_err().then_some(*kind) }
        });
        let compared = compared.buffered(16);
        let different: Vec<_> = compared.filter_map(future::ready).collect().await;
        assert!(different.is_empty(), "different: {different:?}");
    })
    .await;
}

async fn compare(address: SocketAddr, kind: &str, retry: Retry) {
    let path = format!("/annotated/{kind}");
    let ask = async |path: &str, key: Option<&str>| {
        Answer::of(&exchange(address, &post(path, key, "HTTP/1.1", "")).await)
    };
    let bare = ask(&format!("/bare/{kind}"), None).await.without_date();
    let without_key = ask(&path, None).await.without_date();
    assert_eq!(without_key, bare, "{kind}: without a key");
    let first = ask(&path, Some("k")).await;
    assert_eq!(first.clone().without_date(), bare, "{kind}: the first");
    let again = ask(&path, Some("k")).await;
    assert_retry(kind, retry, &first, &again);
    // A replay is made of the record, not of what is left of the first answer.
    let once_more = ask(&path, Some("k")).await;
    assert_eq!(once_more.without_date(), again.without_date(), "{kind}");
}

fn assert_retry(kind: &str, retry: Retry, first: &Answer, again: &Answer) {
    match retry {
        NotRetained => {
            let (body, _) = again.body_and_after();
            let body = String::from_utf8(body).unwrap();
            assert!(body.contains("response-not-retained"), "{kind}: {again:?}");
            return assert!(!again.is_replay(), "{kind}");
        }
        AnotherRun => {
            let (first, again) = (first.clone().without_date(), again.clone().without_date());
            return assert_eq!(again, first, "{kind}");
        }
        Same | KnownLength | UsualReason | LowerCase => {}
    }
    assert!(again.is_replay() && !first.is_replay(), "{kind}: {again:?}");
    assert_eq!(again.values("date").len(), 1, "{kind}: {again:?}");
    let (mut one, two) = (first.clone().lasting(), again.clone().lasting());
    match retry {
        UsualReason => one.status_line = "HTTP/1.1 200 OK".to_owned(),
        LowerCase => {
            for line in &mut one.fields {
                let end = position(line, b":").unwrap();
                line[..end].make_ascii_lowercase();
            }
        }
        _ => {}
    }
    if closes(first) {
        // `Connection` speaks of the first connection alone.
        one.rest.extend_from_slice(b"LAST");
        let end = position(&two.rest, b" | ").unwrap();
        assert_eq!(two.rest[..end], one.rest[..end], "{kind}");
        one.rest = two.rest.clone();
    }
    assert_eq!(two, one, "{kind}: the replay");
    if retry != KnownLength {
        let length = first.values("content-length");
        assert_eq!(again.values("content-length"), length, "{kind}");
        assert_eq!(again.values("transfer-encoding").len(), 0, "{kind}");
    }
}

fn closes(answer: &Answer) -> bool {
    answer.values("connection").contains(&&b"close"[..])
}

#[idempotent(scope = "user", ttl = "24h")]
async fn panicking() -> HttpResponse {
    panic!("as a test")
}

#[tokio::test]
async fn a_panic_is_answered_and_its_answer_replayed() {
    // C10. The bare handler has no answer to compare with: its connection ends.
    each(selected(), async |store| {
        let app = application(store).await;
        let ask = async || {
            let request = post("/annotated/panicking", Some("k"), "HTTP/1.1", "");
            Answer::of(&exchange(app.address, &request).await)
        };
        let (first, again) = (ask().await, ask().await);
        assert!(first.status_line.starts_with("HTTP/1.1 500 "), "{first:?}");
        assert_retry("panic", Same, &first, &again);
    })
    .await;
}

#[tokio::test]
async fn versions_and_connections_make_no_difference() {
    // P18
    const KINDS_HERE: &[&str] = &[
        "json",
        "empty",
        "no_content",
        "not_modified",
        "failure",
        "file",
        "streamed",
    ];
    const WAYS: &[(&str, &str)] = &[
        ("HTTP/1.1", "Connection: close\r\n"),
        ("HTTP/1.1", "Expect: 100-continue\r\n"),
        ("HTTP/1.0", ""),
        ("HTTP/1.0", "Connection: keep-alive\r\n"),
    ];
    each(selected(), async |store| {
        let app = application(store).await;
        let all = KINDS_HERE.iter().map(async |kind| {
            for way in WAYS {
                compare_on(app.address, kind, *way).await;
            }
        });
        future::join_all(all).await;
    })
    .await;
}

async fn compare_on(address: SocketAddr, kind: &str, (version, more): (&str, &str)) {
    let what = format!("{kind}, {version} {more}");
    let retry = KINDS.iter().find(|(name, _)| *name == kind).unwrap().1;
    let path = format!("/annotated/{kind}");
    let key = format!("{version}{}", more.trim()).replace([' ', ':'], "");
    let ask = async |path: &str, key: Option<&str>| {
        Answer::of(&exchange(address, &post(path, key, version, more)).await)
    };
    let bare = ask(&format!("/bare/{kind}"), None).await.without_date();
    let first = ask(&path, Some(&key)).await;
    let again = ask(&path, Some(&key)).await;
    if version == "HTTP/1.0" && kind == "streamed" {
        // actix sends chunks to a client that knows none; here the end of the connection is the
        // end of the body.
        assert_eq!(first.values("transfer-encoding").len(), 0, "{what}");
        assert!(
            !first.values("connection").contains(&&b"keep-alive"[..]),
            "{what}"
        );
        assert!(first.rest.starts_with(b"onetwoend"), "{what}");
        assert_eq!(again.values("content-length"), [b"9"], "{what}");
        assert!(again.rest.starts_with(b"onetwoend"), "{what}");
        assert!(again.is_replay(), "{what}");
        return;
    }
    assert_eq!(first.clone().without_date(), bare, "{what}");
    assert_retry(&what, retry, &first, &again);
}
