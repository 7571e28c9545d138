//! `uplake power`: how many users an experiment needs, before there is one.

use anyhow::{Context, Result, bail};
use clap::Args;
use uplake_engine::Definitions;
use uplake_experiment::planning::{plan_like, to_text};
use uplake_experiment::power::{Goal, Plan, PlannedLooks, detectable_effect, power};
use uplake_table::AsOf;

use crate::LakeArgs;
use crate::environment::{Limits, session, until_stopped};
use crate::report::{find_definition, make};

/// Arguments of `uplake power`.
#[derive(Args, Debug)]
pub struct PowerArgs {
    #[command(flatten)]
    lake: LakeArgs,
    /// Plan an experiment of this definition (.toml, or a name in the lake) from its data so far: all its
    /// metrics, by its arms, looks, correction, CUPED and units
    #[arg(
        long,
        value_name = "EXPERIMENT",
        conflicts_with_all = [
            "share", "mean", "deviation", "alpha", "cuped", "treatments", "control_share", "looks",
            "anytime", "cluster_size", "icc", "users", "per_day"
        ]
    )]
    like: Option<String>,
    /// The control's share of users who convert: 0.1 for 10 %
    #[arg(long, conflicts_with_all = ["mean", "deviation"])]
    share: Option<f64>,
    /// The control's mean per user
    #[arg(long, requires = "deviation", allow_negative_numbers = true)]
    mean: Option<f64>,
    /// Standard deviation of one user's value
    #[arg(long, requires = "mean")]
    deviation: Option<f64>,
    /// The lift worth finding: 0.05 for +5 %, -0.05 for -5 %
    #[arg(long, allow_negative_numbers = true)]
    lift: f64,
    /// Two-sided error rate
    #[arg(long, default_value_t = 0.05)]
    alpha: f64,
    /// The chance to find the lift
    #[arg(long, default_value_t = 0.8)]
    power: f64,
    /// Share of the variance that CUPED removes, as a report shows it
    #[arg(long, default_value_t = 0.0)]
    cuped: f64,
    /// Arms that are compared with the control; each then has its share of the error
    #[arg(long, default_value_t = 1, value_name = "ARMS")]
    treatments: u32,
    /// Share of all users in the control; the other arms share the rest [default: all arms alike]
    #[arg(long)]
    control_share: Option<f64>,
    /// Planned looks of a group sequential test
    #[arg(long, conflicts_with = "anytime", value_parser = clap::value_parser!(u32).range(1..=100))]
    looks: Option<u32>,
    /// Looked at whenever, by a confidence sequence
    #[arg(long)]
    anytime: bool,
    /// Users of a cluster, if clusters are assigned
    #[arg(long, requires = "icc")]
    cluster_size: Option<f64>,
    /// Share of the variance between clusters: 0 for users of a cluster that are as different as others
    #[arg(long, requires = "cluster_size")]
    icc: Option<f64>,
    /// Users per arm, of two equal arms and one look: what do these many find?
    #[arg(long, conflicts_with_all = ["treatments", "control_share", "looks", "anytime", "cluster_size"])]
    users: Option<f64>,
    /// New users a day, all arms together: how many days does it take?
    #[arg(long)]
    per_day: Option<f64>,
}

/// The mean, and the deviation of the difference's noise per user of an arm.
fn baseline(args: &PowerArgs) -> Result<(f64, f64)> {
    let (mean, variance) = match (args.share, args.mean, args.deviation) {
        (Some(share), _, _) => {
            let lifted = share * (1.0 + args.lift);
            if !(share > 0.0 && share < 1.0 && lifted > 0.0 && lifted < 1.0) {
                bail!("--share must lie between 0 and 1, before and after the lift");
            }
            (share, (share * (1.0 - share) + lifted * (1.0 - lifted)) / 2.0)
        }
        (None, Some(mean), Some(deviation)) => (mean, deviation * deviation),
        _ => bail!(
            "say what the control is like: --share 0.1, or --mean 25 --deviation 80, or --like EXPERIMENT"
        ),
    };
    if !(0.0..1.0).contains(&args.cuped) {
        bail!("--cuped is the share of the variance removed, from 0 to below 1");
    }
    Ok((mean, (variance * (1.0 - args.cuped)).sqrt()))
}

