//! Further payments, whose effect is in another system, and what becomes of them when the process
//! dies at a bad moment.

use crate::service::{
    Answer, BOB, Charges, Place, Request, Service, expire_records, scaled, stored_payments,
};
use actix_web::{App, HttpResponse, HttpServer, http::StatusCode, rt, web};
use orders::gateway::Simulator;
use serde_json::{Value, json};
use std::time::Duration;

/// Short, so that the claims of a killed process run out soon.
const LEASE: &str = "1s";
const GATEWAY_DELAY: Duration = Duration::from_secs(1);

/// A payment of 150 on an order that is placed for it.
async fn payment_on_an_order(http: &reqwest::Client, service: &Service, key: &str) -> Request {
    let ordered = Request::new(&format!("order-for-{key}"));
    let ordered = ordered.send(http, &service.url).await.unwrap();
    payment(key, ordered.order_id(), 150)
}

fn payment(key: &str, order_id: i64, amount: i64) -> Request {
    Request {
        path: "/api/v1/payments",
        body: json!({"order_id": order_id, "amount": amount}),
        ..Request::new(key)
    }
}

fn assert_paid(answer: &Answer, payment: &Request) {
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.json()["order_id"], payment.body["order_id"]);
    assert_eq!(answer.json()["amount"], payment.body["amount"]);
    assert!(answer.json()["charge_id"].is_string(), "{answer:?}");
}

#[tokio::test]
async fn a_payment_is_charged_once_however_often_it_is_sent() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "500ms"]).await;
    let http = reqwest::Client::new();
    let request = payment_on_an_order(&http, &service, "tip").await;
    let (one, other) = tokio::join!(
        request.send(&http, &service.url),
        request.send(&http, &service.url)
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    let (paid, refused) = if one.status == 201 {
        (one, other)
    } else {
        (other, one)
    };
    assert_paid(&paid, &request);
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (409, "urn:idempotency:in-progress")
    );
    let retried = request.send(&http, &service.url).await.unwrap();
    assert_eq!((retried.is_replay(), &retried.body), (true, &paid.body));
    assert_eq!(service.charges().await.count(), 2, "the order and the tip");
    assert_eq!(stored_payments(&place.database()).await.len(), 1);

    let order: Value = http
        .get(format!(
            "{}/api/v1/orders/{}",
            service.url, request.body["order_id"]
        ))
        .bearer_auth(request.token)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(order["payments"], json!([paid.json()]));
}

#[tokio::test]
async fn a_refused_payment_says_why_and_enters_nothing() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let http = reqwest::Client::new();
    let ordered = Request::new("order").send(&http, &service.url).await;
    let order_id = ordered.unwrap().order_id();
    let of_bob = Request {
        token: BOB,
        ..payment("bob", order_id, 150)
    };
    for (request, status, problem, spent) in [
        (
            payment("a", order_id, 0),
            400,
            "urn:orders:invalid-body",
            false,
        ),
        (
            payment("b", order_id + 1, 150),
            404,
            "urn:orders:order-not-found",
            true,
        ),
        (of_bob, 404, "urn:orders:order-not-found", true),
        (
            payment("d", order_id, 100_001),
            402,
            "urn:orders:payment-declined",
            true,
        ),
    ] {
        let refused = request.send(&http, &service.url).await.unwrap();
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (status, problem)
        );
        let retried = request.send(&http, &service.url).await.unwrap();
        assert_eq!((retried.status, &retried.body), (status, &refused.body));
        assert_eq!(retried.is_replay(), spent, "{problem}");
    }
    assert_eq!(service.charges().await.count(), 1, "the order alone");
    assert!(stored_payments(&place.database()).await.is_empty());
}

/// Starts a payment, kills the service at `moment`, and starts another on the same file.
async fn killed(
    place: &Place,
    gateway: &Simulator,
    key: &str,
    amount: i64,
    moment: impl AsyncFnOnce(&str),
) -> (Service, Request) {
    let url = gateway.url();
    let flags = ["--gateway", &url, "--lease", LEASE];
    let service = Service::start(place, &flags).await;
    let http = reqwest::Client::new();
    let request = payment_on_an_order(&http, &service, key).await;
    let request = Request {
        body: json!({"order_id": request.body["order_id"], "amount": amount}),
        ..request
    };
    let dying = {
        let (request, url) = (request.clone(), service.url.clone());
        tokio::spawn(async move { request.send(&http, &url).await })
    };
    moment(&url).await;
    service.kill().await;
    assert!(dying.await.unwrap().is_err(), "it answered before");
    (Service::start(place, &flags).await, request)
}

