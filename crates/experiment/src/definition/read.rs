//! A definition's TOML, key by key; its metrics: `read_metric`.
//!
//! # Invariants
//! - Every key is read or refused; a value out of place is an error with its line and what is
//!   allowed.

use super::catalogue::Catalogue;
use super::error::DefinitionError;
use super::experiment::{Correction, Dimension, Experiment, Inference, Lift, Period, Variant};
use super::exposures::{Exposures, Unit, UserRows};
use super::metric::ProportionTest;
use super::read_metric::read_metrics;
use crate::assignment::{Assignment, System};
use crate::bayes::Prior;
use crate::toml_reader::Section;

/// Planned shares may miss 1 by this much: people write 0.33 three times.
const SHARE_TOLERANCE: f64 = 0.015;
/// gbstats' default of where a confidence sequence is tightest.
const GROWTHBOOK_PLANNED_USERS: u64 = 5_000;
/// More planned looks than this are a confidence sequence's work.
const LOOKS_MAX: f64 = 100.0;

const TOP_KEYS: &[&str] = &[
    "name",
    "hypothesis",
    "start",
    "end",
    "time_zone",
    "alpha",
    "inference",
    "planned_users",
    "looks",
    "prior",
    "correction",
    "lift",
    "compat",
    "stratify",
    "observed_until",
    "in_progress",
    "days_since_exposure",
    "exposures",
    "summary",
    "switchback",
    "assignment",
    "variant",
    "metric",
    "dimension",
    "path",
];

type Result<T> = std::result::Result<T, DefinitionError>;

impl Experiment {
    /// Reads a definition. `path` is only for messages.
    ///
    /// # Errors
    /// The first thing wrong, with its line and the allowed values.
    ///
    /// # Examples
    /// ```
    /// let text = r#"
    /// name = "cookie_cats"
    /// [exposures]
    /// table = "players"
    /// user = "id"
    /// variant = "version"
    /// [[variant]]
    /// name = "gate_30"
    /// share = 0.5
    /// [[variant]]
    /// name = "gate_40"
    /// share = 0.5
    /// [[metric]]
    /// name = "retention"
    /// type = "proportion"
    /// value = "retention_7"
    /// "#;
    /// let experiment = uplake_experiment::Experiment::parse(text, "cookie_cats.toml")?;
    /// assert!(experiment.variants[0].control);
    /// # Ok::<(), uplake_experiment::DefinitionError>(())
    /// ```
    pub fn parse(text: &str, path: &str) -> Result<Self> {
        experiment(text, path, &Catalogue::default())
    }

    /// Reads a definition that may use metrics of a catalogue.
    ///
    /// # Errors
    /// As [`Self::parse`]; a mistake in a metric of the catalogue names its own file and line.
    pub fn parse_with(text: &str, path: &str, catalogue: &Catalogue) -> Result<Self> {
        experiment(text, path, catalogue)
    }
}

fn experiment(text: &str, path: &str, catalogue: &Catalogue) -> Result<Experiment> {
    let document = crate::toml_reader::parse(text, path)?;
    let top = Section::top(&document, text, path);
    top.only(TOP_KEYS)?;
    let mut exposures = match top.section("summary")? {
        Some(section) => read_summary(&top, &section)?,
        None => read_exposures(&top)?,
    };
    if let Some(section) = top.section("switchback")? {
        exposures.unit = read_switchback(&top, &section, &exposures)?;
    }
    let variants = read_variants(&top)?;
    let metrics = read_metrics(&top, &exposures, catalogue)?;
    let dimensions = read_dimensions(&top)?;
    let paths = super::path::read(&top, &exposures)?;
    let alpha = top.number("alpha")?.unwrap_or(0.05);
    if !(alpha > 0.0 && alpha < 0.5) {
        return Err(top.invalid("alpha", format!("is {alpha}"), "above 0 and below 0.5"));
    }
    let growthbook = top.one_of("compat", &[("growthbook", true)])?.unwrap_or(false);
    let stratify = top.text("stratify")?;
    if let Some(name) = &stratify
        && !dimensions.iter().any(|dimension| dimension.name == *name)
    {
        let known: Vec<&str> = dimensions.iter().map(|d| d.name.as_str()).collect();
        let allowed = format!("a [[dimension]] of this file ({})", known.join(", "));
        return Err(top.invalid("stratify", format!("is `{name}`"), &allowed));
    }
    if stratify.is_some() && exposures.unit != Unit::User {
        let problem = "needs users as the unit".to_owned();
        return Err(top.invalid("stratify", problem, "no `cluster` and no [switchback]"));
    }
    let corrections = [
        ("holm", Correction::Holm),
        ("benjamini-hochberg", Correction::BenjaminiHochberg),
        ("none", Correction::None),
    ];
    let lifts = [("delta", Lift::Delta), ("fieller", Lift::Fieller), ("none", Lift::None)];
    let default = if growthbook { Correction::None } else { Correction::Holm };
    let inference = read_inference(&top, growthbook)?;
    let lift = if growthbook { Lift::Delta } else { Lift::Fieller };
    let lift = top.one_of("lift", &lifts)?.unwrap_or(lift);
    if inference != Inference::Fixed {
        // Their p-values and intervals are for one look; the other methods take an error.
        if metrics.iter().any(|metric| metric.test != ProportionTest::Unpooled) {
            let problem = "does not go with the `test` of a metric, which is for one look";
            return Err(top.invalid("inference", problem.into(), "fixed, or no `test`"));
        }
    }
    let experiment = Experiment {
        name: top.required_text("name", "name = \"free_shipping\"")?,
        hypothesis: top.text("hypothesis")?,
        period: read_period(&top)?,
        time_zone: top.text("time_zone")?.unwrap_or_else(|| "UTC".into()),
        assignment: top.section("assignment")?.map(|s| read_assignment(&s)).transpose()?,
        exposures,
        variants,
        metrics,
        dimensions,
        paths,
        alpha,
        inference,
        planned_users: read_planned_users(&top)?,
        correction: top.one_of("correction", &corrections)?.unwrap_or(default),
        lift,
        stratify,
        growthbook,
        observed_until: top.instant("observed_until")?,
    };
    super::follow_up::check(&top, &experiment)?;
    Ok(experiment)
}

