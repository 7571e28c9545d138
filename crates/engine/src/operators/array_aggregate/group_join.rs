//! A join with rows of which each id has one, done where the joined rows are grouped.
//!
//! ```text
//! GROUP BY dt, variant                   GROUP BY dt, variant  ◄── an array: id ─► row of u
//!   Join on id                   ─►        events
//!     u: one row for each id
//!     events
//! ```
//!
//! The join would copy every column of every row that has a partner. Here rows stay where they were
//! read; one without a partner is added to a group that is not handed out. If many have none, the others
//! are copied first. Rows grouped by the id itself have the row of `u` as their group, and what all of a
//! group have from it is not looked at row by row.
//!
//! # Invariants
//! - What can fail is computed of joined rows only.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, RecordBatch, RecordBatchOptions,
    UInt32Array, new_null_array,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{FilterBuilder, concat_batches, filter_record_batch, take};
use datafusion::arrow::datatypes::{DataType, Int32Type, SchemaRef, UInt32Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, InListExpr, lit,
};
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;

use uplake_functions::holds as true_only;

use crate::base::refusal::Unfit;
use crate::operators::array_aggregate::keys::{BuildRowKeys, IdKeys, Keys, NO_MATCH};
use crate::scan::among_ids::AmongIds;

/// The group that rows without a partner have because of it.
pub(crate) const NO_MATCH_GROUP: u32 = 0;

/// What a join would have done.
#[derive(Clone, Debug)]
pub(crate) struct GroupJoin {
    /// The other side: one row for each id, all in its first partition.
    pub side: Arc<dyn ExecutionPlan>,
    /// The ids, in the rows that are grouped and in the other side.
    pub key: Column,
    pub side_key: usize,
    /// The columns of joined rows: these of the input, then those of the other side. Each can be NULL.
    pub input_columns: Vec<usize>,
    pub side_columns: Vec<usize>,
    pub schema: SchemaRef,
    /// Are rows grouped by the key, and nothing else?
    pub by_key: bool,
    /// Of the other side's columns, those that rows are grouped by.
    pub groups: Vec<usize>,
    /// And those that all rows of a group have from it, where rows are grouped by the key.
    pub of_key: Vec<usize>,
    /// What a row and its partner must satisfy to be joined.
    pub condition: Option<Arc<dyn PhysicalExpr>>,
    /// Are rows of the other side without a partner handed out, too?
    pub outer: bool,
    /// May everything be computed of rows without a partner?
    pub is_safe: bool,
    /// What a scan below wants to hear of the ids.
    pub wanted: Option<Wanted>,
}

/// What a join tells a scan while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The ids as the join had them.
    pub key: Column,
    pub schema: SchemaRef,
    /// A [`DynamicFilterPhysicalExpr`].
    pub filter: Arc<dyn PhysicalExpr>,
}

/// The other side, in memory.
pub(crate) struct GroupJoinBuild {
    lookup: GroupJoin,
    ids: ArrayRef,
    places: IdKeys,
    /// The columns that joined rows have, and those by [`GroupJoin::of_key`].
    columns: Vec<ArrayRef>,
    of_key: Vec<ArrayRef>,
    /// Per row and one its group by [`GroupJoin::groups`] and one; and the groups' values.
    groups: Vec<u32>,
    values: Vec<ArrayRef>,
    memory: MemoryReservation,
}

/// Rows, and of each its row of the other side or [`NO_MATCH`].
pub(crate) struct Joined {
    pub batch: RecordBatch,
    pub partners: Vec<u32>,
}

