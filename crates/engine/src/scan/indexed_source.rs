//! A table's Parquet files as a scan reads them, with their indexes and with kept columns: what its partitions share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileSource, ParquetSource};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::Operator;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::path::Path;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use uplake_table::{DataFile, IndexCache, IndexSpec, Selection};

use crate::base::id_column::IdColumn;
use crate::base::warnings::Warnings;
use crate::cache::columns::{Chunk, ColumnCache};
use crate::scan::index_predicate::question;
use crate::scan::integer_ranges::IntegerRanges;
use crate::scan::prefetch::Ahead;
use crate::scan::pruned::Pruner;
use crate::scan::repairs::Repairs;

/// DataFusion's; every scan is told its own before it runs.
const DEFAULT_BATCH_ROWS: usize = 8192;
/// So many users' rows are a small part of a table.
const FEW_IDS: usize = 100;

/// What the scans of one table need to ask its indexes.
#[derive(Debug)]
pub(crate) struct Indexes {
    pub table: String,
    pub specs: Vec<IndexSpec>,
    pub cache: Arc<IndexCache>,
    pub metadata: Arc<FileMetadataCache>,
    pub columns: Arc<ColumnCache>,
    pub warnings: Arc<Warnings>,
    pub repairs: Arc<Repairs>,
    pub files: Arc<HashMap<Path, DataFile>>,
    /// The session's memory, if files are so far away that they are worth reading ahead.
    pub ahead: Option<(Arc<dyn MemoryPool>, usize)>,
}

/// The part of [`Indexes`] that a session has, carried in DataFusion's session config.
#[derive(Clone, Debug)]
pub(crate) struct IndexUse {
    pub cache: Arc<IndexCache>,
    pub columns: Arc<ColumnCache>,
    pub warnings: Arc<Warnings>,
    pub repairs: Arc<Repairs>,
}

/// [`ParquetSource`] with an [`Indexes`] before it.
#[derive(Clone)]
pub(crate) struct IndexedSource {
    pub(super) inner: ParquetSource,
    pub(super) indexes: Arc<Indexes>,
    /// The store as the query uses it.
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) batch_rows: usize,
    /// The rows of files asked so far in this scan.
    pub(super) asked: Arc<FileAnswers>,
    /// What its condition says of bounds.
    pub(super) pruner: Arc<Pruner>,
    /// What is fetched ahead, from when the scan begins.
    pub(super) ahead: Arc<OnceLock<Ahead>>,
    /// Which conditions are applied by the scan, and by nobody else.
    pub(super) applies: Applies,
    /// See [`lent`](crate::scan::indexed::lent).
    pub(super) lends: bool,
}

/// Conditions that a scan applies by itself. Others are applied to what it hands out; they rule out files, row groups and
/// pages all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applies {
    Nothing,
    /// A part's ranges of ids, which are in order, so that there is little to ask.
    Ranges,
    All,
}

type FileAnswers = Mutex<HashMap<Path, Arc<tokio::sync::OnceCell<Arc<FileAnswer>>>>>;

