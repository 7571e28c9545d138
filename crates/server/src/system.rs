//! Schema `system`: what runs, and what ran lately, as tables.
//!
//! # Invariants
//! - A role sees its own statements; whoever has the right `monitor`, and admins, all.
//!
//! # Not here
//! What is kept of statements: `statements`. A restart forgets all of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use uplake_engine::{AddedSchema, EngineError, Result, SessionFacts, SqlState};

use crate::access::{ADMIN, Directory, Object, Verb};
use crate::catalog::USER;
use crate::statements::{Listed, Statements};
use crate::system_access;

const SCHEMA: &str = "system";
/// Statements that run, the oldest first.
const RUNNING: &str = "running";
/// Statements that are over, the oldest first; the last 10,000.
const QUERIES: &str = "queries";

/// The schema.
pub(crate) struct System {
    statements: Arc<Statements>,
    directory: Arc<Directory>,
    tables: BTreeMap<&'static str, Table>,
}

struct Table {
    schema: SchemaRef,
    columns: Vec<Column>,
}

/// A column: its name, and its values.
#[derive(Clone, Copy)]
struct Column(&'static str, DataTypeOf, fn(&[Listed]) -> ArrayRef);

#[derive(Clone, Copy)]
enum DataTypeOf {
    Text,
    Number,
    Seconds,
    Time,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEMA)
    }
}

fn texts(rows: &[Listed], of: impl Fn(&Listed) -> Option<String>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<StringArray>())
}

fn numbers(rows: &[Listed], of: impl Fn(&Listed) -> u64) -> ArrayRef {
    let number = |row: &Listed| i64::try_from(of(row)).unwrap_or(i64::MAX);
    Arc::new(rows.iter().map(number).collect::<Int64Array>())
}

/// Columns that both tables have, and one more of each.
fn columns(own: &[Column]) -> Vec<Column> {
    use DataTypeOf::{Number, Seconds, Text, Time};

    let mut columns = vec![
        Column("id", Number, |rows| numbers(rows, |row| row.id)),
        Column("role", Text, |rows| texts(rows, |row| Some(row.client.role.clone()))),
        Column("protocol", Text, |rows| {
            texts(rows, |row| Some(row.client.protocol.name().to_owned()))
        }),
        Column("application", Text, |rows| texts(rows, |row| Some(row.client.application.clone()))),
        Column("address", Text, |rows| texts(rows, |row| Some(row.client.address.clone()))),
        Column("text", Text, |rows| texts(rows, |row| Some(row.text.to_string()))),
        Column("started", Time, |rows| {
            let micros = rows.iter().map(|row| row.began_millis.saturating_mul(1000));
            let times: arrow::array::TimestampMicrosecondArray = micros.map(Some).collect();
            Arc::new(times.with_timezone("UTC"))
        }),
        Column("ran_s", Seconds, |rows| {
            Arc::new(rows.iter().map(|row| row.runs.as_secs_f64()).collect::<Float64Array>())
        }),
        Column("files_planned", Number, |rows| numbers(rows, |row| row.counts.files_planned)),
        Column("files_done", Number, |rows| numbers(rows, |row| row.counts.files_done)),
        Column("rows_read", Number, |rows| numbers(rows, |row| row.counts.rows_read)),
        Column("bytes_read", Number, |rows| numbers(rows, |row| row.counts.bytes_read)),
        Column("rows_out", Number, |rows| numbers(rows, |row| row.rows_sent)),
        Column("bytes_out", Number, |rows| numbers(rows, |row| row.bytes_sent)),
    ];
    columns.extend_from_slice(own);
    columns
}

impl Table {
    fn new(columns: Vec<Column>) -> Self {
        let field = |Column(name, of, _): &Column| {
            let data_type = match of {
                DataTypeOf::Text => DataType::Utf8,
                DataTypeOf::Number => DataType::Int64,
                DataTypeOf::Seconds => DataType::Float64,
                DataTypeOf::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            };
            Field::new(*name, data_type, true)
        };
        let fields: Vec<Field> = columns.iter().map(field).collect();
        Self { schema: Arc::new(Schema::new(fields)), columns }
    }
}

impl System {
    /// Tables of these statements.
    pub fn new(statements: Arc<Statements>, directory: Arc<Directory>) -> Self {
        let state = Column("state", DataTypeOf::Text, |rows| {
            texts(rows, |row| Some(row.stage.name().to_owned()))
        });
        let sqlstate = Column("sqlstate", DataTypeOf::Text, |rows| {
            texts(rows, |row| row.failed.as_ref().map(|failed| failed.code.to_string()))
        });
        let error = Column("error", DataTypeOf::Text, |rows| {
            texts(rows, |row| row.failed.as_ref().map(|failed| failed.message.clone()))
        });
        let tables = BTreeMap::from([
            (RUNNING, Table::new(columns(&[state]))),
            (QUERIES, Table::new(columns(&[sqlstate, error]))),
        ]);
        Self { statements, directory, tables }
    }

