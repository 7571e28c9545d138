//! `[[metric]]`, key by key.

use super::catalogue::{self, Catalogue, METRIC};
use super::error::DefinitionError;
use super::exposures::{Exposures, Unit};
use super::metric::{
    About, Cap, Cuped, Direction, InProgress, Metric, MetricKind, ProportionTest, Shape, Step,
    Term, Transform, Window,
};
use crate::expression::{self, Written};
use crate::toml_reader::Section;

/// Keys that every type of metric has.
const METRIC_KEYS: &[&str] = &[
    "name",
    "type",
    "table",
    "user",
    "time",
    "where",
    "direction",
    "role",
    "group",
    "guardrail",
    "margin",
    "equivalence",
    "window",
    "minimum_effect",
    "owner",
    "tags",
    "description",
    "use",
    "in_progress",
    "days_since_exposure",
];

/// Types of metric and the keys that only they have.
const METRIC_TYPES: &[(&str, &[&str])] = &[
    ("proportion", &["value", "test", "cuped"]),
    ("retention", &["value", "test", "cuped"]),
    ("threshold", &["value", "at_least", "test", "cuped"]),
    ("funnel", &["steps", "test", "conversion_time"]),
    ("mean", &["value", "cap", "transform", "cuped"]),
    ("count", &["cap", "transform", "cuped"]),
    ("distinct", &["value", "cap", "transform", "cuped"]),
    ("unique_days", &["cap", "transform", "cuped"]),
    ("first", &["value", "zeros", "cuped"]),
    ("last", &["value", "zeros", "cuped"]),
    ("ratio", &["numerator", "denominator", "cuped"]),
    ("quantile", &["value", "level", "per"]),
];

type Result<T> = std::result::Result<T, DefinitionError>;

pub(super) fn read_metrics(
    top: &Section<'_>,
    exposures: &Exposures,
    catalogue: &Catalogue,
) -> Result<Vec<Metric>> {
    let documents = catalogue::documents(catalogue)?;
    let mut metrics: Vec<Metric> = Vec::new();
    for section in top.sections(METRIC)? {
        if section.has("use") && matches!(exposures.unit, Unit::Summary { .. }) {
            let problem = "has no meaning beside [summary]".to_owned();
            return Err(section.invalid("use", problem, "metrics with a mean and a variance"));
        }
        let (section, origin) = catalogue::resolved(section, catalogue, &documents)?;
        for mut metric in read_metric(&section, exposures)? {
            super::follow_up::read(top, &section, exposures, &mut metric)?;
            if metrics.iter().any(|other| other.name == metric.name) {
                return Err(section.repeated("name", &metric.name));
            }
            metric.about.catalogue.clone_from(&origin);
            metrics.push(metric);
        }
    }
    if metrics.is_empty() {
        return Err(top.missing("metric", "[[metric]] with a name and a type"));
    }
    if !metrics.iter().any(|metric| metric.primary)
        && let Some(goal) = metrics.iter_mut().find(|metric| !metric.guardrail)
    {
        goal.primary = true;
    }
    Ok(metrics)
}

/// A metric as it stands in the catalogue: its name, and what it gives an experiment with users.
pub(super) fn of_catalogue(section: &Section<'_>) -> Result<(String, Vec<Metric>)> {
    catalogue::refuse_use(section)?;
    let exposures = Exposures {
        table: "exposures".into(),
        user: "user_id".into(),
        variant: "variant".into(),
        time: Some("ts".into()),
        filter: None,
        unit: Unit::User,
        exclude: Vec::new(),
        activated_by: None,
    };
    let metrics = read_metric(section, &exposures)?;
    Ok((section.required_text("name", "name = \"conversion\"")?, metrics))
}

