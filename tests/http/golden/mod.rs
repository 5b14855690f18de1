//! Records that a release has written are read by every later one, or refused by name.
//!
//! `1/` holds records as each store keeps them, of every kind of answer, in format 1; they are
//! brought into a clean store as they stand, and asked for over HTTP. A change of the identity, the
//! scope, the fingerprint or the encoding of an answer shows up here: such a change needs a new
//! format, with a folder of its own beside this one, and nothing in this one may ever change. A file
//! that is missing is written by a run with `IDEM_BLESS=1`.

mod raw;

use crate::golden::raw::Raw;
use actix_web::{App, HttpResponse, web};
use bytes::Bytes;
use idem_runtime::{
    Idempotency,
    fingerprint::{Options, RequestParts, fingerprint},
    idempotent,
    record::{Answer, FORMAT, RecordId, StoredResponse},
    store::{Claim, Claimed, Takeover},
};
use idem_tests::{
    harness::{Connection, InProcess, RawReply, durable, each, request},
    services::{self, Store},
};
use std::{fs, path::PathBuf, time::Duration};
use uuid::Uuid;

/// Whose records these are, and how the scope column has it: no part can be taken for a separator.
const USER: &str = "tenant:a b%";
const SCOPE: &str = "tenant%3Aa b%25";
const PATH: &str = "/golden/orders";
const BODY: &str = r#"{"amount":1.50,"note":"é\n"}"#;
/// Longer than any release will be in use.
const LIFE: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 70);

/// Never reached where there is a record: no golden answer is a teapot's.
#[idempotent(scope = "user", ttl = "24h")]
async fn orders() -> HttpResponse {
    HttpResponse::ImATeapot().finish()
}

/// What stands under one key.
struct Golden {
    key: &'static str,
    stands: Stands,
}

enum Stands {
    Kept(StoredResponse),
    NotRetained,
    /// Claimed twice, with the result of a step, and left.
    Abandoned,
}

