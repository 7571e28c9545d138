//! Functions about tables, types and other objects, by their numbers and names.

use std::sync::Arc;

use uplake_engine::{AddedFunction, EngineError, Result, SqlState};

use super::arguments::{Arguments, number, text, truth};
use crate::catalog::listing::Object;
use crate::catalog::names::Names;
use crate::catalog::tables::SCHEMAS;
use crate::catalog::words::{literal, parts, quoted};
use crate::catalog::{shared::Shared, types};

/// What a lake has none of: definitions, and comments on other than tables.
const NOTHING: [(&str, &[&str]); 15] = [
    ("pg_get_expr", &["tn", "tnb"]),
    ("pg_get_partkeydef", &["n"]),
    ("pg_get_partition_constraintdef", &["n"]),
    ("pg_get_triggerdef", &["n", "nb"]),
    ("pg_get_ruledef", &["n", "nb"]),
    ("pg_get_functiondef", &["n"]),
    ("pg_get_function_arguments", &["n"]),
    ("pg_get_function_sqlbody", &["n"]),
    ("pg_get_function_identity_arguments", &["n"]),
    ("pg_get_statisticsobjdef", &["n"]),
    ("pg_get_statisticsobjdef_columns", &["n"]),
    ("pg_get_serial_sequence", &["tt"]),
    ("shobj_description", &["nt"]),
    ("pg_tablespace_location", &["n"]),
    ("pg_relation_filepath", &["o"]),
];

pub(super) fn functions(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let mut all = definitions(shared);
    all.extend(casts(shared));
    all.extend(sizes(shared));
    all.extend(visibility(shared));
    all.extend(NOTHING.map(|(name, takes)| text(name, takes, |_| Ok(None))));
    all.push(truth("pg_relation_is_publishable", &["o"], |_| Ok(Some(false))));
    all.push(truth("pg_relation_is_updatable", &["ob"], |_| Ok(Some(false))));
    all.push(text("quote_ident", &["t"], |a| Ok(a.text(0).map(quoted))));
    all.push(text("quote_literal", &["t"], |a| Ok(a.text(0).map(literal))));
    all.push(text("quote_nullable", &["t"], |a| {
        Ok(Some(a.text(0).map_or_else(|| "NULL".into(), literal)))
    }));
    all.push(text("pg_encoding_to_char", &["n"], |a| {
        Ok(a.number(0).map(|number| if number == 6 { "UTF8".into() } else { String::new() }))
    }));
    all.push(number("pg_char_to_encoding", &["t"], |a| {
        Ok(a.text(0).map(|name| {
            if ["UTF8", "UTF-8"].contains(&name.to_uppercase().as_str()) { 6 } else { -1 }
        }))
    }));
    all
}

