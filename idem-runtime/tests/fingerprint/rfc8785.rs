//! The public vectors of RFC 8785 (JSON canonicalisation): what is one document there is one here.
//! P15

use crate::of_json;

macro_rules! vector {
    ($name:literal) => {
        (
            include_str!(concat!("data/rfc8785/input/", $name, ".json")),
            include_str!(concat!("data/rfc8785/output/", $name, ".json")),
        )
    };
}

#[test]
fn inputs_and_their_canonical_forms_are_equal() {
    for (input, output) in [
        vector!("arrays"),
        vector!("french"),
        vector!("structures"),
        vector!("unicode"),
        vector!("weird"),
    ] {
        assert_eq!(of_json(input), of_json(output), "{input}");
    }
}

#[test]
fn numbers_are_exact_where_the_rfc_rounds() {
    let (input, output) = vector!("values");
    // One number of this vector has more digits than a double; there it loses the last of them.
    assert_ne!(of_json(input), of_json(output));
    let rounded = input.replace("333333333.33333329", "333333333.3333333");
    assert_ne!(input, rounded);
    assert_eq!(of_json(rounded), of_json(output));
}
