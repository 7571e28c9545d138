//! `uplake user add|list|remove|password` and `uplake tenant add|list`: who may connect to a server of the lake.
//!
//! Whoever can write the lake's folder can do this; there need be no server. Servers look every few seconds.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use chrono::{DateTime, NaiveDate, NaiveTime, SecondsFormat, Utc};
use clap::{Args, Subcommand};
use serde::Serialize;
use uplake_server::{
    AccessError, Change, Role, SALT_BYTES, Tenant, Verifier, change, folded, newest,
};
use uplake_table::Lake;

use crate::LakeArgs;
use crate::environment::{self, now_millis, parse_bytes};
use crate::output::{ListFormat, bytes_text, say, tell};

/// Characters of a generated password, 5 random bits each.
const GENERATED_CHARS: usize = 24;
/// Without those that are taken for others.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Of a file or standard input; a password has at most 1,024 bytes.
const INPUT_MAX_BYTES: u64 = 4096;
/// Who the documents say has written them.
const BY: &str = "uplake user";
const MICRODOLLARS: f64 = 1e6;

/// Arguments of `uplake user`.
#[derive(Args, Debug)]
pub struct UserArgs {
    #[command(flatten)]
    lake: LakeArgs,
    #[command(subcommand)]
    verb: UserVerb,
}

#[derive(Subcommand, Debug)]
enum UserVerb {
    /// Let somebody connect; the first one ends that everybody on this machine may do everything
    Add {
        /// Lower case unless in double quotes, as in SQL
        name: String,
        #[command(flatten)]
        password: PasswordArgs,
        /// A role whose rights it gets: admin, reader, writer, monitor, read_files, write_files, or another; repeatable
        #[arg(long, value_name = "ROLE")]
        role: Vec<String>,
        /// Who its statements are counted for (`uplake tenant add`)
        #[arg(long)]
        tenant: Option<String>,
        /// The last day on which its password counts, 2027-01-31, or a time, 2027-01-31T18:00:00Z
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        valid_until: Option<i64>,
        /// Connections at once
        #[arg(long, value_name = "N")]
        connection_limit: Option<u32>,
    },
    /// Who may connect, and groups
    List {
        /// How to write the list
        #[arg(long, value_enum, default_value = "text")]
        format: ListFormat,
    },
    /// Take somebody away, with rights and tokens
    Remove {
        /// The user
        name: String,
    },
    /// Give somebody another password
    Password {
        /// The user
        name: String,
        #[command(flatten)]
        password: PasswordArgs,
    },
}

/// Where the password comes from: never the command line, which others on the machine can see. Without any of
/// these it is the first line of standard input, if that is no terminal and has one, and else generated.
#[derive(Args, Debug)]
#[group(multiple = false)]
struct PasswordArgs {
    /// The password is the first line of this file; - is standard input
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Make a password and print it, once
    #[arg(long)]
    generate: bool,
}

/// Arguments of `uplake tenant`.
#[derive(Args, Debug)]
pub struct TenantArgs {
    #[command(flatten)]
    lake: LakeArgs,
    #[command(subcommand)]
    verb: TenantVerb,
}

#[derive(Subcommand, Debug)]
enum TenantVerb {
    /// Make a tenant: those who share a part of a server; without limits where none is said
    Add {
        /// Lower case unless in double quotes
        name: String,
        /// Its share when others wait, too: 3 gets three times what 1 gets
        #[arg(long, value_name = "N", default_value_t = 1)]
        weight: u32,
        /// Statements that compute at once
        #[arg(long, value_name = "N")]
        slots: Option<u32>,
        /// Memory of its statements: 8G
        #[arg(long = "tenant-memory", value_name = "BYTES", value_parser = parse_bytes)]
        tenant_memory: Option<usize>,
        /// Disk for rows that clients have not taken yet: 4G
        #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
        spool: Option<usize>,
        /// Statements that wait
        #[arg(long, value_name = "N")]
        queue: Option<u32>,
        /// Bytes read a day: 5T
        #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
        scan_bytes_per_day: Option<usize>,
        /// Seconds of computing an hour
        #[arg(long, value_name = "N")]
        compute_seconds_per_hour: Option<u64>,
        /// Dollars a day
        #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars)]
        dollars_per_day: Option<u64>,
        /// Bytes loaded a second: 50M
        #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
        ingest_bytes_per_second: Option<usize>,
    },
    /// The tenants and their limits
    List {
        /// How to write the list
        #[arg(long, value_enum, default_value = "text")]
        format: ListFormat,
    },
}