/// One metric, or one per step of a funnel.
fn read_metric(section: &Section<'_>, exposures: &Exposures) -> Result<Vec<Metric>> {
    let kind = section.required_text("type", "type = \"mean\"")?;
    if matches!(exposures.unit, Unit::Summary { .. }) {
        return Ok(vec![read_given(section, &kind, exposures)?]);
    }
    let Some((_, own)) = METRIC_TYPES.iter().find(|(name, _)| *name == kind) else {
        let allowed: Vec<&str> = METRIC_TYPES.iter().map(|(name, _)| *name).collect();
        return Err(section.invalid("type", format!("is `{kind}`"), &allowed.join(", ")));
    };
    let all: Vec<&str> = METRIC_KEYS
        .iter()
        .chain(METRIC_TYPES.iter().flat_map(|(_, keys)| keys.iter()))
        .copied()
        .fold(Vec::new(), |mut keys, key| {
            if !keys.contains(&key) {
                keys.push(key);
            }
            keys
        });
    section.only(&all)?;
    if let Some(key) =
        all.iter().find(|key| section.has(key) && !METRIC_KEYS.contains(key) && !own.contains(key))
    {
        let allowed: Vec<&str> = METRIC_KEYS.iter().chain(*own).copied().collect();
        let problem = format!("has no meaning for type {kind}");
        return Err(section.invalid(key, problem, &allowed.join(", ")));
    }
    let name = section.required_text("name", "name = \"conversion\"")?;
    let time = section.text("time")?.or_else(|| exposures.time.clone());
    let window = read_window(section)?;
    let cuped = read_cuped(section, &kind)?;
    for (key, used) in
        [("window", window.is_some()), ("cuped", cuped.is_some()), ("steps", section.has("steps"))]
    {
        if used && (exposures.time.is_none() || time.is_none()) {
            let problem = "needs to know when users were exposed".to_owned();
            return Err(section.invalid(key, problem, "with `time` set under [exposures]"));
        }
        if used && key != "steps" && matches!(exposures.unit, Unit::Switchback { .. }) {
            let problem = "has no meaning for regions that switch".to_owned();
            return Err(section.invalid(key, problem, "without [switchback]"));
        }
    }
    if kind == "retention" && window.is_none_or(|window| window.start_ms == 0) {
        let problem = "must start after exposure".to_owned();
        let allowed = "window = { from = \"7 days\", to = \"14 days\" }";
        return Err(if window.is_some() {
            section.invalid("window", problem, allowed)
        } else {
            section.missing("window", allowed)
        });
    }
    if time.is_none() && matches!(kind.as_str(), "first" | "last" | "unique_days") {
        return Err(section.missing("time", "time = \"ts\""));
    }
    let (role, margin) = read_role(section, &kind)?;
    let equivalence = section.number_within("equivalence", 0.0, 1.0)?;
    let transform = section.one_of("transform", &[("log1p", Transform::Log1p)])?;
    for key in ["margin", "equivalence", "minimum_effect"] {
        if transform.is_some() && section.has(key) {
            let problem = "is a share of the control, which a mean of logs is not".to_owned();
            return Err(section.invalid(key, problem, "without `transform`"));
        }
    }
    let test = read_test(section)?;
    if test != ProportionTest::Unpooled && (cuped.is_some() || exposures.unit != Unit::User) {
        let problem = "tests plain shares of users".to_owned();
        return Err(section.invalid("test", problem, "unpooled, with cuped and other units"));
    }
    let direction = read_direction(section)?;
    let minimum_effect = section.number_within("minimum_effect", 0.0, 1.0)?;
    let about = read_about(section)?;
    let table = section.text("table")?.unwrap_or_else(|| exposures.table.clone());
    let user = section.text("user")?.unwrap_or_else(|| exposures.user.clone());
    let group = read_group(section)?;
    let written = read_written(section, &kind)?;
    let metric = |name: String, kind: MetricKind| Metric {
        name,
        kind,
        table: table.clone(),
        user: user.clone(),
        time: time.clone(),
        direction,
        guardrail: role == Some(Role::Guardrail),
        primary: role == Some(Role::Primary),
        group: group.clone(),
        window,
        cuped: cuped.clone(),
        margin,
        equivalence,
        test,
        minimum_effect,
        about: about.clone(),
        transform,
        written: written.clone(),
        in_progress: InProgress::Include,
        days_since_exposure: 0,
    };
    if kind == "funnel" {
        return read_funnel(section, &name, exposures, metric);
    }
    let kind = read_kind(section, &kind)?;
    if exposures.unit != Unit::User && kind.shape() == Shape::Quantile {
        let problem = "is `quantile`, which needs users as the unit".to_owned();
        return Err(section.invalid("type", problem, "another type, or no clusters"));
    }
    Ok(vec![metric(name, kind)])
}