    /// Does this session see what others run?
    fn sees_all(&self, role: &str) -> bool {
        let document = self.directory.current();
        if !document.access.has_users() {
            return true;
        }
        document.access.of(role).may(Verb::Monitor, &Object::Lake).is_ok()
    }
}

impl AddedSchema for System {
    fn name(&self) -> &str {
        SCHEMA
    }

    fn is_searched(&self) -> bool {
        false
    }

    fn tables(&self) -> Vec<String> {
        let about_access = system_access::TABLES.iter();
        self.tables.keys().chain(about_access).map(|name| (*name).to_owned()).collect()
    }

    fn columns(&self, table: &str) -> Option<SchemaRef> {
        let found = self.tables.get(table).map(|table| Arc::clone(&table.schema));
        found.or_else(|| system_access::columns(table))
    }

    fn rows(&self, table: &str, facts: &SessionFacts) -> Result<RecordBatch> {
        let unmade = |what: String| EngineError::execution(SqlState::InternalError, what);
        // A session that was told of nobody is the process's own.
        let role = facts.get(USER).unwrap_or(ADMIN);
        let document = self.directory.current();
        let access = &document.access;
        let roles = (!self.sees_all(role)).then(|| access.memberships(role));
        if let Some(rows) = system_access::rows(table, &system_access::Seen { access, roles }) {
            return rows.map_err(|error| unmade(format!("{SCHEMA}.{table}: {error}")));
        }
        let found = self.tables.get(table);
        let found = found.ok_or_else(|| unmade(format!("there is no {SCHEMA}.{table}")))?;
        let mut rows = match table {
            RUNNING => self.statements.running(),
            _ => self.statements.over(),
        };
        if !self.sees_all(role) {
            rows.retain(|row| row.client.role == role);
        }
        let arrays = found.columns.iter().map(|Column(_, _, values)| values(&rows)).collect();
        RecordBatch::try_new(Arc::clone(&found.schema), arrays)
            .map_err(|error| unmade(format!("{SCHEMA}.{table}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Document, Role};
    use crate::failure::Failure;
    use crate::statements::{Client, Clock, Protocol};

    fn facts(role: &str) -> SessionFacts {
        SessionFacts::from([(USER, role)])
    }

    #[tokio::test]
    async fn a_role_sees_its_own_statements_and_monitors_all() {
        let clock: Arc<dyn Fn() -> i64 + Send + Sync> = Arc::new(|| 1_793_491_200_000);
        let quotas = crate::limits::Quotas::new(Arc::default(), Arc::clone(&clock), 0.0);
        let compute = tokio::runtime::Handle::current();
        let statements = Statements::new(&compute, Clock(clock), quotas);
        let client = |role: &str| Client {
            role: role.into(),
            protocol: Protocol::Http,
            application: "test".into(),
            address: "127.0.0.1:1".into(),
        };
        let mut access = Access::default();
        for name in ["ann", "bob", "watch"] {
            access.add_role(name, Role { login: true, ..Role::default() }).unwrap();
        }
        access.grant_role("monitor", "watch").unwrap();
        let document = |access: Access| Document { number: 1, at: 0, by: "test".into(), access };
        let system =
            System::new(Arc::clone(&statements), Arc::new(Directory::from(document(access))));
        let running = statements.begin(client("ann"), "SELECT 1");
        let failed = statements.begin(client("ann"), "SELECT 1/0");
        failed.failed(&Failure::new("22012", "division by zero"));
        drop(failed);
        for (role, count) in [("ann", 1), ("bob", 0), ("watch", 1), ("nobody", 0)] {
            for table in [RUNNING, QUERIES] {
                let rows = system.rows(table, &facts(role)).unwrap();
                assert_eq!(rows.num_rows(), count, "{role} {table}");
                assert_eq!(Some(rows.schema()), system.columns(table));
            }
        }
        let over = system.rows(QUERIES, &facts("ann")).unwrap();
        let code = over.column_by_name("sqlstate").unwrap();
        assert_eq!(code.as_any().downcast_ref::<StringArray>().unwrap().value(0), "22012");
        drop(running);
        let nobody =
            System::new(statements, Arc::new(Directory::from(document(Access::default()))));
        assert_eq!(nobody.rows(QUERIES, &facts("admin")).unwrap().num_rows(), 2);
    }
}
