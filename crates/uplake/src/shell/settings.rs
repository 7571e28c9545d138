//! What commands of the shell change, and what they look up.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use uplake_table::{AsOf, Lake};

use crate::answer::Writing;
use crate::output::{bytes_text, statement_error, terminal_size};
use crate::records::Records;
use crate::shell::meta::{Meta, help};
use crate::shell::script::{Step, steps};

/// How a shell, or a script, writes.
pub struct Settings {
    pub writing: Writing,
    pub timing: bool,
    pub pager: bool,
    /// Where rows go that do not go to where they went at first.
    pub output: Option<BufWriter<File>>,
}

impl Settings {
    pub fn new(writing: Writing, timing: bool) -> Self {
        Self { writing, timing, pager: true, output: None }
    }

    /// For the next answer: the terminal may have another size by now.
    pub fn writing(&self) -> Writing {
        let width = terminal_size().map(|(columns, _)| columns).filter(|_| self.output.is_none());
        Writing { width, ..self.writing }
    }

    /// Does what a command says that needs no lake; what it has to say.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn change(&mut self, command: Meta) -> Result<String> {
        let on_off = |on: bool| if on { "on" } else { "off" };
        Ok(match command {
            Meta::Timing(wanted) => {
                self.timing = wanted.unwrap_or(!self.timing);
                format!("timing is {}", on_off(self.timing))
            }
            Meta::Pager(wanted) => {
                self.pager = wanted.unwrap_or(!self.pager);
                format!("the pager is {}", on_off(self.pager))
            }
            Meta::Records(wanted) => {
                let other = match self.writing.records {
                    Records::On => Records::Off,
                    Records::Auto | Records::Off => Records::On,
                };
                self.writing.records = wanted.unwrap_or(other);
                match self.writing.records {
                    Records::On => "each row is shown as a record".to_owned(),
                    Records::Off => "rows are shown as tables".to_owned(),
                    Records::Auto => "rows that are too wide are shown as records".to_owned(),
                }
            }
            Meta::Output(path) => {
                if let Some(mut file) = self.output.take() {
                    file.flush().context("writing rows")?;
                }
                match path {
                    None => "rows go where they went at first".to_owned(),
                    Some(path) => {
                        let file =
                            File::create(&path).with_context(|| format!("writing {path}"))?;
                        self.output = Some(BufWriter::new(file));
                        format!("rows go to {path}")
                    }
                }
            }
            Meta::Help => help(),
            Meta::Tables | Meta::Describe(_) | Meta::Include(_) | Meta::Quit => String::new(),
        })
    }
}

/// The steps of a file, and its text.
///
/// # Errors
/// A file that cannot be read, or is no text of statements.
pub fn read_script(path: &str) -> Result<(Vec<(u64, Step)>, String)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let found = steps(&text).map_err(|error| statement_error(error, &text));
    Ok((found.with_context(|| format!("in {path}"))?, text))
}

/// A line about a table's rows, files and layout; nothing if there is none.
pub async fn table_size(lake: &Lake, name: &str) -> Option<String> {
    let bare = name.trim_matches('"');
    let names = lake.table_names().await.ok()?;
    let exact = names.iter().find(|one| *one == bare);
    let name = exact.or_else(|| names.iter().find(|one| one.eq_ignore_ascii_case(bare)))?;
    let snapshot = lake.snapshot(name, &AsOf::Latest).await.ok()?;
    let files = snapshot.files().len();
    let rows = snapshot.rows().map_or("an unknown number of".to_owned(), |rows| rows.to_string());
    let mut text = format!(
        "{rows} row{} in {files} file{}, {}",
        if snapshot.rows() == Some(1) { "" } else { "s" },
        if files == 1 { "" } else { "s" },
        bytes_text(snapshot.size_bytes()),
    );
    let mut add = |words: &str, columns: Vec<String>| {
        if !columns.is_empty() {
            text.push_str(&format!("; {words} {}", columns.join(", ")));
        }
    };
    add("partitioned by", snapshot.partition_columns().to_vec());
    add("clustered by", snapshot.cluster_by().to_vec());
    add("primary key", snapshot.primary_key().to_vec());
    let indexes = snapshot.indexes().iter();
    add(
        "indexed by",
        indexes.map(|spec| format!("{} {}", spec.column, spec.kind.name())).collect(),
    );
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn a_command_without_a_word_turns_a_setting_round() {
        let mut settings = Settings::new(Writing::new(Format::Table), true);
        let mut change = |command| settings.change(command).expect("no file is written");
        assert_eq!(change(Meta::Timing(None)), "timing is off");
        assert_eq!(change(Meta::Timing(None)), "timing is on");
        assert_eq!(change(Meta::Pager(Some(true))), "the pager is on");
        assert_eq!(change(Meta::Records(None)), "each row is shown as a record");
        assert_eq!(change(Meta::Records(None)), "rows are shown as tables");
        assert_eq!(change(Meta::Records(None)), "each row is shown as a record");
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let path = folder.path().join("none/rows").display().to_string();
        assert!(settings.change(Meta::Output(Some(path))).is_err());
    }
}
