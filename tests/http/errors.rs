//! Which answers are kept and which free the key.

use crate::LAB;
use idem_tests::harness::{Site, assert_replay};

#[tokio::test]
async fn answers_of_every_status_are_kept_or_released_as_documented() {
    // H1, H4, H9
    Site::on_each(LAB, &[], async |site| {
        for status in [
            200, 201, 204, 301, 303, 400, 401, 402, 403, 404, 408, 409, 410, 412, 422, 425, 429,
            500, 501, 502, 503, 504,
        ] {
            for (path, released) in [
                ("/default", matches!(status, 425 | 429)),
                ("/store-5xx", matches!(status, 425 | 429)),
                ("/release-5xx", matches!(status, 425 | 429 | 500..)),
            ] {
                for way in ["status", "err"] {
                    let key = format!("{way}-{status}");
                    let order = site.post(path).key(&key).json("{}");
                    let first = order
                        .clone()
                        .respond(&format!("{way}:{status}"))
                        .send()
                        .await;
                    assert_eq!(first.status.as_u16(), status, "{path} {way}");
                    assert!(!first.is_replay(), "{path} {way}:{status}");
                    let again = order.send().await;
                    if released {
                        again.assert_created();
                    } else {
                        assert_replay(&first, &again);
                    }
                    // Each handler had its effect before it answered.
                    let effects = site.journal.lines();
                    let effects = effects.iter().filter(|line| {
                        line.phase == "effect"
                            && line.key.as_deref() == Some(&key)
                            && line.route.ends_with(path)
                    });
                    assert_eq!(
                        effects.count(),
                        if released { 2 } else { 1 },
                        "{path} {key}"
                    );
                }
            }
        }
        let records = site.records().await;
        assert!(
            records.iter().all(|record| record["state"] != "PROCESSING"),
            "{records:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn the_handlers_own_word_wins_over_every_rule() {
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("release").json("{}");
        let released = order.clone().respond("release:400").send().await;
        assert_eq!(released.status, 400);
        order.send().await.assert_created();
        for (path, respond) in [("/default", "final:429"), ("/release-5xx", "final:503")] {
            let order = site.post(path).key("final").json("{}");
            let first = order.clone().respond(respond).send().await;
            assert_replay(&first, &order.send().await);
        }
    })
    .await;
}

#[tokio::test]
async fn the_handlers_own_refusal_is_kept_and_binds_the_key_to_its_body() {
    // H2, H5
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k").json(r#"{"quantity":-1}"#);
        let first = order.clone().respond("status:400").send().await;
        assert_replay(&first, &order.send().await);
        order
            .json(r#"{"quantity":1}"#)
            .send()
            .await
            .assert_problem(422, "key-reused");
        // Out of stock; restocked; the answer for this key does not change.
        let order = site.post("/default").key("stock").json("{}");
        let first = order.clone().respond("no-effect:409").send().await;
        assert_replay(&first, &order.send().await);
        order.key("another").send().await.assert_created();
        assert_eq!(site.journal.effects("stock"), 0);
    })
    .await;
}
