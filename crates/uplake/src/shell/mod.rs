//! The interactive shell: statements over several lines, commands, history, and a pager.
//!
//! # Not here
//! Arguments and scripts are `sql`; how rows are drawn is `output`.

pub mod complete;
pub mod meta;
pub mod open;
mod pager;
pub mod run;
pub mod script;
pub mod settings;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use uplake_engine::{Session, parse};
use uplake_table::{AsOf, Lake};

use crate::environment::Interrupts;
use crate::output::{Format, error_text, say, statement_error, stdout, tell, terminal_size};
use crate::shell::complete::{NameCompleter, Names};
use crate::shell::meta::{Meta, meta_of};
use crate::shell::open::{Open, extent};
use crate::shell::run::run_one;
use crate::shell::script::Step;
use crate::shell::settings::Settings;

const HISTORY_LINES: usize = 10_000;
/// Tables whose columns are completed: their logs are read for it.
const COMPLETED_TABLES_MAX: usize = 200;
/// A script may run another one, and that a third.
pub const SCRIPTS_WITHIN_MAX: usize = 16;

/// Runs until the user leaves.
pub async fn interactive(session: &Session, settings: Settings) -> Result<()> {
    let lake = session.lake();
    say!(
        "uplake {} on {}. End statements with `;`; help shows commands, \\q or Ctrl-D quits.",
        env!("CARGO_PKG_VERSION"),
        lake.location()
    );
    let config = Config::builder()
        .max_history_size(HISTORY_LINES)?
        .auto_add_history(false)
        .completion_type(CompletionType::List)
        .build();
    // Ends with the shell.
    let (_preload, _repair) = (session.preload(), session.repair_indexes());
    let mut editor: Editor<NameCompleter, FileHistory> = Editor::with_config(config)?;
    let names = Arc::new(Mutex::new(Names::default()));
    editor.set_helper(Some(NameCompleter { names: Arc::clone(&names), before: String::new() }));
    let history = history_path();
    if let Some(path) = &history {
        // No history yet is no error.
        let _ = editor.load_history(path);
    }
    let mut shell = Shell { session, settings, interrupts: Interrupts::watch(), names, scripts: 0 };
    shell.read_names();
    let done = shell.read_lines(&mut editor).await;
    if let Some(path) = &history {
        let folder = path.parent().map(std::fs::create_dir_all).transpose();
        if let Err(error) = folder.map_err(Into::into).and_then(|_| editor.save_history(path)) {
            eprintln!("the history was not kept in {}: {error}", path.display());
        }
    }
    done
}

struct Shell<'a> {
    session: &'a Session,
    settings: Settings,
    interrupts: Arc<Interrupts>,
    names: Arc<Mutex<Names>>,
    /// That run, each within the one before.
    scripts: usize,
}

/// Does the shell go on?
#[derive(PartialEq, Eq)]
enum Next {
    Line,
    End,
}

