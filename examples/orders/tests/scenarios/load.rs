//! Many connections on one database file, which the handler and the records share.

use crate::service::{Answer, Place, Request, Service, all_settled, scaled};
use futures_util::future::join_all;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

const CONNECTIONS: usize = 32;

// L2
#[tokio::test]
async fn one_file_takes_32_connections_without_a_server_error() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let end = Instant::now() + Duration::from_secs(scaled(5, 30));
    let (keys, duplicates) = (AtomicU64::new(0), AtomicU64::new(0));
    join_all((0..CONNECTIONS).map(|connection| {
        let (url, keys, duplicates) = (&service.url, &keys, &duplicates);
        async move {
            // A client of its own: a connection of its own.
            let http = reqwest::Client::new();
            for number in 0.. {
                if Instant::now() >= end {
                    return;
                }
                let request = Request::new(&format!("{connection}-{number}"));
                // Of twenty keys one is sent twice at once, and one again after its answer.
                let (first, duplicate) = match number % 20 {
                    0 => {
                        let (first, second) =
                            tokio::join!(request.send(&http, url), request.send(&http, url));
                        in_order(first.unwrap(), second.unwrap())
                    }
                    10 => {
                        let first = request.send(&http, url).await.unwrap();
                        let second = request.send(&http, url).await.unwrap();
                        assert_eq!(second.status, 201, "{second:?}");
                        (first, Some(second))
                    }
                    _ => (request.send(&http, url).await.unwrap(), None),
                };
                assert_eq!((first.status, first.is_replay()), (201, false), "{first:?}");
                keys.fetch_add(1, Ordering::Relaxed);
                let Some(duplicate) = duplicate else { continue };
                duplicates.fetch_add(1, Ordering::Relaxed);
                if duplicate.status == 409 {
                    assert_eq!(duplicate.problem(), "urn:idempotency:in-progress");
                } else {
                    assert_eq!((duplicate.status, duplicate.is_replay()), (201, true));
                    assert_eq!(duplicate.body, first.body);
                }
            }
        }
    }))
    .await;
    let keys = usize::try_from(keys.into_inner()).unwrap();
    println!("{keys} orders and {} duplicates", duplicates.into_inner());
    assert!(keys >= CONNECTIONS);
    let orders = all_settled(&place.database()).await;
    assert_eq!(orders.len(), keys);
    assert!(orders.iter().all(|order| order.status == "paid"));
    assert_eq!(service.charges().await.count(), keys);
    let log = place.log();
    assert!(!log.contains("database is locked"), "{log}");
    assert_eq!(log, "", "a healthy service has nothing to warn of");
}

/// Of two simultaneous answers, the one that ran first.
fn in_order(one: Answer, other: Answer) -> (Answer, Option<Answer>) {
    if one.status == 201 && !one.is_replay() {
        (one, Some(other))
    } else {
        (other, Some(one))
    }
}
