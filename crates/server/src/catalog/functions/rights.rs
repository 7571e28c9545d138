//! Functions about who may what, which tools ask before they run a statement.
//!
//! # Invariants
//! - Of what a lake has none, such as sequences, a tool is not told no.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;
use uplake_engine::{AddedFunction, EngineError, Result, SqlState};

use super::arguments::{Arguments, Looked, function, of_rows, text};
use super::lists::{lists_of, texts};
use crate::access::{ADMIN, Access, Denied, Object as Granted, Rights, RowFilter, SCHEMA, Verb};
use crate::catalog::listing::Object;
use crate::catalog::names::Names;
use crate::catalog::rights::{column_items, policies, policy_items};
use crate::catalog::shared::Shared;
use crate::catalog::state::USER;

/// What a lake has none of.
const ANYTHING: [&str; 5] = [
    "has_function_privilege",
    "has_sequence_privilege",
    "has_tablespace_privilege",
    "has_type_privilege",
    "has_language_privilege",
];

pub(super) fn functions(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let mut all = vec![
        of_role(shared, "has_table_privilege", 1, |asked, of, verb| {
            let Some(table) = asked.table(of.first())? else { return Ok(true) };
            Ok(asked.rights.may(verb, &Granted::Table(table)).is_ok())
        }),
        of_role(shared, "has_any_column_privilege", 1, |asked, of, verb| {
            let Some(table) = asked.table(of.first())? else { return Ok(true) };
            Ok(match verb {
                Verb::Select => asked.rights.may_read(&table, &[]),
                verb => asked.rights.may(verb, &Granted::Table(table)),
            }
            .is_ok())
        }),
        of_role(shared, "has_column_privilege", 2, |asked, of, verb| {
            let Some(table) = asked.table(of.first())? else { return Ok(true) };
            let column = of.get(1).map(String::as_str).unwrap_or_default();
            Ok(asked.may_read_column(&table, column, verb).is_ok())
        }),
        of_role(shared, "has_schema_privilege", 1, |asked, _, verb| {
            // USAGE of a schema is everybody's.
            let schema = Granted::Schema(SCHEMA.to_owned());
            Ok(verb == Verb::Usage || asked.rights.may(verb, &schema).is_ok())
        }),
        of_role(shared, "has_database_privilege", 1, |asked, _, verb| {
            // Whoever asks is connected.
            Ok(verb == Verb::Usage || asked.rights.may(verb, &Granted::Lake).is_ok())
        }),
        has_role(shared),
        row_security(shared),
        // Kept as it is written: the condition of a policy.
        text("pg_get_expr", &["tn", "tnb"], |a| Ok(a.text(0).map(str::to_owned))),
    ];
    all.extend(ANYTHING.map(|name| {
        super::arguments::truth(name, &["ot", "oot"], |a| {
            Ok((0..a.count()).all(|place| a.value(place).is_some()).then_some(true))
        })
    }));
    all.extend(lists(shared));
    all
}

/// What a function is asked about one role.
struct Asked<'a> {
    names: Names<'a>,
    rights: Rights,
}

impl Asked<'_> {
    /// The lake's table of that name or number; `None` for a catalog's, which everybody reads.
    fn table(&self, written: Option<&String>) -> Result<Option<String>> {
        let written = written.map(String::as_str).unwrap_or_default();
        let oid = self.names.known_relation(written)?;
        Ok(match self.names.listing.object(oid) {
            Some(Object::Table(name) | Object::Index(name, _) | Object::Key(name)) => {
                Some(name.clone())
            }
            None => None,
        })
    }

    /// A column by its name or its number.
    fn may_read_column(&self, table: &str, column: &str, verb: Verb) -> Result<(), Denied> {
        if verb != Verb::Select {
            return self.rights.may(verb, &Granted::Table(table.to_owned()));
        }
        let columns = self.names.listing.tables.get(table).map(|table| table.columns.as_slice());
        let place = column.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let by_number = place.and_then(|place| columns.unwrap_or_default().get(place));
        self.rights.may_read(table, &[by_number.map_or(column, |column| column.name.as_str())])
    }
}

