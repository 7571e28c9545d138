//! A text of statements and commands, as `-c`, `-f`, standard input and `\i` have them.

use uplake_engine::{EngineError, Statement, parse_each};

use crate::shell::meta::{Meta, meta_of};
use crate::shell::open::extent;

/// What a script asks for.
pub enum Step {
    Sql(Result<Box<Statement>, EngineError>),
    Command(Result<Meta, String>),
}

impl Step {
    /// Does it write rows, as far as one can know?
    pub fn has_rows(&self) -> bool {
        match self {
            Self::Sql(_) => true,
            Self::Command(command) => {
                matches!(command, Ok(Meta::Tables | Meta::Describe(_) | Meta::Include(_)))
            }
        }
    }
}

/// The steps of a text, each with its line, the first being 1. A command is a line of its own, where no statement is
/// open.
///
/// # Errors
/// As [`parse_each`].
pub fn steps(text: &str) -> Result<Vec<(u64, Step)>, EngineError> {
    let mut steps = Vec::new();
    let mut sql = String::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let command = line.trim_start().starts_with('\\').then(|| meta_of(line)).flatten();
        if let Some(command) = command.filter(|_| extent(&sql).open.is_none()) {
            add(&sql, &mut steps)?;
            steps.push((number as u64 + 1, Step::Command(command)));
            // What comes later keeps its line.
            sql = "\n".repeat(number + 1);
        } else {
            sql.push_str(line);
        }
    }
    add(&sql, &mut steps)?;
    Ok(steps)
}

fn add(sql: &str, steps: &mut Vec<(u64, Step)>) -> Result<(), EngineError> {
    for (place, statement) in parse_each(sql)? {
        steps.push((place.line, Step::Sql(statement.map(Box::new))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stand_between_statements_and_all_keep_their_lines() {
        let text = "SELECT 1;\n\\timing on\nSELECT\n2; SELECT '\n\\q';\n  \\dt\n\nSELECT 3";
        let found = steps(text).expect("it is SQL");
        let shown: Vec<(u64, String)> = found
            .into_iter()
            .map(|(line, step)| match step {
                Step::Sql(statement) => (line, statement.expect("it is SQL").text),
                Step::Command(command) => (line, format!("{:?}", command.expect("it is one"))),
            })
            .collect();
        let expected = [
            (1, "SELECT 1"),
            (2, "Timing(Some(true))"),
            (3, "SELECT\n2"),
            (4, "SELECT '\n\\q'"),
            (6, "Tables"),
            (8, "SELECT 3"),
        ];
        assert_eq!(shown, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn a_command_that_is_not_there_is_a_step_that_fails() {
        let found = steps("\\nothing").expect("no SQL is no error");
        assert!(matches!(&found[..], [(1, Step::Command(Err(_)))]));
    }
}
