//! A long stream of numbers, as programs write them.

use std::collections::HashSet;

use crate::of_json;
use crate::random::Random;

const NUMBERS: usize = 100_000;

/// Doubles of all sizes, halfway and boundary cases among them.
fn double(random: &mut Random) -> f64 {
    loop {
        let bits = random.next();
        let number = match random.below(4) {
            0 => bits as i32 as f64,
            1 => (bits >> 11) as f64,
            2 => (bits % 1_000_000) as f64 / 100.0,
            _ => f64::from_bits(bits),
        };
        if number.is_finite() {
            return number;
        }
    }
}

#[test]
fn short_and_long_spellings_of_a_decimal_are_equal() {
    let mut random = Random::new(8785);
    let (mut short, mut long) = (String::from("["), String::from("["));
    for index in 0..NUMBERS {
        let number = double(&mut random);
        // The same digits: once with an exponent, once written out, up to 300 zeros long.
        for (text, spelling) in [
            (&mut short, format!("{number:e}")),
            (&mut long, number.to_string()),
        ] {
            text.push_str(&spelling);
            text.push(',');
        }
        if index % 100 == 99 {
            for text in [&mut short, &mut long] {
                text.pop();
                text.push(']');
            }
            assert_eq!(of_json(&short), of_json(&long), "{short}");
            short.truncate(1);
            long.truncate(1);
        }
    }
}

#[test]
fn different_numbers_differ() {
    let mut random = Random::new(754);
    let mut numbers = HashSet::new();
    let mut fingerprints = HashSet::new();
    while numbers.len() < NUMBERS {
        let number = double(&mut random);
        for number in [number, number.next_up()] {
            // Both zeros are one number.
            if number.is_finite() && number != 0.0 && numbers.insert(number.to_bits()) {
                fingerprints.insert(of_json(number.to_string()).to_hex());
            }
        }
    }
    assert_eq!(fingerprints.len(), numbers.len());
}

#[test]
fn integers_beyond_doubles_differ() {
    let mut fingerprints = HashSet::new();
    for offset in 0..1_000_u64 {
        fingerprints.insert(of_json((9_007_199_254_740_000 + offset).to_string()).to_hex());
        fingerprints.insert(of_json(format!("{}e20", 9_007_199_254_740_000 + offset)).to_hex());
    }
    assert_eq!(fingerprints.len(), 2_000);
}
