//! The SQL that a query of a definition is made of.

use crate::definition::{Dimension, Experiment, Metric, MetricKind, Unit};
use crate::expression::{Expression, Role, Written};

/// Those that a query of these dimensions and metrics is made of, and of paths; no two are alike.
pub(super) fn expressions(
    experiment: &Experiment,
    dimensions: &[Dimension],
    metrics: &[&Metric],
    paths: bool,
) -> Vec<Expression> {
    let mut found: Vec<Expression> = Vec::new();
    let mut add = |place: &str, key: &str, sql: &str, table: &str, role: Role| {
        let (place, key) = (place.to_owned(), key.to_owned());
        let (sql, table) = (sql.to_owned(), table.to_owned());
        let one = Expression { place, key, sql, table, role };
        if !found.contains(&one) {
            found.push(one);
        }
    };
    let exposures = &experiment.exposures;
    let table = &exposures.table;
    let given = matches!(exposures.unit, Unit::Summary { .. });
    let place = if given { "[summary]" } else { "[exposures]" };
    let is_told = |sql: &str| sql != "NULL";
    if is_told(&exposures.user) {
        add(place, "user", &exposures.user, table, Role::Any);
    }
    add(place, "variant", &exposures.variant, table, Role::Text);
    if let Some(time) = &exposures.time {
        add(place, "time", time, table, if given { Role::Any } else { Role::Time });
    }
    if let Some(filter) = &exposures.filter {
        add(place, "where", filter, table, Role::Condition);
    }
    for rows in &exposures.exclude {
        add(place, "exclude.user", &rows.user, &rows.table, Role::Any);
        if let Some(filter) = &rows.filter {
            add(place, "exclude.where", filter, &rows.table, Role::Condition);
        }
    }
    if let Some(rows) = &exposures.activated_by {
        add(place, "activated_by.user", &rows.user, &rows.table, Role::Any);
        if let Some(time) = &rows.time {
            add(place, "activated_by.time", time, &rows.table, Role::Time);
        }
        if let Some(filter) = &rows.filter {
            add(place, "activated_by.where", filter, &rows.table, Role::Condition);
        }
    }
    match &exposures.unit {
        Unit::User => {}
        Unit::Cluster { key } => add(place, "cluster", key, table, Role::Text),
        Unit::Switchback { region, .. } => {
            add("[switchback]", "region", region, table, Role::Text);
        }
        Unit::Summary { users } => add(place, "users", users, table, Role::Number),
    }
    for dimension in dimensions {
        let place = format!("dimension `{}`", dimension.name);
        add(&place, "sql", &dimension.sql, table, Role::Text);
    }
    for metric in metrics {
        let name = match &metric.kind {
            MetricKind::Step { funnel, .. } => funnel,
            _ => &metric.name,
        };
        let (place, table) = (format!("metric `{name}`"), &metric.table);
        if !given {
            if let Unit::Switchback { region, .. } = &exposures.unit {
                add(&place, "region", region, table, Role::Text);
            } else {
                add(&place, "user", &metric.user, table, Role::Any);
            }
            if let Some(time) = &metric.time {
                add(&place, "time", time, table, Role::Time);
            }
        }
        for Written { key, sql, role } in &metric.written {
            add(&place, key, sql, table, *role);
        }
    }
    for path in experiment.paths.iter().filter(|_| paths) {
        let place = format!("path `{}`", path.name);
        let mut of_path = |key, sql: &str, role| add(&place, key, sql, &path.table, role);
        of_path("user", &path.user, Role::Any);
        of_path("time", &path.time, Role::Time);
        of_path("event", &path.event, Role::Text);
        if let Some(filter) = &path.filter {
            of_path("where", filter, Role::Condition);
        }
        of_path("from", &path.from, Role::Condition);
        of_path("to", &path.to, Role::Condition);
    }
    found
}

/// Those that tell what users are in another experiment.
pub(super) fn of_other(other: &Experiment) -> Vec<Expression> {
    let exposures = &other.exposures;
    let one = |key: &str, sql: &String, role| Expression {
        place: format!("[exposures] of experiment `{}`", other.name),
        key: key.to_owned(),
        sql: sql.clone(),
        table: exposures.table.clone(),
        role,
    };
    let mut found = vec![
        one("user", &exposures.user, Role::Any),
        one("variant", &exposures.variant, Role::Text),
    ];
    found.extend(exposures.time.iter().map(|time| one("time", time, Role::Time)));
    found.extend(exposures.filter.iter().map(|filter| one("where", filter, Role::Condition)));
    found
}