/// A function of a role, which is who asks if it is left out, of `objects` things and of rights with commas between
/// them: true if the role has one of these.
fn of_role(
    shared: &Arc<Shared>,
    name: &'static str,
    objects: usize,
    may: impl Fn(&Asked<'_>, &[String], Verb) -> Result<bool> + Send + Sync + 'static,
) -> AddedFunction {
    let shared = Arc::clone(shared);
    let forms = [format!("{}t", "o".repeat(objects)), format!("{}t", "o".repeat(objects + 1))];
    let forms: Vec<&str> = forms.iter().map(String::as_str).collect();
    function(name, &forms, DataType::Boolean, move |call| {
        let (listing, document) = (shared.listing(), shared.server().document());
        // Mostly one role asks about all rows.
        let mut last: Option<(String, Asked<'_>)> = None;
        let each = (0..call.rows).map(|row| {
            let a = Arguments { call, row, looked: &Looked::new() };
            let values: Option<Vec<String>> =
                (0..a.count()).map(|at| a.text_or_number(at)).collect();
            let Some(mut values) = values else { return Ok(None) };
            let verbs = values.pop().unwrap_or_default();
            let role = match values.len() > objects {
                true => role_of(&shared, &document.access, &values.remove(0))?,
                false => asking(&a),
            };
            if last.as_ref().is_none_or(|(known, _)| *known != role) {
                let names = Names { listing: &listing, tables: &shared.tables };
                let rights = document.access.of(&role);
                last = Some((role, Asked { names, rights }));
            }
            let Some((_, asked)) = &last else { return Ok(None) };
            for written in verbs.split(',') {
                if let Some(verb) = verb(written)?
                    && may(asked, &values, verb)?
                {
                    return Ok(Some(true));
                }
            }
            Ok(Some(false))
        });
        let each = each.collect::<Result<Vec<Option<bool>>>>()?;
        Ok(Arc::new(BooleanArray::from(each)))
    })
}

/// Who asks.
fn asking(a: &Arguments<'_>) -> String {
    a.facts().get(USER).unwrap_or(ADMIN).to_owned()
}

/// A role by its name or number.
fn role_of(shared: &Shared, access: &Access, written: &str) -> Result<String> {
    let by_number = written.parse().ok().and_then(|oid| shared.server().role_name(oid));
    let name = by_number.unwrap_or_else(|| written.to_owned());
    if access.has_role(&name) {
        return Ok(name);
    }
    let message = format!("role \"{written}\" does not exist");
    Err(EngineError::execution(SqlState::UndefinedObject, message))
}

/// A right as Postgres names it; `None` for one that nobody has here.
fn verb(written: &str) -> Result<Option<Verb>> {
    Ok(match written.trim().to_uppercase().as_str() {
        "SELECT" => Some(Verb::Select),
        "INSERT" => Some(Verb::Insert),
        "DELETE" => Some(Verb::Delete),
        "CREATE" => Some(Verb::Create),
        "USAGE" | "CONNECT" => Some(Verb::Usage),
        "UPDATE" => Some(Verb::Update),
        "TRUNCATE" | "REFERENCES" | "TRIGGER" | "MAINTAIN" | "TEMP" | "TEMPORARY" => None,
        // Nothing is granted on.
        other if other.ends_with("WITH GRANT OPTION") => None,
        _ => {
            let message = format!("unrecognized privilege type: \"{}\"", written.trim());
            return Err(EngineError::execution(SqlState::InvalidParameterValue, message));
        }
    })
}

fn has_role(shared: &Arc<Shared>) -> AddedFunction {
    let shared = Arc::clone(shared);
    super::arguments::truth("pg_has_role", &["ot", "oot"], move |a| {
        let values: Option<Vec<String>> = (0..a.count()).map(|at| a.text_or_number(at)).collect();
        let Some(values) = values else { return Ok(None) };
        let document = shared.server().document();
        let access = &document.access;
        let (who, of) = match values.as_slice() {
            [who, of, _] => (role_of(&shared, access, who)?, role_of(&shared, access, of)?),
            [of, _] => (asking(a), role_of(&shared, access, of)?),
            _ => return Ok(None),
        };
        let roles = access.memberships(&who);
        Ok(Some(roles.contains(of.as_str()) || roles.contains(ADMIN)))
    })
}

fn row_security(shared: &Arc<Shared>) -> AddedFunction {
    let shared = Arc::clone(shared);
    super::arguments::truth("row_security_active", &["o"], move |a| {
        let Some(written) = a.text_or_number(0) else { return Ok(None) };
        let (listing, document) = (shared.listing(), shared.server().document());
        let names = Names { listing: &listing, tables: &shared.tables };
        let asked = Asked { names, rights: document.access.of(&asking(a)) };
        let table = asked.table(Some(&written))?;
        Ok(Some(table.is_some_and(|table| asked.rights.rows(&table) != RowFilter::All)))
    })
}

/// No functions of Postgres: what `known` has in the place of subqueries.
fn lists(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let list = |name: &'static str, make: fn(&Shared, i64) -> Vec<String>| {
        let shared = Arc::clone(shared);
        function(name, &["n"], texts(), move |call| {
            let each =
                of_rows(call, &|a: &Arguments<'_>| Ok(a.number(0).map(|oid| make(&shared, oid))))?;
            let each: Vec<Vec<String>> = each.into_iter().map(Option::unwrap_or_default).collect();
            Ok(lists_of(each.iter().map(|row| row.iter().map(String::as_str).collect())))
        })
    };
    vec![
        list("roles_of", |shared, oid| {
            let role = shared.server().roles().into_iter().find(|role| role.oid == oid);
            role.map(|role| role.member_of).unwrap_or_default()
        }),
        list("roles_of_policy", |shared, oid| {
            let document = shared.server().document();
            let policy = policies(&document.access).into_iter().find(|policy| policy.oid == oid);
            policy.map(|policy| policy.roles).unwrap_or_default()
        }),
        list("policies_of", |shared, oid| {
            let document = shared.server().document();
            let of = |table: &str| policy_items(&document.access, table);
            table_of(shared, oid).map_or_else(Vec::new, |table| of(&table))
        }),
        list("column_rights_of", |shared, oid| {
            let (server, document) = (shared.server(), shared.server().document());
            let of = |table: &str| column_items(&server, &document.access, table);
            table_of(shared, oid).map_or_else(Vec::new, |table| of(&table))
        }),
    ]
}

fn table_of(shared: &Shared, oid: i64) -> Option<String> {
    match shared.listing().object(oid) {
        Some(Object::Table(name)) => Some(name.clone()),
        _ => None,
    }
}
