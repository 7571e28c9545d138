//! Schema `system`: what runs, what ran and what it cost, as tables.
//!
//! # Invariants
//! - A role sees its own rows; whoever has the right `monitor`, and admins, all.
//! - Of tables and files a role sees those that it may read all of.
//!
//! # Not here
//! What is kept of statements (`statements`), loads and the audit log; who may what (`system_access`).

mod columns;
mod history;
mod kept;
mod live;
mod noted;
mod statements;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use async_trait::async_trait;
use tokio::sync::Mutex;
use uplake_engine::{
    AddedRows, AddedSchema, EngineError, NotAfter, Result, SessionFacts, SqlState, StoredRows,
    Summary,
};
use uplake_table::{Lake, Snapshot, TableError};

use crate::access::{ADMIN, Directory, Object, Verb};
use crate::catalog::USER;
use crate::cost::Prices;
use crate::readable::sees_a_part;
use crate::roll::{Member, Roll};
use crate::statements::Statements;
use crate::system_access;
use columns::Columns;
use history::History;
use kept::{Kept, KeptLog, NODE, NUMBER, ROLE, See};
use live::{CacheUse, File, Setting};
use noted::Numbered;
use statements::Charged;

const SCHEMA: &str = "system";
/// Statements that run, the oldest first.
const RUNNING: &str = "running";
/// Statements that are over.
const QUERIES: &str = "queries";
const LOADS: &str = "loads";
const AUDIT: &str = "audit";
/// Statements added up.
const COSTS: &str = "costs";
const TABLES: &str = "tables";
const FILES: &str = "files";
const CONNECTIONS: &str = "connections";
const CACHES: &str = "caches";
const SETTINGS: &str = "settings";

const OF_COSTS: Summary = Summary {
    of: QUERIES,
    groups: &[
        ("day", "dt"),
        ("role", "role"),
        ("tenant", "tenant"),
        ("experiment", "experiment"),
        ("metric", "metric"),
    ],
    count: "statements",
    sums: &[
        ("seconds", "seconds"),
        ("compute_s", "compute_s"),
        ("rows_read", "rows_read"),
        ("rows_out", "rows_out"),
        ("bytes", "bytes_asked"),
        ("bytes_store", "bytes_store"),
        ("bytes_out", "bytes_out"),
        ("requests", "requests"),
        ("dollars", "dollars"),
    ],
};

/// What the tables are of.
pub(crate) struct Sources {
    pub lake: Lake,
    pub statements: Arc<Statements>,
    pub directory: Arc<Directory>,
    pub roll: Arc<Roll>,
    pub prices: Prices,
    /// What the server was told.
    pub settings: Vec<Setting>,
    /// This process, among all that there were.
    pub node: String,
    /// Are rows kept in the lake?
    pub history: bool,
}

/// The schema.
pub(crate) struct System {
    from: Sources,
    kept: BTreeMap<&'static str, Box<dyn Kept>>,
    history: Option<History>,
    /// Held by who writes rows to the lake.
    writes: Mutex<()>,
    running: Columns<Charged>,
    tables: Columns<Snapshot>,
    files: Columns<File>,
    connections: Columns<Member>,
    caches: Columns<CacheUse>,
    settings: Columns<Setting>,
    costs: SchemaRef,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEMA)
    }
}

fn unmade(table: &str, error: &ArrowError) -> EngineError {
    EngineError::execution(SqlState::InternalError, format!("{SCHEMA}.{table}: {error}"))
}

impl System {
    /// Tables of these.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for a lake with a path that cannot be.
    pub fn new(from: Sources) -> std::result::Result<Self, TableError> {
        let (prices, node) = (from.prices, from.node.clone());
        let queries = Columns::new(statements::over());
        let costs = Arc::new(summary_schema(&OF_COSTS, &queries.schema));
        let queries = KeptLog {
            columns: queries,
            log: Arc::clone(&from.statements.over),
            role: |listed| &listed.client.role,
            seen: Box::new(move |listed, number| Charged {
                listed: listed.clone().settled(),
                prices,
                node: node.clone(),
                number,
            }),
        };
        let loads = KeptLog {
            columns: Columns::new(noted::loads()),
            log: Arc::clone(&from.statements.loads),
            role: |load| &load.role,
            seen: numbered(&from.node),
        };
        let audit = KeptLog {
            columns: Columns::new(noted::audit()),
            log: Arc::clone(&from.statements.audit.notes),
            role: |note| &note.role,
            seen: numbered(&from.node),
        };
        let history = from.history.then(|| History::of(&from.lake)).transpose()?;
        let kept: [(_, Box<dyn Kept>); 3] =
            [(QUERIES, Box::new(queries)), (LOADS, Box::new(loads)), (AUDIT, Box::new(audit))];
        Ok(Self {
            from,
            kept: kept.into(),
            history,
            writes: Mutex::default(),
            running: Columns::new(statements::running()),
            tables: Columns::new(live::tables()),
            files: Columns::new(live::files()),
            connections: Columns::new(live::connections()),
            caches: Columns::new(live::caches()),
            settings: Columns::new(live::settings()),
            costs,
        })
    }

