//! Records on a server, orders in their file: two databases, so no common commit.

use crate::service::{Charges, Place, Request, Service, all_settled};
use futures_util::future::join_all;
use idem_tests::services::{Store, fresh, selected};
use orders::gateway::Simulator;
use std::{collections::HashSet, time::Duration};

/// Keys that are under way when the process is killed.
const KEYS: usize = 12;

#[actix_web::test]
async fn an_order_is_placed_once_and_its_answer_found_after_a_kill() {
    let on_servers = |store: &Store| store.variable().is_some();
    for store in selected().into_iter().filter(on_servers) {
        let records = fresh(store).await;
        let place = Place::new();
        let gateway = Simulator::start(Duration::from_millis(20)).await.unwrap();
        let flags = [
            "--gateway",
            &gateway.url(),
            "--lease",
            "1s",
            "--store",
            records.url(),
        ];
        // A Redis server is shared by all tests.
        let key = |name: &str| format!("{}-{name}", records.name());
        let keys: Vec<_> = (0..KEYS).map(|number| key(&number.to_string())).collect();
        let service = Service::start(&place, &flags).await;
        let http = reqwest::Client::new();
        let first = Request::new(&key("first")).send(&http, &service.url).await;
        let first = first.unwrap();
        assert_eq!((first.status, first.is_replay()), (201, false), "{store}");
        let under_way = join_all(keys.iter().map(|key| {
            let (http, url) = (&http, &service.url);
            async move { Request::new(key).send(http, url).await.ok() }
        }));
        // Whatever is ready by then is answered, and the rest falls with the process.
        let _ = tokio::time::timeout(Duration::from_millis(15), under_way).await;
        service.kill().await;

        let service = Service::start(&place, &flags).await;
        let retried = Request::new(&key("first"))
            .until_final(&http, &service.url)
            .await;
        assert_eq!(
            (retried.status, retried.is_replay(), &retried.body),
            (201, true, &first.body),
            "{store}"
        );
        let mut promised = HashSet::from([first.order_id()]);
        for key in &keys {
            let retried = Request::new(key).until_final(&http, &service.url).await;
            assert_eq!(retried.status, 201, "{store}, {key}: {retried:?}");
            assert!(promised.insert(retried.order_id()), "{store}, {key}");
        }
        let orders = all_settled(&place.database()).await;
        let stored: HashSet<_> = orders.iter().map(|order| order.id).collect();
        assert_eq!(stored, promised, "{store}: every key has one order");
        let charges = Charges::at(&gateway.url()).await;
        assert_eq!(charges.count(), orders.len(), "{store}");
    }
}
