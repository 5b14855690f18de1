use actix_web::HttpRequest;
use idem_runtime::{BuildError, Idempotency, IdempotencyBuilder, store::MemoryStore};
use std::time::Duration;

fn builder() -> IdempotencyBuilder {
    Idempotency::builder(MemoryStore::new())
}

#[actix_web::test]
async fn an_unknown_scope_is_found_at_start_up_with_route_file_and_line() {
    let Err(BuildError::Mistakes(mistakes)) = builder()
        .scope("users", |_: HttpRequest| "somebody")
        .build()
    else {
        panic!("the routes of this program name the scope \"user\"")
    };
    let of_create: Vec<_> = mistakes
        .iter()
        .filter(|line| line.contains("app::create"))
        .collect();
    assert_eq!(of_create.len(), 1, "{mistakes:?}");
    for part in [
        "engine/app.rs:",
        "\"user\"",
        "\"users\"",
        ".scope(\"user\", …)",
    ] {
        assert!(of_create[0].contains(part), "{part}: {of_create:?}");
    }
}

#[actix_web::test]
async fn impossible_options_are_found_at_start_up_all_at_once() {
    let Err(BuildError::Mistakes(mistakes)) = builder()
        .scope("user", |_: HttpRequest| "somebody")
        .scope("user", |_: HttpRequest| "somebody else")
        .lease(Duration::ZERO)
        .store_timeout(Duration::ZERO)
        .header("not a header")
        .release_on(&[201, 429, 399, 600])
        .build()
    else {
        panic!("seven mistakes")
    };
    assert_eq!(mistakes.len(), 7, "{mistakes:?}");
    for status in [201, 399, 600] {
        let said = format!("from 400 to 599, and {status} is none");
        assert!(
            mistakes.iter().any(|mistake| mistake.contains(&said)),
            "{said}: {mistakes:?}"
        );
    }
}

#[actix_web::test]
async fn waiting_longer_than_an_answer_is_kept_is_found_at_start_up() {
    let Err(BuildError::Mistakes(mistakes)) = builder()
        .scope("user", |_: HttpRequest| "somebody")
        .wait(Duration::from_secs(2 * 60 * 60))
        .build()
    else {
        panic!("a duplicate would outlast what it waits for")
    };
    assert!(
        mistakes.iter().all(|mistake| mistake.contains("`ttl`")),
        "{mistakes:?}"
    );
}

#[test]
fn a_build_outside_of_a_runtime_is_an_error_that_says_so() {
    let error = builder()
        .scope("user", |_: HttpRequest| "somebody")
        .build()
        .expect_err("no runtime here");
    assert_eq!(error, BuildError::NoRuntime);
}

#[actix_web::test]
async fn the_effective_policy_of_every_route_can_be_listed() {
    let idempotency = builder()
        .scope("user", |_: HttpRequest| "somebody")
        .lease(Duration::from_secs(7))
        .build()
        .expect("valid");
    let policies = idempotency.policies();
    let create = policies
        .iter()
        .find(|route| route.handler.ends_with("app::create"))
        .expect("the handler is listed");
    assert_eq!(create.policy.ttl, Duration::from_secs(3600));
    assert_eq!(create.policy.lease, Duration::from_secs(7));
    assert_eq!(create.policy.scope.to_string(), "user");
}
