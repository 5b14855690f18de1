//! Whose a key is, and where it is one.

use crate::LAB;
use idem_tests::harness::{Site, assert_replay};
use reqwest::{Method, StatusCode};

#[tokio::test]
async fn two_users_with_one_key_have_an_order_each() {
    // F1, F4
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k").json("{}");
        let alice = order.send().await;
        let bob = order.clone().user("bob").send().await;
        alice.assert_created();
        bob.assert_created();
        assert_ne!(alice.id(), bob.id());
        let anonymous = order.clone().user("anonymous").send().await;
        anonymous.assert_created();
        assert_eq!(order.clone().anonymous().send().await.status, 401);
        // K6: letters that some collations take for equal.
        for user in ["Alice", "álice"] {
            order.clone().user(user).send().await.assert_created();
        }
        assert_replay(&alice, &order.send().await);
        assert_eq!(site.journal.effects("k"), 5);
    })
    .await;
}

#[tokio::test]
async fn a_key_is_bound_to_method_and_path() {
    // F2, M4
    Site::on_each(LAB, &[], async |site| {
        let calls = [
            site.post("/default"),
            site.call(Method::PATCH, "/default/1"),
            site.call(Method::PUT, "/default/1"),
            site.call(Method::PUT, "/default/2"),
            site.post("/required"),
        ]
        .map(|call| call.key("k").json("{}"));
        let mut firsts = Vec::new();
        for call in &calls {
            let first = call.send().await;
            first.assert_created();
            firsts.push(first);
        }
        for (call, first) in calls.iter().zip(&firsts) {
            assert_replay(first, &call.send().await);
        }
        assert_eq!(site.journal.effects("k"), calls.len());
    })
    .await;
}

#[tokio::test]
async fn two_handlers_of_one_program_never_share_a_record() {
    // F12
    Site::on_each(LAB, &[], async |site| {
        let [one, two] = ["/default", "/required"].map(|path| site.post(path).key("k").json("{}"));
        let (first, second) = tokio::join!(
            one.clone().delay_ms(100).spawn(),
            two.clone().delay_ms(100).spawn()
        );
        let (first, second) = (first.unwrap(), second.unwrap());
        first.assert_created();
        second.assert_created();
        assert_ne!(first.id(), second.id());
        assert_replay(&first, &one.send().await);
        assert_replay(&second, &two.send().await);
        let mut routes: Vec<_> = site
            .records()
            .await
            .iter()
            .map(|record| record["route"].as_str().unwrap().to_owned())
            .collect();
        routes.sort();
        assert_eq!(routes, ["POST /default", "POST /required"]);
    })
    .await;
}

#[tokio::test]
async fn a_revoked_caller_gets_no_replay() {
    // F5
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k").json("{}");
        let first = order.send().await;
        first.assert_created();
        let user = site.token("alice").trim_start_matches("Bearer ").to_owned();
        let revoke = site.post(&format!("/lab/revoke/{user}"));
        assert_eq!(revoke.send().await.status, StatusCode::NO_CONTENT);
        let refused = order.send().await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(!text.contains(&first.id().to_string()), "{text}");
        assert!(!refused.is_replay());
        order.user("bob").send().await.assert_created();
    })
    .await;
}

#[tokio::test]
async fn tenants_keep_users_of_one_name_apart_and_nobody_owns_nothing() {
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/tenant").key("k").json("{}");
        let acme = order.clone().user("alice@acme");
        let umbrella = order.clone().user("alice@umbrella");
        let first = acme.send().await;
        first.assert_created();
        umbrella.send().await.assert_created();
        assert_replay(&first, &acme.send().await);
        // Where the parts meet they do not run together.
        let odd = order.clone().user("b:c@a");
        odd.send().await.assert_created();
        order.clone().user("c@a:b").send().await.assert_created();
        order.send().await.assert_problem(403, "scope-unresolved");
        assert_eq!(site.journal.effects("k"), 4);
    })
    .await;
}

#[tokio::test]
async fn a_global_key_is_shared_by_all_where_the_route_says_so() {
    // F11
    Site::on_each(LAB, &[], async |site| {
        let key = uuid::Uuid::new_v4().to_string();
        let order = site.post("/global").key(&key).json("{}");
        let first = order.send().await;
        first.assert_created();
        assert_replay(&first, &order.clone().user("bob").send().await);
        assert_eq!(site.journal.effects(&key), 1);
    })
    .await;
}
