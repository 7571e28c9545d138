//! Text of an interval with a clock, `1 mon -1 days +02:03:04.5`, as DataFusion reads it: in units, without a plus.

/// `None` for what has neither a clock nor a plus, or is no clock.
pub(crate) fn in_units(text: &str) -> Option<String> {
    if !text.contains([':', '+']) {
        return None;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let in_units = words.iter().enumerate().map(|(at, word)| {
        if word.contains(':') {
            return clock_in_units(word);
        }
        // A number before a clock is of days.
        let is_days = word.ends_with(|c: char| c.is_ascii_digit())
            && words.get(at + 1).is_some_and(|next| next.contains(':'));
        let unit = if is_days { " days" } else { "" };
        Some(format!("{}{unit}", word.strip_prefix('+').unwrap_or(word)))
    });
    Some(in_units.collect::<Option<Vec<_>>>()?.join(" "))
}

/// `-01:30` as `-1 hours -30 minutes`.
fn clock_in_units(word: &str) -> Option<String> {
    let (sign, clock) = match word.strip_prefix('-') {
        Some(clock) => ("-", clock),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let (hours, rest) = clock.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':').unwrap_or((rest, "0"));
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_of_60 = |part: &str| part.parse::<u8>().is_ok_and(|number| number < 60);
    let is_clock = [hours, minutes, whole, fraction].into_iter().all(is_number);
    (is_clock && is_of_60(minutes) && is_of_60(whole))
        .then(|| format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_become_units_and_nothing_else_does() {
        for (text, expected) in [
            ("01:30", Some("01 hours 30 minutes 0 seconds")),
            ("1 day 100:00:00.5", Some("1 day 100 hours 00 minutes 00.5 seconds")),
            ("-1 mons +2 days -00:00:07", Some("-1 mons 2 days -00 hours -00 minutes -07 seconds")),
            ("-1 days +02:03:04", Some("-1 days 02 hours 03 minutes 04 seconds")),
            ("1 2:03", Some("1 days 2 hours 03 minutes 0 seconds")),
            ("1 day", None),
            ("90", None),
            ("1:60", None),
            ("1:00:61", None),
            ("1:", None),
            ("a:b", None),
            ("1:2:3:4", None),
            ("1:00:00.", None),
        ] {
            assert_eq!(in_units(text).as_deref(), expected, "{text}");
        }
    }
}