    /// Does this role see what others do?
    fn sees_all(&self, role: &str) -> bool {
        let document = self.from.directory.current();
        if !document.access.has_users() {
            return true;
        }
        document.access.of(role).may(Verb::Monitor, &Object::Lake).is_ok()
    }

    /// Writes rows to the lake that are in memory alone.
    ///
    /// # Errors
    /// Those of a lake that cannot be written; the rows stay in memory.
    pub async fn keep(&self) -> std::result::Result<(), TableError> {
        let Some(history) = &self.history else { return Ok(()) };
        // A lake is made by whoever puts a table into it.
        if !self.from.lake.is_there().await? {
            return Ok(());
        }
        let _writes = self.writes.lock().await;
        for (name, kept) in &self.kept {
            let unstored = kept.unstored();
            let unstored = unstored.map_err(|error| TableError::Invalid(error.to_string()))?;
            let Some((rows, last)) = unstored else { continue };
            match history.append(name, rows, self.from.statements.now()).await {
                Ok(()) => kept.store(last),
                // They may be there, and would be twice.
                Err(error @ TableError::OutcomeUnknown { .. }) => {
                    kept.store(last);
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes rows of long ago from the lake, and merges files.
    ///
    /// # Errors
    /// Those of a lake that cannot be written.
    pub async fn tidy(&self) -> std::result::Result<(), TableError> {
        let Some(history) = &self.history else { return Ok(()) };
        let _writes = self.writes.lock().await;
        for name in self.kept.keys() {
            history.tidy(name, self.from.statements.now()).await?;
        }
        Ok(())
    }

    /// Will rows be let go soon if they are not written to the lake?
    pub fn is_pressing(&self) -> bool {
        self.history.is_some() && self.kept.values().any(|kept| kept.is_pressing())
    }

    /// Rows that were let go before they were in the lake.
    pub fn lost(&self) -> u64 {
        self.kept.values().map(|kept| kept.lost()).sum()
    }

    /// Rows that are in memory, and those of them that lie in files.
    async fn kept_rows(
        &self,
        (name, kept): (&'static str, &dyn Kept),
        role: Option<&str>,
    ) -> Result<AddedRows> {
        let (made, last) = kept.newest(role).map_err(|error| unmade(name, &error))?;
        let Some(history) = &self.history else { return Ok(AddedRows { made, stored: None }) };
        let snapshot = history.newest(name).await?;
        let only = role.map(|role| (ROLE, role.to_owned()));
        let stored = snapshot.map(|snapshot| StoredRows {
            lake: history.lake.clone(),
            snapshot,
            only: only.into_iter().collect(),
            not_after: NotAfter {
                writer: NODE,
                value: self.from.node.clone(),
                number: NUMBER,
                last: i64::try_from(last).unwrap_or(i64::MAX),
            },
        });
        Ok(AddedRows { made, stored })
    }

    /// Rows about access, of what a role sees or of all; `None` if the table is about something else.
    fn access_rows(
        &self,
        table: &str,
        role: Option<&str>,
    ) -> Option<std::result::Result<RecordBatch, ArrowError>> {
        let document = self.from.directory.current();
        let access = &document.access;
        let roles = role.map(|role| access.memberships(role));
        system_access::rows(table, &system_access::Seen { access, roles })
    }

    async fn snapshots(&self, role: &str) -> Result<Vec<Snapshot>> {
        let document = self.from.directory.current();
        let rights = document.access.has_users().then(|| document.access.of(role));
        let may_see = |name: &str| {
            let table = Object::Table(name.to_owned());
            rights.as_ref().is_none_or(|rights| {
                rights.may(Verb::Select, &table).is_ok() && !sees_a_part(rights, name)
            })
        };
        Ok(live::snapshots(&self.from.lake, may_see).await?)
    }
}

/// A row with its number and the process.
fn numbered<R: Clone>(node: &str) -> See<R, Numbered<R>> {
    let node = node.to_owned();
    Box::new(move |row, number| Numbered { row: row.clone(), node: node.clone(), number })
}

/// The columns of a table that adds others up.
fn summary_schema(summary: &Summary, of: &SchemaRef) -> arrow::datatypes::Schema {
    use arrow::datatypes::{DataType, Field, Schema};

    let named = |(name, column): &(&str, &str)| {
        of.field_with_name(column).ok().map(|field| field.clone().with_name(*name))
    };
    let mut fields: Vec<Field> = summary.groups.iter().filter_map(named).collect();
    fields.push(Field::new(summary.count, DataType::Int64, false));
    fields.extend(summary.sums.iter().filter_map(named));
    Schema::new(fields)
}

#[async_trait]
impl AddedSchema for System {
    fn name(&self) -> &str {
        SCHEMA
    }

    fn is_searched(&self) -> bool {
        false
    }

    fn tables(&self) -> Vec<String> {
        let live = [RUNNING, COSTS, TABLES, FILES, CONNECTIONS, CACHES, SETTINGS];
        let live = live.into_iter().chain(system_access::TABLES);
        self.kept.keys().copied().chain(live).map(str::to_owned).collect()
    }

    fn columns(&self, table: &str) -> Option<SchemaRef> {
        if let Some(kept) = self.kept.get(table) {
            return Some(kept.schema());
        }
        let schema = match table {
            RUNNING => &self.running.schema,
            COSTS => &self.costs,
            TABLES => &self.tables.schema,
            FILES => &self.files.schema,
            CONNECTIONS => &self.connections.schema,
            CACHES => &self.caches.schema,
            SETTINGS => &self.settings.schema,
            _ => return system_access::columns(table),
        };
        Some(Arc::clone(schema))
    }

    fn summary(&self, table: &str) -> Option<Summary> {
        (table == COSTS).then_some(OF_COSTS)
    }

    async fn rows(&self, table: &str, facts: &SessionFacts) -> Result<AddedRows> {
        // A session that was told of nobody is the process's own.
        let role = facts.get(USER).unwrap_or(ADMIN);
        let only = (!self.sees_all(role)).then_some(role);
        if let Some((&name, kept)) = self.kept.get_key_value(table) {
            return self.kept_rows((name, kept.as_ref()), only).await;
        }
        if let Some(made) = self.access_rows(table, only) {
            let made = made.map_err(|error| unmade(table, &error))?;
            return Ok(AddedRows { made, stored: None });
        }
        let is_seen = |of: &str| only.is_none_or(|role| role == of);
        let made = match table {
            RUNNING => {
                let mut listed = self.from.statements.running();
                listed.retain(|listed| is_seen(&listed.client.role));
                let charged = |listed| Charged {
                    listed,
                    prices: self.from.prices,
                    node: self.from.node.clone(),
                    number: 0,
                };
                self.running.batch(&listed.into_iter().map(charged).collect::<Vec<_>>())
            }
            TABLES => self.tables.batch(&self.snapshots(role).await?),
            FILES => {
                let snapshots = self.snapshots(role).await?;
                let of = |snapshot: &Snapshot| {
                    let table = snapshot.table().to_owned();
                    let files = snapshot.files().iter().cloned();
                    files.map(move |file| File(table.clone(), file)).collect::<Vec<_>>()
                };
                self.files.batch(&snapshots.iter().flat_map(of).collect::<Vec<_>>())
            }
            CONNECTIONS => {
                let mut members = self.from.roll.members();
                members.retain(|member| is_seen(&member.role));
                self.connections.batch(&members)
            }
            CACHES => self.caches.batch(&live::caches_of(&self.from.lake)),
            _ => self.settings.batch(&self.from.settings),
        };
        let made: RecordBatch = made.map_err(|error| unmade(table, &error))?;
        Ok(AddedRows { made, stored: None })
    }
}

#[cfg(test)]
mod tests;
