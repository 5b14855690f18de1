//! The three ways in which a retry goes wrong without the key: a timeout, a race, tampering; and
//! what the service itself refuses.

use crate::service::{
    ALICE, BOB, Place, Request, Service, all_settled, closed_port, expire_records, stock,
    stored_orders,
};
use futures_util::future::join_all;
use orders::{auth::AuthUser, error::ApiError, model::NewOrder, store::OrderStore};
use serde_json::{Value, json};
use std::{collections::HashSet, time::Duration};
use uuid::Uuid;

#[tokio::test]
async fn a_lost_answer_is_got_by_the_retry_and_nothing_happens_twice() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "500ms"]).await;
    let request = Request::new("9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d");
    let http = reqwest::Client::new();
    tokio::select! {
        answer = request.send(&http, &service.url) => panic!("answered too early: {answer:?}"),
        // Dropping the request closes its connection, with the card charged and no answer sent.
        () = charged(&service, 1) => {}
    }

    let retried = request.until_final(&http, &service.url).await;
    assert_eq!((retried.status, retried.is_replay()), (201, true));
    let order_id = retried.order_id();
    assert_eq!(
        retried.header("location"),
        format!("/api/v1/orders/{order_id}")
    );
    let again = request.until_final(&http, &service.url).await;
    assert_eq!(
        (again.status, again.is_replay(), &again.body),
        (201, true, &retried.body)
    );

    let orders = stored_orders(&place.database()).await;
    assert_eq!(orders.len(), 1);
    assert_eq!(
        (orders[0].id, orders[0].status.as_str()),
        (order_id, "paid")
    );
    let charges = service.charges().await;
    assert_eq!(charges.count(), 1);
    assert_eq!(
        charges.asked().into_values().sum::<u64>(),
        1,
        "the gateway is asked once"
    );
}

#[tokio::test]
async fn of_simultaneous_requests_one_runs_and_the_others_get_its_answer_later() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "500ms"]).await;
    let http = reqwest::Client::new();
    for (simultaneous, key) in [(2, "race-key-1"), (20, "race-key-2")] {
        let request = Request::new(key);
        let answers = join_all((0..simultaneous).map(|_| request.send(&http, &service.url))).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        let ran = |answer: &&crate::service::Answer| answer.status == 201 && !answer.is_replay();
        assert_eq!(answers.iter().filter(ran).count(), 1, "{answers:?}");
        let winner = answers.iter().find(ran).unwrap();
        for answer in answers.iter().filter(|answer| !ran(answer)) {
            // Whoever was late enough got the answer at once.
            if answer.is_replay() {
                assert_eq!(answer.body, winner.body);
                continue;
            }
            assert_eq!(answer.status, 409);
            assert_eq!(answer.problem(), "urn:idempotency:in-progress");
            assert_eq!(answer.json()["retryable"], true);
            assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
        }
        let later = request.until_final(&http, &service.url).await;
        assert_eq!(
            (later.status, later.is_replay(), &later.body),
            (201, true, &winner.body)
        );
    }
    assert_eq!(stored_orders(&place.database()).await.len(), 2);
    let charges = service.charges().await;
    assert_eq!(charges.count(), 2);
    assert!(charges.asked().into_values().all(|asked| asked == 1));
}

#[tokio::test]
async fn a_changed_amount_under_the_same_key_is_refused_and_not_charged() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let http = reqwest::Client::new();
    let request = Request::new("key-test-2");
    let first = request.send(&http, &service.url).await.unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));

    let tampered = Request {
        body: json!({"items": [{"id": 42, "quantity": 2}], "currency": "RUB", "amount": 3000}),
        ..request.clone()
    };
    let refused = tampered.send(&http, &service.url).await.unwrap();
    assert_eq!(refused.status, 422);
    assert_eq!(refused.problem(), "urn:idempotency:key-reused");
    for secret in [first.order_id().to_string().as_str(), "1500"] {
        assert!(
            !refused.body.contains(&format!("\"{secret}\""))
                && !refused.body.contains(&format!(":{secret}"))
        );
    }

    // The same order written differently is the same request.
    let rewritten = http
        .post(format!("{}/api/v1/orders", service.url))
        .bearer_auth(ALICE)
        .header("Idempotency-Key", "\"key-test-2\"")
        .header("Content-Type", "application/json")
        .body(r#"{ "amount": 1500, "currency": "RUB", "items": [ {"quantity": 1, "id": 42} ] }"#);
    let rewritten = rewritten.send().await.unwrap();
    assert_eq!(rewritten.headers()["idempotent-replayed"], "true");
    assert_eq!(rewritten.text().await.unwrap(), first.body);

    let replayed = request.send(&http, &service.url).await.unwrap();
    assert_eq!(
        (replayed.status, replayed.is_replay(), &replayed.body),
        (201, true, &first.body)
    );
    assert_eq!(stored_orders(&place.database()).await.len(), 1);
    assert_eq!(service.charges().await.count(), 1);
}

