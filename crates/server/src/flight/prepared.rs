//! Prepared statements of clients, by handle.
//!
//! # Invariants
//! - A handle opens for the role that made it.
//! - There are at most [`OF_ONE`] of one session, [`OF_ALL`] in all, and [`TEXT_BYTES`] of their texts; one that was
//!   not used for [`IDLE_MILLIS`] gives way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use futures::{Stream, StreamExt};
use uplake_engine::{EngineError, Prepared, ScalarValue, Statement};

use super::rows::plain_type;
use super::tickets::Id;
use crate::failure::Failure;

const OF_ONE: usize = 1000;
const OF_ALL: usize = 20_000;
const TEXT_BYTES: usize = 64 << 20;
/// How long a handle lives unused.
const IDLE_MILLIS: i64 = 60 * 60_000;
/// Rows of values that may be bound at once.
const ROWS: usize = 10_000;

/// What a handle stands for.
#[derive(Clone)]
pub(super) struct Held {
    pub role: String,
    pub owner: String,
    pub statement: Statement,
    /// With the types of its parameters, if it can have some.
    pub query: Option<Prepared>,
    /// Of its answer.
    pub schema: SchemaRef,
    /// Rows of values for `$1`, `$2` and so on.
    values: Arc<Vec<Vec<ScalarValue>>>,
    used: i64,
}

impl Held {
    pub fn new(
        role: String,
        owner: String,
        statement: Statement,
        query: Option<Prepared>,
        schema: SchemaRef,
    ) -> Self {
        Self { role, owner, statement, query, schema, values: Arc::default(), used: 0 }
    }

    /// Its parameters, as columns `$1`, `$2` and so on. What may be of any type is a text.
    pub fn parameters(&self) -> Schema {
        let types = self.query.as_ref().map_or(&[][..], Prepared::types);
        let fields = types.iter().enumerate().map(|(at, data_type)| {
            let data_type = match data_type.as_ref().map_or(DataType::Utf8, plain_type) {
                // Arrow's JDBC driver (18.3) writes milliseconds, whatever unit it is told. Others send their own.
                DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Millisecond, zone),
                other => other,
            };
            Field::new(format!("${}", at + 1), data_type, true)
        });
        Schema::new(fields.collect::<Vec<_>>())
    }

    /// The statements to run: one for each row of values.
    ///
    /// # Errors
    /// Values that do not fit; 0A000 for values of a statement that takes none.
    pub fn bound(&self) -> Result<Vec<Statement>, Failure> {
        let Some(query) = &self.query else {
            return match self.values.iter().all(Vec::is_empty) {
                true => Ok(vec![self.statement.clone()]),
                false => {
                    Err(Failure::new("0A000", "only queries, INSERT and DELETE take parameters")
                        .with_hint("write the values"))
                }
            };
        };
        let bind = |values: &Vec<ScalarValue>| query.bind(values).map_err(Failure::from);
        match self.values.as_slice() {
            [] => Ok(vec![bind(&Vec::new())?]),
            rows => rows.iter().map(bind).collect(),
        }
    }
}

/// All handles.
#[derive(Default)]
pub(super) struct Handles(Mutex<HashMap<Id, Held>>);

impl Handles {
    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one.
    ///
    /// # Errors
    /// 54000 if there are too many.
    pub fn add(&self, id: Id, held: Held, now: i64) -> Result<(), Failure> {
        let mut all = self.lock();
        if all.len() >= OF_ALL {
            all.retain(|_, held| now.saturating_sub(held.used) <= IDLE_MILLIS);
        }
        let of_one = all.values().filter(|other| other.owner == held.owner).count();
        let texts: usize = all.values().map(|held| held.statement.text.len()).sum();
        let is_full = of_one >= OF_ONE || all.len() >= OF_ALL;
        if is_full || texts + held.statement.text.len() > TEXT_BYTES {
            return Err(Failure::new("54000", "there are too many prepared statements")
                .with_hint("close those that are not used"));
        }
        all.insert(id, Held { used: now, ..held });
        Ok(())
    }

    /// The one of this handle.
    ///
    /// # Errors
    /// 26000 if the role has none.
    pub fn get(&self, handle: &[u8], role: &str, now: i64) -> Result<(Id, Held), Failure> {
        let id = id_of(handle)?;
        let mut all = self.lock();
        let held = all.get_mut(&id).filter(|held| held.role == role).ok_or_else(none)?;
        held.used = now;
        Ok((id, held.clone()))
    }

    /// Sets its values.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn bind(
        &self,
        handle: &[u8],
        role: &str,
        values: Vec<Vec<ScalarValue>>,
    ) -> Result<(), Failure> {
        let id = id_of(handle)?;
        let mut all = self.lock();
        let held = all.get_mut(&id).filter(|held| held.role == role).ok_or_else(none)?;
        held.values = Arc::new(values);
        Ok(())
    }

    /// Forgets it, if the role has it.
    pub fn close(&self, handle: &[u8], role: &str) {
        if let Ok(id) = id_of(handle) {
            let mut all = self.lock();
            if all.get(&id).is_some_and(|held| held.role == role) {
                all.remove(&id);
            }
        }
    }
}

fn id_of(handle: &[u8]) -> Result<Id, Failure> {
    handle.try_into().map_err(|_| none())
}

fn none() -> Failure {
    Failure::new("26000", "there is no such prepared statement").with_hint("prepare it again")
}

/// The rows of values that a client sends.
///
/// # Errors
/// 54000 for too many; what cannot be read.
pub(super) async fn values(
    mut batches: impl Stream<Item = Result<RecordBatch, Failure>> + Unpin,
) -> Result<Vec<Vec<ScalarValue>>, Failure> {
    let mut rows = Vec::new();
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        if rows.len() + batch.num_rows() > ROWS {
            return Err(Failure::new("54000", format!("at most {ROWS} rows can be bound"))
                .with_hint("ingest them in bulk"));
        }
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| ScalarValue::try_from_array(column, row);
            let values = batch.columns().iter().map(value).collect::<Result<Vec<_>, _>>();
            rows.push(values.map_err(EngineError::from)?);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(owner: &str) -> Held {
        let statement = uplake_engine::parse("SELECT 1").unwrap().remove(0);
        let schema = Arc::new(Schema::empty());
        Held::new("ann".into(), owner.into(), statement, None, schema)
    }

    #[test]
    fn handles_are_of_a_role_and_bounded() {
        let handles = Handles::default();
        for n in 0..OF_ONE {
            let mut id = Id::default();
            id[..8].copy_from_slice(&n.to_be_bytes());
            handles.add(id, held("a"), 0).unwrap();
        }
        assert_eq!(handles.add([9; 16], held("a"), 0).unwrap_err().code, "54000");
        handles.add([9; 16], held("b"), 0).unwrap();
        assert!(handles.get(&[9; 16], "ann", 0).is_ok());
        assert_eq!(handles.get(&[9; 16], "bob", 0).err().unwrap().code, "26000");
        handles.close(&[9; 16], "bob");
        assert!(handles.get(&[9; 16], "ann", 0).is_ok());
        handles.close(&[9; 16], "ann");
        assert!(handles.get(&[9; 16], "ann", 0).is_err());
        assert!(handles.get(b"x", "ann", 0).is_err());
    }

    #[test]
    fn values_of_a_statement_that_takes_none_are_refused() {
        let mut held = held("a");
        assert_eq!(held.bound().unwrap().len(), 1);
        held.values = Arc::new(vec![vec![ScalarValue::Int64(Some(1))]]);
        assert_eq!(held.bound().unwrap_err().code, "0A000");
    }
}