/// Runs `uplake user`.
pub async fn run(args: UserArgs) -> Result<()> {
    let lake = environment::lake(&args.lake)?;
    match args.verb {
        UserVerb::Add { name, password, role, tenant, valid_until, connection_limit } => {
            let member_of = role.iter().map(|role| folded(role)).collect::<Result<_, _>>()?;
            let tenant = tenant.map(|tenant| folded(&tenant)).transpose()?;
            let (login, password_of) = (true, password);
            let role =
                Role { login, password: None, member_of, valid_until, connection_limit, tenant };
            add(&lake, &folded(&name)?, role, &password_of).await
        }
        UserVerb::List { format } => list(&lake, format).await,
        UserVerb::Remove { name } => {
            let name = folded(&name)?;
            change(&lake, who(), |access| access.drop_role(&name)).await?;
            say!("removed {name}");
            if !newest(&lake).await?.access.has_users() {
                tell("no users are left: everybody on a server's own machine may do everything");
            }
            Ok(())
        }
        UserVerb::Password { name, password } => {
            let name = folded(&name)?;
            if !newest(&lake).await?.access.roles.contains_key(&name) {
                return Err(AccessError::NoSuch { what: "role", name }.into());
            }
            let (verifier, shown) = verifier(&password)?;
            change(&lake, who(), |access| access.set_password(&name, verifier.clone())).await?;
            tell(&format!("{name} has another password"));
            show(shown);
            Ok(())
        }
    }
}

/// Runs `uplake tenant`.
pub async fn run_tenant(args: TenantArgs) -> Result<()> {
    let lake = environment::lake(&args.lake)?;
    match args.verb {
        TenantVerb::Add {
            name,
            weight,
            slots,
            tenant_memory,
            spool,
            queue,
            scan_bytes_per_day,
            compute_seconds_per_hour,
            dollars_per_day,
            ingest_bytes_per_second,
        } => {
            let bytes = |bytes: Option<usize>| bytes.map(|bytes| bytes as u64);
            let tenant = Tenant {
                weight,
                slots,
                memory_bytes: bytes(tenant_memory),
                spool_bytes: bytes(spool),
                queue,
                scan_bytes_per_day: bytes(scan_bytes_per_day),
                compute_seconds_per_hour,
                microdollars_per_day: dollars_per_day,
                ingest_bytes_per_second: bytes(ingest_bytes_per_second),
            };
            let name = folded(&name)?;
            change(&lake, who(), |access| access.add_tenant(&name, tenant.clone())).await?;
            say!("added tenant {name}");
            Ok(())
        }
        TenantVerb::List { format } => list_tenants(&lake, format).await,
    }
}

fn who() -> Change<'static> {
    Change { by: BY, now: now_millis() }
}

async fn add(lake: &Lake, name: &str, mut role: Role, password: &PasswordArgs) -> Result<()> {
    // Nobody is asked for the password of somebody who cannot be.
    let before = newest(lake).await?.access;
    before.clone().add_role(name, role.clone())?;
    let (verifier, shown) = verifier(password)?;
    role.password = Some(verifier);
    let has_no_role = role.member_of.is_empty();
    change(lake, who(), |access| access.add_role(name, role.clone())).await?;
    tell(&format!("added {name}"));
    if has_no_role {
        tell(&format!(
            "{name} has no role yet and may read nothing: --role reader is one that may"
        ));
    }
    if !before.has_users() {
        tell("it is the first user: from now on nobody connects to a server without a password");
    }
    show(shown);
    Ok(())
}

/// Alone on standard output, for scripts.
fn show(generated: Option<String>) {
    if let Some(password) = generated {
        tell("its password, which is shown this once:");
        println!("{password}");
    }
}

