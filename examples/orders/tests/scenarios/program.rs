//! The command line.

use crate::service::orders_program;
use std::{net::TcpListener, process::Output, time::Duration};

async fn output(arguments: &[&str]) -> Output {
    let run = orders_program().args(arguments).output();
    let output = tokio::time::timeout(Duration::from_secs(120), run).await;
    output.expect("the program ends").unwrap()
}

#[tokio::test]
async fn the_demo_plays_every_scene_and_ends_with_equal_counts() {
    let played = output(&["demo"]).await;
    let text = String::from_utf8(played.stdout).unwrap();
    let errors = String::from_utf8(played.stderr).unwrap();
    assert!(played.status.success(), "{text}\n{errors}");
    assert!(text.ends_with("\norders: 5, charges: 5\n"), "{text}");
    assert!(!text.contains('✘'), "{text}");
    for shown in [
        "→ POST /api/v1/orders",
        "Idempotency-Key: 9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d",
        "← 201 Created",
        "Idempotent-Replayed: true",
        "← 409 Conflict",
        "Retry-After: 1",
        "← 422 Unprocessable Entity",
        "← 400 Bad Request",
        "→ POST /api/v1/payments",
        "and the service is killed",
    ] {
        assert!(text.contains(shown), "{shown} is missing:\n{text}");
    }
}

#[tokio::test]
async fn a_taken_port_is_one_line_that_says_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("orders.db");
    let refused = output(&["--bind", &address, "--database", database.to_str().unwrap()]).await;
    assert_eq!(refused.status.code(), Some(1));
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains(&address) && errors.contains("--bind"),
        "{errors}"
    );
    let left = directory.path().read_dir().unwrap().count();
    assert_eq!(left, 0, "files are left");
}

#[tokio::test]
async fn a_database_that_cannot_be_opened_is_one_line_that_names_it_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let folder = at("no/such/folder");
    let no_database = at("notes.txt");
    std::fs::write(
        &no_database,
        "This file is not a database, but a longer text.",
    )
    .unwrap();
    for (database, named, why) in [
        (
            format!("{folder}/orders.db"),
            &*folder,
            "there is no folder",
        ),
        (at(""), &*at(""), "unable to open"),
        (no_database.clone(), &*no_database, "not a database"),
        (
            format!("sqlite:{folder}.db"),
            &*folder,
            "without \"sqlite:\"",
        ),
    ] {
        let refused = output(&["--bind", "127.0.0.1:0", "--database", &database]).await;
        assert_eq!(refused.status.code(), Some(1), "{database}");
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        for part in [named, why, "--database", "ORDERS_DATABASE"] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
    }
}

#[tokio::test]
async fn a_gateway_that_is_no_url_is_refused_in_one_line_before_anything_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("orders.db");
    for gateway in [
        "nonsense",
        "",
        "localhost:9000",
        "ftp://host",
        "https://host",
    ] {
        let file = database.to_str().unwrap();
        let arguments = [
            "--bind",
            "127.0.0.1:0",
            "--database",
            file,
            "--gateway",
            gateway,
        ];
        let refused = output(&arguments).await;
        assert_eq!(refused.status.code(), Some(1), "{gateway}");
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(
            errors.contains("--gateway") && errors.contains("http://127.0.0.1:9000"),
            "{errors}"
        );
        assert!(!database.exists(), "{gateway}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_one_line_that_does_not_tell_its_password() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("orders.db");
    for (store, said) in [
        ("oracle://shop:geheim@localhost/shop", "redis-cluster://"),
        ("postgres://shop:geheim@127.0.0.1:1/shop", "postgres"),
        ("mysql://shop:geheim@127.0.0.1:1/shop", "mysql"),
        ("redis://shop:geheim@127.0.0.1:1/", "redis"),
    ] {
        let database = database.to_str().unwrap();
        let arguments = [
            "--bind",
            "127.0.0.1:0",
            "--database",
            database,
            "--store",
            store,
        ];
        let refused = output(&arguments).await;
        assert_eq!(refused.status.code(), Some(1), "{store}");
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains(said), "{errors}");
        assert!(!errors.contains("geheim"), "{errors}");
    }
}
