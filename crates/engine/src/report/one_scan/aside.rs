//! What SQL says of an experiment's users, beside the scan: funnels and distinct counts.

use datafusion::arrow::array::RecordBatch;

use super::exposed::Members;
use super::keys::{Keys, NO_MATCH_GROUP};
use crate::base::error::Result;
use crate::functions::local_day::LocalDays;
use crate::report::decode::{Values, table_place};
use crate::report::sql::{Output, Source, Sql};
use crate::report::user_row::UserRow;

/// Rows of one statement, by the places of their users.
pub(super) struct Aside {
    experiment: u32,
    table: usize,
    outputs: Vec<Output>,
    batches: Vec<Vec<Values>>,
    /// By user, the batch and the row of it.
    rows: Vec<Option<(u32, u32)>>,
    // Room for one batch.
    numbers: Vec<u32>,
}

impl Aside {
    /// `users`: the experiment and how many users it has.
    pub fn new(sql: &Sql<'_>, source: &Source, users: (usize, usize)) -> Self {
        Self {
            experiment: users.0 as u32,
            table: table_place(sql, source),
            outputs: source.outputs.clone(),
            batches: Vec::new(),
            rows: vec![None; users.1],
            numbers: Vec::new(),
        }
    }

    /// Bytes besides the batches.
    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Option<(u32, u32)>>()
    }

    /// Takes in rows: key, then the outputs.
    pub fn add(&mut self, batch: &RecordBatch, keys: &Keys, members: &Members) -> Result<()> {
        keys.find(batch.column(0), &mut self.numbers)?;
        for (row, id) in self.numbers.iter().enumerate().filter(|(_, id)| **id != NO_MATCH_GROUP) {
            let of_user = &members.members[members.range(*id as usize)];
            if let Some(member) = of_user.iter().find(|m| m.experiment == self.experiment) {
                self.rows[member.place as usize] = Some((self.batches.len() as u32, row as u32));
            }
        }
        let values = self.outputs.iter().zip(&batch.columns()[1..]);
        let values = values.map(|(output, array)| Values::of(output, array));
        self.batches.push(values.collect::<Result<_>>()?);
        Ok(())
    }

    /// What the rows say of a user.
    pub fn read(&self, place: usize, local_days: &mut LocalDays, user: &mut UserRow) {
        let Some((batch, row)) = self.rows[place] else { return };
        for values in &self.batches[batch as usize] {
            values.read(row as usize, self.table, local_days, user);
        }
    }
}