fn read_inference(top: &Section<'_>, growthbook: bool) -> Result<Inference> {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Fixed,
        Anytime,
        GroupSequential,
        Bayesian,
    }
    let kinds = [
        ("fixed", Kind::Fixed),
        ("anytime", Kind::Anytime),
        ("group_sequential", Kind::GroupSequential),
        ("bayesian", Kind::Bayesian),
    ];
    let kind = top.one_of("inference", &kinds)?.unwrap_or(Kind::Fixed);
    let owners: [(&str, &[Kind], &str); 2] = [
        ("looks", &[Kind::GroupSequential], "group_sequential"),
        ("prior", &[Kind::Bayesian], "bayesian"),
    ];
    for (key, kinds, words) in owners {
        if top.has(key) && !kinds.contains(&kind) {
            let problem = "has no meaning for this inference".to_owned();
            return Err(top.invalid(key, problem, &format!("with inference = {words}")));
        }
    }
    let planned_users = read_planned_users(top)?.or(growthbook.then_some(GROWTHBOOK_PLANNED_USERS));
    let need =
        || planned_users.ok_or_else(|| top.missing("planned_users", "planned_users = 100000"));
    Ok(match kind {
        Kind::Fixed => Inference::Fixed,
        Kind::Anytime => Inference::Anytime { planned_users: need()? },
        Kind::GroupSequential => {
            let looks = top.number("looks")?.ok_or_else(|| top.missing("looks", "looks = 5"))?;
            if !(1.0..=LOOKS_MAX).contains(&looks) || looks.fract() != 0.0 {
                let allowed = "a whole number from 1 to 100";
                return Err(top.invalid("looks", format!("is {looks}"), allowed));
            }
            Inference::GroupSequential { planned_users: need()?, looks: looks as u32 }
        }
        Kind::Bayesian => Inference::Bayesian { prior: read_prior(top)? },
    })
}

fn read_planned_users(top: &Section<'_>) -> Result<Option<u64>> {
    match top.number("planned_users")? {
        // Beyond 2^53 a count is no longer exact, nor a plan.
        Some(users) if !(2.0..9e15).contains(&users) => {
            Err(top.invalid("planned_users", format!("is {users}"), "2 or more"))
        }
        users => Ok(users.map(|users| users as u64)),
    }
}

fn read_prior(top: &Section<'_>) -> Result<Prior> {
    let Some(section) = top.section("prior")? else {
        return Ok(Prior::Flat);
    };
    section.only(&["mean", "deviation"])?;
    let example = "prior = { mean = 0, deviation = 0.1 }";
    let deviation =
        section.number("deviation")?.ok_or_else(|| section.missing("deviation", example))?;
    if !(deviation > 0.0 && deviation.is_finite()) {
        return Err(section.invalid("deviation", format!("is {deviation}"), "above 0"));
    }
    let mean = section.number("mean")?.unwrap_or(0.0);
    Ok(Prior::Normal { mean, variance: deviation * deviation })
}

