//! Durations as people write them: `"24h"`, `"1h 30m"`, `"500ms"`.

use std::time::Duration;

/// Ten years of 365.25 days. A record that is to live longer is a slip of the unit.
const LONGEST: Duration = Duration::from_secs(315_576_000);

/// Parses a duration into whole milliseconds.
///
/// # Errors
///
/// What is wrong with it, as the rest of a sentence that begins with the option's name.
pub(crate) fn parse_millis(text: &str) -> Result<u64, String> {
    let duration = humantime::parse_duration(text).map_err(|error| explain(text, &error))?;
    if duration.is_zero() {
        return Err(
            "must be longer than zero: write it like \"24h\", \"1h 30m\" or \"500ms\"".to_owned(),
        );
    }
    if duration > LONGEST {
        return Err(format!(
            "is longer than ten years: `{text}` is probably a slip of the unit (`M` is a month, `m` a minute); write it like \"24h\" or \"30d\""
        ));
    }
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Err("must be whole milliseconds, such as \"500ms\"".to_owned());
    }
    u64::try_from(duration.as_millis()).map_err(|_| too_long(text))
}

fn explain(text: &str, error: &humantime::DurationError) -> String {
    use humantime::DurationError;
    match error {
        DurationError::Empty => "is empty: write a duration such as \"24h\"".to_owned(),
        DurationError::UnknownUnit { unit, value, .. } if unit.is_empty() => {
            format!("has a number without a unit: write `{value}s`, `{value}m` or `{value}h`")
        }
        DurationError::UnknownUnit { unit, .. } => {
            format!(
                "has an unknown unit `{unit}`: use `ms`, `s`, `m`, `h`, `d` or `w`, as in \"24h\" or \"1h 30m\""
            )
        }
        DurationError::NumberOverflow => too_long(text),
        _ => format!("is not a duration ({error}): write it like \"24h\", \"1h 30m\" or \"500ms\""),
    }
}

fn too_long(text: &str) -> String {
    format!(
        "cannot be as long, or as finely divided, as `{text}`: write it like \"24h\", \"1h 30m\" or \"500ms\""
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::parse_millis;

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in [
            ("24h", 86_400_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
            ("30 s", 30_000),
            ("1ms", 1),
            ("1.5s", 1_500),
            ("10years", 315_576_000_000),
        ] {
            assert_eq!(parse_millis(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, complaint) in [
            ("", "is empty"),
            ("  ", "is empty"),
            ("24", "write `24s`, `24m` or `24h`"),
            ("24x", "unknown unit `x`"),
            ("h", "is not a duration"),
            ("-1h", "is not a duration"),
            ("1h,30m", "is not a duration"),
            ("0s", "longer than zero"),
            ("0h 0m", "longer than zero"),
            ("11years", "ten years"),
            ("315576001s", "ten years"),
            ("99999999999999999999h", "cannot be as long"),
            ("1us", "whole milliseconds"),
            ("1500us", "whole milliseconds"),
        ] {
            let Err(error) = parse_millis(text) else {
                panic!("{text} was accepted");
            };
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }
}
