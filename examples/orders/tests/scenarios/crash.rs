//! The process dies, or is told to end.

use crate::service::{Charges, Place, Request, Service, scaled, stored_orders};
use futures_util::future::join_all;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use orders::gateway::Simulator;
use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::Duration,
};

/// Clients that order at the same time.
const CLIENTS: usize = 12;
/// Short, so that the claims of a killed process run out soon.
const LEASE: &str = "1s";

/// Under load the process is killed at a random moment and started again on the same file; then
/// every key is retried, over several such rounds.
#[actix_web::test]
async fn kill_9_under_load_gives_no_key_a_second_effect() {
    let place = Place::new();
    // The gateway outlives the service, as gateways do.
    let gateway = Simulator::start(Duration::from_millis(20)).await.unwrap();
    let flags = ["--gateway", &gateway.url(), "--lease", LEASE];
    let sent: Mutex<HashMap<String, Option<i64>>> = Mutex::default();
    let mut interrupted = 0;
    let mut outcomes_unknown = HashSet::new();
    for round in 0..scaled(4, 20) {
        let service = Service::start(&place, &flags).await;
        let http = reqwest::Client::new();
        let url = service.url.clone();
        let clients = join_all((0..CLIENTS).map(|client| {
            let (http, url, sent) = (&http, &url, &sent);
            async move {
                for number in 0.. {
                    let key = format!("{round}-{client}-{number}");
                    sent.lock().unwrap().insert(key.clone(), None);
                    let Ok(answer) = Request::new(&key).send(http, url).await else {
                        return;
                    };
                    assert_eq!(
                        (answer.status, answer.is_replay()),
                        (201, false),
                        "{answer:?}"
                    );
                    sent.lock().unwrap().insert(key, Some(answer.order_id()));
                }
            }
        }));
        let moment = Duration::from_millis(rand::random_range(200..700));
        let killed = async {
            tokio::time::sleep(moment).await;
            service.kill().await;
        };
        tokio::join!(clients, killed);
        assert!(reqwest::get(&url).await.is_err(), "the process is gone");

        let service = Service::start(&place, &flags).await;
        let http = reqwest::Client::new();
        let keys: Vec<_> = sent.lock().unwrap().clone().into_iter().collect();
        let of_this_round = keys
            .into_iter()
            .filter(|(key, _)| key.starts_with(&format!("{round}-")));
        for (key, answered) in of_this_round {
            let retried = Request::new(&key).until_final(&http, &service.url).await;
            match retried.status {
                201 => {
                    let order_id = retried.order_id();
                    if let Some(first) = answered {
                        assert_eq!((order_id, retried.is_replay()), (first, true), "{key}");
                    }
                    sent.lock().unwrap().insert(key, Some(order_id));
                }
                409 => {
                    assert_eq!(retried.problem(), "urn:idempotency:outcome-unknown");
                    assert_eq!(retried.json()["retryable"], false);
                    assert_eq!(answered, None, "{key} was answered before");
                    outcomes_unknown.insert(key);
                }
                _ => panic!("{key}: {retried:?}"),
            }
            interrupted += usize::from(answered.is_none());
        }
        service.kill().await;
    }
    println!(
        "{} keys, {interrupted} interrupted, {} held",
        sent.lock().unwrap().len(),
        outcomes_unknown.len()
    );
    assert!(interrupted > 0, "the kills hit nothing: there was no load");

    let sent = sent.into_inner().unwrap();
    let orders = stored_orders(&place.database()).await;
    let charges = Charges::at(&gateway.url()).await;
    let charge_keys: HashSet<_> = orders.iter().map(|order| &*order.charge_key).collect();
    assert_eq!(charge_keys.len(), orders.len(), "a key has two orders");
    assert!(
        charges.asked().into_values().all(|asked| asked == 1),
        "a charge was asked for twice: {charges:?}"
    );
    assert!(
        charges.keys().all(|key| charge_keys.contains(key)),
        "a charge has no order"
    );
    let promised: HashSet<_> = sent.values().flatten().copied().collect();
    let answered = sent.values().flatten().count();
    assert_eq!(promised.len(), answered, "two keys share an order");
    assert_eq!(answered + outcomes_unknown.len(), sent.len());
    for order in &orders {
        if promised.contains(&order.id) {
            assert_eq!(order.status, "paid");
        }
    }
    let paid = orders.iter().filter(|order| order.status == "paid");
    let paid: HashSet<_> = paid.map(|order| &*order.charge_key).collect();
    let charged: HashSet<_> = charges.keys().collect();
    assert!(paid.is_subset(&charged), "a paid order has no charge");
    let doubtful = orders.len() - promised.len();
    assert!(
        doubtful <= outcomes_unknown.len(),
        "{doubtful} orders nobody was told of, {} keys held",
        outcomes_unknown.len()
    );
}

#[tokio::test]
async fn sigterm_lets_an_order_under_way_end_also_without_its_client() {
    let place = Place::new();
    let mut service = Service::start(&place, &["--gateway-delay", "1s"]).await;
    let http = reqwest::Client::new();
    let patient = Request::new("patient");
    let gone = Request::new("gone");
    let abandoned = {
        let (http, url) = (reqwest::Client::new(), service.url.clone());
        tokio::spawn(async move { gone.send(&http, &url).await })
    };
    let waiting = {
        let (request, url) = (patient.clone(), service.url.clone());
        tokio::spawn(async move { request.send(&http, &url).await })
    };
    while stored_orders(&place.database()).await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    abandoned.abort();
    let process = Pid::from_raw(i32::try_from(service.process.id().unwrap()).unwrap());
    kill(process, Signal::SIGTERM).unwrap();

    assert_eq!(waiting.await.unwrap().unwrap().status, 201);
    let ended = tokio::time::timeout(Duration::from_secs(20), service.process.wait()).await;
    assert!(ended.expect("the service ends").unwrap().success());
    let orders = stored_orders(&place.database()).await;
    let paid = orders.iter().filter(|order| order.status == "paid");
    assert_eq!(paid.count(), 2);

    let service = Service::start(&place, &[]).await;
    let http = reqwest::Client::new();
    for key in ["patient", "gone"] {
        let retried = Request::new(key).send(&http, &service.url).await.unwrap();
        assert_eq!((retried.status, retried.is_replay()), (201, true), "{key}");
    }
}