#[tokio::test]
async fn users_do_not_meet_in_a_key_nor_in_their_orders() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let http = reqwest::Client::new();
    let of_alice = Request::new("k1");
    let of_bob = Request {
        token: BOB,
        ..of_alice.clone()
    };
    let alice = of_alice.send(&http, &service.url).await.unwrap();
    let bob = of_bob.send(&http, &service.url).await.unwrap();
    assert_eq!(
        (alice.status, bob.status, bob.is_replay()),
        (201, 201, false)
    );
    assert_ne!(alice.order_id(), bob.order_id());

    let get = async |token: &str, path: &str| {
        let request = http.get(format!("{}{path}", service.url));
        let response = request.bearer_auth(token).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json::<Value>().await.unwrap())
    };
    let (status, listed) = get(ALICE, "/api/v1/orders").await;
    assert_eq!(status, 200);
    assert_eq!(listed["orders"].as_array().unwrap().len(), 1);
    let order = &listed["orders"][0];
    assert_eq!(order["order_id"], alice.order_id());
    assert_eq!(
        (&order["status"], &order["amount"]),
        (&json!("paid"), &json!(1500))
    );
    assert_eq!(order["items"], json!([{"id": 42, "quantity": 1}]));

    assert_eq!(
        get(ALICE, alice.header("location")).await,
        (200, order.clone())
    );
    let (status, problem) = get(BOB, alice.header("location")).await;
    assert_eq!(
        (status, &problem["type"]),
        (404, &json!("urn:orders:order-not-found"))
    );
    let (status, problem) = get("sec_token_stolen", "/api/v1/orders").await;
    assert_eq!(
        (status, &problem["type"]),
        (401, &json!("urn:orders:unauthorized"))
    );
}

/// The service's own refusals, apart from the toolkit's: what kind, whether the key is spent, and
/// that nothing is left behind.
#[tokio::test]
async fn a_refused_order_says_why_and_leaves_nothing_behind() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let http = reqwest::Client::new();
    let order = |id: i64, quantity: i64, amount: i64| json!({"items": [{"id": id, "quantity": quantity}], "currency": "RUB", "amount": amount});
    let spends_the_key = true;
    for (key, body, status, problem, spent) in [
        (
            "a",
            json!({"items": []}),
            400,
            "urn:orders:invalid-body",
            !spends_the_key,
        ),
        (
            "b",
            order(42, 0, 0),
            400,
            "urn:orders:invalid-body",
            !spends_the_key,
        ),
        (
            "c",
            order(42, 1, 1),
            422,
            "urn:orders:amount-mismatch",
            spends_the_key,
        ),
        (
            "d",
            order(1, 1, 1),
            422,
            "urn:orders:unknown-item",
            spends_the_key,
        ),
        (
            "e",
            order(7, 4, 3960),
            409,
            "urn:orders:insufficient-stock",
            spends_the_key,
        ),
    ] {
        let request = Request {
            body,
            ..Request::new(key)
        };
        let refused = request.send(&http, &service.url).await.unwrap();
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (status, problem)
        );
        assert_eq!(refused.header("content-type"), "application/problem+json");
        let retried = request.send(&http, &service.url).await.unwrap();
        assert_eq!((retried.status, &retried.body), (status, &refused.body));
        assert_eq!(retried.is_replay(), spent, "{problem}");
    }
    for (item, in_stock) in [(42, 1_000_000), (7, 3)] {
        assert_eq!(
            stock(&place.database(), item).await,
            in_stock,
            "item {item}"
        );
    }
    assert!(stored_orders(&place.database()).await.is_empty());
    assert_eq!(service.charges().await.count(), 0);
}

