//! `Compress` at every place an application can put it. The record holds what the handler gave, so
//! each answer, first or replay, is compressed as its own client accepts it.

use actix_web::{
    App, HttpRequest, HttpResponse,
    http::header,
    middleware::Compress,
    web::{self, Bytes},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures_util::stream;
use idem_runtime::{
    Idempotency, idempotent,
    record::{Answer, State},
    store::ListQuery,
};
use idem_tests::{
    harness::{Connection, InProcess, RawReply, each, request},
    services::selected,
};
use std::io::{Read, Write};

fn text() -> String {
    "a line that is worth compressing\n".repeat(500)
}

#[idempotent(scope = "user", ttl = "24h")]
async fn sized() -> HttpResponse {
    HttpResponse::Created()
        .content_type("text/plain")
        .body(text())
}

#[idempotent(scope = "user", ttl = "24h")]
async fn streamed() -> HttpResponse {
    let lines: Vec<_> = text()
        .split_inclusive('\n')
        .map(|line| Ok::<_, actix_web::Error>(Bytes::from(line.to_owned())))
        .collect();
    HttpResponse::Created()
        .content_type("text/plain")
        .streaming(stream::iter(lines))
}

#[idempotent(scope = "user", ttl = "24h")]
async fn nothing() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// Compresses on its own, whoever asks.
#[idempotent(scope = "user", ttl = "24h")]
async fn compressing(_request: HttpRequest) -> HttpResponse {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text().as_bytes()).unwrap();
    HttpResponse::Created()
        .content_type("text/plain")
        .insert_header((header::CONTENT_ENCODING, "gzip"))
        .body(encoder.finish().unwrap())
}

fn handlers(config: &mut web::ServiceConfig) {
    config
        .route("/sized", web::post().to(sized))
        .route("/streamed", web::post().to(streamed))
        .route("/nothing", web::post().to(nothing))
        .route("/compressing", web::post().to(compressing));
}

async fn post(app: &InProcess, path: &str, key: &str, accept: &str) -> RawReply {
    let headers: [(&str, &[u8]); 3] = [
        ("Authorization", b"alice"),
        ("Idempotency-Key", key.as_bytes()),
        ("Accept-Encoding", accept.as_bytes()),
    ];
    let mut connection = Connection::open(app.address).await;
    let request = request("POST", path, &headers, b"");
    connection.send(&request).await.unwrap();
    connection.reply().await
}

fn decoded(reply: &RawReply) -> Vec<u8> {
    let mut bytes = Vec::new();
    match reply.header("content-encoding") {
        Some("gzip") => GzDecoder::new(&reply.body[..]).read_to_end(&mut bytes),
        Some("br") => brotli::Decompressor::new(&reply.body[..], 4096).read_to_end(&mut bytes),
        None => return reply.body.clone(),
        other => panic!("{other:?}"),
    }
    .unwrap();
    bytes
}

/// The places, each with how it is reached.
const PLACES: &[&str] = &["/none", "/scope", "/resource", "/both"];

async fn application(store: idem_tests::services::Store) -> (InProcess, Idempotency) {
    let (builder, place) = InProcess::configuration(store).await;
    let idempotency = builder.build().unwrap();
    let app = InProcess::serve(place, {
        let idempotency = idempotency.clone();
        move || {
            let resource = |name: &str, handler: fn() -> actix_web::Route| {
                web::resource(name)
                    .wrap(Compress::default())
                    .route(handler())
            };
            let each_resource = move |config: &mut web::ServiceConfig| {
                config
                    .service(resource("/sized", || web::post().to(sized)))
                    .service(resource("/streamed", || web::post().to(streamed)))
                    .service(resource("/nothing", || web::post().to(nothing)))
                    .service(resource("/compressing", || web::post().to(compressing)));
            };
            App::new()
                .app_data(idempotency.clone())
                .service(web::scope("/none").configure(handlers))
                .service(
                    web::scope("/scope")
                        .wrap(Compress::default())
                        .configure(handlers),
                )
                .service(web::scope("/resource").configure(each_resource))
                .service(
                    web::scope("/both")
                        .wrap(Compress::default())
                        .configure(each_resource),
                )
        }
    });
    (app, idempotency)
}

#[tokio::test]
async fn every_client_gets_the_coding_that_it_accepts_wherever_the_answer_is_compressed() {
    // E13
    each(selected(), async |store| {
        let (app, idempotency) = application(store).await;
        let accepts = ["identity", "gzip", "br"];
        for place in PLACES {
            for one in accepts {
                for two in accepts {
                    for (handler, own) in [
                        ("sized", None),
                        ("streamed", None),
                        ("compressing", Some("gzip")),
                    ] {
                        let (path, key) = (format!("{place}/{handler}"), format!("{one}-{two}"));
                        let first = post(&app, &path, &key, one).await;
                        let again = post(&app, &path, &key, two).await;
                        let what = format!("{path} {key}");
                        assert_eq!((first.status, again.status), (201, 201), "{what}");
                        assert!(again.is_replay() && !first.is_replay(), "{what}");
                        for (reply, accepted) in [(&first, one), (&again, two)] {
                            let wanted =
                                (*place != "/none" && accepted != "identity").then_some(accepted);
                            // What the handler has compressed is not negotiated again.
                            let wanted = own.or(wanted);
                            assert_eq!(reply.header("content-encoding"), wanted, "{what}");
                            assert_eq!(reply.header("content-type"), Some("text/plain"), "{what}");
                            assert_eq!(decoded(reply), text().as_bytes(), "{what}");
                        }
                    }
                }
            }
            let (path, none) = (format!("{place}/nothing"), Vec::<u8>::new());
            for accept in accepts {
                let empty = post(&app, &path, "k", accept).await;
                assert_eq!((empty.status, &empty.body), (204, &none), "{path}");
                assert_eq!(empty.header("content-encoding"), None, "{path}");
                assert_eq!(empty.header("content-length"), None, "{path}");
            }
        }
        // What is kept is what the handler gave.
        let store = idempotency.store();
        let all = ListQuery {
            after: None,
            limit: 1000,
            ..ListQuery::default()
        };
        let listed = store.list(&all).await.unwrap();
        assert_eq!(listed.len(), PLACES.len() * (3 * 9 + 1));
        for id in listed.into_iter().map(|record| record.id) {
            let record = store.get(&id).await.unwrap().unwrap();
            let State::Finished {
                answer: Answer::Kept(kept),
                ..
            } = record.state
            else {
                panic!("{record:?}");
            };
            let is = |handler: &str| id.request_path().ends_with(handler);
            let mut fields = kept.headers.iter();
            let coded = fields.any(|(name, _)| name == "content-encoding");
            assert_eq!(coded, is("/compressing"), "{id:?}");
            let body = kept.body.unwrap_or_default();
            let plain = is("/sized") || is("/streamed");
            assert!(!plain || body == text().as_bytes(), "{id:?}");
        }
    })
    .await;
}
