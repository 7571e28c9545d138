//! `uplake domain list|describe|rebuild|check|compact|vacuum`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use uplake_table::{DomainDescription, DomainProgress, Lake, LostIds};

use crate::LakeArgs;
use crate::environment::{self, now_millis};
use crate::output::{bytes_text, count_text, say};
use crate::progress::domain_report;
use crate::table::{DEFAULT_RETENTION, parse_duration};

/// Arguments of `uplake domain`.
#[derive(Args, Debug)]
pub struct DomainArgs {
    #[command(flatten)]
    lake: LakeArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// The id domains of the lake
    List,
    /// Keys, size, the local dictionary, and the tables that use it
    Describe {
        /// The domain
        domain: String,
    },
    /// Read the local dictionary from the lake again
    Rebuild {
        /// The domain
        domain: String,
    },
    /// Read the whole log and compare it with the dictionary
    Check {
        /// The domain
        domain: String,
    },
    /// Write all keys into one object, so that it is opened faster where there is no local dictionary
    Compact {
        /// The domain
        domain: String,
    },
    /// Free what `compact` has made superfluous
    Vacuum {
        /// The domain
        domain: String,
        /// Keep what was written this long ago or later, for machines that are reading it: 30m, 12h, 7d
        #[arg(long, default_value = DEFAULT_RETENTION, value_parser = parse_duration)]
        retain: Duration,
    },
}

/// Runs the command.
pub async fn run(args: DomainArgs) -> Result<()> {
    let lake = environment::lake(&args.lake)?;
    match args.verb {
        Verb::List => list(&lake).await,
        Verb::Describe { domain } => {
            let described = lake.domain(&domain).await?.describe().await?;
            print(&described, &users_of(&lake, &domain).await);
            Ok(())
        }
        Verb::Rebuild { domain } => {
            let open = lake.domain(&domain).await?;
            let (report, name) = (domain_report(), domain.clone());
            let progress = move |p: uplake_table::ReadProgress| {
                let (done_bytes, total_bytes, keys) = (p.done_bytes, p.total_bytes, p.keys);
                report(DomainProgress { domain: name.clone(), done_bytes, total_bytes, keys });
            };
            open.rebuild(Some(Arc::new(progress))).await?;
            let described = open.describe().await?;
            say!("read {domain} again: {} keys", described.keys);
            warn(&described);
            Ok(())
        }
        Verb::Check { domain } => {
            if let Some(problem) = shown_problem(&lake, &domain).await? {
                bail!(problem);
            }
            say!("the domain is sound");
            Ok(())
        }
        Verb::Compact { domain } => {
            let open = lake.domain(&domain).await?;
            let run = open.compact().await?;
            lake.sync_domain(&domain, now_millis()).await?;
            say!("compacted {domain}: runs to {run}, {} keys, are in one base", open.keys());
            Ok(())
        }
        Verb::Vacuum { domain, retain } => {
            let retain = i64::try_from(retain.as_millis()).unwrap_or(i64::MAX);
            let before = now_millis().saturating_sub(retain);
            let open = lake.domain(&domain).await?;
            lake.sync_domain(&domain, now_millis()).await?;
            let freed = open.vacuum(before).await?;
            say!(
                "freed {} of {domain}: the keys of {} runs and {} bases, which newer bases hold",
                bytes_text(freed.bytes),
                freed.runs,
                freed.bases
            );
            Ok(())
        }
    }
}

/// Checks a domain and shows what is found; what is wrong, in short, and what to do about it.
pub(crate) async fn shown_problem(lake: &Lake, domain: &str) -> Result<Option<String>> {
    let report = lake.domain(domain).await?.check().await?;
    for problem in &report.problems {
        say!("{problem}");
    }
    say!(
        "read {} runs and {} bases of {domain}: {} keys, {}",
        report.runs,
        report.bases,
        report.keys,
        bytes_text(report.bytes)
    );
    if !report.is_sound() {
        return Ok(Some(format!(
            "id domain `{domain}` is damaged; restore its folder from a copy of the lake"
        )));
    }
    let lost = lake.tables_with_lost_ids().await?.into_iter();
    let lost: Vec<LostIds> = lost.filter(|lost| lost.domain == domain).collect();
    for lost in &lost {
        say!("{lost}");
    }
    let lacks = || format!("id domain `{domain}` lacks keys that tables have. {}", LostIds::REMEDY);
    Ok((!lost.is_empty()).then(lacks))
}

async fn list(lake: &Lake) -> Result<()> {
    let names = lake.domain_names().await?;
    if names.is_empty() {
        say!("no id domains in {}", lake.location());
    }
    for name in names {
        match lake.domain(&name).await {
            Ok(domain) => say!("{name:<32}  {:>8} keys", count_text(domain.keys())),
            Err(error) => say!("{name:<32}  {error}"),
        }
    }
    Ok(())
}

/// `events.user_id`, … for every table whose keys are in the domain.
async fn users_of(lake: &Lake, domain: &str) -> Vec<String> {
    let mut users = Vec::new();
    for name in lake.table_names().await.unwrap_or_default() {
        // A table that cannot be read is not this command's business.
        let Ok(table) = lake.snapshot(&name, &uplake_table::AsOf::Latest).await else { continue };
        let specs = table.id_domains().iter().filter(|spec| spec.domain == domain);
        users.extend(specs.map(|spec| format!("{name}.{}", spec.column)));
    }
    users
}

fn print(domain: &DomainDescription, users: &[String]) {
    say!("id domain {}", domain.name);
    say!("{} keys, {} of them", domain.keys, bytes_text(domain.key_bytes));
    say!("used by:        {}", if users.is_empty() { "-".into() } else { users.join(", ") });
    say!(
        "in the lake:    {} in {} runs{}",
        bytes_text(domain.log_bytes),
        domain.runs,
        domain.base.map_or_else(String::new, |run| format!(", those to {run} also in one base"))
    );
    say!("in memory:      {}", bytes_text(domain.index_bytes + domain.table_bytes));
    match &domain.local {
        Some(folder) => {
            say!("on this machine: {} in {}", bytes_text(domain.local_bytes), folder.display())
        }
        None => say!("on this machine: nothing"),
    }
    warn(domain);
}

fn warn(domain: &DomainDescription) {
    if let Some(warning) = &domain.warning {
        crate::output::tell(&format!("warning: {warning}"));
    }
}