#[tokio::test]
async fn an_order_whose_card_is_refused_is_declined_and_its_stock_free() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let http = reqwest::Client::new();
    let request = Request {
        body: json!({"items": [{"id": 13, "quantity": 1}], "currency": "RUB", "amount": 900_000}),
        ..Request::new("k1")
    };
    let first = request.send(&http, &service.url).await.unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    let orders = stored_orders(&place.database()).await;
    assert_eq!((orders.len(), orders[0].status.as_str()), (1, "declined"));
    assert_eq!(stock(&place.database(), 13).await, 5);
    let retried = request.send(&http, &service.url).await.unwrap();
    assert_eq!((retried.is_replay(), &retried.body), (true, &first.body));
    assert_eq!(service.charges().await.count(), 0);
}

#[tokio::test]
async fn an_order_placed_while_the_gateway_is_away_is_charged_when_it_is_back() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway", &closed_port()]).await;
    let http = reqwest::Client::new();
    let request = Request::new("k1");
    for is_replay in [false, true] {
        let answer = request.send(&http, &service.url).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (201, is_replay));
    }
    let orders = stored_orders(&place.database()).await;
    assert_eq!((orders.len(), orders[0].status.as_str()), (1, "pending"));
    service.kill().await;

    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let orders = all_settled(&place.database()).await;
    assert_eq!((orders.len(), orders[0].status.as_str()), (1, "paid"));
    assert_eq!(service.charges().await.count(), 1);
}

/// After its time a key is as good as new, and so is the charge of what is ordered under it.
#[tokio::test]
async fn a_key_whose_record_has_expired_places_and_charges_a_new_order() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let http = reqwest::Client::new();
    let request = Request::new("k1");
    let first = request.send(&http, &service.url).await.unwrap();
    expire_records(&place.database()).await;
    let second = request.send(&http, &service.url).await.unwrap();
    assert_eq!(
        (second.status, second.is_replay()),
        (201, false),
        "{second:?}"
    );
    assert_ne!(second.order_id(), first.order_id());
    let replayed = request.send(&http, &service.url).await.unwrap();
    assert_eq!((replayed.is_replay(), &replayed.body), (true, &second.body));

    let orders = all_settled(&place.database()).await;
    let charge_keys: HashSet<_> = orders.iter().map(|order| &*order.charge_key).collect();
    assert_eq!((orders.len(), charge_keys.len()), (2, 2));
    let charges = service.charges().await;
    assert_eq!(charges.count(), 2);
    assert_eq!(charges.keys().collect::<HashSet<_>>(), charge_keys);
}

/// Where the records stand elsewhere, an order is found by its charge key, which outlives the record.
#[tokio::test]
async fn under_one_charge_key_the_same_order_is_found_and_another_refused() {
    let place = Place::new();
    let store = OrderStore::open(&place.database()).await.unwrap();
    let user = AuthUser {
        id: "alice".to_owned(),
    };
    let charge_key = Uuid::new_v4();
    let order = |towels: i64, tickets: i64| -> NewOrder {
        let items = json!([{"id": 42, "quantity": towels}, {"id": 7, "quantity": tickets}]);
        let amount = 1500 * towels + 990 * tickets;
        serde_json::from_value(json!({"items": items, "currency": "RUB", "amount": amount}))
            .unwrap()
    };
    let first = store.place(&user, &order(1, 1), charge_key).await.unwrap();
    let again = store.place(&user, &order(1, 1), charge_key).await.unwrap();
    assert_eq!(again, first);
    let other = store.place(&user, &order(2, 1), charge_key).await;
    assert!(matches!(other, Err(ApiError::KeyUsedBefore)), "{other:?}");
    assert_eq!(stored_orders(&place.database()).await.len(), 1);
    assert_eq!(stock(&place.database(), 7).await, 2);
}

/// Waits until the gateway has booked so many charges.
async fn charged(service: &Service, count: usize) {
    while service.charges().await.count() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