fn read_period(top: &Section<'_>) -> Result<Option<Period>> {
    let (start, end) = match (top.instant("start")?, top.instant("end")?) {
        (Some(start), Some(end)) => (start, end),
        (None, None) => return Ok(None),
        (None, _) => return Err(top.missing("start", "start = \"2026-11-01\"")),
        (_, None) => return Err(top.missing("end", "end = \"2026-11-15\"")),
    };
    // Dates and date-times sort as text once a date is given its midnight.
    let instant = |text: &str| {
        if text.len() == 10 { format!("{text}T00:00:00") } else { text.to_owned() }
    };
    if instant(&start) >= instant(&end) {
        let problem = format!("is {end}, which is not after `start` {start}");
        return Err(top.invalid("end", problem, "the first instant not counted, after `start`"));
    }
    Ok(Some(Period { start, end }))
}

fn read_exposures(top: &Section<'_>) -> Result<Exposures> {
    let section = top.required_section("exposures", "[exposures]")?;
    section.only(&[
        "table",
        "user",
        "variant",
        "time",
        "where",
        "cluster",
        "exclude",
        "activated_by",
    ])?;
    let cluster = section.text("cluster")?;
    for key in ["exclude", "activated_by"] {
        if section.has(key) && (top.has("switchback") || key == "activated_by" && cluster.is_some())
        {
            let problem = "needs users as the unit".to_owned();
            return Err(section.invalid(
                key,
                problem,
                "no [switchback]; to activate, no `cluster`",
            ));
        }
    }
    Ok(Exposures {
        exclude: read_exclude(&section)?,
        activated_by: read_activated_by(&section)?,
        table: section.required_text("table", "table = \"exposures\"")?,
        user: match section.text("user")? {
            // Regions that switch are units of their own.
            None if top.has("switchback") => "NULL".into(),
            user => user.ok_or_else(|| section.missing("user", "user = \"user_id\""))?,
        },
        variant: section.required_text("variant", "variant = \"variant\"")?,
        time: section.text("time")?,
        filter: section.text("where")?,
        unit: cluster.map_or(Unit::User, |key| Unit::Cluster { key }),
    })
}

/// Whom to leave out.
fn read_exclude(exposures: &Section<'_>) -> Result<Vec<UserRows>> {
    let mut all = Vec::new();
    for rows in exposures.sections("exclude")? {
        rows.only(&["table", "user", "where"])?;
        let table = rows.required_text("table", "table = \"holdout\"")?;
        all.push(read_user_rows(exposures, &rows, table, None)?);
    }
    Ok(all)
}

/// From when on users count.
fn read_activated_by(exposures: &Section<'_>) -> Result<Option<UserRows>> {
    let Some(rows) = exposures.section("activated_by")? else { return Ok(None) };
    rows.only(&["table", "user", "time", "where"])?;
    let Some(exposed_at) = exposures.text("time")? else {
        let problem = "needs to know when users were exposed".to_owned();
        return Err(exposures.invalid("activated_by", problem, "with `time` set"));
    };
    let table = rows.required_text("table", "table = \"events\"")?;
    let time = rows.text("time")?.unwrap_or(exposed_at);
    read_user_rows(exposures, &rows, table, Some(time)).map(Some)
}

/// Rows whose users are called as in the exposures, unless they say otherwise.
fn read_user_rows(
    exposures: &Section<'_>,
    rows: &Section<'_>,
    table: String,
    time: Option<String>,
) -> Result<UserRows> {
    let user = match rows.text("user")? {
        Some(user) => user,
        None => exposures.required_text("user", "user = \"user_id\"")?,
    };
    Ok(UserRows { table, user, time, filter: rows.text("where")? })
}

/// Figures that somebody else computed; no rows of users.
fn read_summary(top: &Section<'_>, section: &Section<'_>) -> Result<Exposures> {
    let of_users = ["exposures", "switchback", "assignment", "dimension", "path", "start", "end"];
    let of_windows = ["observed_until", "in_progress", "days_since_exposure"];
    for key in of_users.into_iter().chain(of_windows) {
        if top.has(key) {
            let problem = "has no meaning beside [summary]".to_owned();
            return Err(top.invalid(key, problem, "[exposures], or [summary] without it"));
        }
    }
    section.only(&["table", "variant", "users", "time", "where"])?;
    Ok(Exposures {
        table: section.required_text("table", "table = \"results\"")?,
        user: "NULL".into(),
        variant: section.required_text("variant", "variant = \"variant\"")?,
        time: section.text("time")?,
        filter: section.text("where")?,
        unit: Unit::Summary { users: section.required_text("users", "users = \"n\"")? },
        exclude: Vec::new(),
        activated_by: None,
    })
}

fn read_switchback(
    top: &Section<'_>,
    section: &Section<'_>,
    exposures: &Exposures,
) -> Result<Unit> {
    section.only(&["region", "every"])?;
    if exposures.unit != Unit::User {
        let problem = "and `cluster` are two designs".to_owned();
        return Err(top.invalid("switchback", problem, "one of them"));
    }
    if exposures.time.is_none() {
        let problem = "needs to know when".to_owned();
        return Err(top.invalid("switchback", problem, "with `time` set under [exposures]"));
    }
    let every_ms = section
        .duration_ms("every")?
        .ok_or_else(|| section.missing("every", "every = \"4 hours\""))?;
    let region = section.required_text("region", "region = \"city\"")?;
    Ok(Unit::Switchback { region, every_ms })
}

