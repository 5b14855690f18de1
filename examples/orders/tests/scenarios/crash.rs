//! The process dies, or is told to end.

use crate::service::{Charges, Place, Request, Service, all_settled, scaled, stored_orders};
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
/// every key is retried, over several such rounds. An order and its answer are one commit, so every
/// retry succeeds, and every key has its one order.
#[actix_web::test]
async fn kill_9_under_load_gives_every_key_one_order_and_one_charge() {
    let place = Place::new();
    // The gateway outlives the service, as gateways do.
    let gateway = Simulator::start(Duration::from_millis(20)).await.unwrap();
    let flags = ["--gateway", &gateway.url(), "--lease", LEASE];
    let sent: Mutex<HashMap<String, Option<i64>>> = Mutex::default();
    let mut interrupted = 0;
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
            assert_eq!(retried.status, 201, "{key}: {retried:?}");
            let order_id = retried.order_id();
            if let Some(first) = answered {
                assert_eq!((order_id, retried.is_replay()), (first, true), "{key}");
            }
            sent.lock().unwrap().insert(key, Some(order_id));
            interrupted += usize::from(answered.is_none());
        }
        all_settled(&place.database()).await;
        service.kill().await;
    }
    let sent = sent.into_inner().unwrap();
    println!("{} keys, {interrupted} interrupted", sent.len());
    assert!(interrupted > 0, "the kills hit nothing: there was no load");

    let orders = stored_orders(&place.database()).await;
    let promised: HashSet<_> = sent.values().map(|order_id| order_id.unwrap()).collect();
    let stored: HashSet<_> = orders.iter().map(|order| order.id).collect();
    assert_eq!(promised.len(), sent.len(), "two keys share an order");
    assert_eq!(promised, stored, "every key has one order");
    assert!(orders.iter().all(|order| order.status == "paid"));

    let charges = Charges::at(&gateway.url()).await;
    let charge_keys: HashSet<_> = orders.iter().map(|order| &*order.charge_key).collect();
    assert_eq!(charges.count(), orders.len(), "one charge for each order");
    assert_eq!(charges.keys().collect::<HashSet<_>>(), charge_keys);
    // The next process repeats what was under way, and the gateway recognises it.
    let repeated = charges.asked().into_values().filter(|asked| *asked > 1);
    assert!(repeated.count() <= interrupted);
}

#[actix_web::test]
async fn sigterm_loses_no_order_also_without_its_client() {
    let place = Place::new();
    let gateway = Simulator::start(Duration::from_secs(1)).await.unwrap();
    let flags = ["--gateway", &gateway.url()];
    let mut service = Service::start(&place, &flags).await;
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

    let service = Service::start(&place, &flags).await;
    let http = reqwest::Client::new();
    for key in ["patient", "gone"] {
        let retried = Request::new(key).send(&http, &service.url).await.unwrap();
        assert_eq!((retried.status, retried.is_replay()), (201, true), "{key}");
    }
    // What the first process had not charged when it ended, this one has.
    let orders = all_settled(&place.database()).await;
    assert_eq!(orders.len(), 2);
    assert!(orders.iter().all(|order| order.status == "paid"));
    assert_eq!(service.charges().await.count(), 2);
}
