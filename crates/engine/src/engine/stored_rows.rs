//! Rows of an added table that lie in files: those of a table in Delta Lake's format beside the lake's own.
//!
//! # Invariants
//! - Columns are matched by name; one that files do not have is NULL.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal, cast};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use uplake_table::{Lake, Snapshot};

use crate::scan::lake_table::LakeTable;

/// The rows of a snapshot, as far as they are wanted.
#[derive(Clone, Debug)]
pub struct StoredRows {
    /// Where the table is.
    pub lake: Lake,
    pub snapshot: Snapshot,
    /// Columns of text, and what rows must have in them.
    pub only: Vec<(&'static str, String)>,
    /// Rows of this writer above this number are left out.
    pub not_after: NotAfter,
}

/// Rows with `value` in `writer`, a column of text, and more than `last` in `number` are left out.
#[derive(Clone, Debug)]
pub struct NotAfter {
    pub writer: &'static str,
    pub value: String,
    pub number: &'static str,
    pub last: i64,
}

impl StoredRows {
    /// A plan of them with the columns of `wanted`.
    pub(crate) async fn scan(
        self,
        state: &dyn Session,
        wanted: &SchemaRef,
        filters: &[Expr],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let own = self.own_filter();
        let table = LakeTable::new(self.lake, self.snapshot);
        let columns = table.schema();
        let has = |name: &str| columns.index_of(name).ok();
        // What is asked of the whole table helps to leave files out, where types are the same.
        let is_same = |column: &datafusion::common::Column| {
            let stored = columns.field_with_name(&column.name).ok();
            let asked = wanted.field_with_name(&column.name).ok();
            stored.zip(asked).is_some_and(|(a, b)| a.data_type() == b.data_type())
        };
        let plain = filters.iter().filter(|filter| filter.column_refs().into_iter().all(is_same));
        let asked: Vec<Expr> = plain.cloned().chain(own.clone()).collect();
        let mut read: Vec<usize> = wanted.fields().iter().filter_map(|f| has(f.name())).collect();
        let of_filter = own.iter().flat_map(Expr::column_refs);
        read.extend(of_filter.filter_map(|column| has(&column.name)));
        read.sort_unstable();
        read.dedup();
        let mut plan = table.scan(state, Some(&read), &asked, None).await?;
        if let Some(filter) = own {
            let schema = DFSchema::try_from(plan.schema())?;
            let filter = state.create_physical_expr(filter, &schema)?;
            plan = Arc::new(FilterExec::try_new(filter, plan)?);
        }
        let found = plan.schema();
        let as_wanted = |field: &datafusion::arrow::datatypes::FieldRef| {
            let expr: Arc<dyn PhysicalExpr> = match found.index_of(field.name()) {
                Ok(at) => {
                    let column = Arc::new(Column::new(field.name(), at));
                    cast(column, &found, field.data_type().clone())?
                }
                Err(_) => Arc::new(Literal::new(ScalarValue::try_from(field.data_type())?)),
            };
            Ok(ProjectionExpr { expr, alias: field.name().clone() })
        };
        let columns = wanted.fields().iter().map(as_wanted).collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(columns, plan)?))
    }

    fn own_filter(&self) -> Option<Expr> {
        let text = |value: &String| lit(ScalarValue::Utf8View(Some(value.clone())));
        let only = self.only.iter().map(|(name, value)| col(*name).eq(text(value)));
        let NotAfter { writer, value, number, last } = &self.not_after;
        let others = col(*writer).not_eq(text(value)).or(col(*number).lt_eq(lit(*last)));
        conjunction(only.chain([others]))
    }
}
