//! The rows of a table of effects as words, shared by the terminal and the page.
//!
//! # Not here
//! No widths, no markup.

use crate::effect::Estimate;
use crate::forest::Axis;
use crate::format;
use crate::health::SRM_ALARM_P;
use crate::left_out::NoExposures;
use crate::report::{
    ActivationCheck, Breakdown, Call, Independence, Interaction, MetricReport, Overlap, PTests,
    Report, Role, Scale,
};

/// One treatment arm's line for one metric, or for one value of a dimension.
pub(crate) struct Row {
    /// Metric or dimension value.
    pub(crate) label: String,
    pub(crate) arm: String,
    pub(crate) control: String,
    pub(crate) value: String,
    pub(crate) effect: String,
    pub(crate) interval: String,
    pub(crate) scale: Scale,
    pub(crate) p: String,
    pub(crate) p_adjusted: String,
    pub(crate) call: Call,
    /// The estimate, where it can share the table's axis: lifts always, differences only beside
    /// differences of the same metric.
    pub(crate) drawn: Option<Estimate>,
    /// Why there is no estimate.
    pub(crate) reason: Option<String>,
}

/// A titled table of rows on one axis.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) label: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) axis: Axis,
    /// Two or more treatment arms need their names in each row.
    pub(crate) many_arms: bool,
    /// Some p-value was changed by a correction.
    pub(crate) corrected: bool,
    pub(crate) notes: Vec<String>,
}

impl Table {
    fn is_relative(&self) -> bool {
        self.rows.iter().all(|row| row.scale == Scale::Relative)
    }

    /// "lift" if every row is relative; rows beside a zero control mean are differences.
    pub(crate) fn effect_title(&self) -> &'static str {
        if self.is_relative() { "lift" } else { "effect" }
    }
}

/// Metrics under one heading, as indices into the report's.
pub(crate) struct Section<'r> {
    pub(crate) role: Role,
    /// None of primary metrics, which lead whatever their group.
    pub(crate) group: Option<&'r str>,
    pub(crate) metrics: Vec<usize>,
}

impl Section<'_> {
    pub(crate) fn title(&self) -> String {
        let role = match (self.role, self.metrics.len()) {
            (Role::Primary, 1) => "Primary metric",
            (Role::Primary, _) => "Primary metrics",
            (Role::Secondary, _) => "Secondary metrics",
            (Role::Guardrail, _) => "Guardrails",
        };
        self.group.map_or(role.into(), |group| format!("{role}: {group}"))
    }
}

/// Primary metrics, the other goals, guardrails; of each first those without a group, then groups in the
/// order of the definition.
pub(crate) fn sections(report: &Report) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for role in [Role::Primary, Role::Secondary, Role::Guardrail] {
        let from = sections.len();
        sections.push(Section { role, group: None, metrics: Vec::new() });
        let all = report.metrics.iter().enumerate();
        for (index, metric) in all.filter(|(_, metric)| metric.role == role) {
            let group = metric.group.as_deref().filter(|_| role != Role::Primary);
            match sections[from..].iter_mut().find(|section| section.group == group) {
                Some(section) => section.metrics.push(index),
                None => sections.push(Section { role, group, metrics: vec![index] }),
            }
        }
    }
    sections.retain(|section| !section.metrics.is_empty());
    sections
}