/// A metric whose figures are given.
fn read_given(section: &Section<'_>, kind: &str, exposures: &Exposures) -> Result<Metric> {
    section.only(&[
        "name",
        "type",
        "where",
        "mean",
        "variance",
        "direction",
        "role",
        "group",
        "guardrail",
        "margin",
        "equivalence",
        "test",
        "minimum_effect",
        "owner",
        "tags",
        "description",
    ])?;
    if !matches!(kind, "mean" | "proportion") {
        let problem = format!("is `{kind}`");
        return Err(section.invalid("type", problem, "mean, proportion, beside [summary]"));
    }
    let variance = section.text("variance")?;
    match (kind, &variance) {
        ("mean", None) => return Err(section.missing("variance", "variance = \"variance\"")),
        ("proportion", Some(_)) => {
            let problem = "follows from the mean".to_owned();
            return Err(section.invalid("variance", problem, "on type mean"));
        }
        _ => {}
    }
    let term = Term {
        value: section.required_text("mean", "mean = \"mean\"")?,
        filter: section.text("where")?,
    };
    let (role, margin) = read_role(section, kind)?;
    Ok(Metric {
        name: section.required_text("name", "name = \"conversion\"")?,
        kind: MetricKind::Given { term, variance },
        table: exposures.table.clone(),
        user: exposures.user.clone(),
        time: exposures.time.clone(),
        direction: read_direction(section)?,
        guardrail: role == Some(Role::Guardrail),
        primary: role == Some(Role::Primary),
        group: read_group(section)?,
        window: None,
        cuped: None,
        margin,
        equivalence: section.number_within("equivalence", 0.0, 1.0)?,
        test: read_test(section)?,
        minimum_effect: section.number_within("minimum_effect", 0.0, 1.0)?,
        about: read_about(section)?,
        transform: None,
        written: read_written(section, kind)?,
        in_progress: InProgress::Include,
        days_since_exposure: 0,
    })
}

/// The SQL of a metric's section by its keys; `user` and `time` are known without.
fn read_written(section: &Section<'_>, kind: &str) -> Result<Vec<Written>> {
    let value = if kind == "distinct" { expression::Role::Any } else { expression::Role::Number };
    let keys = [
        ("value", value),
        ("mean", expression::Role::Number),
        ("variance", expression::Role::Number),
        ("where", expression::Role::Condition),
    ];
    let mut found = Vec::new();
    let mut add = |section: &Section<'_>, before: &str| -> Result<()> {
        for (key, role) in keys {
            if let Some(sql) = section.text(key)? {
                found.push(Written { key: format!("{before}{key}"), sql, role });
            }
        }
        Ok(())
    };
    add(section, "")?;
    for key in ["numerator", "denominator"] {
        if let Some(inner) = section.section(key)? {
            add(&inner, &format!("{key}."))?;
        }
    }
    for step in section.sections("steps")? {
        let name = step.text("name")?.unwrap_or_default();
        add(&step, &format!("step {name}: "))?;
    }
    if let Some(cuped) = section.section("cuped")? {
        for term in cuped.sections("with")? {
            add(&term, "cuped.with.")?;
        }
    }
    Ok(found)
}

fn read_about(section: &Section<'_>) -> Result<About> {
    Ok(About {
        owner: section.text("owner")?,
        tags: section.texts("tags")?,
        description: section.text("description")?,
        catalogue: None,
    })
}

/// What a metric is for, as written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Primary,
    Secondary,
    Guardrail,
}

/// The role, by its name or as `guardrail = true`, and a guardrail's margin.
fn read_role(section: &Section<'_>, kind: &str) -> Result<(Option<Role>, Option<f64>)> {
    let roles = [
        ("primary", Role::Primary),
        ("secondary", Role::Secondary),
        ("guardrail", Role::Guardrail),
    ];
    let mut role = section.one_of("role", &roles)?;
    if let Some(guardrail) = section.boolean("guardrail")? {
        if role.is_some_and(|role| (role == Role::Guardrail) != guardrail) {
            let problem = format!("is {guardrail}, which is not what `role` says");
            return Err(section.invalid("guardrail", problem, "one of the two"));
        }
        role = if guardrail { Some(Role::Guardrail) } else { role };
    }
    let margin = section.number_within("margin", 0.0, 1.0)?;
    if margin.is_some() && (role != Some(Role::Guardrail) || kind == "quantile") {
        let allowed = "on metrics with guardrail = true, quantiles excepted";
        return Err(section.invalid("margin", "has no meaning here".into(), allowed));
    }
    Ok((role, margin))
}