impl GroupJoinBuild {
    /// Reads it all and tells the input's scan about it.
    pub async fn read(
        lookup: GroupJoin,
        mut rows: SendableRecordBatchStream,
        memory: MemoryReservation,
        context: Arc<TaskContext>,
    ) -> Result<Self> {
        let mut batches = Vec::new();
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            // Pieces of one batch do not count as all of it each.
            let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size();
            memory.try_grow(batch.columns().iter().map(bytes).sum::<Result<usize, _>>()?)?;
            batches.push(batch);
        }
        drop(rows);
        let all = concat_batches(&lookup.side.schema(), &batches)?;
        drop(batches);
        let ids = Arc::clone(all.column(lookup.side_key));
        let (mut places, mut found) = (IdKeys::default(), Vec::with_capacity(all.num_rows()));
        places.find(ids.as_primitive::<Int32Type>(), &mut found);
        if places.len() != all.num_rows() {
            return Err(DataFusionError::Internal("a side of a lookup has an id twice".into()));
        }
        let group_columns: Vec<ArrayRef> =
            lookup.groups.iter().map(|column| Arc::clone(all.column(*column))).collect();
        let (mut groups, mut values) = (vec![NO_MATCH_GROUP + 1; all.num_rows() + 1], Vec::new());
        if !group_columns.is_empty() {
            let types: Vec<DataType> =
                group_columns.iter().map(|column| column.data_type().clone()).collect();
            let mut keys = Keys::new(&types, false);
            keys.find(&group_columns, &mut found)?;
            if keys.is_too_long() {
                return Err(Unfit::TooManyGroups.into());
            }
            groups[1..].iter_mut().zip(&found).for_each(|(to, group)| *to = *group as u32 + 1);
            values = keys.values()?;
        }
        groups[0] = NO_MATCH_GROUP;
        let of = |columns: &[usize]| -> Vec<ArrayRef> {
            columns.iter().map(|column| Arc::clone(all.column(*column))).collect()
        };
        let (columns, of_key) = (of(&lookup.side_columns), of(&lookup.of_key));
        let kept = columns.iter().chain(&of_key).chain([&ids]);
        let bytes = kept.map(|c| c.get_array_memory_size()).sum::<usize>();
        memory.try_resize(bytes + places.size() + groups.len() * size_of::<u32>())?;
        let side = Self { lookup, ids, places, columns, of_key, groups, values, memory };
        side.tell(&context)?;
        Ok(side)
    }

    /// Tells the scan which ids have a partner.
    fn tell(&self, context: &TaskContext) -> Result<()> {
        let Some(Wanted { key, schema, filter }) = &self.lookup.wanted else { return Ok(()) };
        let Some(filter) = filter.downcast_ref::<DynamicFilterPhysicalExpr>() else {
            return Ok(());
        };
        let ids = self.ids.as_primitive::<Int32Type>();
        let key: Arc<dyn PhysicalExpr> = Arc::new(key.clone());
        let compare = |operator, bound: i32| -> Arc<dyn PhysicalExpr> {
            Arc::new(BinaryExpr::new(Arc::clone(&key), operator, lit(bound)))
        };
        let and = |left, right| -> Arc<dyn PhysicalExpr> {
            Arc::new(BinaryExpr::new(left, Operator::And, right))
        };
        let there = || ids.iter().flatten();
        let known = match (there().min(), there().max()) {
            (Some(least), Some(most)) => {
                let bounds = and(compare(Operator::GtEq, least), compare(Operator::LtEq, most));
                let options = &context.session_config().options().optimizer;
                let few = options.hash_join_inlist_pushdown_max_distinct_values;
                let among: Arc<dyn PhysicalExpr> = if ids.len() <= few || least < 0 {
                    let list = Arc::new(there().collect::<Int32Array>());
                    Arc::new(InListExpr::try_new_from_array(key.clone(), list, false, schema)?)
                } else {
                    let among = AmongIds::new(key.clone(), there());
                    self.memory.try_grow(size_of_val(among.bits().as_ref()))?;
                    Arc::new(among)
                };
                and(bounds, among)
            }
            _ => lit(false),
        };
        filter.update(known)?;
        filter.mark_complete();
        Ok(())
    }

    /// Joins rows of the input.
    pub fn join(&self, batch: &RecordBatch) -> Result<Joined> {
        let keys = batch.column(self.lookup.key.index()).as_primitive::<Int32Type>();
        let (mut partners, matched) = self.places.look_up(keys);
        let columns = self.lookup.input_columns.iter().map(|column| batch.column(*column));
        let mut columns: Vec<ArrayRef> = columns.cloned().collect();
        if self.must_copy(matched, partners.len()) {
            let joined = FilterBuilder::new(&have_partners(&partners)).optimize().build();
            columns = columns.iter().map(|c| joined.filter(c)).collect::<Result<_, _>>()?;
            drop_nobody(&mut partners);
        }
        let batch = self.rows(columns, &partners)?;
        self.apply(Joined { batch, partners })
    }

    /// Rows that do not satisfy the condition have no partner.
    fn apply(&self, mut joined: Joined) -> Result<Joined> {
        let Some(condition) = &self.lookup.condition else { return Ok(joined) };
        let rows = joined.batch.num_rows();
        let held = condition.evaluate(&joined.batch)?.into_array(rows)?;
        let held = true_only(held.as_boolean());
        let mut matched = 0;
        for (partner, held) in joined.partners.iter_mut().zip(&held) {
            *partner = if held { *partner } else { NO_MATCH };
            matched += usize::from(*partner != NO_MATCH);
        }
        if self.must_copy(matched, rows) {
            joined.batch = filter_record_batch(&joined.batch, &have_partners(&joined.partners))?;
            drop_nobody(&mut joined.partners);
        }
        Ok(joined)
    }

    /// Must those of `rows` that have a partner be copied, because others may not be computed or are many?
    fn must_copy(&self, matched: usize, rows: usize) -> bool {
        matched < rows && (!self.lookup.is_safe || matched * 2 < rows)
    }

    /// Rows of this side joined with nothing: of `rows` those without a partner.
    pub fn unseen(
        &self,
        rows: Range<usize>,
        is_seen: impl Fn(usize) -> bool,
    ) -> Result<Option<Joined>> {
        let partners: Vec<u32> = rows.filter(|row| !is_seen(*row)).map(|row| row as u32).collect();
        if partners.is_empty() {
            return Ok(None);
        }
        let fields = self.lookup.schema.fields().iter().take(self.lookup.input_columns.len());
        let nothing =
            fields.map(|field| new_null_array(field.data_type(), partners.len())).collect();
        let batch = self.rows(nothing, &partners)?;
        Ok(Some(Joined { batch, partners }))
    }

    /// The groups of `rows` of this side, where rows are grouped by the key.
    pub fn keys(&self, rows: Range<usize>) -> Keys {
        Keys::Partner(BuildRowKeys { rows, ids: Arc::clone(&self.ids) })
    }

    /// A column by [`GroupJoin::of_key`] in each of those groups.
    pub fn of_key(&self, column: usize, rows: Range<usize>) -> ArrayRef {
        self.of_key[column].slice(rows.start, rows.len())
    }

    /// Are rows of this side without a partner handed out, too?
    pub fn is_outer(&self) -> bool {
        self.lookup.outer
    }

    /// Are its rows the groups?
    pub fn is_by_key(&self) -> bool {
        self.lookup.by_key
    }

    /// Rows of this side.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Columns of the input beside those of this side; nobody looks at these where there is no partner.
    fn rows(&self, mut columns: Vec<ArrayRef>, partners: &[u32]) -> Result<RecordBatch> {
        if !self.columns.is_empty() {
            // Any row will do then: most of the rows have a partner, so there is one.
            let place = |partner: &u32| if *partner == NO_MATCH { 0 } else { *partner };
            let indices = UInt32Array::from(partners.iter().map(place).collect::<Vec<u32>>());
            for column in &self.columns {
                columns.push(take(column, &indices, None)?);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(partners.len()));
        let schema = Arc::clone(&self.lookup.schema);
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// The group that each row has because of its partner, or [`NO_MATCH_GROUP`]; where rows are grouped by the
    /// key, the partner.
    pub fn groups(&self, partners: &[u32]) -> ArrayRef {
        if self.lookup.by_key {
            return Arc::new(UInt32Array::from(partners.to_vec()));
        }
        // After NONE comes 0.
        let group = |partner: &u32| self.groups[partner.wrapping_add(1) as usize];
        let groups: Vec<u32> = partners.iter().map(group).collect();
        Arc::new(UInt32Array::from(groups))
    }

    /// The column of this side, of those that rows are grouped by, in each of `groups`.
    pub fn values(&self, column: usize, groups: &ArrayRef) -> Result<ArrayRef> {
        let groups = groups.as_primitive::<UInt32Type>().values();
        let places: UInt32Array = groups.iter().map(|group| group.checked_sub(1)).collect();
        Ok(take(&self.values[column], &places, None)?)
    }
}

fn have_partners(partners: &[u32]) -> BooleanArray {
    BooleanBuffer::collect_bool(partners.len(), |row| partners[row] != NO_MATCH).into()
}

/// Leaves out rows without a partner. Without a branch: which ones have none is hard to foresee.
fn drop_nobody(partners: &mut Vec<u32>) {
    let mut kept = 0;
    for row in 0..partners.len() {
        let partner = partners[row];
        partners[kept] = partner;
        kept += usize::from(partner != NO_MATCH);
    }
    partners.truncate(kept);
}

impl fmt::Display for GroupJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.outer { "left join" } else { "join" };
        write!(f, "{kind}=[{}]", self.key)?;
        match &self.condition {
            Some(condition) => write!(f, ", if={condition}"),
            None => Ok(()),
        }
    }
}

/// Rows of the other side that have had a partner.
#[derive(Default)]
pub(crate) struct Seen(Vec<u64>);

impl Seen {
    pub fn add(&mut self, partners: &[u32]) {
        for partner in partners.iter().filter(|partner| **partner != NO_MATCH) {
            let word = *partner as usize / 64;
            if self.0.len() <= word {
                self.0.resize((word + 1).next_power_of_two(), 0);
            }
            self.0[word] |= 1 << (partner % 64);
        }
    }

    pub fn has(&self, row: usize) -> bool {
        self.0.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    pub fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, other)| *mine |= other);
    }
}