impl IndexedSource {
    pub fn new(inner: ParquetSource, indexes: Arc<Indexes>, store: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            indexes,
            store,
            batch_rows: DEFAULT_BATCH_ROWS,
            asked: Arc::default(),
            pruner: Arc::default(),
            ahead: Arc::default(),
            applies: Applies::Nothing,
            lends: false,
        }
    }

    /// Are neither its indexes asked nor few ids wanted, as far as is known before it runs?
    pub fn reads_many(&self) -> bool {
        let conditions = self.inner.filter();
        let mut conditions = conditions.iter().flat_map(|p| split_conjunction(p));
        !conditions.any(|c| self.names_ids(c) || question(c, &self.indexes.specs).is_some())
    }

    /// Are the columns that it reads kept, as far as the first row group of a file says?
    pub fn keeps(&self, file: &PartitionedFile) -> bool {
        let of_file = self.inner.table_schema().file_schema().fields();
        let mut read =
            self.inner.projection().map_or_else(Vec::new, ProjectionExprs::column_indices);
        let conditions = self.inner.filter();
        let conditions = conditions.iter().flat_map(|p| split_conjunction(p));
        let applied = conditions.filter(|condition| self.applies(condition));
        read.extend(applied.flat_map(collect_columns).map(|column| column.index()));
        let columns = read.iter().filter_map(|column| of_file.get(*column));
        let chunk = |column: &str| Chunk {
            file: file.object_meta.location.clone(),
            row_group: 0,
            column: column.to_owned(),
        };
        columns.into_iter().all(|field| self.indexes.columns.keeps(&chunk(field.name())))
    }

    /// Does this column hold ids? Conditions are over all columns of the table.
    fn holds_ids(&self, column: &Column) -> bool {
        let table = self.inner.table_schema().table_schema();
        table.field_with_name(column.name()).is_ok_and(|field| IdColumn::of(field).is_some())
    }

    /// Is this a condition on ids that few rows satisfy?
    pub(super) fn names_ids(&self, condition: &Arc<dyn PhysicalExpr>) -> bool {
        let is_id = |expr: &Arc<dyn PhysicalExpr>| {
            expr.downcast_ref::<Column>().is_some_and(|column| self.holds_ids(column))
        };
        if let Some(list) = condition.downcast_ref::<InListExpr>() {
            return is_id(list.expr()) && !list.negated() && list.len() <= FEW_IDS;
        }
        condition
            .downcast_ref::<BinaryExpr>()
            .is_some_and(|comparison| *comparison.op() == Operator::Eq && is_id(comparison.left()))
    }

    /// Is this a condition of ranges of ids, as a part of a statement has?
    pub(super) fn divides_ids(&self, condition: &Arc<dyn PhysicalExpr>) -> bool {
        // Ranges are of one column.
        collect_columns(condition).iter().any(|column| {
            self.holds_ids(column) && IntegerRanges::of(condition, column.name()).is_some()
        })
    }

    /// Is this condition applied by the scan, and by nobody else?
    pub(super) fn applies(&self, condition: &Arc<dyn PhysicalExpr>) -> bool {
        match self.applies {
            Applies::Nothing => false,
            Applies::Ranges => self.divides_ids(condition),
            Applies::All => true,
        }
    }

    /// Is this a condition on ids that few rows satisfy, and compares it them with constants only?
    pub(super) fn names_constant_ids(&self, condition: &Arc<dyn PhysicalExpr>) -> bool {
        self.names_ids(condition) && names_constants(condition)
    }

    /// Around what DataFusion made of the inner source.
    pub(super) fn around(&self, inner: &Arc<dyn FileSource>) -> Result<Self> {
        let inner = inner.downcast_ref::<ParquetSource>().ok_or_else(|| {
            DataFusionError::Internal("a Parquet source became something else".into())
        })?;
        let source = Self::new(inner.clone(), Arc::clone(&self.indexes), Arc::clone(&self.store));
        Ok(Self { applies: self.applies, lends: self.lends, ..source })
    }
}

/// What the index of one file said.
pub(super) struct FileAnswer {
    /// Rows to read; `None` for all.
    pub(super) rows: Option<Selection>,
    /// Rows of the file, if `rows` are some of them.
    pub(super) total: u64,
    /// For each condition: did the index apply it, exactly?
    pub(super) applied: Vec<bool>,
}

impl FileAnswer {
    /// All rows, and no condition is applied.
    pub(super) fn everything() -> Self {
        Self { rows: None, total: 0, applied: Vec::new() }
    }
}

/// Does a condition compare with constants only?
fn names_constants(condition: &Arc<dyn PhysicalExpr>) -> bool {
    let constant = |expr: &Arc<dyn PhysicalExpr>| expr.is::<Literal>();
    let list = condition.downcast_ref::<InListExpr>().map(|list| list.list().iter().all(constant));
    let equal = condition.downcast_ref::<BinaryExpr>().map(|equal| constant(equal.right()));
    list.or(equal).unwrap_or_default()
}
