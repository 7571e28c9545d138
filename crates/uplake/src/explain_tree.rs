//! EXPLAIN as a tree that fits the terminal: each operator's name, its rows and time, and what else there is room for.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// An operator of a plan.
struct Operator<'a> {
    depth: usize,
    name: &'a str,
    details: &'a str,
    rows: Option<&'a str>,
    time: Option<&'a str>,
}

/// The tree of a plan as DataFusion writes it: one line for each operator, two spaces for each level. `None` if that
/// is not what it is.
pub fn tree_text(plan: &str, width: usize) -> Option<String> {
    let lines = plan.lines().filter(|line| !line.trim().is_empty());
    let operators: Vec<Operator> = lines.map(operator).collect::<Option<_>>()?;
    if operators.first()?.depth != 0
        || operators.windows(2).any(|pair| pair[1].depth > pair[0].depth + 1 || pair[1].depth == 0)
    {
        return None;
    }
    let measured = operators.iter().any(|o| o.rows.is_some() || o.time.is_some());
    let column = |value: fn(&Operator) -> usize, least: usize| {
        operators.iter().map(value).max().unwrap_or_default().max(least)
    };
    let rows_width = column(|o| o.rows.map_or(0, |text| text.width()), 4);
    let time_width = column(|o| o.time.map_or(0, |text| text.width()), 4);
    let mut text = String::new();
    let numbers = |rows: &str, time: &str| {
        let pad = |text: &str, width: usize| " ".repeat(width.saturating_sub(text.width()));
        format!("{}{rows}  {}{time}  ", pad(rows, rows_width), pad(time, time_width))
    };
    if measured {
        text.push_str(&format!("{}operator\n", numbers("rows", "time")));
    }
    for (at, operator) in operators.iter().enumerate() {
        let mut line = match measured {
            true => numbers(operator.rows.unwrap_or(""), operator.time.unwrap_or("")),
            false => String::new(),
        };
        line.push_str(&branches(&operators, at));
        line.push_str(operator.name);
        if !operator.details.is_empty() {
            line.push_str(": ");
            line.push_str(operator.details);
        }
        text.push_str(&cut(&line, width));
        text.push('\n');
    }
    Some(text.trim_end().to_owned())
}

fn operator(line: &str) -> Option<Operator<'_>> {
    let trimmed = line.trim_start_matches(' ');
    let spaces = line.len() - trimmed.len();
    let (before, metrics) = match trimmed.rfind(", metrics=[") {
        Some(at) => (&trimmed[..at], trimmed[at + ", metrics=[".len()..].trim_end_matches(']')),
        None => (trimmed, ""),
    };
    let (name, details) = before.split_once(": ").unwrap_or((before, ""));
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ' ' || c == '|');
    let value = |wanted: &str| {
        let is_it = |(name, _): &(&str, &str)| *name == wanted;
        metrics
            .split(", ")
            .filter_map(|one| one.split_once('='))
            .find(is_it)
            .map(|(_, value)| value)
    };
    // A scan's own time is that of its decoding, which its `elapsed_compute` leaves out.
    let time = value("time_elapsed_processing").or_else(|| value("elapsed_compute"));
    let (depth, is_level) = (spaces / 2, spaces.is_multiple_of(2));
    (is_level && is_name && !name.is_empty()).then_some(Operator {
        depth,
        name,
        details,
        rows: value("output_rows"),
        time,
    })
}

/// The lines of the tree before an operator.
fn branches(operators: &[Operator], at: usize) -> String {
    let depth = operators[at].depth;
    let mut text = String::new();
    for level in 1..=depth {
        // Does another child of the one above come after this?
        let mut later = operators[at + 1..].iter().take_while(|o| o.depth >= level);
        let goes_on = later.any(|o| o.depth == level);
        text.push_str(match (level == depth, goes_on) {
            (true, true) => "├─ ",
            (true, false) => "└─ ",
            (false, true) => "│  ",
            (false, false) => "   ",
        });
    }
    text
}

/// A line of at most so many columns.
fn cut(line: &str, width: usize) -> String {
    // A set of ids may be megabytes long: what is beyond the terminal is not looked at.
    let (mut used, mut end) = (0, 0);
    for (at, character) in line.char_indices() {
        let columns = character.width().unwrap_or_default();
        if used + columns > width {
            let kept: String = line[..end].to_owned();
            return format!("{kept}…");
        }
        used += columns;
        // Room for the mark.
        if used < width {
            end = at + character.len_utf8();
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "SortExec: TopK(fetch=3), metrics=[output_rows=3, elapsed_compute=43.70µs]
  HashJoinExec: on=[(a@1, b@0)], metrics=[output_rows=71.45 K, elapsed_compute=14.07ms, build_time=1.16ms]
    CoalescePartitionsExec, metrics=[output_rows=22.30 K, elapsed_compute=148.80µs]
      DataSourceExec: files={, metrics=[x], predicate=p, metrics=[output_rows=313.6 K, elapsed_compute=212.53µs, time_elapsed_processing=47.54ms]
    DataSourceExec: files, metrics=[]";

    #[test]
    fn a_plan_is_a_tree_with_rows_and_times() {
        let text = tree_text(PLAN, 60).expect("it is a plan");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "   rows      time  operator",
                "      3   43.70µs  SortExec: TopK(fetch=3)",
                "71.45 K   14.07ms  └─ HashJoinExec: on=[(a@1, b@0)]",
                "22.30 K  148.80µs     ├─ CoalescePartitionsExec",
                "313.6 K   47.54ms     │  └─ DataSourceExec: files={, metric…",
                "                      └─ DataSourceExec: files",
            ]
        );
        assert!(lines.iter().all(|line| line.width() <= 60));
    }

    #[test]
    fn without_measures_there_are_none() {
        let plan = "Projection: a\n  Filter: a > 1\n    TableScan: t projection=[a]";
        let text = tree_text(plan, 80).expect("it is a plan");
        assert_eq!(text, "Projection: a\n└─ Filter: a > 1\n   └─ TableScan: t projection=[a]");
    }

    #[test]
    fn what_is_no_such_plan_is_left_as_it_is() {
        for text in ["", "┌────┐\n│ a  │", "{\"plan\": 1}", "A\nB", "A\n    B"] {
            assert_eq!(tree_text(text, 80), None, "{text}");
        }
    }
}
