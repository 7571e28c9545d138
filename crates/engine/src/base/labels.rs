//! Labels of a statement: what its cost is told of by, `experiment=x,metric=y`.

use std::collections::BTreeMap;

/// Labels at once.
const MOST: usize = 16;
/// Bytes of a name, and of a value.
const BYTES: usize = 256;

/// Reads `name=value,name=value`; values may be in single quotes, in which commas are characters.
///
/// # Errors
/// What is wrong with it.
pub fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let wrong = || format!("labels are name=value with commas between them, not `{rest}`");
        let (name, after) = rest.split_once('=').ok_or_else(wrong)?;
        let (name, after) = (name.trim(), after.trim_start());
        let (value, after) = match after.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').ok_or_else(wrong)?,
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(wrong());
        }
        if name.len() > BYTES || value.len() > BYTES || labels.len() == MOST {
            return Err(format!(
                "there are at most {MOST} labels, with names and values of {BYTES} bytes"
            ));
        }
        labels.insert(name.to_lowercase(), value.trim().to_owned());
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(rest) => rest.trim_start(),
            None if after.is_empty() => after,
            None => return Err(wrong()),
        };
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names_and_values() {
        let shown = |text: &str| parse_labels(text).map(|labels| format!("{labels:?}"));
        for (text, expected) in [
            ("", "{}"),
            ("experiment=x, Metric = y", r#"{"experiment": "x", "metric": "y"}"#),
            ("experiment='a, b',metric='m'", r#"{"experiment": "a, b", "metric": "m"}"#),
            ("a=", r#"{"a": ""}"#),
        ] {
            assert_eq!(shown(text).unwrap(), expected, "{text}");
        }
        let many: Vec<String> = (0..17).map(|n| format!("l{n}=1")).collect();
        let long = format!("a={}", "x".repeat(257));
        for text in ["a", "=b", "a='b", "a='b'c", "a b=c", "a=b,,", &many.join(","), &long] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