fn read_assignment(section: &Section<'_>) -> Result<Assignment> {
    section.only(&["system", "seed", "coverage", "version", "rule", "parameter"])?;
    let system = section.required_text("system", "system = \"growthbook\"")?;
    let own = match system.as_str() {
        "growthbook" => Some("version"),
        "statsig" => Some("rule"),
        "planout" => Some("parameter"),
        _ => None,
    };
    for key in ["version", "rule", "parameter"] {
        if section.has(key) && own != Some(key) {
            let problem = format!("has no meaning for system {system}");
            return Err(section.invalid(
                key,
                problem,
                "version: growthbook; rule: statsig; parameter: planout",
            ));
        }
    }
    let system = match system.as_str() {
        "growthbook" => {
            let version = section.number("version")?.unwrap_or(2.0);
            if version != 1.0 && version != 2.0 {
                return Err(section.invalid("version", format!("is {version}"), "1, 2"));
            }
            System::GrowthBook { version: version as u32 }
        }
        "optimizely" => System::Optimizely,
        "unleash" => System::Unleash,
        "statsig" => System::Statsig { rule: section.required_text("rule", "rule = \"salt\"")? },
        "planout" => System::PlanOut {
            parameter: section.required_text("parameter", "parameter = \"button\"")?,
        },
        "eppo" => System::Eppo,
        other => {
            let allowed = "growthbook, optimizely, unleash, statsig, planout, eppo";
            return Err(section.invalid("system", format!("is `{other}`"), allowed));
        }
    };
    let coverage = section.number("coverage")?.unwrap_or(1.0);
    if !(coverage > 0.0 && coverage <= 1.0) {
        return Err(section.invalid("coverage", format!("is {coverage}"), "above 0, at most 1"));
    }
    Ok(Assignment {
        system,
        seed: section.required_text("seed", "seed = \"free_shipping\"")?,
        coverage,
    })
}

fn read_variants(top: &Section<'_>) -> Result<Vec<Variant>> {
    let sections = top.sections("variant")?;
    let mut variants = Vec::with_capacity(sections.len());
    for section in &sections {
        section.only(&["name", "value", "share", "control"])?;
        let name = section.required_text("name", "name = \"control\"")?;
        let share =
            section.number("share")?.ok_or_else(|| section.missing("share", "share = 0.5"))?;
        if !(0.0..=1.0).contains(&share) {
            return Err(section.invalid("share", format!("is {share}"), "from 0 to 1"));
        }
        variants.push(Variant {
            value: section.text_or_integer("value")?.unwrap_or_else(|| name.clone()),
            name,
            share,
            control: section.boolean("control")?.unwrap_or(false),
        });
        let (last, before) = variants.split_last().expect("one was just pushed");
        if before.iter().any(|variant| variant.name == last.name) {
            return Err(section.repeated("name", &last.name));
        }
        if before.iter().any(|variant| variant.value == last.value) {
            return Err(section.repeated("value", &last.value));
        }
        if last.control && before.iter().any(|variant| variant.control) {
            let problem = "is true for a second variant".to_owned();
            return Err(section.invalid("control", problem, "true for exactly one variant"));
        }
    }
    if variants.iter().filter(|variant| variant.share > 0.0).count() < 2 {
        let problem = format!("appears {} times with a share above 0", variants.len());
        return Err(top.invalid("variant", problem, "two or more [[variant]] with share > 0"));
    }
    let total: f64 = variants.iter().map(|variant| variant.share).sum();
    if (total - 1.0).abs() > SHARE_TOLERANCE {
        let last = &sections[sections.len() - 1];
        let problem = format!("values sum to {total:.4}");
        return Err(last.invalid("share", problem, "shares that sum to 1"));
    }
    if !variants.iter().any(|variant| variant.control) {
        variants[0].control = true;
    }
    Ok(variants)
}

fn read_dimensions(top: &Section<'_>) -> Result<Vec<Dimension>> {
    let mut dimensions: Vec<Dimension> = Vec::new();
    for section in top.sections("dimension")? {
        section.only(&["name", "sql"])?;
        let name = section.required_text("name", "name = \"country\"")?;
        if dimensions.iter().any(|dimension| dimension.name == name) {
            return Err(section.repeated("name", &name));
        }
        let sql = section.text("sql")?.unwrap_or_else(|| name.clone());
        dimensions.push(Dimension { name, sql });
    }
    Ok(dimensions)
}