/// A function of a number that is asked of the names there are now.
fn of_names<T>(
    shared: &Arc<Shared>,
    ask: impl Fn(&Names<'_>, &Arguments<'_>) -> Result<Option<T>> + Send + Sync + 'static,
) -> impl Fn(&Arguments<'_>) -> Result<Option<T>> + Send + Sync + 'static {
    let shared = Arc::clone(shared);
    move |arguments| {
        // What a role does not see is worked out of all tables: once for a call, not for each of its rows.
        let listing = arguments.looked.get_or_init(|| shared.listing_for(arguments.facts()));
        ask(&Names { listing, tables: &shared.tables }, arguments)
    }
}

fn definitions(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let owner = Arc::clone(shared);
    let result = Arc::clone(shared);
    vec![
        text("format_type", &["nn"], |a| Ok(a.number(0).map(|oid| types::shown(oid, a.number(1))))),
        text("pg_get_userbyid", &["n"], move |a| {
            let Some(oid) = a.number(0) else { return Ok(None) };
            Ok(Some(
                owner.server().role_name(oid).unwrap_or_else(|| format!("unknown (OID={oid})")),
            ))
        }),
        text(
            "pg_get_constraintdef",
            &["n", "nb"],
            of_names(shared, |names, a| Ok(a.number(0).and_then(|oid| names.constraint(oid)))),
        ),
        text(
            "pg_get_indexdef",
            &["n", "nnb"],
            of_names(shared, |names, a| {
                Ok(a.number(0).and_then(|oid| names.index(oid, a.number(1).unwrap_or_default())))
            }),
        ),
        text(
            "pg_get_viewdef",
            &["o", "ob", "on"],
            of_names(shared, |names, a| Ok(a.number(0).and_then(|oid| names.view(oid)))),
        ),
        text(
            "obj_description",
            &["n", "nt"],
            of_names(shared, |names, a| {
                let is_relation = a.text(1).is_none_or(|catalog| catalog == "pg_class");
                Ok(a.number(0).filter(|_| is_relation).and_then(|oid| names.comment(oid, 0)))
            }),
        ),
        text(
            "col_description",
            &["nn"],
            of_names(shared, |names, a| {
                let column = a.number(1).filter(|column| *column > 0);
                Ok(a.number(0).zip(column).and_then(|(oid, column)| names.comment(oid, column)))
            }),
        ),
        text("pg_get_function_result", &["n"], move |a| {
            let server = result.server();
            let place = a.number(0).and_then(|oid| server.function(oid));
            Ok(place.map(|(_, _, gives)| types::shown(*gives, None)))
        }),
    ]
}

/// `x::regclass` and its like, in both directions: see `rewrite`.
fn casts(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let unknown = |what: &str, name: &str| {
        let message = format!("{what} \"{name}\" does not exist");
        EngineError::execution(SqlState::UndefinedObject, message)
    };
    let schema = |name: &str| {
        let name = parts(name).pop().unwrap_or_default();
        let known = SCHEMAS.iter().find(|(oid, known)| *known == name || oid.to_string() == name);
        known.map(|(oid, _)| *oid)
    };
    let type_of = |written: &str| written.parse().ok().or_else(|| types::oid_of_text(written));
    let (by_name, by_oid) = (Arc::clone(shared), Arc::clone(shared));
    // A function's name is what catalogs have of it.
    let last_part = |a: &Arguments<'_>| {
        Ok(a.text_or_number(0).map(|written| parts(&written).pop().unwrap_or_default()))
    };
    vec![
        number(
            "regclass_in",
            &["o"],
            of_names(shared, |names, a| match a.text_or_number(0) {
                Some(written) => names.known_relation(&written).map(Some),
                None => Ok(None),
            }),
        ),
        number(
            "to_regclass",
            &["t"],
            of_names(shared, |names, a| Ok(a.text(0).and_then(|written| names.relation(written)))),
        ),
        text(
            "regclass_out",
            &["o"],
            of_names(shared, |names, a| match a.text_or_number(0) {
                Some(written) => Ok(Some(names.shown(names.known_relation(&written)?))),
                None => Ok(None),
            }),
        ),
        number("regtype_in", &["o"], move |a| match a.text_or_number(0) {
            Some(written) => type_of(&written).ok_or_else(|| unknown("type", &written)).map(Some),
            None => Ok(None),
        }),
        number("to_regtype", &["t"], move |a| Ok(a.text(0).and_then(type_of))),
        text("regtype_out", &["o"], move |a| match a.text_or_number(0) {
            Some(written) => {
                let oid = type_of(&written).ok_or_else(|| unknown("type", &written))?;
                Ok(Some(types::shown(oid, None)))
            }
            None => Ok(None),
        }),
        text("regproc_in", &["o"], last_part),
        text("regproc_out", &["o"], last_part),
        number("regnamespace_in", &["o"], move |a| match a.text_or_number(0) {
            Some(written) => schema(&written).ok_or_else(|| unknown("schema", &written)).map(Some),
            None => Ok(None),
        }),
        number("to_regnamespace", &["t"], move |a| Ok(a.text(0).and_then(schema))),
        text("regnamespace_out", &["o"], move |a| {
            let Some(written) = a.text_or_number(0) else { return Ok(None) };
            let known = schema(&written);
            let name = SCHEMAS.iter().find(|(oid, _)| Some(*oid) == known);
            Ok(Some(name.map_or(written, |(_, name)| (*name).to_owned())))
        }),
        number("regrole_in", &["o"], move |a| {
            let Some(written) = a.text_or_number(0) else { return Ok(None) };
            let name = parts(&written).pop().unwrap_or_default();
            let server = by_name.server();
            let mut roles = server.roles().into_iter();
            let found = roles.find(|role| role.name == name || role.oid.to_string() == name);
            found.map(|role| Some(role.oid)).ok_or_else(|| unknown("role", &written))
        }),
        text("regrole_out", &["o"], move |a| {
            let Some(written) = a.text_or_number(0) else { return Ok(None) };
            let role = written.parse().ok().and_then(|oid| by_oid.server().role_name(oid));
            Ok(Some(role.unwrap_or(written)))
        }),
    ]
}