/// Runs the command.
pub async fn run(args: PowerArgs) -> Result<()> {
    match &args.like {
        Some(name) => until_stopped(from_history(name, &args)).await,
        None => from_numbers(&args),
    }
}

async fn from_history(name: &str, args: &PowerArgs) -> Result<()> {
    let session = session(&args.lake, AsOf::Latest, Limits::default())?;
    let definition = find_definition(&mut Definitions::new(session.lake()), name).await?;
    let experiment = definition.experiment().clone();
    let report = make(&session, definition, &[]).await?;
    let planned =
        plan_like(&experiment, &report, args.lift, args.power).context("this cannot be planned")?;
    print!("{}", to_text(&experiment, &report, &planned, args.lift, args.power));
    Ok(())
}

fn from_numbers(args: &PowerArgs) -> Result<()> {
    let (mean, deviation) = baseline(args)?;
    let effect = (mean * args.lift).abs();
    let goal = Goal { effect, deviation, alpha: args.alpha };
    let chance = format!("{:.0} %", args.power * 100.0);
    let lift = |lift: f64| format!("{:+.2} %", lift * 100.0);
    let plan = plan(args);
    let needed = plan.users(&goal, args.power).context("this cannot be planned")?;
    let (control, treatment) = (needed.control.ceil(), needed.treatment.ceil());
    let total = control + f64::from(args.treatments) * treatment;
    let in_arms = match control == treatment {
        true => format!("{} users per arm", whole(control)),
        false => format!(
            "{} users in the control and {} in each other arm",
            whole(control),
            whole(treatment)
        ),
    };
    let arms = match args.treatments {
        1 => "two".to_owned(),
        treatments => (treatments + 1).to_string(),
    };
    println!(
        "To find a lift of {} with a chance of {chance}: {in_arms}, {} in {arms} arms{}{}.",
        lift(args.lift),
        whole(total),
        clusters(args, total),
        days(args, total)?,
    );
    if let Some(users) = args.users {
        let found = power(&goal, users).context("this cannot be planned")?;
        let smallest = detectable_effect(deviation, users, args.alpha, args.power)?;
        println!(
            "{} users per arm find it with a chance of {:.0} %, and {} with a chance of {chance}.",
            whole(users),
            found * 100.0,
            lift((smallest / mean).abs()).trim_start_matches('+'),
        );
    }
    println!("{}", test(args));
    Ok(())
}

fn plan(args: &PowerArgs) -> Plan {
    let even = 1.0 / f64::from(args.treatments.saturating_add(1));
    Plan {
        treatments: args.treatments,
        control_share: args.control_share.unwrap_or(even),
        looks: match (args.looks, args.anytime) {
            (Some(looks), _) => PlannedLooks::GroupSequential(looks),
            (None, true) => PlannedLooks::Anytime,
            (None, false) => PlannedLooks::Once,
        },
        clusters: args.cluster_size.zip(args.icc),
    }
}

/// What is planned, in a sentence.
fn test(args: &PowerArgs) -> String {
    let looks = match (args.looks, args.anytime) {
        (Some(looks), _) => {
            format!("A group sequential test with {looks} looks, the last at all of these users")
        }
        (None, true) => "A confidence sequence, tightest at all of these users".to_owned(),
        (None, false) => "A t-test that looks once; looking earlier takes more users".to_owned(),
    };
    let arms = match args.treatments {
        0 | 1 => String::new(),
        treatments => format!(", divided by {treatments} comparisons (Holm's first step)"),
    };
    format!("{looks}; alpha {}{arms}.", args.alpha)
}

fn clusters(args: &PowerArgs, users: f64) -> String {
    match args.cluster_size {
        Some(size) => format!(", {} clusters", whole((users / size).ceil())),
        None => String::new(),
    }
}

fn days(args: &PowerArgs, total: f64) -> Result<String> {
    match args.per_day {
        None => Ok(String::new()),
        Some(pace) if pace > 0.0 => {
            Ok(format!(", {} days at {} users a day", whole((total / pace).ceil()), whole(pace)))
        }
        Some(_) => bail!("--per-day must be above 0"),
    }
}

/// A whole number with commas between thousands.
fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
