//! Sizes as people write them: `"1MiB"`, `"64 KiB"`, `1000`.

/// Units and their bytes. Both families, since both are in use; a bare `M` or `K` is refused,
/// because half of its readers take it for the other family.
const UNITS: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// The largest limit that makes sense: what is within it is held in memory, per request.
const LARGEST: u64 = 1 << 30;

/// Parses a number of bytes with an optional unit.
///
/// # Errors
///
/// What is wrong with it, as the rest of a sentence that begins with the option's name.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty: write a size such as \"1MiB\"".to_owned());
    }
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
    let (number, unit) = text.split_at(text.len() - digits.len());
    if unit.starts_with('.') {
        return Err("must be a whole number: write \"1536KiB\" instead of \"1.5MiB\"".to_owned());
    }
    let number = number.replace('_', "");
    if number.is_empty() {
        return Err(format!(
            "is not a size: `{text}` does not begin with a number; write it like \"1MiB\" or \"64KiB\""
        ));
    }
    let unit = unit.trim_start();
    let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => return Err(unknown_unit(&number, unit)),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .filter(|bytes| *bytes <= LARGEST)
        .ok_or_else(|| {
            "is over 1GiB: write at most \"1GiB\", since what is within the limit is held in memory"
                .to_owned()
        })
}

fn unknown_unit(number: &str, unit: &str) -> String {
    let family = unit.to_ascii_lowercase();
    let (binary, decimal, power) = match family.strip_suffix('s').unwrap_or(&family) {
        "byte" => return format!("has an unknown unit `{unit}`: write \"{number}B\""),
        "k" | "kb" | "kib" | "kilobyte" | "kibibyte" => ("KiB", "kB", ""),
        "m" | "mb" | "mib" | "megabyte" | "mebibyte" => ("MiB", "MB", "²"),
        "g" | "gb" | "gib" | "gigabyte" | "gibibyte" => ("GiB", "GB", "³"),
        _ => {
            return format!(
                "has an unknown unit `{unit}`: use `B`, `KiB`, `MiB`, `GiB` (powers of 1024), `kB`, `MB` or `GB` (of 1000), as in \"64KiB\" or \"1MiB\""
            );
        }
    };
    format!(
        "has an unknown unit `{unit}`: write \"{number}{binary}\" (1024{power} bytes each) or \"{number}{decimal}\" (1000{power})"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::parse_bytes;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("1MiB", 1 << 20),
            ("64KiB", 64 << 10),
            ("64 KiB", 64 << 10),
            ("1GiB", 1 << 30),
            ("1MB", 1_000_000),
            ("2kB", 2_000),
            ("2KB", 2_000),
            ("10B", 10),
            ("1000", 1_000),
            ("1_000", 1_000),
            ("0", 0),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, complaint) in [
            ("", "is empty"),
            ("MiB", "does not begin with a number"),
            ("-1", "does not begin with a number"),
            ("1M", "write \"1MiB\" (1024² bytes each) or \"1MB\" (1000²)"),
            ("1mib", "write \"1MiB\""),
            ("1 megabyte", "write \"1MiB\""),
            (
                "2 Kilobytes",
                "write \"2KiB\" (1024 bytes each) or \"2kB\" (1000)",
            ),
            ("512 bytes", "write \"512B\""),
            ("1 parsec", "as in \"64KiB\" or \"1MiB\""),
            ("1.5MiB", "whole number"),
            ("2GiB", "over 1GiB"),
            ("99999999999999999999", "over 1GiB"),
            ("1MiB 1KiB", "unknown unit"),
        ] {
            let Err(error) = parse_bytes(text) else {
                panic!("{text} was accepted");
            };
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }
}
