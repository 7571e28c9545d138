//! What an experiment is: its exposures, arms, metrics and dimensions, read from TOML.
//!
//! ```toml
//! name = "free_shipping"
//! hypothesis = "Free shipping makes more visitors pay"
//! start = "2026-11-01"                # first instant counted
//! end = "2026-11-15"                  # first instant not counted
//! time_zone = "Europe/Berlin"         # default UTC
//! inference = "anytime"               # default "fixed": look once, at the end
//! planned_users = 100000              # anytime only: all arms, where intervals are tightest
//!
//! [exposures]
//! table = "exposures"
//! user = "user_id"
//! variant = "variant"
//! time = "ts"                         # without it every row of a user counts
//! where = "exp_id = 101"
//!
//! [[variant]]
//! name = "control"                    # the first is the control unless one says `control = true`
//! share = 0.5
//! [[variant]]
//! name = "free"
//! value = 1                           # what the column holds, when that is not the name
//! share = 0.5
//!
//! [[metric]]
//! name = "conversion"
//! type = "proportion"                 # proportion, mean or ratio
//! table = "events"
//! where = "event = 'pay'"
//! window = "7 days"                   # from the first exposure
//!
//! [[metric]]
//! name = "revenue"
//! type = "mean"
//! table = "events"
//! value = "amount"                    # summed per user
//! cap = 500                           # a user's sum counts at most this much
//! cuped = { pre = "14 days" }         # subtract what the time before exposure explains
//!
//! [[metric]]
//! name = "order value"
//! type = "ratio"
//! table = "events"
//! where = "event = 'pay'"
//! numerator = { value = "amount" }
//! denominator = { value = "1" }
//! guardrail = true
//!
//! [[metric]]
//! name = "back in the second week"    # retention
//! type = "proportion"
//! table = "events"
//! window = { from = "7 days", to = "14 days" }
//!
//! [[dimension]]
//! name = "country"
//! ```
//!
//! # Invariants
//! - A parsed [`Experiment`] has two arms or more with positive planned shares, shares that sum
//!   to 1, exactly one control, and names that differ.
//! - SQL texts are opaque here; only the engine reads them.
//!
//! # Not here
//! No check that tables and columns exist: the engine has the catalogue.

use crate::query::Window;
use crate::toml_reader::{Place, Section};

/// Planned shares may miss 1 by this much: people write 0.33 three times.
const SHARE_TOLERANCE: f64 = 0.015;

/// One experiment, ready to be planned and analysed.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    pub name: String,
    pub hypothesis: Option<String>,
    /// `None`: every exposure counts.
    pub period: Option<Period>,
    /// IANA name, such as `Europe/Berlin`.
    pub time_zone: String,
    pub exposures: Exposures,
    /// In the order of the definition; indexes into it identify arms everywhere else.
    pub variants: Vec<Variant>,
    pub metrics: Vec<Metric>,
    pub dimensions: Vec<Dimension>,
    /// Two-sided error rate; intervals cover `1 - alpha`.
    pub alpha: f64,
    pub inference: Inference,
}

/// When results may be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inference {
    /// Once, at the end.
    Fixed,
    /// At any time, by confidence sequences that are tightest at `planned_users`, all arms
    /// together.
    Anytime { planned_users: u64 },
}

/// Half-open `[start, end)`, local dates or date-times in the experiment's time zone
/// ("2026-11-01" or "2026-11-01T12:00:00").
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    pub start: String,
    pub end: String,
}

/// Where exposures are; SQL identifiers and expressions, opaque here.
#[derive(Debug, Clone, PartialEq)]
pub struct Exposures {
    pub table: String,
    pub user: String,
    pub variant: String,
    pub time: Option<String>,
    pub filter: Option<String>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    pub name: String,
    /// What the variant column holds, compared as text.
    pub value: String,
    /// Planned share of users, above 0 for arms in use.
    pub share: f64,
    pub control: bool,
}

/// A way to break results down: an expression over the exposures, taken at first exposure.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    pub name: String,
    pub sql: String,
}