impl Shell<'_> {
    async fn read_lines(&mut self, editor: &mut Editor<NameCompleter, FileHistory>) -> Result<()> {
        let mut typed = String::new();
        loop {
            let open = extent(&typed).open;
            if let Some(helper) = editor.helper_mut() {
                helper.before.clone_from(&typed);
            }
            let line = match editor.readline(&prompt(open)) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => {
                    typed.clear();
                    continue;
                }
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            // A paste may have several lines; only commands need to be found among them.
            let has_commands = line.lines().any(|part| part.trim_start().starts_with('\\'));
            let parts: Vec<&str> =
                if has_commands { line.lines().collect() } else { vec![line.as_str()] };
            for part in parts {
                if self.line(part, &mut typed, editor).await == Next::End {
                    return Ok(());
                }
            }
        }
    }

    /// Goes on with what is typed, and runs it as soon as it is whole.
    async fn line(
        &mut self,
        line: &str,
        typed: &mut String,
        editor: &mut Editor<NameCompleter, FileHistory>,
    ) -> Next {
        let open = extent(typed).open;
        let command = meta_of(line).filter(|_| open.is_none_or(Open::is_code));
        if let Some(command) = command {
            match open {
                Some(_) if !line.trim_start().starts_with('\\') => {
                    tell("a statement is open: `;` runs it, Ctrl-C drops it, \\q quits");
                    return Next::Line;
                }
                Some(_) => {}
                None => _ = editor.add_history_entry(line.trim()),
            }
            return self.command(command).await;
        }
        typed.push_str(line);
        typed.push('\n');
        let ends = extent(typed).ends;
        if ends > 0 {
            let rest = typed.split_off(ends);
            let whole = std::mem::replace(typed, rest.trim_start().to_owned());
            // The whole statement is one entry.
            let _ = editor.add_history_entry(whole.trim());
            self.statements(&whole).await;
        }
        if extent(typed).open.is_none() {
            typed.clear();
        }
        Next::Line
    }

    async fn command(&mut self, command: Result<Meta, String>) -> Next {
        let done = match command {
            Ok(Meta::Quit) => return Next::End,
            Ok(Meta::Include(path)) => return Box::pin(self.include(&path)).await,
            Ok(Meta::Tables) => {
                self.statements("SHOW TABLES").await;
                return Next::Line;
            }
            Ok(Meta::Describe(table)) => {
                self.statements(&format!("DESCRIBE {table}")).await;
                if let Some(text) = settings::table_size(self.session.lake(), &table).await {
                    say!("{text}");
                }
                return Next::Line;
            }
            Ok(other) => self.settings.change(other).map(|text| say!("{text}")),
            Err(error) => Err(anyhow::anyhow!(error)),
        };
        if let Err(error) = done {
            tell(&format!("error: {}", error_text(&error)));
        }
        Next::Line
    }

    /// Runs a script until one of its statements fails.
    async fn include(&mut self, path: &str) -> Next {
        if self.scripts >= SCRIPTS_WITHIN_MAX {
            tell(&format!("error: {path}: too many scripts within scripts"));
            return Next::Line;
        }
        let steps = match settings::read_script(path) {
            Ok((steps, _)) => steps,
            Err(error) => {
                tell(&format!("error: {}", error_text(&error)));
                return Next::Line;
            }
        };
        self.scripts += 1;
        let mut next = Next::Line;
        for (line, step) in steps {
            let done = match step {
                Step::Command(command) => {
                    next = self.command(command).await;
                    next == Next::Line
                }
                Step::Sql(Ok(statement)) => self.statements(&statement.text).await,
                Step::Sql(Err(error)) => {
                    tell(&format!("error: {error}"));
                    false
                }
            };
            if !done {
                if next == Next::Line {
                    tell(&format!("{path} stopped at line {line}"));
                }
                break;
            }
        }
        self.scripts -= 1;
        next
    }

    /// Runs what was typed; Ctrl-C drops a statement, which stops it. False if one failed.
    async fn statements(&mut self, text: &str) -> bool {
        let statements = match parse(text) {
            Ok(statements) => statements,
            Err(error) => {
                tell(&format!("error: {}", error_text(&statement_error(error, text))));
                return false;
            }
        };
        let mut names_change = false;
        let mut all_done = true;
        for statement in statements {
            names_change |= !statement.only_asks();
            let started = Instant::now();
            let writing = self.settings.writing();
            let paged = writing.format == Format::Table && self.settings.output.is_none();
            let mut shown: Vec<u8> = Vec::new();
            let mut direct = stdout();
            let out: &mut (dyn std::io::Write + Send) = match &mut self.settings.output {
                Some(file) => file,
                None if paged => &mut shown,
                None => &mut direct,
            };
            let work = async {
                run_one(self.session, &statement, text, writing, false, out).await?;
                out.flush().map_err(anyhow::Error::from)
            };
            let done = match self.interrupts.until(work).await {
                Ok(done) => done,
                Err(stopped) => Err(stopped.into()),
            };
            self.show(&String::from_utf8_lossy(&shown));
            if let Err(error) = done {
                tell(&format!("error: {}", error_text(&error)));
                all_done = false;
                break;
            }
            if self.settings.timing {
                let seconds = started.elapsed().as_secs_f64();
                // Other formats are for programs, which read nothing else there.
                match writing.format {
                    Format::Table => println!("{seconds:.3} s"),
                    _ => eprintln!("time: {seconds:.6}"),
                }
            }
        }
        if names_change {
            self.read_names();
        }
        all_done
    }

    fn show(&self, text: &str) {
        let size = terminal_size();
        let is_long = size.is_some_and(|size| !pager::fits(text, size));
        let pager = (is_long && self.settings.pager).then(pager::pager).flatten();
        let shown =
            pager.is_some_and(|pager| self.interrupts.unheard(|| pager::show(&pager, text)));
        if !shown {
            print!("{text}");
        }
    }

    /// Reads the names that are completed, beside what goes on: a table's columns are in its log.
    fn read_names(&self) {
        let (lake, names) = (self.session.lake().clone(), Arc::clone(&self.names));
        let functions = self.session.function_names();
        tokio::spawn(async move {
            let tables = columns_of_tables(&lake).await;
            *names.lock().unwrap_or_else(PoisonError::into_inner) = Names { tables, functions };
        });
    }
}

async fn columns_of_tables(lake: &Lake) -> std::collections::BTreeMap<String, Vec<String>> {
    let mut tables = std::collections::BTreeMap::new();
    // Without names nothing is completed.
    for (number, name) in lake.table_names().await.unwrap_or_default().into_iter().enumerate() {
        let mut columns = Vec::new();
        if number < COMPLETED_TABLES_MAX
            && let Ok(snapshot) = lake.snapshot(&name, &AsOf::Latest).await
        {
            columns.extend(snapshot.schema().fields().iter().map(|field| field.name().clone()));
        }
        tables.insert(name, columns);
    }
    tables
}

/// Shows what is open.
fn prompt(open: Option<Open>) -> String {
    match open {
        None => "uplake> ".to_owned(),
        Some(open) => format!("{:>6}> ", open.mark()),
    }
}

fn history_path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/state"));
    Some(state.or_else(home)?.join("uplake/history"))
}
