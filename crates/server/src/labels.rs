//! Labels of statements: what their cost is told of by.
//!
//! They come from `SET uplake.labels`, from a request's header, and from comments before the statement, the last of
//! which win: `/*experiment='x',metric='y'*/`. GrowthBook's own are understood: `-- Fact Table: name`, and a condition
//! `experiment_id = 'x'`.

use std::collections::BTreeMap;

use uplake_engine::parse_labels;

pub(crate) type Labels = BTreeMap<String, String>;

/// Those that have a column of their own.
pub(crate) const EXPERIMENT: &str = "experiment";
pub(crate) const METRIC: &str = "metric";
/// What GrowthBook writes before statements about a table of facts, and the label that it becomes.
const FACT_TABLE: (&str, &str) = ("Fact Table:", "fact_table");
/// The column that its statements about an experiment compare.
const EXPERIMENT_ID: &str = "experiment_id";
/// Characters of a name in a comment.
const NAME_CHARACTERS: usize = 256;

/// The labels of a statement: those that were set, and those that its text has.
pub(crate) fn of_statement(set: &Labels, text: &str) -> Labels {
    let mut labels = set.clone();
    let mut rest = text.trim_start();
    loop {
        if let Some((comment, after)) = rest.strip_prefix("/*").and_then(|r| r.split_once("*/")) {
            // A comment may say anything.
            labels.extend(parse_labels(comment).unwrap_or_default());
            rest = after.trim_start();
        } else if let Some(after) = rest.strip_prefix("--") {
            let (line, after) = after.split_once('\n').unwrap_or((after, ""));
            if let Some(name) = line.trim().strip_prefix(FACT_TABLE.0) {
                let name = name.trim().chars().take(NAME_CHARACTERS).collect();
                labels.insert(FACT_TABLE.1.to_owned(), name);
            }
            rest = after.trim_start();
        } else {
            break;
        }
    }
    if !labels.contains_key(EXPERIMENT)
        && let Some(experiment) = compared(rest)
    {
        labels.insert(EXPERIMENT.to_owned(), experiment.to_owned());
    }
    labels
}

/// The text that `experiment_id` is compared with first.
fn compared(text: &str) -> Option<&str> {
    let places = text.match_indices(EXPERIMENT_ID).map(|(at, found)| &text[at + found.len()..]);
    let mut values = places.filter_map(|after| {
        let after = after.trim_start_matches('"').trim_start().strip_prefix('=')?;
        let (value, _) = after.trim_start().strip_prefix('\'')?.split_once('\'')?;
        (!value.is_empty() && value.len() <= NAME_CHARACTERS).then_some(value)
    });
    values.next()
}

/// As one text, in the order of names.
pub(crate) fn shown(labels: &Labels) -> Option<String> {
    let all: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (!all.is_empty()).then(|| all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statements_own_labels_win() {
        let set = parse_labels("experiment=set,team=a").unwrap();
        let of = |text: &str| shown(&of_statement(&set, text)).unwrap();
        assert_eq!(of("SELECT 1"), "experiment=set,team=a");
        assert_eq!(of(" /*experiment='x', metric='y'*/ SELECT 1"), "experiment=x,metric=y,team=a");
        assert_eq!(
            of("/* see #7 */ -- a note\n/*metric=m*/ SELECT 1"),
            "experiment=set,metric=m,team=a"
        );
        // Not before the statement.
        assert_eq!(of("SELECT 1 /*metric=m*/"), "experiment=set,team=a");
        assert_eq!(of("/*metric=m"), "experiment=set,team=a");
    }

    #[test]
    fn statements_of_growthbook_are_understood() {
        let text =
            "-- Fact Table: Orders\nSELECT * FROM e WHERE experiment_id = 'exp-1' AND x = 'y'";
        let labels = of_statement(&Labels::new(), text);
        assert_eq!(shown(&labels).unwrap(), "experiment=exp-1,fact_table=Orders");
        for (text, expected) in [
            ("SELECT e.\"experiment_id\"='a'", Some("a")),
            ("SELECT experiment_id FROM e WHERE experiment_id = 'b'", Some("b")),
            ("SELECT experiment_id IN ('a')", None),
            ("SELECT experiment_id = ''", None),
        ] {
            let found = of_statement(&Labels::new(), text);
            assert_eq!(found.get(EXPERIMENT).map(String::as_str), expected, "{text}");
        }
    }
}