/// One question about users.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: String,
    pub kind: MetricKind,
    pub table: String,
    pub user: String,
    pub time: Option<String>,
    pub direction: Direction,
    /// Must not get worse, instead of should get better.
    pub guardrail: bool,
    /// After first exposure; `None` counts until the end of the period.
    pub window: Option<Window>,
    pub cuped: Option<Cuped>,
}

/// How a metric makes one figure per arm.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricKind {
    /// Share of users with at least one row that counts.
    Proportion(Term),
    /// Mean over users of the sum of a value, each sum at most `cap`.
    Mean { term: Term, cap: Option<f64> },
    /// Sum of the numerator over sum of the denominator, users as the unit of randomness.
    Ratio { numerator: Term, denominator: Term },
}

impl MetricKind {
    /// As written in a definition: "proportion", "mean" or "ratio".
    pub fn name(&self) -> &'static str {
        match self {
            Self::Proportion(_) => "proportion",
            Self::Mean { .. } => "mean",
            Self::Ratio { .. } => "ratio",
        }
    }
}

/// A SQL expression over the rows that pass a SQL filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    pub value: String,
    pub filter: Option<String>,
}

/// Adjusts a metric by the same metric before exposure, which randomisation cannot have moved.
#[derive(Debug, Clone, PartialEq)]
pub struct Cuped {
    /// Length of the time before first exposure, milliseconds.
    pub pre_ms: i64,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Increase,
    Decrease,
}

/// What is wrong with a definition, where, and what would be right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    #[error("{place}: {message}")]
    Syntax { place: Place, message: String },
    #[error("{place}: unknown key `{key}` in {section}{}; allowed: {allowed}", suggestion(.nearest))]
    UnknownKey {
        place: Place,
        key: String,
        section: String,
        nearest: Option<String>,
        allowed: String,
    },
    #[error("{place}: {section} lacks `{key}`; write for example {example}")]
    Missing { place: Place, section: String, key: String, example: String },
    #[error("{place}: `{key}` must be {expected}, found {found}")]
    WrongType { place: Place, key: String, expected: String, found: String },
    #[error("{place}: `{key}` {problem}; allowed: {allowed}")]
    Invalid { place: Place, key: String, problem: String, allowed: String },
    #[error("experiment {experiment} has no {what} `{name}`{}; it has: {allowed}", suggestion(.nearest))]
    Unknown {
        experiment: String,
        what: &'static str,
        name: String,
        nearest: Option<String>,
        allowed: String,
    },
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}

const TOP_KEYS: &[&str] = &[
    "name",
    "hypothesis",
    "start",
    "end",
    "time_zone",
    "alpha",
    "inference",
    "planned_users",
    "exposures",
    "variant",
    "metric",
    "dimension",
];

const METRIC_KEYS: &[&str] = &[
    "name",
    "type",
    "table",
    "user",
    "time",
    "where",
    "value",
    "numerator",
    "denominator",
    "direction",
    "guardrail",
    "window",
    "cap",
    "cuped",
];

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
    pub fn parse(text: &str, path: &str) -> Result<Self, DefinitionError> {
        let document = crate::toml_reader::parse(text, path)?;
        let top = Section::top(&document, text, path);
        top.only(TOP_KEYS)?;
        let exposures = read_exposures(&top.required_section("exposures", "[exposures]")?)?;
        let variants = read_variants(&top)?;
        let metrics = read_metrics(&top, &exposures)?;
        let dimensions = read_dimensions(&top)?;
        let alpha = top.number("alpha")?.unwrap_or(0.05);
        if !(alpha > 0.0 && alpha < 0.5) {
            return Err(top.invalid("alpha", format!("is {alpha}"), "above 0 and below 0.5"));
        }
        Ok(Self {
            name: top.required_text("name", "name = \"free_shipping\"")?,
            hypothesis: top.text("hypothesis")?,
            period: read_period(&top)?,
            time_zone: top.text("time_zone")?.unwrap_or_else(|| "UTC".into()),
            exposures,
            variants,
            metrics,
            dimensions,
            alpha,
            inference: read_inference(&top)?,
        })
    }

    /// Index of the control arm.
    pub fn control(&self) -> usize {
        self.variants.iter().position(|variant| variant.control).unwrap_or(0)
    }
}

