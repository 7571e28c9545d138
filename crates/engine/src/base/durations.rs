//! Times as people write and read them.

use std::time::Duration;

/// `30s`, `500ms`, `2m`, `1h` or a number of seconds; `None` for 0, which is no limit.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_timeout(text: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("`{text}` is not a time; write 30s, 500ms, 2m, 1h, or 0 for no limit");
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[number.len()..].to_ascii_lowercase().as_str() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let seconds = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    let timeout = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    Ok((!timeout.is_zero()).then_some(timeout))
}

/// `30 s`, `1.5 s`, `20 ms`.
pub(crate) fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 0.1 => format!("{:.0} ms", s * 1000.0),
        s if s.fract() == 0.0 || s >= 100.0 => format!("{s:.0} s"),
        s => format!("{s:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let seconds = |n| Ok(Some(Duration::from_secs(n)));
        assert_eq!(parse_timeout("30s"), seconds(30));
        assert_eq!(parse_timeout(" 2 m"), seconds(120));
        assert_eq!(parse_timeout("7"), seconds(7));
        assert_eq!(parse_timeout("500ms"), Ok(Some(Duration::from_millis(500))));
        assert_eq!(parse_timeout("0"), Ok(None));
        assert!(
            ["", "s", "-1s", "soon", "NaN", "1e400", "3 days"]
                .iter()
                .all(|t| parse_timeout(t).is_err())
        );
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for text in ["30 s", "1.5 s", "20 ms", "0.2 s"] {
            assert_eq!(duration_text(parse_timeout(text).unwrap().unwrap()), text);
        }
    }
}