fn read_group(section: &Section<'_>) -> Result<Option<String>> {
    match section.text("group")? {
        Some(group) if group.trim().is_empty() => {
            Err(section.invalid("group", "is empty".into(), "a heading, such as \"engagement\""))
        }
        group => Ok(group),
    }
}

fn read_test(section: &Section<'_>) -> Result<ProportionTest> {
    let tests = [
        ("unpooled", ProportionTest::Unpooled),
        ("pooled", ProportionTest::Pooled),
        ("exact", ProportionTest::Exact),
    ];
    Ok(section.one_of("test", &tests)?.unwrap_or(ProportionTest::Unpooled))
}

fn read_direction(section: &Section<'_>) -> Result<Direction> {
    let words = [("increase", Direction::Increase), ("decrease", Direction::Decrease)];
    Ok(section.one_of("direction", &words)?.unwrap_or(Direction::Increase))
}

fn read_funnel(
    section: &Section<'_>,
    funnel: &str,
    exposures: &Exposures,
    metric: impl Fn(String, MetricKind) -> Metric,
) -> Result<Vec<Metric>> {
    let example = "steps = [{ name = \"cart\", where = \"event = 'cart'\" }, ...]";
    let shared = section.text("where")?;
    let mut steps = Vec::new();
    for step in section.sections("steps")? {
        step.only(&["name", "where"])?;
        let own = step.required_text("where", "where = \"event = 'cart'\"")?;
        let filter = match &shared {
            Some(shared) => format!("({shared}) AND ({own})"),
            None => own,
        };
        steps.push(Step { name: step.required_text("name", "name = \"cart\"")?, filter });
    }
    if steps.len() < 2 {
        return Err(if section.has("steps") {
            section.invalid("steps", format!("has {}", steps.len()), "two or more")
        } else {
            section.missing("steps", example)
        });
    }
    let conversion_time = section.boolean("conversion_time")?.unwrap_or(false);
    if conversion_time && matches!(exposures.unit, Unit::Switchback { .. }) {
        let problem = "is of users, not of regions that switch".to_owned();
        return Err(section.invalid("conversion_time", problem, "false, with [switchback]"));
    }
    let kind = |reached: usize| MetricKind::Step {
        funnel: funnel.to_owned(),
        steps: steps.clone(),
        reached,
        conversion_time,
    };
    // What a funnel is for is its end.
    Ok((1..=steps.len())
        .map(|reached| {
            let step = metric(format!("{funnel}: {}", steps[reached - 1].name), kind(reached));
            Metric { primary: step.primary && reached == steps.len(), ..step }
        })
        .collect())
}

