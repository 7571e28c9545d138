//! What groups in arrays are asked for: by what rows are grouped, what is added up, and what is joined first.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use crate::operators::array_aggregate::group_join::GroupJoin;
use crate::operators::array_aggregate::keys::Keys;
use crate::operators::array_aggregate::sums::SumPlan;

#[derive(Clone, Debug)]
pub(crate) struct ArrayAggregate {
    pub schema: SchemaRef,
    pub columns: Vec<Group>,
    /// Of the columns that are [`Group::Row`], and of an id.
    pub types: Vec<DataType>,
    pub one_id: bool,
    pub sums: Vec<SumPlan>,
    /// The rows are joined first.
    pub lookup: Option<GroupJoin>,
    /// Each partition of the input has other ids.
    pub ranges: Option<Ranges>,
    /// The same in another way.
    pub otherwise: Otherwise,
}

/// What goes on where groups in arrays cannot, see [`fallback`](crate::operators::fallback).
#[derive(Clone, Debug)]
pub(crate) enum Otherwise {
    /// The aggregate as it was planned, before partitions were chosen.
    Hashes(Arc<dyn ExecutionPlan>),
    /// Arrays over rows in any order, instead of over [`Ranges`].
    AnyOrder(Arc<dyn ExecutionPlan>),
}

/// Partitions of an input that have different ids, each id's rows in the order of time, see
/// [`crate::scan::id_ranges`]. Each thread groups one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    pub count: usize,
    pub threads: usize,
}

/// What rows are grouped by.
#[derive(Clone, Debug)]
pub(crate) enum Group {
    Row(Arc<dyn PhysicalExpr>),
    /// Of [`GroupJoin::groups`].
    BuildSide(usize),
    /// [`GroupJoin::key`].
    Key,
}

impl Group {
    pub fn expression(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        match self {
            Self::Row(expr) => Some(expr),
            Self::BuildSide(_) | Self::Key => None,
        }
    }
}

impl ArrayAggregate {
    pub(super) fn names(&self, from: usize, to: usize) -> String {
        let fields = self.schema.fields()[from..to].iter();
        fields.map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn group_names(&self) -> String {
        self.names(0, self.columns.len())
    }

    pub(super) fn keys(&self) -> Keys {
        let mut types = self.types.clone();
        if self.lookup.is_some() && !self.one_id {
            // The group of the other side.
            types.push(DataType::UInt32);
        }
        Keys::new(&types, self.one_id)
    }

    /// What is computed of rows.
    pub fn expressions(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        let lookup = self.lookup.iter().flat_map(|lookup| &lookup.condition);
        let groups = self.columns.iter().filter_map(Group::expression);
        groups.chain(self.sums.iter().flat_map(SumPlan::expressions)).chain(lookup)
    }
}