fn goldens() -> Vec<Golden> {
    let kept = |key, response| Golden {
        key,
        stands: Stands::Kept(response),
    };
    let json = |code| StoredResponse::new(code).header("content-type", "application/json");
    let every_byte: Vec<u8> = (0..=255).collect();
    vec![
        kept(
            "created",
            json(201)
                .header("location", "/orders/7")
                .header("link", "<a>; rel=next")
                .header("x-bytes", (0x80..=0xff).collect::<Vec<u8>>())
                .header("link", "<b>; rel=last")
                .header("x-empty", "")
                .body(r#"{"id":7}"#),
        ),
        kept("no content", StoredResponse::new(204)),
        kept("empty", json(200).body("")),
        kept("no fields", StoredResponse::new(200).body("text")),
        kept(
            "bytes",
            StoredResponse::new(200)
                .header("content-type", "image/png")
                .body(every_byte),
        ),
        kept(
            "text",
            StoredResponse::new(200)
                .header("content-type", "text/plain; charset=utf-8")
                .body("\u{e9}\u{20ac}\u{1f600}'\\\"\r\n\0"),
        ),
        kept(
            "redirected",
            StoredResponse::new(303)
                .header("location", "/orders/7")
                .body(""),
        ),
        kept(
            "declined",
            StoredResponse::new(402)
                .header("content-type", "application/problem+json")
                .body(r#"{"type":"urn:shop:declined","status":402}"#),
        ),
        kept("failed", json(500).body("null")),
        kept("last", StoredResponse::new(999).body("text")),
        Golden {
            key: "not retained",
            stands: Stands::NotRetained,
        },
        Golden {
            key: "abandoned",
            stands: Stands::Abandoned,
        },
    ]
}

fn id(key: &str) -> RecordId {
    RecordId::new(SCOPE, key, format!("POST {PATH}"))
}

/// Writes every record as this release does; owners are the same in every run.
async fn write(store: &dyn idem_runtime::store::Store) {
    let parts =
        RequestParts::new("POST", PATH, BODY.as_bytes()).content_type(Some(b"application/json"));
    let fingerprint = fingerprint(&parts, &Options::default()).unwrap().to_hex();
    for (number, golden) in goldens().into_iter().enumerate() {
        let mut claim = Claim {
            id: id(golden.key),
            fingerprint: fingerprint.clone(),
            also_accepted: None,
            route: format!("POST {PATH} http::golden::orders"),
            owner: Uuid::from_u128(0x0123_4567_89ab_cdef << 64 | number as u128),
            ttl: LIFE,
            lease: Duration::from_millis(1),
            takeover: Takeover::Abandoned,
        };
        let won = store.claim(&claim).await.unwrap();
        assert!(matches!(won, Claimed::Won { attempt: 1, .. }), "{won:?}");
        let answer = match golden.stands {
            Stands::Kept(response) => Answer::Kept(response),
            Stands::NotRetained => Answer::Tombstone { code: 200 },
            Stands::Abandoned => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                claim.owner = Uuid::from_u128(0xfedc_ba98);
                let won = store.claim(&claim).await.unwrap();
                assert!(matches!(won, Claimed::Won { attempt: 2, .. }), "{won:?}");
                let steps = Bytes::from_static(br#"{"reserve":"\"r-1\""}"#);
                let saved = store.save_steps(&claim.id, claim.owner, &steps).await;
                saved.unwrap();
                continue;
            }
        };
        store
            .complete(&claim.id, claim.owner, &answer)
            .await
            .unwrap();
    }
}

fn file(store: Store) -> PathBuf {
    let name = match store {
        Store::Sqlite => "sqlite.sql",
        Store::Postgres => "postgres.sql",
        Store::MySql => "mysql.sql",
        // A cluster keeps the same values under the same keys.
        Store::Redis | Store::RedisCluster => "redis.txt",
        other => panic!("{other} keeps nothing"),
    };
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("http/golden/1");
    folder.join(name)
}

/// A clean place, what is in it, and an application on it.
struct Place {
    raw: Raw,
    idempotency: Idempotency,
    app: InProcess,
}

impl Place {
    async fn new(store: Store) -> Place {
        let place = services::fresh(store).await;
        let raw = Raw::open(&place).await;
        let (builder, place) = InProcess::configuration_in(place).await;
        let idempotency = builder.build().unwrap();
        let app = InProcess::serve(place, {
            let idempotency = idempotency.clone();
            move || {
                App::new()
                    .app_data(idempotency.clone())
                    .route(PATH, web::post().to(orders))
            }
        });
        Place {
            raw,
            idempotency,
            app,
        }
    }

    /// With the records of the file.
    async fn filled(store: Store) -> Place {
        let file = file(store);
        let text = fs::read_to_string(&file).unwrap_or_else(|error| {
            panic!("{}: {error}; IDEM_BLESS=1 writes it", file.display());
        });
        let place = Place::new(store).await;
        place.raw.load(text.lines()).await;
        place
    }

    async fn ask(&self, key: &str) -> RawReply {
        let key = format!("\"{key}\"");
        let headers: [(&str, &[u8]); 3] = [
            ("Authorization", USER.as_bytes()),
            ("Idempotency-Key", key.as_bytes()),
            ("Content-Type", b"application/json"),
        ];
        let mut connection = Connection::open(self.app.address).await;
        let request = request("POST", PATH, &headers, BODY.as_bytes());
        connection.send(&request).await.unwrap();
        connection.reply().await
    }
}

/// The fields of a reply but for those that its transport adds, sorted by name.
fn fields(reply: &RawReply) -> Vec<(String, Vec<u8>)> {
    let mut fields = reply.headers.clone();
    fields.retain(|(name, _)| {
        !matches!(
            name.as_str(),
            "date" | "content-length" | "idempotent-replayed"
        )
    });
    fields.sort_by(|one, two| one.0.cmp(&two.0));
    fields
}

#[tokio::test]
async fn records_of_every_format_so_far_are_replayed() {
    // F10, I12
    assert_eq!(
        FORMAT, 1,
        "a new format needs a folder of its own beside `1`"
    );
    each(durable(), async |store| {
        if std::env::var_os("IDEM_BLESS").is_some() && !file(store).exists() {
            let place = Place::new(store).await;
            write(&**place.idempotency.store()).await;
            fs::write(file(store), place.raw.dump().await.join("\n") + "\n").unwrap();
        }
        let place = Place::filled(store).await;
        for golden in goldens() {
            let reply = place.ask(golden.key).await;
            let what = format!("{}: {reply:?}", golden.key);
            match golden.stands {
                Stands::Kept(mut response) => {
                    assert!(reply.is_replay(), "{what}");
                    assert_eq!(reply.status, response.code, "{what}");
                    response.headers.sort_by(|one, two| one.0.cmp(&two.0));
                    assert_eq!(fields(&reply), response.headers, "{what}");
                    assert_eq!(reply.body, response.body.unwrap_or_default(), "{what}");
                }
                Stands::NotRetained => {
                    let problem = reply.problem();
                    assert_eq!(problem.as_deref(), Some("response-not-retained"), "{what}");
                }
                Stands::Abandoned => {
                    let problem = reply.problem();
                    assert_eq!(problem.as_deref(), Some("outcome-unknown"), "{what}");
                    let record = place.idempotency.store().get(&id(golden.key)).await;
                    let record = record.unwrap().unwrap();
                    assert_eq!(record.attempt, 2);
                    let steps: &[u8] = br#"{"reserve":"\"r-1\""}"#;
                    assert_eq!(record.steps.as_deref(), Some(steps));
                }
            }
        }
        // What this release writes is what stands in the file, but for the times.
        let today = Place::new(store).await;
        write(&**today.idempotency.store()).await;
        assert_eq!(today.raw.lasting().await, place.raw.lasting().await);
    })
    .await;
}

#[tokio::test]
async fn a_record_of_a_newer_format_is_refused_and_left_untouched() {
    // I9, I12, C17
    each(durable(), async |store| {
        let place = Place::filled(store).await;
        place.raw.raise_format().await;
        let before = place.raw.dump().await;
        for golden in goldens() {
            let reply = place.ask(golden.key).await;
            assert_eq!(reply.status, 503, "{}: {reply:?}", golden.key);
            let problem = reply.problem();
            assert_eq!(
                problem.as_deref(),
                Some("record-unreadable"),
                "{}",
                golden.key
            );
            assert!(!reply.is_replay());
        }
        assert_eq!(place.raw.dump().await, before, "touched");
        // An operator can end it: the next request runs.
        let forgotten = place.idempotency.store().forget(&id("created")).await;
        assert!(forgotten.unwrap());
        assert_eq!(place.ask("created").await.status, 418);
    })
    .await;
}