/// One table per heading, then one per metric of the breakdown.
pub(crate) fn tables(report: &Report) -> Vec<Table> {
    let mut tables = Vec::new();
    for section in sections(report) {
        let chosen = section.metrics.iter().map(|index| &report.metrics[*index]);
        let lines = chosen.map(|metric| (metric.name.clone(), metric));
        tables.push(table(report, section.title(), "metric", lines.collect()));
    }
    // A column stands under all headings of goals or under none.
    let corrected = tables.iter().any(|table| table.corrected);
    let goals = sections(report).into_iter().map(|section| section.role != Role::Guardrail);
    for (table, _) in tables.iter_mut().zip(goals).filter(|(_, is_goal)| *is_goal) {
        table.corrected = corrected;
    }
    // Lifts under all headings share one axis, whose ends a terminal does not say.
    let is_lift = |row: &&Row| row.scale == Scale::Relative;
    let rows = tables.iter().flat_map(|table| table.rows.iter().filter(is_lift));
    let shared = Axis::over(rows.filter_map(|row| row.drawn.as_ref()));
    let lifts = tables.iter_mut().filter(|table| table.rows.iter().any(|row| is_lift(&row)));
    lifts.for_each(|table| table.axis = shared);
    for breakdown in &report.breakdowns {
        for (index, metric) in report.metrics.iter().enumerate() {
            let title = format!("{} by {}", metric.name, breakdown.dimension);
            let mut lines = vec![("(all)".to_owned(), metric)];
            let rows = breakdown.rows.iter();
            lines.extend(rows.map(|row| (row.value.clone(), &row.metrics[index])));
            let mut table = table(report, title, "value", lines);
            table.notes.clear();
            let found = breakdown.differences.iter().filter(|found| found.metric == metric.name);
            table.notes.extend(found.map(|found| {
                let words = if found.p_adjusted < report.alpha { "differ" } else { "do not clearly differ" };
                let name = &report.arms[found.arm].name;
                let (p, adjusted) = (format::p_value(found.p), format::p_value(found.p_adjusted));
                format!(
                    "The {} of {name} {words} between values (Cochran's Q, p = {p}, corrected {adjusted}).",
                    found.effects()
                )
            }));
            table.notes.extend(interactions(report, breakdown, metric));
            tables.push(table);
        }
    }
    tables.retain(|table| !table.rows.is_empty());
    if let Some(first) = tables.first_mut() {
        let adjusted = match report.correction_name() {
            name if first.corrected && !name.is_empty() => format!("; p ({name}) is corrected"),
            _ => String::new(),
        };
        first.notes.insert(0, format!("p {}{adjusted}.", p_words(report)));
    }
    tables
}

/// What p is, after "p".
pub(crate) fn p_words(report: &Report) -> &'static str {
    match report.p_tests {
        PTests::Difference => "tests the difference",
        PTests::ShownEffect => "tests the effect shown",
        PTests::Belief => "is twice the belief's smaller tail",
    }
}

/// By how much effects differ between arms of the other experiment that a breakdown is by.
fn interactions(report: &Report, breakdown: &Breakdown, metric: &MetricReport) -> Vec<String> {
    let of_breakdown = |overlap: &&Overlap| overlap.dimension == breakdown.dimension;
    let Some(overlap) = report.overlaps.iter().find(of_breakdown) else { return Vec::new() };
    let words = |found: &Interaction| {
        let estimate = found.difference.ok()?;
        let on = |value| format::effect(value, Scale::Absolute, metric.is_share);
        let (arm, other) = (&report.arms[found.arm].name, &overlap.arms[found.other_arm]);
        let (low, high) = (on(estimate.low), on(estimate.high));
        let p = format::p_value(found.p_adjusted.unwrap_or(estimate.p));
        let control = &overlap.arms[overlap.control];
        Some(format!(
            "The difference of {arm} in {other} less that in {control}: {} [{low}, {high}], corrected p = {p}.",
            on(estimate.value)
        ))
    };
    let of_metric = overlap.interactions.iter().filter(|found| found.metric == metric.name);
    of_metric.filter_map(words).collect()
}