fn read_inference(top: &Section<'_>) -> Result<Inference, DefinitionError> {
    let planned = top.number("planned_users")?;
    let kind = top.text("inference")?;
    match (kind.as_deref(), planned) {
        (None | Some("fixed"), None) => Ok(Inference::Fixed),
        (None | Some("fixed"), Some(_)) => {
            let problem = "has no meaning for inference fixed".to_owned();
            Err(top.invalid("planned_users", problem, "with inference = \"anytime\""))
        }
        // Beyond 2^53 a count is no longer exact, nor a plan.
        (Some("anytime"), Some(users)) if (2.0..9e15).contains(&users) => {
            Ok(Inference::Anytime { planned_users: users as u64 })
        }
        (Some("anytime"), Some(users)) => {
            Err(top.invalid("planned_users", format!("is {users}"), "2 or more"))
        }
        (Some("anytime"), None) => Err(top.missing("planned_users", "planned_users = 100000")),
        (Some(other), _) => {
            Err(top.invalid("inference", format!("is `{other}`"), "fixed, anytime"))
        }
    }
}

fn read_period(top: &Section<'_>) -> Result<Option<Period>, DefinitionError> {
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

fn read_exposures(section: &Section<'_>) -> Result<Exposures, DefinitionError> {
    section.only(&["table", "user", "variant", "time", "where"])?;
    Ok(Exposures {
        table: section.required_text("table", "table = \"exposures\"")?,
        user: section.required_text("user", "user = \"user_id\"")?,
        variant: section.required_text("variant", "variant = \"variant\"")?,
        time: section.text("time")?,
        filter: section.text("where")?,
    })
}

fn read_variants(top: &Section<'_>) -> Result<Vec<Variant>, DefinitionError> {
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

fn read_dimensions(top: &Section<'_>) -> Result<Vec<Dimension>, DefinitionError> {
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

fn read_metrics(top: &Section<'_>, exposures: &Exposures) -> Result<Vec<Metric>, DefinitionError> {
    let mut metrics: Vec<Metric> = Vec::new();
    for section in top.sections("metric")? {
        let metric = read_metric(&section, exposures)?;
        if metrics.iter().any(|other| other.name == metric.name) {
            return Err(section.repeated("name", &metric.name));
        }
        metrics.push(metric);
    }
    if metrics.is_empty() {
        return Err(top.missing("metric", "[[metric]] with a name and a type"));
    }
    Ok(metrics)
}

fn read_metric(section: &Section<'_>, exposures: &Exposures) -> Result<Metric, DefinitionError> {
    section.only(METRIC_KEYS)?;
    let time = section.text("time")?.or_else(|| exposures.time.clone());
    let window = read_window(section)?;
    let cuped = read_cuped(section)?;
    for (key, used) in [("window", window.is_some()), ("cuped", cuped.is_some())] {
        if used && (exposures.time.is_none() || time.is_none()) {
            let problem = "needs to know when users were exposed".to_owned();
            return Err(section.invalid(key, problem, "with `time` set under [exposures]"));
        }
    }
    let kind = read_kind(section)?;
    if cuped.is_some() && matches!(kind, MetricKind::Proportion(_)) {
        let problem = "is not available for type proportion".to_owned();
        return Err(section.invalid("cuped", problem, "on metrics of type mean or ratio"));
    }
    Ok(Metric {
        name: section.required_text("name", "name = \"conversion\"")?,
        kind,
        table: section.text("table")?.unwrap_or_else(|| exposures.table.clone()),
        user: section.text("user")?.unwrap_or_else(|| exposures.user.clone()),
        time,
        direction: read_direction(section)?,
        guardrail: section.boolean("guardrail")?.unwrap_or(false),
        window,
        cuped,
    })
}

/// "7 days" after first exposure, or `{ from = "7 days", to = "8 days" }`.
fn read_window(section: &Section<'_>) -> Result<Option<Window>, DefinitionError> {
    if !section.is_table("window") {
        let length = section.duration_ms("window")?;
        return Ok(length.map(|length_ms| Window { start_ms: 0, end_ms: Some(length_ms) }));
    }
    let inner = section.required_section("window", "window = \"7 days\"")?;
    inner.only(&["from", "to"])?;
    let start_ms = inner
        .duration_ms("from")?
        .ok_or_else(|| inner.missing("from", "from = \"7 days\", to = \"8 days\""))?;
    let end_ms = inner.duration_ms("to")?;
    if end_ms.is_some_and(|end_ms| end_ms <= start_ms) {
        return Err(inner.invalid("to", "is not after `from`".into(), "a later time"));
    }
    Ok(Some(Window { start_ms, end_ms }))
}

fn read_direction(section: &Section<'_>) -> Result<Direction, DefinitionError> {
    match section.text("direction")?.as_deref() {
        None | Some("increase") => Ok(Direction::Increase),
        Some("decrease") => Ok(Direction::Decrease),
        Some(other) => {
            Err(section.invalid("direction", format!("is `{other}`"), "increase, decrease"))
        }
    }
}

fn read_cuped(section: &Section<'_>) -> Result<Option<Cuped>, DefinitionError> {
    let Some(inner) = section.section("cuped")? else {
        return Ok(None);
    };
    inner.only(&["pre"])?;
    let pre_ms =
        inner.duration_ms("pre")?.ok_or_else(|| inner.missing("pre", "pre = \"14 days\""))?;
    Ok(Some(Cuped { pre_ms }))
}

fn read_kind(section: &Section<'_>) -> Result<MetricKind, DefinitionError> {
    let kind = section.required_text("type", "type = \"mean\"")?;
    let filter = section.text("where")?;
    let unused: &[&str] = match kind.as_str() {
        "proportion" => &["cap", "numerator", "denominator"],
        "mean" => &["numerator", "denominator"],
        "ratio" => &["value", "cap"],
        _ => {
            let problem = format!("is `{kind}`");
            return Err(section.invalid("type", problem, "proportion, mean, ratio"));
        }
    };
    for key in unused {
        if section.has(key) {
            let allowed = METRIC_KEYS.iter().filter(|name| !unused.contains(name));
            let allowed = allowed.copied().collect::<Vec<_>>().join(", ");
            let problem = format!("has no meaning for type {kind}");
            return Err(section.invalid(key, problem, &allowed));
        }
    }
    Ok(match kind.as_str() {
        "proportion" => {
            let value = section.text("value")?.unwrap_or_else(|| "1".into());
            MetricKind::Proportion(Term { value, filter })
        }
        "mean" => {
            let cap = section.number("cap")?;
            if cap.is_some_and(|cap| !cap.is_finite()) {
                return Err(section.invalid("cap", "is not finite".into(), "a number"));
            }
            let value = section.required_text("value", "value = \"amount\"")?;
            MetricKind::Mean { term: Term { value, filter }, cap }
        }
        _ => MetricKind::Ratio {
            numerator: read_term(section, "numerator", "amount", filter.as_deref())?,
            denominator: read_term(section, "denominator", "1", filter.as_deref())?,
        },
    })
}

/// One side of a ratio; the metric's own `where` holds for both sides.
fn read_term(
    section: &Section<'_>,
    key: &str,
    example: &str,
    shared_filter: Option<&str>,
) -> Result<Term, DefinitionError> {
    let example = format!("{key} = {{ value = \"{example}\" }}");
    let inner = section.required_section(key, &example)?;
    inner.only(&["value", "where"])?;
    let filter = match (shared_filter, inner.text("where")?) {
        (Some(shared), Some(own)) => Some(format!("({shared}) AND ({own})")),
        (shared, own) => own.or_else(|| shared.map(str::to_owned)),
    };
    Ok(Term { value: inner.required_text("value", "value = \"amount\"")?, filter })
}
