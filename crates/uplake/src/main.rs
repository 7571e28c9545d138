//! The command `uplake`.
//!
//! Each subcommand is a module with its arguments and a `run`. Exit codes: 0 done, 1 the request
//! cannot be served (the message says what to do), 2 usage, 130 and 143 stopped by Ctrl-C and SIGTERM.

#![forbid(unsafe_code)]

mod answer;
mod bench_concurrent;
mod config;
mod demo;
mod domain;
mod environment;
mod experiments;
mod explain_tree;
mod foreign_errors;
mod generate;
mod health;
mod help_files;
mod lake;
mod leading_options;
mod load;
mod memory;
mod metric;
mod node_trust;
mod output;
mod power;
mod progress;
mod records;
mod report;
mod serve;
mod shell;
mod shop_files;
mod spill;
mod sql;
mod table;
mod user;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::foreign_errors::{is_closed_output, is_closed_pipe};

/// Chosen by measurement (docs/BENCHMARKS.md): 9 % more statements than glibc's at 24 at once.
/// `.cargo/config.toml` has its settings.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The database for A/B experiments and user-behaviour analytics.
#[derive(Parser)]
#[command(
    name = "uplake",
    version,
    max_term_width = 100,
    after_help = "Options of a lake, such as --lake FOLDER, may also stand before the command."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Options that every command on a lake has.
#[derive(Args, Clone, Debug)]
pub struct LakeArgs {
    /// The folder of tables, or a URL: s3://bucket/path, gs://, az://
    #[arg(long, env = "UPLAKE_LAKE", default_value = "./lake", global = true)]
    pub lake: String,
    /// Memory for queries and loads: bytes, or with K, M, G, T (default: 60 % of this machine's)
    #[arg(long, env = "UPLAKE_MEMORY", value_parser = environment::parse_bytes, global = true)]
    pub memory: Option<usize>,
    /// Threads (default: all cores)
    #[arg(long, env = "UPLAKE_THREADS", global = true)]
    pub threads: Option<usize>,
    /// Answer from the data alone, as if there were no indexes
    #[arg(
        long,
        env = "UPLAKE_NO_INDEX",
        global = true,
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    pub no_index: bool,
    /// Settings of storage (default: uplake.toml, if there is one here)
    #[arg(long, env = "UPLAKE_CONFIG", global = true)]
    pub config: Option<std::path::PathBuf>,
    /// One setting of storage, over the file and the environment: disk_cache=20GiB; repeatable
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub storage: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Make a shop's A/B test, load it, print the report, write report.html, show three queries
    Demo(demo::DemoArgs),
    /// Load files into a table, in one commit
    Load(load::LoadArgs),
    /// Run SQL: from -c, -f, standard input, or interactively
    Sql(sql::SqlArgs),
    /// Serve the lake to many: over the wire of Postgres, and HTTP
    Serve(serve::ServeArgs),
    /// Ask a server of this machine whether it lives: what containers' health commands are
    Health(health::HealthArgs),
    /// Analyse an experiment
    Report(report::ReportArgs),
    /// List the lake's experiments, with state and decision; put definitions there
    Experiments(experiments::ExperimentsArgs),
    /// Look after the catalogue of metrics
    Metric(metric::MetricArgs),
    /// Plan an experiment: users for a lift, and what users find
    Power(power::PowerArgs),
    /// Look after tables
    Table(table::TableArgs),
    /// Look after id domains
    Domain(domain::DomainArgs),
    /// Look after those who may connect to a server of the lake
    User(user::UserArgs),
    /// Look after those who share a server
    Tenant(user::TenantArgs),
    /// Find out whether a store can hold a lake
    Lake(lake::LakeCommand),
    /// Make data to try things on: a shop's A/B test, or the XAB benchmark
    Generate(generate::GenerateArgs),
    /// Write what a shell completes commands and options from
    Completions(help_files::CompletionsArgs),
    /// Write manual pages
    Man(help_files::ManArgs),
    /// Run statements many at once and print what it took, as JSON
    #[command(hide = true)]
    BenchConcurrent(bench_concurrent::BenchConcurrentArgs),
}

/// The exit code of a process that a panic ends, as Rust has it.
const PANICKED: u8 = 101;

/// Where the last panic was and what it said.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// A panic of a library while a statement is computed or a file read is an error of that, which says what
/// it said. Where it was is for those who look for the fault: they set RUST_BACKTRACE.
fn keep_panics_quiet() {
    let shown = std::env::var_os("RUST_BACKTRACE").is_some_and(|wanted| wanted != "0");
    let usual = shown.then(std::panic::take_hook);
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.to_string().replace('\n', " ");
        match &usual {
            // Our output has no reader any more.
            Some(_) if is_closed_output(&text) => {}
            Some(usual) => usual(panic),
            None => {}
        }
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }));
}

fn main() -> ExitCode {
    memory::use_huge_pages(false);
    let cli = Cli::parse_from(leading_options::after_command(std::env::args_os().collect()));
    keep_panics_quiet();
    uplake_engine::count_held_by(memory::allocated_bytes);
    let run = || {
        environment::check_clock()?;
        environment::run(async move {
            match cli.command {
                Command::Demo(args) => demo::run(args).await,
                Command::Load(args) => load::run(args).await,
                Command::Sql(args) => sql::run(args).await,
                Command::Serve(args) => serve::run(args).await,
                Command::Health(args) => health::run(args).await,
                Command::Report(args) => report::run(args).await,
                Command::Experiments(args) => experiments::run(args).await,
                Command::Metric(args) => metric::run(args).await,
                Command::Power(args) => power::run(args).await,
                Command::Table(args) => table::run(args).await,
                Command::Domain(args) => domain::run(args).await,
                Command::User(args) => user::run(args).await,
                Command::Tenant(args) => user::run_tenant(args).await,
                Command::Lake(args) => lake::run(args).await,
                Command::Generate(args) => generate::run(args),
                Command::Completions(args) => help_files::completions(args, Cli::command()),
                Command::Man(args) => help_files::man(args, Cli::command()),
                Command::BenchConcurrent(args) => bench_concurrent::run(args).await,
            }
        })
    };
    let Ok(result) = catch_unwind(AssertUnwindSafe(run)) else {
        let panic = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
        let panic = panic.unwrap_or_default();
        spill::remove();
        if is_closed_output(&panic) {
            return ExitCode::SUCCESS;
        }
        output::tell(&format!("error: a fault in uplake, please report this: {panic}"));
        return ExitCode::from(PANICKED);
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if environment::is_first_to_tell() {
                output::tell(&format!("error: {}", output::error_text(&error)));
            }
            let stopped = error.downcast_ref::<environment::Stopped>();
            stopped.map_or(ExitCode::FAILURE, |stopped| ExitCode::from(stopped.status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_options_are_well_formed() {
        Cli::command().debug_assert();
    }
}