fn table(
    report: &Report,
    title: String,
    label: &'static str,
    lines: Vec<(String, &MetricReport)>,
) -> Table {
    let mut rows: Vec<Row> =
        lines.iter().flat_map(|(label, metric)| rows(report, label, metric)).collect();
    let one_unit = lines.iter().all(|(_, metric)| metric.name == lines[0].1.name);
    let all_absolute = rows.iter().all(|row| row.scale == Scale::Absolute);
    if !(one_unit && all_absolute) {
        let absolute = rows.iter_mut().filter(|row| row.scale == Scale::Absolute);
        absolute.for_each(|row| row.drawn = None);
    }
    let mut notes = Vec::new();
    for (label, metric) in &lines {
        notes.extend(metric.notes.iter().map(|note| format!("{label}: {note}")));
        if let Some(cap) = metric.cap {
            notes.push(format!("{label}: numbers per user are capped at {}.", format::plain(cap)));
        }
        for comparison in &metric.comparisons {
            let arm = &report.arms[comparison.arm].name;
            if let Some(share) = comparison.variance_reduction {
                let change = format::percent(share, 1);
                notes.push(format!("{label}: adjusting removed {change} of the variance ({arm})."));
            }
            if let Some(check) = comparison.non_inferiority {
                let margin = format::percent(check.margin, 1);
                let p = format::p_value(check.p);
                let words = if check.holds { "Not worse by" } else { "Not shown to hold within" };
                notes.push(format!("{label}: {words} {margin} ({arm}, p = {p})."));
            }
            if let Some(check) = comparison.equivalence {
                let margin = format::percent(check.margin, 1);
                let p = format::p_value(check.p);
                let words = if check.holds { "Equivalent" } else { "Not shown to be equivalent" };
                notes.push(format!("{label}: {words} within ±{margin} ({arm}, p = {p})."));
            }
            if let Some(belief) = comparison.belief {
                let chance = format::percent(belief.chance_to_win, 1);
                let on = |risk| format::effect(risk, comparison.scale, metric.is_share);
                let risk = on(belief.risk_of_arm);
                let risk = risk.trim_start_matches('+');
                notes.push(format!(
                    "{label}: {arm} is better with probability {chance}; choosing it risks {risk}."
                ));
            }
        }
    }
    Table {
        title,
        label,
        axis: Axis::over(rows.iter().filter_map(|row| row.drawn.as_ref())),
        many_arms: report.arms.len() > 2,
        corrected: rows.iter().any(|row| row.p_adjusted != row.p),
        rows,
        notes,
    }
}

fn rows(report: &Report, label: &str, metric: &MetricReport) -> Vec<Row> {
    let control = &metric.values[report.control()];
    let row = |comparison: &crate::report::Comparison| {
        let estimate = comparison.estimate();
        let on = |number: f64| format::effect(number, comparison.scale, metric.is_share);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        Row {
            label: label.to_owned(),
            arm: report.arms[comparison.arm].name.clone(),
            control: format::value(control.value, metric.is_share),
            value: format::value(metric.values[comparison.arm].value, metric.is_share),
            effect: or_dash(estimate.ok().map(|e| on(e.value))),
            interval: or_dash(estimate.ok().map(|e| format!("[{}, {}]", on(e.low), on(e.high)))),
            scale: comparison.scale,
            p: or_dash(estimate.ok().map(|e| format::p_value(e.p))),
            p_adjusted: or_dash(comparison.p_adjusted.map(format::p_value)),
            call: comparison.call,
            drawn: estimate.ok(),
            reason: estimate.err().map(|error| error.to_string()),
        }
    };
    metric.comparisons.iter().map(row).collect()
}

/// Below this a sample ratio is worth a look, though one in a hundred is so by chance.
const UNEASY_P: f64 = 0.01;

/// Days without rows that are named one by one.
const MAX_MISSING_DAYS: usize = 5;