/// Waits until the gateway has been asked for so many charges.
async fn asked(gateway: &str, count: usize) {
    while Charges::at(gateway).await.asked().len() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the gateway has booked so many charges.
async fn booked(gateway: &str, count: usize) {
    while Charges::at(gateway).await.count() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[actix_web::test]
async fn killed_after_the_charge_a_payment_is_answered_by_asking_the_gateway() {
    for round in 0..scaled(1, 10) {
        let place = Place::new();
        let gateway = Simulator::start(GATEWAY_DELAY).await.unwrap();
        let key = format!("tip-{round}");
        let (service, request) = killed(&place, &gateway, &key, 150, async |gateway| {
            booked(gateway, 2).await;
        })
        .await;
        assert!(stored_payments(&place.database()).await.is_empty());

        let http = reqwest::Client::new();
        let answer = request.until_final(&http, &service.url).await;
        assert!(answer.is_replay(), "the handler ran again: {answer:?}");
        assert_paid(&answer, &request);
        assert_eq!(answer.header("content-type"), "application/json");
        let again = request.send(&http, &service.url).await.unwrap();
        assert_eq!((again.is_replay(), &again.body), (true, &answer.body));

        let payments = stored_payments(&place.database()).await;
        assert_eq!(payments.len(), 1);
        assert_eq!(answer.json()["payment_id"], payments[0].id);
        let charges = service.charges().await;
        assert_eq!(charges.count(), 2, "the order and the tip");
        assert_eq!(charges.asked()[&*payments[0].charge_key], 1);
    }
}

#[actix_web::test]
async fn killed_while_the_gateway_works_a_payment_is_made_once() {
    let place = Place::new();
    let gateway = Simulator::start(GATEWAY_DELAY).await.unwrap();
    // Asked for, and not booked yet: whether it will be depends on when the gateway notices.
    let (service, request) = killed(&place, &gateway, "tip", 150, async |gateway| {
        asked(gateway, 2).await;
    })
    .await;
    let answer = request
        .until_final(&reqwest::Client::new(), &service.url)
        .await;
    assert_paid(&answer, &request);
    assert_eq!(stored_payments(&place.database()).await.len(), 1);
    assert_eq!(
        service.charges().await.count(),
        2,
        "the order and the tip, once"
    );
}

#[actix_web::test]
async fn killed_after_a_refusal_a_payment_is_answered_with_it() {
    let place = Place::new();
    let gateway = Simulator::start(GATEWAY_DELAY).await.unwrap();
    let (service, request) = killed(&place, &gateway, "tip", 200_000, async |gateway| {
        asked(gateway, 2).await;
        // The refusal is entered in the middle of the delay, and cannot be seen from outside.
        tokio::time::sleep(GATEWAY_DELAY * 3 / 4).await;
    })
    .await;
    let http = reqwest::Client::new();
    let refused = request.until_final(&http, &service.url).await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (402, "urn:orders:payment-declined")
    );
    assert!(refused.is_replay(), "the handler ran again: {refused:?}");
    // As if the handler had given it.
    let other = Request {
        key: Some("another".to_owned()),
        ..request
    };
    let direct = other.send(&http, &service.url).await.unwrap();
    assert_eq!(direct.body, refused.body);
    for header in ["content-type", "cache-control"] {
        assert_eq!(direct.header(header), refused.header(header), "{header}");
    }
}

#[tokio::test]
async fn an_unreachable_gateway_frees_the_key_of_a_payment() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let http = reqwest::Client::new();
    let request = payment_on_an_order(&http, &service, "tip").await;
    service.kill().await;

    let nowhere = crate::service::closed_port();
    let service = Service::start(&place, &["--gateway", &nowhere]).await;
    let refused = request.send(&http, &service.url).await.unwrap();
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (503, "urn:orders:payment-unavailable")
    );
    service.kill().await;

    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let paid = request.send(&http, &service.url).await.unwrap();
    assert!(!paid.is_replay());
    assert_paid(&paid, &request);
}

/// What a gateway that gives no answer to a payment can say of it afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    /// It was charged.
    Charged,
    /// It never heard of it.
    Nothing,
    /// It does not answer this either.
    Silence,
}

