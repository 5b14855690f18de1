//! What the attribute accepts and how it refuses the rest: see `README.md` beside this file.

#[test]
fn accepts_what_actix_accepts() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui/pass/*.rs");
}

#[test]
fn refuses_with_a_message_at_the_mistake() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/fail/*.rs");
}