/// The lines of the health block: is it an alarm, and what to say.
pub(crate) fn health(report: &Report) -> Vec<(Level, String)> {
    let health = &report.health;
    let check = &health.sample_ratio;
    let mut lines = Vec::new();
    lines.push(match (check.p, check.p.is_some_and(|p| p < SRM_ALARM_P)) {
        (Some(p), true) => {
            let arms = report.arms.iter().zip(&check.expected);
            let counts: Vec<String> = arms
                .map(|(arm, expected)| {
                    let expected = format::count(expected.round() as u64);
                    format!("{} has {} of {expected}", arm.name, format::count(arm.units))
                })
                .collect();
            let p = format::p_value(p);
            let counts = counts.join(", ");
            let unit = report.unit;
            (Level::Red, format!("Sample ratio mismatch, p = {p}: {counts} {unit} expected"))
        }
        (Some(p), false) if p < UNEASY_P => {
            let p = format::p_value(p);
            (Level::Amber, format!("Sample ratio unusual but no alarm, p = {p}"))
        }
        (Some(p), false) => {
            (Level::Green, format!("Sample ratio as planned, p = {}", format::p_value(p)))
        }
        (None, _) => {
            let reason = check.unavailable.as_deref().unwrap_or("it could not be tested");
            (Level::Amber, format!("Sample ratio not tested: {reason}"))
        }
    });
    for alarm in &health.sample_ratio_alarms {
        let p = format::p_value(alarm.p);
        lines.push((Level::Red, format!("Sample ratio mismatch in {}, p = {p}", alarm.value)));
    }
    for alarm in &health.sample_ratio_days {
        let p = format::p_value(alarm.p);
        let words =
            format!("Sample ratio mismatch among those exposed on {}, p = {p}", alarm.value);
        lines.push((Level::Red, words));
    }
    for imbalance in &health.balance.alarms {
        let (metric, arm) = (&imbalance.metric, &report.arms[imbalance.arm].name);
        let p = format::p_value(imbalance.p);
        let words = format!("{metric} of {arm} differed before anyone was exposed, p = {p}");
        lines.push((Level::Red, words));
    }
    if health.balance.checks > 0 && health.balance.alarms.is_empty() {
        lines.push((Level::Green, "Arms were alike before exposure".into()));
    }
    let many = health.users_in_many_variants;
    lines.push(if many == 0 {
        (Level::Green, "No user was in several variants".into())
    } else {
        let exposed: u64 = many + report.arms.iter().map(|arm| arm.users).sum::<u64>();
        let share = format::small_share(many as f64 / exposed as f64);
        let users = if many == 1 { "user was" } else { "users were" };
        let many = format::count(many);
        (Level::Amber, format!("{many} {users} in several variants and left out ({share})"))
    });
    left_out(report, &mut lines);
    let mut gaps: Vec<(&str, Vec<&str>)> = Vec::new();
    for missing in &health.missing_days {
        match gaps.iter_mut().find(|(table, _)| *table == missing.table) {
            Some((_, days)) => days.push(&missing.day),
            None => gaps.push((&missing.table, vec![&missing.day])),
        }
    }
    for (table, days) in gaps {
        let shown = days.iter().take(MAX_MISSING_DAYS).copied().collect::<Vec<_>>().join(", ");
        let more = match days.len().saturating_sub(MAX_MISSING_DAYS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push((Level::Amber, format!("Table {table} has no rows on {shown}{more}")));
    }
    match health.users_assigned_otherwise {
        None => {}
        Some(0) => lines.push((Level::Green, "Every user is in the arm of the hash".into())),
        Some(users) => {
            let units = report.arms.iter().map(|arm| arm.units).sum();
            let share = format::small_share(users as f64 / exposed(report, units) as f64);
            let (users, unit) = (format::count(users), report.unit);
            let words = format!("{users} {unit} are in another arm than the hash gives ({share})");
            lines.push((Level::Red, words));
        }
    }
    for excluded in health.excluded.iter() {
        let (users, table) = (format::count(excluded.users), &excluded.table);
        let filter = excluded.filter.as_ref();
        let filter = filter.map(|filter| format!(" where {filter}")).unwrap_or_default();
        lines.push((Level::Green, format!("{users} users in {table}{filter} were left out")));
    }
    lines.extend(health.activation.as_ref().map(|check| activation(report, check)));
    lines.extend(report.overlaps.iter().map(overlap));
    for unknown in &health.unknown_variants {
        let users = format::count(unknown.users);
        let value = &unknown.value;
        lines.push((Level::Amber, format!("Variant \"{value}\" is not defined: {users} users")));
    }
    lines
}

/// Metrics that are named one by one.
const MAX_UNMATCHED: usize = 5;

/// What no figure has, where there is any.
fn left_out(report: &Report, lines: &mut Vec<(Level, String)>) {
    let health = &report.health;
    let table = &health.exposures;
    let mut look = |words: String| lines.push((Level::Amber, words));
    match health.no_exposures {
        None => {}
        Some(NoExposures::EmptyTable) => look(format!("Table {table} has no rows")),
        Some(NoExposures::WherePassesNothing) => {
            look(format!("No row of {table} passes the `where` of the exposures"));
        }
        Some(NoExposures::NoneCounts) => {
            let time = if report.period.is_some() { " and a time within the period" } else { "" };
            look(format!("Rows of {table} pass, but none has a user{time}"));
        }
    }
    let exposures = |count: u64| {
        let exposures = if count == 1 { "exposure" } else { "exposures" };
        format!("{} {exposures}", format::count(count))
    };
    let (no_user, no_time) = (health.exposures_without_user, health.exposures_without_time);
    if no_user > 0 {
        let whom = if report.unit == "region-times" { "region" } else { "user" };
        look(format!("Left out: {} without a {whom}", exposures(no_user)));
    }
    match (no_time, &report.period) {
        (0, _) => {}
        (_, Some(_)) => look(format!("Left out: {} without a time", exposures(no_time))),
        (_, None) => {
            let exposures = exposures(no_time);
            look(format!("{exposures} without a time: nothing counts as after them"));
        }
    }
    if let Some(before) = health.users_exposed_before.filter(|before| *before > 0) {
        let exposed = exposed(report, report.arms.iter().map(|arm| arm.users).sum());
        let share = format::small_share(before as f64 / exposed as f64);
        let users = if before == 1 { "user was" } else { "users were" };
        let before = format::count(before);
        look(format!("{before} {users} exposed before the start, too, and counted ({share})"));
    }
    let mut names: Vec<&str> = health.unmatched.iter().map(|one| one.metric.as_str()).collect();
    names.dedup();
    if !names.is_empty() {
        let shown = names.iter().take(MAX_UNMATCHED).copied().collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(MAX_UNMATCHED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        look(format!("No row of the table passes a condition of: {shown}{more}"));
    }
}

/// Who was exposed, activated or not; `counted` are those in the arms.
fn exposed(report: &Report, counted: u64) -> u64 {
    report.health.activation.as_ref().map_or(counted, |check| check.exposed.iter().sum())
}

/// How many were activated, and whether arms differ in that.
fn activation(report: &Report, check: &ActivationCheck) -> (Level, String) {
    let shares = report.arms.iter().zip(check.exposed.iter().zip(&check.activated));
    let shares: Vec<String> = shares
        .filter(|(_, (exposed, _))| **exposed > 0)
        .map(|(arm, (exposed, activated))| {
            let share = format::percent(*activated as f64 / *exposed as f64, 2);
            format!("{share} of {}", arm.name)
        })
        .collect();
    let exposed = format::count(check.exposed.iter().sum());
    let words = format!("Of {exposed} exposed users were activated {}", shares.join(", "));
    match check.independence {
        Some(test) => {
            let level = if check.alarm { Level::Red } else { Level::Green };
            (level, format!("{words}, p = {}", format::p_value(test.p)))
        }
        None => (Level::Amber, words),
    }
}

/// Who is in another experiment, and whether the two depend on each other.
fn overlap(overlap: &Overlap) -> (Level, String) {
    let name = &overlap.experiment;
    let words = format!("{} users are also in {name}", format::count(overlap.users_in_both()));
    let p = |test: &Option<Independence>| test.map_or("–".into(), |test| format::p_value(test.p));
    let (arms, presence) = (p(&overlap.arms_independent), p(&overlap.presence_independent));
    let (level, verb) = match overlap.alarm {
        true => (Level::Red, "depend"),
        false => (Level::Green, "do not clearly depend"),
    };
    (
        level,
        format!("{words}; arms and presence there {verb} on these arms, p = {arms} and {presence}"),
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Green,
    Amber,
    Red,
}
