//! `uplake demo`: a shop's A/B test from nothing to a report, with effects that are known.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use uplake_engine::{Answer, Definitions, Session, parse};
use uplake_experiment::Report;
use uplake_table::{AsOf, InputFile, Lake, LoadOptions, Progress, load};
use uplake_testkit::shop::{Planted, ShopOptions};

use crate::LakeArgs;
use crate::answer::{Writing, write_answer};
use crate::environment::{self, Limits, memory_bytes, now_millis, session, threads};
use crate::generate::shop_files;
use crate::output::{Format, count_text, is_terminal, statement_error, stdout, width, write_file};
use crate::report;
use crate::shop_files::{EXPERIMENTS, definition};

/// Marks a folder that the demo may empty.
const MARKER: &str = ".uplake-demo";

/// Arguments of `uplake demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// The folder to make the demo in
    #[arg(default_value = "./demo")]
    out: PathBuf,
    /// Customers of the shop
    #[arg(long, default_value_t = 120_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    users: u32,
    /// The same seed gives the same shop
    #[arg(long, default_value_t = 14)]
    seed: u64,
}

/// Runs the command.
pub async fn run(args: DemoArgs) -> Result<()> {
    let started = Instant::now();
    prepare_folder(&args.out)?;
    let lake_path = args.out.join("lake");
    let lake = lake_path.display().to_string();
    let lake_args = LakeArgs {
        lake,
        memory: None,
        threads: None,
        no_index: false,
        config: None,
        storage: Vec::new(),
    };
    let options = ShopOptions { users: args.users, seed: args.seed, ..ShopOptions::default() };
    println!(
        "1. A shop with {} customers tests free shipping for {} days.",
        args.users, options.days
    );
    let tables = shop_files(&options, &args.out.join("files"))?;
    let planted = tables.planted.clone();
    let rows = (tables.exposures.num_rows() + tables.events.num_rows()) as u64;
    drop(tables);
    println!("   {} rows are in {}", count_text(rows), args.out.join("files").display());
    println!("\n2. Load them: one commit each, sorted by user and time.");
    let lake = environment::lake(&lake_args)?;
    for table in ["exposures", "events"] {
        load_table(&lake, &lake_args, &args.out, table).await?;
    }
    write_definitions(&lake_path, &planted)?;
    let session = session(&lake_args, AsOf::Latest, Limits::default())?;
    println!("\n3. The report: uplake report free_shipping --lake {}\n", lake_path.display());
    show_report(&session, &lake_path, &args.out).await?;
    println!("\n4. A test that must not be trusted: uplake report new_checkout\n");
    show_health(&session, &lake_path).await?;
    println!("\n5. Ask the event log anything: uplake sql --lake {}", lake_path.display());
    for sql in QUERIES {
        show_query(&session, sql).await?;
    }
    println!(
        "\nDone in {:.1} s. The page to share is {}.",
        started.elapsed().as_secs_f64(),
        args.out.join("report.html").display()
    );
    Ok(())
}

const QUERIES: [&str; 3] = [
    "SELECT variant, count(DISTINCT user_id) AS users FROM exposures\nWHERE experiment = 'free_shipping' GROUP BY variant ORDER BY variant;",
    "SELECT platform, count(*) AS orders, round(avg(amount), 2) AS mean_order\nFROM events WHERE event = 'purchase' GROUP BY platform ORDER BY platform;",
    "SELECT dt, count(*) AS orders, round(sum(amount)) AS revenue FROM events\nWHERE event = 'purchase' GROUP BY dt ORDER BY revenue DESC LIMIT 3;",
];

/// An earlier demo is replaced; anything else is left alone.
fn prepare_folder(out: &Path) -> Result<()> {
    let marker = out.join(MARKER);
    if out.exists() && !marker.exists() && std::fs::read_dir(out)?.next().is_some() {
        bail!("{} is there and is not a demo; name another folder: uplake demo DIR", out.display());
    }
    for old in ["lake", "files"] {
        let path = out.join(old);
        if path.exists() {
            std::fs::remove_dir_all(&path)
                .with_context(|| format!("removing the earlier demo {}", path.display()))?;
        }
    }
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    write_file(&marker, "made by uplake demo\n")
}

async fn load_table(lake: &Lake, args: &LakeArgs, out: &Path, table: &str) -> Result<()> {
    let path = out.join(format!("files/{table}.parquet"));
    println!("   uplake load {table} {} --partition-by dt --cluster-by user_id,ts", path.display());
    let options = LoadOptions {
        partition_by: vec!["dt".into()],
        cluster_by: vec!["user_id".into(), "ts".into()],
        label: Some("demo".into()),
        ..LoadOptions::new(memory_bytes(args), threads(args), now_millis())
    };
    let file = InputFile::of_path(path.display().to_string(), path);
    let started = Instant::now();
    let summary = load(lake, table, &[file], &options, &Arc::new(Progress::default())).await?;
    println!("   {} rows in {:.1} s", count_text(summary.rows), started.elapsed().as_secs_f64());
    Ok(())
}

async fn make(session: &Session, definition: &Path, dimensions: &[String]) -> Result<Report> {
    let mut definitions = Definitions::new(session.lake());
    let definition = report::read_definition(&mut definitions, definition).await?;
    report::make(session, definition, dimensions).await
}

async fn show_report(session: &Session, lake: &Path, out: &Path) -> Result<()> {
    let definition = lake.join("_uplake/experiments/free_shipping.toml");
    let mut made = make(session, &definition, &["platform".to_owned()]).await?;
    if let Some(reproduce) = &mut made.reproduce {
        reproduce.command = format!(
            "uplake report free_shipping --lake {} --dimension platform --format html",
            lake.display()
        );
    }
    let color = is_terminal() && std::env::var_os("NO_COLOR").is_none();
    println!("{}", made.to_text(width(), color).trim_end());
    write_file(&out.join("report.html"), &made.to_html())?;
    write_file(&out.join("report.json"), &made.to_json())
}

async fn show_health(session: &Session, lake: &Path) -> Result<()> {
    let definition = lake.join("_uplake/experiments/new_checkout.toml");
    let made = make(session, &definition, &[]).await?;
    let color = is_terminal() && std::env::var_os("NO_COLOR").is_none();
    println!("{}", made.to_text(width(), color).trim_end());
    Ok(())
}

async fn show_query(session: &Session, sql: &str) -> Result<()> {
    println!("\n{sql}");
    let mut out = stdout();
    for statement in parse(sql)? {
        let started = Instant::now();
        let answer: Answer = session.run(&statement).await.map_err(|e| statement_error(e, sql))?;
        write_answer(answer, Writing::new(Format::Table), None, &mut out).await?;
        std::io::Write::flush(&mut out)?;
        println!("{:.3} s", started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn write_definitions(lake: &Path, planted: &Planted) -> Result<()> {
    let folder = lake.join("_uplake/experiments");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for name in EXPERIMENTS {
        write_file(&folder.join(format!("{name}.toml")), &definition(name, planted))?;
    }
    Ok(())
}
