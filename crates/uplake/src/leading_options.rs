//! Options of a lake that stand before the command: `uplake --lake x sql` is `uplake sql --lake x`.
//!
//! Commands that have a lake take its options, and only those show them in their help; clap would show them with all
//! if they were options of `uplake` itself.

use std::ffi::OsString;

use clap::{ArgAction, Args, Command};

use crate::LakeArgs;

/// The arguments with such options behind the command. What is none is left to clap.
pub fn after_command(arguments: Vec<OsString>) -> Vec<OsString> {
    // Mostly there are none.
    let first = arguments.get(1).and_then(|argument| argument.to_str());
    if !first.is_some_and(|argument| argument.starts_with("--")) {
        return arguments;
    }
    let lake = LakeArgs::augment_args(Command::new("lake"));
    let mut rest = arguments.into_iter();
    let mut moved = Vec::new();
    let mut arranged: Vec<OsString> = rest.next().into_iter().collect();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy().into_owned();
        let (name, has_value) = match text.split_once('=') {
            Some((name, _)) => (name, true),
            None => (text.as_str(), false),
        };
        let is_it = |option: &&clap::Arg| {
            name.strip_prefix("--").is_some_and(|name| option.get_long() == Some(name))
        };
        let Some(option) = lake.get_arguments().find(is_it) else {
            arranged.push(argument);
            break;
        };
        moved.push(argument);
        if !has_value && !matches!(option.get_action(), ArgAction::SetTrue) {
            moved.extend(rest.next());
        }
    }
    arranged.extend(moved);
    arranged.extend(rest);
    arranged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(arguments: &str) -> String {
        let arguments = arguments.split(' ').map(OsString::from).collect();
        let arranged: Vec<String> = after_command(arguments)
            .into_iter()
            .map(|argument| argument.into_string().expect("it was text"))
            .collect();
        arranged.join(" ")
    }

    #[test]
    fn options_of_a_lake_go_behind_the_command() {
        let cases = [
            ("uplake --lake x sql -c 1", "uplake sql --lake x -c 1"),
            ("uplake --lake=x --no-index sql", "uplake sql --lake=x --no-index"),
            ("uplake --threads 2 --lake x table list", "uplake table --threads 2 --lake x list"),
            ("uplake sql --lake x", "uplake sql --lake x"),
            ("uplake --version", "uplake --version"),
            ("uplake --lake x --help", "uplake --help --lake x"),
            ("uplake", "uplake"),
        ];
        for (given, expected) in cases {
            assert_eq!(arranged(given), expected);
        }
    }
}
