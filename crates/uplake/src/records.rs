//! Rows as records, a line for each column: for rows that are wider than the terminal.

use unicode_width::UnicodeWidthStr;

/// When rows are shown as records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Records {
    /// When a table of them does not fit the terminal.
    #[default]
    Auto,
    On,
    Off,
}

impl Records {
    /// For a table so wide; `width`: the terminal's, if there is one.
    pub fn wanted(self, table_width: usize, width: Option<usize>) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Auto => width.is_some_and(|width| table_width > width),
        }
    }
}

/// Each row's values, in the order of `names`.
pub fn records_text(names: &[String], rows: &[Vec<String>], width: Option<usize>) -> String {
    let longest = names.iter().map(|name| name.width()).max().unwrap_or_default();
    // A line across, with the number of the row at its beginning.
    let across = width.unwrap_or(40).min(longest + 40);
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let title = format!("─[ row {} ]", number + 1);
        let rest = across.saturating_sub(title.width());
        text.push_str(&format!("{title}{}\n", "─".repeat(rest)));
        for (name, value) in names.iter().zip(row) {
            let space = " ".repeat(longest - name.width());
            for (line, part) in value.split('\n').enumerate() {
                match line {
                    0 => text.push_str(&format!("{name}{space} │ {part}\n")),
                    _ => text.push_str(&format!("{} │ {part}\n", " ".repeat(longest))),
                }
            }
        }
    }
    text.trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_a_line_for_each_column() {
        let names = ["id".to_owned(), "größe".to_owned()];
        let rows =
            [vec!["1".to_owned(), "a\nb".to_owned()], vec!["2".to_owned(), "NULL".to_owned()]];
        let text = records_text(&names, &rows, Some(16));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "─[ row 1 ]──────",
                "id    │ 1",
                "größe │ a",
                "      │ b",
                "─[ row 2 ]──────",
                "id    │ 2",
                "größe │ NULL",
            ]
        );
    }

    #[test]
    fn a_table_that_fits_stays_one() {
        assert!(!Records::Auto.wanted(80, Some(80)) && Records::Auto.wanted(81, Some(80)));
        assert!(!Records::Auto.wanted(1000, None) && Records::On.wanted(1, None));
        assert!(!Records::Off.wanted(1000, Some(80)));
    }
}