/// "7 days" after first exposure, or `{ from = "7 days", to = "8 days" }`.
fn read_window(section: &Section<'_>) -> Result<Option<Window>> {
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

fn read_cuped(section: &Section<'_>, kind: &str) -> Result<Option<Cuped>> {
    let Some(inner) = section.section("cuped")? else {
        return Ok(None);
    };
    inner.only(&["pre", "with"])?;
    let pre_ms =
        inner.duration_ms("pre")?.ok_or_else(|| inner.missing("pre", "pre = \"14 days\""))?;
    let mut with = Vec::new();
    for term in inner.sections("with")? {
        term.only(&["value", "where"])?;
        let value = term.required_text("value", "value = \"amount\"")?;
        with.push(Term { value, filter: term.text("where")? });
    }
    let of_some = matches!(kind, "first" | "last") && section.boolean("zeros")? != Some(true);
    if !with.is_empty() && (kind == "ratio" || of_some) {
        let problem = format!("has no meaning for type {kind}");
        return Err(inner.invalid("with", problem, "on means and shares over all users"));
    }
    Ok(Some(Cuped { pre_ms, with }))
}

/// The kind of a metric other than a funnel.
fn read_kind(section: &Section<'_>, kind: &str) -> Result<MetricKind> {
    let filter = section.text("where")?;
    let any_row = || -> Result<Term> {
        let value = section.text("value")?.unwrap_or_else(|| "1".into());
        Ok(Term { value, filter: filter.clone() })
    };
    let summed = || -> Result<Term> {
        let value = section.required_text("value", "value = \"amount\"")?;
        Ok(Term { value, filter: filter.clone() })
    };
    Ok(match kind {
        "proportion" => MetricKind::Proportion(any_row()?),
        "retention" => MetricKind::Retention(any_row()?),
        "threshold" => {
            let at_least = section
                .number("at_least")?
                .ok_or_else(|| section.missing("at_least", "at_least = 100"))?;
            if !at_least.is_finite() || at_least <= 0.0 {
                let allowed = "a number above 0, because users without rows have 0";
                return Err(section.invalid("at_least", format!("is {at_least}"), allowed));
            }
            MetricKind::Threshold { term: summed()?, at_least }
        }
        "mean" => MetricKind::Mean { term: summed()?, cap: read_cap(section)? },
        "count" => {
            let term = Term { value: "1".into(), filter: filter.clone() };
            MetricKind::Count { term, cap: read_cap(section)? }
        }
        "distinct" => MetricKind::Distinct { term: summed()?, cap: read_cap(section)? },
        "unique_days" => {
            let term = Term { value: "1".into(), filter: filter.clone() };
            MetricKind::UniqueDays { term, cap: read_cap(section)? }
        }
        "first" | "last" => {
            let zeros = section.boolean("zeros")?.unwrap_or(false);
            MetricKind::FirstOrLast { term: summed()?, last: kind == "last", zeros }
        }
        "quantile" => {
            let level = section
                .number_within("level", 0.0, 1.0)?
                .ok_or_else(|| section.missing("level", "level = 0.9"))?;
            let per_row =
                section.one_of("per", &[("user", false), ("row", true)])?.unwrap_or(false);
            MetricKind::Quantile { term: summed()?, level, per_row }
        }
        _ => MetricKind::Ratio {
            numerator: read_term(section, "numerator", "amount", filter.as_deref())?,
            denominator: read_term(section, "denominator", "1", filter.as_deref())?,
        },
    })
}

/// A number, a quantile such as "99 %", or `{ quantile = 0.99, zeros = false }`.
fn read_cap(section: &Section<'_>) -> Result<Option<Cap>> {
    if section.is_table("cap") {
        let example = "quantile = 0.99, zeros = false";
        let inner = section.required_section("cap", example)?;
        inner.only(&["quantile", "zeros"])?;
        let level = inner
            .number_within("quantile", 0.5, 1.0)?
            .ok_or_else(|| inner.missing("quantile", example))?;
        let zeros = inner.boolean("zeros")?.unwrap_or(true);
        return Ok(Some(Cap::Quantile { level, zeros }));
    }
    if !section.is_text("cap") {
        let cap = section.number("cap")?;
        if cap.is_some_and(|cap| !cap.is_finite()) {
            return Err(section.invalid("cap", "is not finite".into(), "a number, or \"99 %\""));
        }
        return Ok(cap.map(Cap::Value));
    }
    let written = section.required_text("cap", "cap = \"99 %\"")?;
    let percent = written.trim().strip_suffix('%').and_then(|p| p.trim().parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 50.0 && percent < 100.0 => {
            Ok(Some(Cap::Quantile { level: percent / 100.0, zeros: true }))
        }
        _ => {
            let allowed = "a number, or a percentage above 50 and below 100, such as \"99 %\"";
            Err(section.invalid("cap", format!("is `{written}`"), allowed))
        }
    }
}

/// One side of a ratio; the metric's own `where` holds for both sides.
fn read_term(
    section: &Section<'_>,
    key: &str,
    example: &str,
    shared_filter: Option<&str>,
) -> Result<Term> {
    let example = format!("{key} = {{ value = \"{example}\" }}");
    let inner = section.required_section(key, &example)?;
    inner.only(&["value", "where"])?;
    let filter = match (shared_filter, inner.text("where")?) {
        (Some(shared), Some(own)) => Some(format!("({shared}) AND ({own})")),
        (shared, own) => own.or_else(|| shared.map(str::to_owned)),
    };
    Ok(Term { value: inner.required_text("value", "value = \"amount\"")?, filter })
}
