//! The documented guarantees name tests that exist.

use std::{fs, path::Path};

const PAGE: &str = include_str!("../../idem-runtime/src/guarantees.md");

/// All Rust source below a folder of the workspace.
fn source(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut text = String::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &source(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(&path).unwrap();
        }
    }
    text
}

/// What a piece of code on the page names, if it is a test: nothing else has so many words.
fn is_a_test(code: &str) -> bool {
    code.matches('_').count() >= 4
}

#[test]
fn every_row_of_the_guarantees_names_a_test() {
    let rows = PAGE.lines().filter(|line| {
        let heading = ["| event ", "| option ", "|---"];
        line.starts_with('|') && !heading.iter().any(|start| line.starts_with(start))
    });
    let mut count = 0;
    for row in rows {
        let last = row.trim_end_matches(['|', ' ']).rsplit(" | ").next();
        let named = last.unwrap_or_default().split('`').skip(1).step_by(2);
        assert!(named.clone().any(is_a_test), "no test: {row}");
        count += 1;
    }
    assert!(
        count > 40,
        "{count} rows found: has the page's form changed?"
    );
}

#[test]
fn every_test_that_the_guarantees_name_exists() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tests = [
        "tests",
        "examples/orders/tests",
        "idem-runtime/src/testing/conformance",
    ];
    let tests: String = tests
        .iter()
        .map(|folder| source(&workspace.join(folder)))
        .collect();
    let named = PAGE
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| is_a_test(code));
    let mut count = 0;
    for name in named {
        assert!(
            tests.contains(&format!("fn {name}(")),
            "there is no test `{name}`"
        );
        count += 1;
    }
    assert!(
        count > 30,
        "{count} names found: has the page's form changed?"
    );
}