/// The verifier of the password that is asked for, and the password if it was generated.
fn verifier(args: &PasswordArgs) -> Result<(Verifier, Option<String>)> {
    let salt: [u8; SALT_BYTES] = *uuid::Uuid::new_v4().as_bytes();
    let given = match &args.password_file {
        Some(path) if path != Path::new("-") => {
            let what = || format!("reading the password from {}", path.display());
            let file = std::fs::File::open(path).with_context(what)?;
            let line = first_line(file).with_context(what)?;
            Some(line.with_context(|| format!("{} has no password", path.display()))?)
        }
        Some(_) => Some(first_line(std::io::stdin())?.context("standard input has no password")?),
        None if args.generate || std::io::stdin().is_terminal() => None,
        None => first_line(std::io::stdin())?,
    };
    if let Some(password) = given {
        return Ok((Verifier::new(&password, salt)?, None));
    }
    let password = generated();
    Ok((Verifier::new(&password, salt)?, Some(password)))
}

/// The first line without its end; `None` if it is empty.
fn first_line(input: impl Read) -> Result<Option<String>> {
    let mut text = String::new();
    input.take(INPUT_MAX_BYTES).read_to_string(&mut text).context("the password is no text")?;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().any(char::is_control) {
        bail!("the password has a control character");
    }
    Ok((!line.is_empty()).then(|| line.to_owned()))
}