fn sizes(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let bytes = |of_indexes: bool| {
        move |names: &Names<'_>, a: &Arguments<'_>| {
            let Some(written) = a.text_or_number(0) else { return Ok(None) };
            let oid = names.known_relation(&written)?;
            let table = match names.listing.object(oid) {
                Some(Object::Table(name)) if !of_indexes => names.listing.tables.get(name),
                _ => None,
            };
            Ok(Some(table.map_or(0, |table| i64::try_from(table.bytes).unwrap_or(i64::MAX))))
        }
    };
    vec![
        number("pg_relation_size", &["o", "ot"], of_names(shared, bytes(false))),
        number("pg_total_relation_size", &["o"], of_names(shared, bytes(false))),
        number("pg_table_size", &["o"], of_names(shared, bytes(false))),
        number("pg_indexes_size", &["o"], of_names(shared, bytes(true))),
        number("pg_database_size", &["o"], of_names(shared, bytes_of_lake)),
        number("pg_tablespace_size", &["o"], of_names(shared, bytes_of_lake)),
        text("pg_size_pretty", &["n"], |a| Ok(a.number(0).map(pretty))),
    ]
}

/// Of all tables.
fn bytes_of_lake(names: &Names<'_>, _: &Arguments<'_>) -> Result<Option<i64>> {
    let bytes: u64 = names.listing.tables.values().map(|table| table.bytes).sum();
    Ok(Some(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

/// Bytes as Postgres writes them: in the greatest unit of which there are at least 10.
fn pretty(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let (mut size, mut unit) = (bytes.unsigned_abs(), 0);
    // Postgres keeps one bit more than it shows, and rounds by it.
    while size >= 10 * 1024 && unit + 1 < UNITS.len() {
        size = size.div_ceil(512) / 2;
        unit += 1;
    }
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{size} {}", UNITS[unit])
}

fn visibility(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let of_tables = truth(
        "pg_table_is_visible",
        &["n"],
        of_names(shared, |names, a| Ok(a.number(0).and_then(|oid| names.is_visible(oid)))),
    );
    let others = [
        "pg_type_is_visible",
        "pg_function_is_visible",
        "pg_collation_is_visible",
        "pg_operator_is_visible",
        "pg_opclass_is_visible",
        "pg_opfamily_is_visible",
        "pg_conversion_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_ts_parser_is_visible",
        "pg_ts_template_is_visible",
    ];
    let visible = |name| truth(name, &["n"], |a| Ok(a.number(0).map(|_| true)));
    others.map(visible).into_iter().chain([of_tables]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_postgres_writes_them() {
        let check = |bytes: i64, expected: &str| assert_eq!(pretty(bytes), expected);
        check(0, "0 bytes");
        check(10_239, "10239 bytes");
        check(10_240, "10 kB");
        check(20_000, "20 kB");
        check(1 << 30, "1024 MB");
        check(-20_480, "-20 kB");
    }
}