/// The simulator behind a connection that loses the answer to every payment of 150.
async fn losing_answers(simulator: &Simulator, afterwards: Afterwards) -> String {
    let behind = simulator.url();
    let app = move || {
        let (charges, one) = (format!("{behind}/charges"), format!("{behind}/charges/"));
        let charge = move |request: actix_web::HttpRequest, charge: web::Json<Value>| {
            let charges = charges.clone();
            async move {
                let is_payment = charge["amount"] == 150;
                if is_payment && afterwards == Afterwards::Nothing {
                    return HttpResponse::BadGateway().finish();
                }
                let key = request.headers().get("idempotency-key").unwrap();
                let asked = reqwest::Client::new().post(charges).json(&*charge);
                let answer =
                    passed_on(asked.header("Idempotency-Key", key.to_str().unwrap())).await;
                if is_payment {
                    return HttpResponse::BadGateway().finish();
                }
                answer
            }
        };
        let find = move |key: web::Path<String>| {
            let one = format!("{one}{key}");
            async move {
                if afterwards == Afterwards::Silence {
                    return HttpResponse::BadGateway().finish();
                }
                passed_on(reqwest::Client::new().get(one)).await
            }
        };
        App::new()
            .route("/charges", web::post().to(charge))
            .route("/charges/{key}", web::get().to(find))
    };
    let server = HttpServer::new(app).workers(1).bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.addrs()[0]);
    rt::spawn(server.disable_signals().run());
    url
}

async fn passed_on(request: reqwest::RequestBuilder) -> HttpResponse {
    let answer = request.send().await.unwrap();
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap();
    HttpResponse::build(status)
        .content_type("application/json")
        .body(answer.bytes().await.unwrap())
}

#[actix_web::test]
async fn a_payment_without_an_answer_is_answered_by_what_the_gateway_says_afterwards() {
    let place = Place::new();
    let simulator = Simulator::start(Duration::ZERO).await.unwrap();
    let http = reqwest::Client::new();
    let mut charged = 0;
    for (afterwards, status, problem, kept) in [
        (Afterwards::Charged, 201, "", true),
        (
            Afterwards::Nothing,
            503,
            "urn:orders:payment-unavailable",
            false,
        ),
        (Afterwards::Silence, 502, "urn:orders:payment-unknown", true),
    ] {
        let gateway = losing_answers(&simulator, afterwards).await;
        let service = Service::start(&place, &["--gateway", &gateway]).await;
        let key = format!("{afterwards:?}");
        let request = payment_on_an_order(&http, &service, &key).await;
        let first = request.send(&http, &service.url).await.unwrap();
        let said = (first.status, first.problem());
        assert_eq!(said, (status, problem.to_owned()), "{afterwards:?}");
        charged += 1 + usize::from(afterwards != Afterwards::Nothing);
        let charges = Charges::at(&simulator.url()).await;
        assert_eq!(charges.count(), charged, "{afterwards:?}");

        let again = request.send(&http, &service.url).await.unwrap();
        assert_eq!(
            (again.status, again.is_replay()),
            (status, kept),
            "{afterwards:?}"
        );
        assert_eq!(again.body, first.body);
        let later = Charges::at(&simulator.url()).await;
        assert_eq!(
            later.asked(),
            charges.asked(),
            "{afterwards:?}: asked for again"
        );
        match afterwards {
            Afterwards::Charged => assert_paid(&first, &request),
            Afterwards::Nothing => assert!(first.body.contains("nothing was charged")),
            Afterwards::Silence => {
                assert!(first.body.contains("not known whether"), "{}", first.body);
                assert!(
                    first.body.contains("will not charge again"),
                    "{}",
                    first.body
                );
            }
        }
        service.kill().await;
        // The key that was freed is good for the payment once the gateway answers.
        if !kept {
            let service = Service::start(&place, &["--gateway", &simulator.url()]).await;
            let paid = request.send(&http, &service.url).await.unwrap();
            assert_paid(&paid, &request);
            charged += 1;
            service.kill().await;
        }
    }
    assert_eq!(stored_payments(&place.database()).await.len(), 2);
}

/// The gateway remembers a charge for longer than the record stands.
#[tokio::test]
async fn an_expired_key_repeats_its_payment_and_refuses_another() {
    let place = Place::new();
    let service = Service::start(&place, &["--gateway-delay", "0s"]).await;
    let http = reqwest::Client::new();
    let request = payment_on_an_order(&http, &service, "tip").await;
    let paid = request.send(&http, &service.url).await.unwrap();
    expire_records(&place.database()).await;
    let again = request.send(&http, &service.url).await.unwrap();
    assert_eq!((again.is_replay(), &again.body), (false, &paid.body));

    expire_records(&place.database()).await;
    let order_id = request.body["order_id"].as_i64().unwrap();
    let other = payment("tip", order_id, 200);
    let refused = other.send(&http, &service.url).await.unwrap();
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (409, "urn:orders:key-used-before")
    );
    assert_eq!(service.charges().await.count(), 2, "the order and the tip");
    assert_eq!(stored_payments(&place.database()).await.len(), 1);
}