fn generated() -> String {
    // Of each UUID's 16 bytes two have bits that are not random.
    let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    let bytes = random.iter().flat_map(|uuid| uuid.as_bytes().iter().enumerate());
    let bytes = bytes.filter(|(place, _)| *place != 6 && *place != 8);
    bytes
        .take(GENERATED_CHARS)
        .map(|(_, byte)| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

/// What `--format json` says of a role. A verifier is not among it.
#[derive(Serialize)]
struct Listed {
    name: String,
    login: bool,
    has_password: bool,
    member_of: Vec<String>,
    tenant: Option<String>,
    valid_until: Option<String>,
    connection_limit: Option<u32>,
    tokens: usize,
}

async fn list(lake: &Lake, format: ListFormat) -> Result<()> {
    let access = newest(lake).await?.access;
    let listed = access.roles.iter().map(|(name, role)| Listed {
        name: name.clone(),
        login: role.login,
        has_password: role.password.is_some(),
        member_of: role.member_of.iter().cloned().collect(),
        tenant: role.tenant.clone(),
        valid_until: role.valid_until.map(time_text),
        connection_limit: role.connection_limit,
        tokens: access.tokens.iter().filter(|token| token.role == *name).count(),
    });
    let listed: Vec<Listed> = listed.collect();
    if format == ListFormat::Json {
        println!("{}", serde_json::to_string_pretty(&listed)?);
        return Ok(());
    }
    if listed.is_empty() {
        say!(
            "no users in {}: everybody on a server's own machine may do everything",
            lake.location()
        );
    }
    for Listed { name, login, has_password, member_of, tenant, valid_until, .. } in listed {
        let kind = match (login, has_password) {
            (true, true) => "user",
            (true, false) => "user without a password",
            (false, _) => "group",
        };
        let dash = || "-".to_owned();
        let roles = if member_of.is_empty() { dash() } else { member_of.join(", ") };
        let (tenant, until) = (tenant.unwrap_or_else(dash), valid_until.unwrap_or_else(dash));
        say!("{name:<32}  {kind:<8}  {tenant:<16}  {until:<20}  {roles}");
    }
    Ok(())
}

async fn list_tenants(lake: &Lake, format: ListFormat) -> Result<()> {
    let tenants = newest(lake).await?.access.tenants;
    if format == ListFormat::Json {
        println!("{}", serde_json::to_string_pretty(&tenants)?);
        return Ok(());
    }
    if tenants.is_empty() {
        say!("no tenants in {}", lake.location());
    }
    for (name, tenant) in tenants {
        let count = |what: &str, n: Option<u32>| n.map(|n| format!("{what} {n}"));
        let bytes = |what: &str, n: Option<u64>| n.map(|n| format!("{what} {}", bytes_text(n)));
        let dollars = tenant.microdollars_per_day.map(|n| n as f64 / MICRODOLLARS);
        let limits = [
            Some(format!("weight {}", tenant.weight)),
            count("slots", tenant.slots),
            bytes("memory", tenant.memory_bytes),
            bytes("spool", tenant.spool_bytes),
            count("queue", tenant.queue),
            bytes("scan a day", tenant.scan_bytes_per_day),
            tenant.compute_seconds_per_hour.map(|n| format!("compute {n} s an hour")),
            dollars.map(|n| format!("{n} dollars a day")),
            bytes("loads a second", tenant.ingest_bytes_per_second),
        ];
        let limits: Vec<String> = limits.into_iter().flatten().collect();
        say!("{name:<32}  {}", limits.join(", "));
    }
    Ok(())
}

fn time_text(millis: i64) -> String {
    let time = DateTime::<Utc>::from_timestamp_millis(millis);
    time.map_or_else(|| millis.to_string(), |time| time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// The last millisecond of a day, UTC, or a time.
fn parse_time(text: &str) -> Result<i64, String> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.timestamp_millis());
    }
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().and_then(|day| day.succ_opt());
    let end = day.map(|next| next.and_time(NaiveTime::MIN).and_utc().timestamp_millis() - 1);
    end.ok_or_else(|| format!("`{text}` is no day, 2027-01-31, and no time, 2027-01-31T18:00:00Z"))
}

/// Dollars to millionths.
fn parse_dollars(text: &str) -> Result<u64, String> {
    let dollars: f64 = text.parse().unwrap_or(-1.0);
    if !(0.0..=1e12).contains(&dollars) {
        return Err(format!("`{text}` is no sum of dollars, such as 20 or 0.5"));
    }
    Ok((dollars * MICRODOLLARS).round() as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn line(text: &str) -> Option<String> {
        first_line(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_password_is_the_first_line() {
        assert_eq!(line("pencil"), Some("pencil".into()));
        assert_eq!(line("pen cil \r\nmore\n"), Some("pen cil ".into()));
        assert_eq!(line(""), None);
        assert_eq!(line("\nx"), None);
        assert!(first_line("a\tb".as_bytes()).is_err());
        assert!(first_line(&[0xff_u8][..]).is_err());
    }

    #[test]
    fn generated_passwords_are_long_and_differ() {
        let all: BTreeSet<String> = (0..100).map(|_| generated()).collect();
        assert_eq!(all.len(), 100);
        let fits = |password: &String| {
            password.len() == GENERATED_CHARS && password.bytes().all(|b| ALPHABET.contains(&b))
        };
        assert!(all.iter().all(fits));
        assert_eq!(ALPHABET.iter().collect::<BTreeSet<_>>().len(), ALPHABET.len());
    }

    #[test]
    fn days_end_at_midnight() {
        assert_eq!(parse_time("1970-01-01"), Ok(86_400_000 - 1));
        assert_eq!(parse_time("1970-01-01T00:00:01Z"), Ok(1000));
        assert_eq!(parse_time("1970-01-01T01:00:01+01:00"), Ok(1000));
        assert!(parse_time("tomorrow").is_err() && parse_time("2027-02-30").is_err());
        assert_eq!(time_text(1000), "1970-01-01T00:00:01Z");
    }

    #[test]
    fn dollars_have_millionths() {
        assert_eq!(parse_dollars("20"), Ok(20_000_000));
        assert_eq!(parse_dollars("0.5"), Ok(500_000));
        assert!(parse_dollars("-1").is_err() && parse_dollars("x").is_err());
        assert!(parse_dollars("NaN").is_err() && parse_dollars("inf").is_err());
    }

    #[tokio::test]
    async fn a_user_is_added_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "pencil\n").unwrap();
        let password = PasswordArgs { password_file: Some(file), generate: false };
        let role = || Role { login: true, ..Role::default() };
        add(&lake, "ann", role(), &password).await.unwrap();
        assert!(add(&lake, "ann", role(), &password).await.is_err());
        let access = newest(&lake).await.unwrap().access;
        let text = access.roles["ann"].password.as_ref().unwrap().to_string();
        assert!(text.starts_with("SCRAM-SHA-256$4096:") && !text.contains("pencil"));
        list(&lake, ListFormat::Json).await.unwrap();
        change(&lake, who(), |access| access.drop_role("ann")).await.unwrap();
        assert!(!newest(&lake).await.unwrap().access.has_users());
    }
}
