//! A table of the lake as DataFusion scans it.
//!
//! The plan is DataFusion's own Parquet scan over the files of a snapshot that the partition values and
//! the log's bounds cannot rule out.
//!
//! # Invariants
//! - Pruning only ever drops files without a matching row: predicates are evaluated again on rows,
//!   except those on partition columns alone, which all rows of a file answer alike.
//! - The row count of a scan without a predicate is exact (it comes from the log).

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::compute::{BatchCoalescer, CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, SchemaExt, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::parquet::transform_schema_to_view;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::path::Path;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::StreamExt;
use uplake_table::{DataFile, Lake, OnConflict, Snapshot, StreamWriter, WriteKind, id_column};

use crate::base::budget::Budget;
use crate::base::error::EngineError;
use crate::base::id_column::IdColumn;
use crate::base::progress;
use crate::base::settings::Settings;
use crate::base::sql_state::SqlState;
use crate::base::stop;
use crate::scan::file_bounds::{FileBounds, FileIds, highest_id, partition_scalar};
use crate::scan::id_facts::{AsFilesHave, with_ids_said};
use crate::scan::indexed_source::{IndexUse, IndexedSource, Indexes};
use crate::scan::prefetch::AheadReaders;
use crate::scan::storage::{QueryStore, store_url};
use crate::scan::temporal_bounds::NoTemporalBounds;
use crate::sql::id_set::InIdSet;

/// The column that says in which of a table's files a row is, where somebody asks for it.
pub(crate) const FILE_COLUMN: &str = "__uplake_file";

/// What a column takes in the schemas of a table, about, and for each file in the arrays of bounds.
const COLUMN_BYTES: usize = 1500;
const BOUNDS_BYTES: usize = 48;

/// One version of one table.
#[derive(Debug)]
pub(crate) struct LakeTable {
    lake: Lake,
    snapshot: Snapshot,
    /// All columns in the table's order, as SQL sees them: names in lower case, so that unquoted names
    /// find them; text as views, which the scan reads without copying; all nullable, because NOT NULL
    /// is checked, with a better message, where rows are stored.
    schema: SchemaRef,
    scan_schema: TableSchema,
    /// Position of each table column in the scan's schema (file columns, then partition columns).
    scan_positions: Vec<usize>,
    files: Arc<Vec<DataFile>>,
    /// The columns under the names they are stored with.
    exact: SchemaRef,
    /// This table with its columns of ids, once somebody wants it.
    with_ids: OnceLock<Arc<LakeTable>>,
    bounds: OnceLock<FileBounds>,
    by_path: OnceLock<Arc<HashMap<Path, DataFile>>>,
    /// What an INSERT does with rows whose keys are there.
    on_conflict: OnConflict,
    /// Does each row say in which of the files it is, in the last column?
    numbered: bool,
    /// Which part of its bytes it is, of how many.
    stretch: Option<(u32, u32)>,
}

impl LakeTable {
    pub fn new(lake: Lake, snapshot: Snapshot) -> Self {
        let files = Arc::clone(snapshot.shared_files());
        Self::with_files(lake, snapshot, files)
    }

    /// The table as if it had only these files.
    pub fn with_files(
        lake: Lake,
        snapshot: Snapshot,
        files: impl Into<Arc<Vec<DataFile>>>,
    ) -> Self {
        let stored = Arc::clone(snapshot.schema());
        Self::with_columns(lake, snapshot, files.into(), stored)
    }

    /// The same table, whose rows stay when others of their keys are inserted.
    pub fn ignoring_conflicts(self) -> Self {
        Self { on_conflict: OnConflict::Ignore, ..self }
    }

    /// The same table with the number of each row's file as its last column: for statements that replace files.
    pub fn numbered(&self) -> Self {
        let mut fields = self.snapshot.schema().fields().to_vec();
        fields.push(Arc::new(Field::new(FILE_COLUMN, DataType::Int64, false)));
        let stored = Arc::new(Schema::new(fields));
        let (snapshot, files) = (self.snapshot.clone(), Arc::clone(&self.files));
        Self::with_columns(self.lake.clone(), snapshot, files, stored)
    }

    /// The same table with its columns of ids, which come last: for rules that make plans use them.
    pub fn with_ids(&self) -> Arc<Self> {
        let make = || {
            let (snapshot, files) = (self.snapshot.clone(), Arc::clone(&self.files));
            let (own, all) = (snapshot.schema().fields().len(), snapshot.stored_schema());
            let is_new = |field: &&FieldRef| self.exact.field_with_name(field.name()).is_err();
            let ids = all.fields()[own..].iter().filter(is_new);
            let fields = self.exact.fields().iter().chain(ids);
            let stored = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
            Arc::new(Self::with_columns(self.lake.clone(), snapshot, files, stored))
        };
        Arc::clone(self.with_ids.get_or_init(make))
    }

    fn with_columns(
        lake: Lake,
        snapshot: Snapshot,
        files: Arc<Vec<DataFile>>,
        stored: SchemaRef,
    ) -> Self {
        let exact = with_ids_said(&named_items(&transform_schema_to_view(&stored)), &snapshot);
        let is_partition = |f: &FieldRef| {
            f.name() == FILE_COLUMN || snapshot.partition_columns().contains(f.name())
        };
        let numbered = stored.field_with_name(FILE_COLUMN).is_ok();
        let file_fields: Vec<FieldRef> =
            exact.fields().iter().filter(|f| !is_partition(f)).cloned().collect();
        let partition_fields: Vec<FieldRef> = snapshot
            .partition_columns()
            .iter()
            .map(String::as_str)
            .chain(numbered.then_some(FILE_COLUMN))
            .filter_map(|c| exact.field_with_name(c).ok().cloned().map(Arc::new))
            .collect();
        let scan_schema = TableSchema::builder(Arc::new(Schema::new(file_fields)))
            .with_table_partition_cols(partition_fields)
            .build();
        let scan_positions = exact
            .fields()
            .iter()
            .filter_map(|f| scan_schema.table_schema().index_of(f.name()).ok())
            .collect();
        let as_seen = |f: &FieldRef| {
            f.as_ref().clone().with_name(f.name().to_lowercase()).with_nullable(true)
        };
        let schema = Arc::new(Schema::new(exact.fields().iter().map(as_seen).collect::<Vec<_>>()));
        let (bounds, by_path) = (OnceLock::new(), OnceLock::new());
        Self {
            lake,
            snapshot,
            schema,
            scan_schema,
            scan_positions,
            files,
            exact: stored,
            with_ids: OnceLock::new(),
            bounds,
            by_path,
            on_conflict: OnConflict::Replace,
            numbered,
            stretch: None,
        }
    }

    /// The same table with the rows of one part of so many: those of row groups that begin in its share of the bytes.
    pub fn stretch(&self, part: u32, parts: u32) -> Arc<Self> {
        let (snapshot, files) = (self.snapshot.clone(), Arc::clone(&self.files));
        let table = Self::with_columns(self.lake.clone(), snapshot, files, Arc::clone(&self.exact));
        Arc::new(Self { stretch: Some((part, parts)), ..table })
    }

    /// Of each file, the bytes that are in the table's stretch; `None` if that is all of them.
    fn stretches(&self) -> Option<Vec<Range<u64>>> {
        let (part, parts) = self.stretch?;
        let total: u64 = self.files.iter().map(|file| file.size).sum();
        let border = |part: u32| {
            let bytes = u128::from(total) * u128::from(part) / u128::from(parts.max(1));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let (from, to, mut begins) = (border(part), border(part + 1), 0u64);
        let stretch = |file: &DataFile| {
            let (start, end) = (begins, begins + file.size);
            begins = end;
            from.clamp(start, end) - start..to.clamp(start, end) - start
        };
        Some(self.files.iter().map(stretch).collect())
    }

    /// Is it a table as its name says, and no form of one that a statement made for itself?
    pub fn is_plain(&self) -> bool {
        !self.numbered && self.stretch.is_none()
    }

    /// The same table without its columns of ids.
    pub fn without_ids(&self) -> Arc<Self> {
        let (snapshot, files) = (self.snapshot.clone(), Arc::clone(&self.files));
        Arc::new(Self::with_files(self.lake.clone(), snapshot, files))
    }

    /// Has it its columns of ids?
    pub fn is_with_ids(&self) -> bool {
        self.is_plain() && self.exact.fields().len() > self.snapshot.schema().fields().len()
    }

    /// Its columns of ids, which [`Self::with_ids`] has: what they hold, and their names.
    pub fn id_columns(&self) -> Vec<(IdColumn, String)> {
        let all = self.snapshot.id_domains().iter().filter_map(|spec| {
            let source = IdColumn::of_source(self.snapshot.ids_of(&spec.column)?)?;
            Some((source, id_column(&spec.column).to_lowercase()))
        });
        all.collect()
    }

    /// The columns that have ids, and those of the ids, in lower case.
    pub fn key_columns(&self) -> Vec<String> {
        let both = |column: &str| [column.to_lowercase(), id_column(column).to_lowercase()];
        self.snapshot.id_domains().iter().flat_map(|spec| both(&spec.column)).collect()
    }

    /// Its rows, if the log says of each file.
    pub fn rows(&self) -> Option<u64> {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// The same table as if it had only these of its files.
    pub fn only(&self, files: Vec<DataFile>) -> Arc<Self> {
        Arc::new(Self::with_files(self.lake.clone(), self.snapshot.clone(), files))
    }

    /// Per file the first and the last of a column's times, in microseconds since 1970 as SQL sees
    /// them; `None` where nobody knows them or a time is missing.
    pub fn times(&self, column: &str) -> Vec<Option<(i64, i64)>> {
        let unknown = || vec![None; self.files.len()];
        let (bounds, name) = (self.bounds(), column.trim_matches('"').to_lowercase());
        let as_micros = |values: &ArrayRef| {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
            let values = cast_with_options(values, &micros, &CastOptions::default()).ok()?;
            Some(values.as_primitive_opt::<TimestampMicrosecondType>()?.clone())
        };
        let (Some(first), Some(last), Some(nulls)) = (
            bounds.min.get(&name).and_then(as_micros),
            bounds.max.get(&name).and_then(as_micros),
            bounds.nulls.get(&name),
        ) else {
            return unknown();
        };
        let known =
            |file: &usize| first.is_valid(*file) && last.is_valid(*file) && nulls.is_valid(*file);
        (0..self.files.len())
            .map(|file| {
                let has_all = known(&file) && nulls.value(file) == 0;
                // Finer than microseconds, a time lies after what the cast leaves of it.
                has_all.then(|| (first.value(file), last.value(file).saturating_add(1)))
            })
            .collect()
    }

    /// How many values a column can have, as its bounds say: of whole numbers and what is one inside.
    pub fn most_values(&self, column: &str) -> Option<u64> {
        let all: Vec<usize> = (0..self.files.len()).collect();
        let said = self.bounds().over_files(&column.to_lowercase(), &all);
        let number = |bound: &Precision<ScalarValue>| match bound
            .get_value()?
            .cast_to(&DataType::Int64)
            .ok()?
        {
            ScalarValue::Int64(number) => number,
            _ => None,
        };
        let (least, most) = (number(&said.min_value)?, number(&said.max_value)?);
        Some(least.abs_diff(most).saturating_add(1))
    }

    /// The highest id in each column of ids, by domain and log; `None` where a file does not say.
    pub fn highest_ids(&self) -> HashMap<String, Option<u32>> {
        let mut found = HashMap::new();
        for (_, source, files) in self.ids_by_column() {
            let highest = files.as_deref().and_then(highest_id);
            let known = found.entry(source.to_owned()).or_insert(highest);
            *known = known.zip(highest).map(|(one, other)| one.max(other));
        }
        found
    }

    /// The ids of each file, in parts of as many rows where it says so, by domain and log; `None` where a file does not say.
    pub fn file_ids(&self) -> HashMap<String, Option<Vec<FileIds>>> {
        let mut found = HashMap::new();
        for (column, source, files) in self.ids_by_column() {
            let known = found.entry(source.to_owned()).or_insert_with(|| Some(Vec::new()));
            *known = known.take().zip(files).map(|(mut known, files)| {
                let files = files.into_iter().zip(self.files.iter());
                known.extend(files.flat_map(|(ids, file)| ids.divided(file.id_quantiles(column))));
                known
            });
        }
        found
    }

    /// The key columns that have ids, their domain and log, and the ids of each file; `None` where one does not say.
    fn ids_by_column(&self) -> Vec<(&str, &str, Option<Vec<FileIds>>)> {
        let wider = self.with_ids();
        let known = self.snapshot.id_domains().iter().filter_map(|spec| {
            let files = wider.bounds().ids(&id_column(&spec.column).to_lowercase());
            Some((spec.column.as_str(), self.snapshot.ids_of(&spec.column)?, files))
        });
        known.collect()
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What it takes of memory with what statements have it make, about.
    pub fn memory_bytes(&self) -> usize {
        let of_column = COLUMN_BYTES + self.files.len() * BOUNDS_BYTES;
        self.snapshot.memory_bytes() + self.schema.fields().len() * of_column
    }

    pub fn on_conflict(&self) -> OnConflict {
        self.on_conflict
    }

    pub fn files(&self) -> &[DataFile] {
        &self.files
    }

    /// Tells the rows of this table from those of any other table or version that is in use; `None` if
    /// it is only a part of a table.
    pub fn rows_of(&self) -> Option<(String, u64, usize)> {
        let files = self.snapshot.files();
        let whole = self.files.len() == files.len() && self.stretch.is_none();
        let place = files.as_ptr() as usize;
        whole.then(|| (self.snapshot.table().to_owned(), self.snapshot.version(), place))
    }

    /// Columns as they are stored, by the names that SQL sees; other names stay.
    pub fn stored_names(&self, seen: &[String]) -> Vec<String> {
        let stored = |name: &String| {
            let same = |f: &&FieldRef| f.name().to_lowercase() == name.to_lowercase();
            self.exact.fields().iter().find(same).map_or_else(|| name.clone(), |f| f.name().clone())
        };
        seen.iter().map(stored).collect()
    }

    /// The files that may hold a row for which all `filters` are true.
    pub fn candidate_files(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<usize>> {
        let mut kept = self.files_with_ids(filters);
        let (decided, open): (Vec<&Expr>, Vec<&Expr>) =
            filters.iter().partition(|filter| self.is_decided_by_partition(filter));
        if let Some(predicate) = conjunction(decided.into_iter().cloned()) {
            let holds = self.partitions_where(state, predicate)?;
            kept.retain(|i| holds.is_valid(*i) && holds.value(*i));
        }
        let all = || kept.clone();
        let Some(predicate) = conjunction(open.into_iter().cloned()) else { return Ok(all()) };
        let df_schema = DFSchema::try_from(Arc::clone(&self.schema))?;
        let physical = physical_expr(state, predicate, &df_schema)?;
        let pruning = PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(&self.schema))
            .try_build(physical)?;
        if pruning.always_true() {
            return Ok(all());
        }
        let keep = pruning.prune(self.bounds())?;
        Ok(kept.into_iter().filter(|i| keep[*i]).collect())
    }

    /// Does a filter say the same of all rows of a file? One without columns does: such a filter of a partition
    /// column becomes, once it is simplified.
    fn is_decided_by_partition(&self, filter: &Expr) -> bool {
        let of_partition =
            |name: &str| self.snapshot.partition_columns().iter().any(|c| c.to_lowercase() == name);
        filter.column_refs().iter().all(|column| of_partition(&column.name))
            && !filter.is_volatile()
            && !filter.contains_outer()
            && !has_subquery(filter)
    }

    /// What a filter on partition columns says of each file.
    fn partitions_where(&self, state: &dyn Session, filter: Expr) -> Result<BooleanArray> {
        let bounds = self.bounds();
        let columns = self.schema.fields().iter().map(|field| {
            let of_partition = bounds.min.get(field.name()).filter(|_| {
                self.snapshot.partition_columns().iter().any(|c| c.to_lowercase() == *field.name())
            });
            of_partition
                .cloned()
                .unwrap_or_else(|| new_null_array(field.data_type(), self.files.len()))
        });
        let files = RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns.collect(),
            &RecordBatchOptions::new().with_row_count(Some(self.files.len())),
        )?;
        let schema = DFSchema::try_from(Arc::clone(&self.schema))?;
        let holds = physical_expr(state, filter, &schema)?.evaluate(&files)?;
        let holds = holds.into_array(self.files.len())?;
        match holds.data_type() {
            DataType::Null => Ok(BooleanArray::new_null(self.files.len())),
            _ => Ok(as_boolean_array(&holds)?.clone()),
        }
    }

    /// The files whose bounds the sets of ids among `filters` do not rule out.
    fn files_with_ids(&self, filters: &[Expr]) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.files.len()).collect();
        for filter in filters.iter().flat_map(|f| split_conjunction(f)) {
            let Expr::ScalarFunction(call) = filter else { continue };
            let Some(found) = call.func.inner().downcast_ref::<InIdSet>() else { continue };
            let [Expr::Column(column)] = call.args.as_slice() else { continue };
            let bounds = self.bounds();
            let (Some(min), Some(max)) =
                (bounds.min.get(column.name()), bounds.max.get(column.name()))
            else {
                continue;
            };
            kept.retain(|i| {
                let bound = |array: &ArrayRef| ScalarValue::try_from_array(array, *i);
                match (bound(min), bound(max)) {
                    (Ok(low), Ok(high)) => found.set.may_meet(&low, &high),
                    _ => true,
                }
            });
        }
        kept
    }

    /// The indexes of the table's files, if there are any, and what the session keeps of data files;
    /// `None` if it uses neither.
    fn indexes(&self, state: &dyn Session) -> Option<Arc<Indexes>> {
        if Settings::of(state.config_options()).is_some_and(|s| s.disables("index_files")) {
            return None;
        }
        let IndexUse { cache, columns, warnings, repairs } =
            state.config().get_extension::<IndexUse>()?.as_ref().clone();
        let specs = self.snapshot.indexes();
        let by_path = || {
            let entry = |f: &DataFile| (f.store_path.clone(), f.clone());
            // Without an index nobody asks for a file's.
            let files = if specs.is_empty() { &[] } else { self.files.as_slice() };
            Arc::new(files.iter().map(entry).collect())
        };
        let memory = || {
            let pool = Arc::clone(&state.runtime_env().memory_pool);
            (pool, Budget::of(state.config()).memory_bytes)
        };
        let ahead = self.lake.is_remote().then(memory);
        Some(Arc::new(Indexes {
            table: self.snapshot.table().to_owned(),
            specs: specs.to_vec(),
            cache,
            columns,
            metadata: state.runtime_env().cache_manager.get_file_metadata_cache(),
            warnings,
            repairs,
            files: Arc::clone(self.by_path.get_or_init(by_path)),
            ahead,
        }))
    }

    fn bounds(&self) -> &FileBounds {
        self.bounds
            .get_or_init(|| FileBounds::new(&self.schema, &self.exact, &self.snapshot, &self.files))
    }

    fn partitioned_file(&self, number: usize) -> Result<PartitionedFile> {
        let file = &self.files[number];
        let modified = chrono::DateTime::from_timestamp_millis(file.modified_millis)
            .unwrap_or(chrono::DateTime::UNIX_EPOCH);
        let meta = ObjectMeta {
            location: file.store_path.clone(),
            last_modified: modified,
            size: file.size,
            e_tag: None,
            version: None,
        };
        let values = self
            .scan_schema
            .table_partition_cols()
            .iter()
            .map(|f| match self.numbered && f.name() == FILE_COLUMN {
                true => Ok(ScalarValue::Int64(i64::try_from(number).ok())),
                false => partition_scalar(file, f.name(), f.data_type()),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut partitioned = PartitionedFile::new_from_meta(meta)
            .with_partition_values(values)
            .with_statistics(Arc::new(self.file_statistics(number)));
        if let Some(checksums) = &file.checksums {
            partitioned.extensions.insert_arc(Arc::clone(checksums));
        }
        Ok(partitioned)
    }

    fn file_statistics(&self, number: usize) -> Statistics {
        let file = &self.files[number];
        let bounds = self.bounds();
        let columns = self
            .scan_schema
            .file_schema()
            .fields()
            .iter()
            .map(|field| bounds.column_statistics(&field.name().to_lowercase(), number))
            .collect();
        self.in_stretch(Statistics {
            num_rows: rows_precision(file.rows),
            total_byte_size: Precision::Inexact(file.size as usize),
            column_statistics: columns,
        })
    }
}

/// The schema with the items of lists under the name that DataFusion's functions give them: Delta calls them
/// `element`, and a list of such an array beside one of literals is of two types.
fn named_items(schema: &Schema) -> SchemaRef {
    fn named(data_type: &DataType) -> DataType {
        let inner =
            |field: &FieldRef| field.as_ref().clone().with_data_type(named(field.data_type()));
        let item =
            |field: &FieldRef| Arc::new(inner(field).with_name(Field::LIST_FIELD_DEFAULT_NAME));
        match data_type {
            DataType::List(field) => DataType::List(item(field)),
            DataType::Struct(fields) => {
                DataType::Struct(fields.iter().map(|field| Arc::new(inner(field))).collect())
            }
            other => other.clone(),
        }
    }
    let field = |f: &FieldRef| f.as_ref().clone().with_data_type(named(f.data_type()));
    let fields: Vec<Field> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// What computes an expression. Some functions, such as `coalesce`, are there only to be simplified away,
/// which the optimizer may not have done yet.
fn physical_expr(
    state: &dyn Session,
    expr: Expr,
    schema: &DFSchema,
) -> Result<Arc<dyn PhysicalExpr>> {
    if !expr.exists(|expr| Ok(matches!(expr, Expr::ScalarFunction(_))))? {
        return state.create_physical_expr(expr, schema);
    }
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(Arc::clone(state.config().options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let expr = simplifier.simplify(simplifier.coerce(expr, schema)?)?;
    state.create_physical_expr(expr, schema)
}

fn has_subquery(expr: &Expr) -> bool {
    let is_subquery = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
        ))
    };
    expr.exists(is_subquery).unwrap_or(true)
}

fn rows_precision(rows: Option<u64>) -> Precision<usize> {
    rows.map_or(Precision::Absent, |n| Precision::Exact(n as usize))
}

#[async_trait]
impl TableProvider for LakeTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let answer = |filter: &&Expr| match self.is_decided_by_partition(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(answer).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = rows_precision(self.rows());
        let bytes: u64 = self.files.iter().map(|f| f.size).sum();
        statistics.total_byte_size = Precision::Inexact(bytes as usize);
        Some(self.in_stretch(statistics))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // A statement may have thousands of scans.
        stop::check()?;
        let positions: Vec<usize> = match projection {
            Some(columns) => columns.iter().map(|c| self.scan_positions[*c]).collect(),
            None => self.scan_positions.clone(),
        };
        let candidates = self.candidate_files(state, filters)?;
        progress::skips(self.files.len() - candidates.len());
        let wanted = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        if candidates.is_empty() {
            return Ok(Arc::new(EmptyExec::new(wanted)));
        }
        let mut files =
            candidates.iter().map(|i| self.partitioned_file(*i)).collect::<Result<Vec<_>>>()?;
        if let Some(stretches) = self.stretches() {
            for (file, place) in files.iter_mut().zip(&candidates) {
                let Range { start, end } = stretches[*place];
                let (start, end) = (start as i64, end as i64);
                file.range = Some(FileRange { start, end });
            }
            files.retain(|file| file.range.as_ref().is_some_and(|range| range.start < range.end));
            if files.is_empty() {
                return Ok(Arc::new(EmptyExec::new(wanted)));
            }
        }
        let url = store_url(&self.lake)?;
        let options = state.default_table_options().parquet;
        let store = QueryStore::of(state.config(), &self.lake);
        let reader = AheadReaders {
            store: Arc::clone(&store),
            kept_footers: state.runtime_env().cache_manager.get_file_metadata_cache(),
        };
        let source = ParquetSource::new(self.scan_schema.clone())
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(reader));
        let tells_times = state.config().get_extension::<NoTemporalBounds>().is_none();
        let statistics = self.scan_statistics(&candidates, tells_times);
        let source: Arc<dyn FileSource> = match self.indexes(state) {
            Some(indexes) => Arc::new(IndexedSource::new(source, indexes, store)),
            None => Arc::new(source),
        };
        let config = FileScanConfigBuilder::new(url, source)
            .with_file_groups(group_files(files, state.config().target_partitions()))
            .with_statistics(statistics)
            .with_projection_indices(Some(positions))?
            .with_limit(limit)
            .with_expr_adapter(Some(Arc::new(AsFilesHave)))
            .build();
        renamed(DataSourceExec::from_data_source(config), &wanted)
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if insert_op != InsertOp::Append {
            return Err(EngineError::unsupported("INSERT OVERWRITE is not supported")
                .with_hint("DELETE, then INSERT")
                .into());
        }
        self.schema.logically_equivalent_names_and_types(&input.schema())?;
        let sink = InsertSink {
            lake: self.lake.clone(),
            snapshot: self.snapshot.clone(),
            on_conflict: self.on_conflict,
            schema: Arc::clone(&self.schema),
        };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }
}

/// A scan whose columns have the names that SQL sees; a table without upper case needs nothing.
fn renamed(scan: Arc<dyn ExecutionPlan>, wanted: &SchemaRef) -> Result<Arc<dyn ExecutionPlan>> {
    let found = scan.schema();
    if found.fields().iter().zip(wanted.fields()).all(|(a, b)| a.name() == b.name()) {
        return Ok(scan);
    }
    let columns = found.fields().iter().zip(wanted.fields()).enumerate().map(|(i, (from, to))| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(PhysicalColumn::new(from.name(), i));
        ProjectionExpr { expr: column, alias: to.name().clone() }
    });
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), scan)?))
}

impl LakeTable {
    /// What is said of the rows of files, of which only a part may be read.
    fn in_stretch(&self, said: Statistics) -> Statistics {
        if self.stretch.is_some() { said.to_inexact() } else { said }
    }

    fn scan_statistics(&self, candidates: &[usize], tells_times: bool) -> Statistics {
        let mut statistics = Statistics::new_unknown(self.scan_schema.table_schema());
        let rows: Option<u64> = candidates.iter().map(|i| self.files[*i].rows).sum();
        let bytes: u64 = candidates.iter().map(|i| self.files[*i].size).sum();
        // Pruning already took files away, but what is left is counted exactly; a filter above makes
        // it an estimate again.
        statistics.num_rows = rows_precision(rows);
        statistics.total_byte_size = Precision::Inexact(bytes as usize);
        // How many keys there can be says how long the answer of a join is, and how many of all days a filter asks for
        // what it leaves: so which side is kept.
        let fields = self.scan_schema.table_schema().fields();
        for (column, field) in statistics.column_statistics.iter_mut().zip(fields) {
            let data_type = field.data_type();
            if data_type.is_integer() || tells_times && data_type.is_temporal() {
                *column = self.bounds().over_files(&field.name().to_lowercase(), candidates);
            }
        }
        self.in_stretch(statistics)
    }
}

/// Spreads files over partitions by size, largest first, so that cores finish together.
fn group_files(mut files: Vec<PartitionedFile>, partitions: usize) -> Vec<FileGroup> {
    files.sort_by_key(|f| std::cmp::Reverse(f.object_meta.size));
    let count = partitions.min(files.len()).max(1);
    let mut groups: Vec<(u64, Vec<PartitionedFile>)> = vec![(0, Vec::new()); count];
    for file in files {
        if let Some(lightest) = groups.iter_mut().min_by_key(|g| g.0) {
            lightest.0 += file.object_meta.size;
            lightest.1.push(file);
        }
    }
    groups.into_iter().map(|(_, files)| FileGroup::new(files)).collect()
}

/// INSERT INTO: one commit when all rows are written.
#[derive(Debug)]
struct InsertSink {
    lake: Lake,
    snapshot: Snapshot,
    on_conflict: OnConflict,
    schema: SchemaRef,
}

impl DisplayAs for InsertSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InsertSink(table={})", self.snapshot.table())
    }
}

#[async_trait]
impl DataSink for InsertSink {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let budget = Budget::of(context.session_config());
        let writer = StreamWriter::into_table(
            &self.lake,
            self.snapshot.clone(),
            self.on_conflict,
            budget.write_bytes(),
            budget.threads,
            budget.now_millis(),
        )
        .await
        .map_err(external)?;
        write_stream(writer, data, self.snapshot.schema(), WriteKind::Append).await
    }
}

/// Rows that are written at once: a cross join hands out a few at a time.
const WRITTEN_ROWS: usize = 8192;

/// Writes a stream to its end and commits it; on an error nothing is committed.
pub(crate) async fn write_stream(
    mut writer: StreamWriter,
    data: SendableRecordBatchStream,
    schema: &SchemaRef,
    kind: WriteKind,
) -> Result<u64> {
    match write_rows(&mut writer, data, schema).await {
        Ok(rows) => {
            writer.commit(kind).await.map_err(external)?;
            Ok(rows)
        }
        Err(error) => {
            writer.abort().await;
            Err(error)
        }
    }
}

/// Writes a stream to its end; how many rows these were.
pub(crate) async fn write_rows(
    writer: &mut StreamWriter,
    mut data: SendableRecordBatchStream,
    schema: &SchemaRef,
) -> Result<u64> {
    let mut rows = 0;
    let mut small = BatchCoalescer::new(Arc::clone(schema), WRITTEN_ROWS)
        .with_biggest_coalesce_batch_size(Some(WRITTEN_ROWS / 2));
    loop {
        let batch = data.next().await;
        let is_last = batch.is_none();
        match batch {
            Some(batch) => {
                let batch = stored_batch(&batch?, schema)?;
                rows += batch.num_rows() as u64;
                small.push_batch(batch)?;
            }
            None => small.finish_buffered_batch()?,
        }
        while let Some(batch) = small.next_completed_batch() {
            writer.write(batch).await.map_err(external)?;
        }
        if is_last {
            return Ok(rows);
        }
    }
}

/// A query's batch as the table stores it: same names and order, stored types.
pub(crate) fn stored_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    // A value that does not fit is an error, not NULL.
    let exactly = CastOptions { safe: false, ..Default::default() };
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if !field.is_nullable() && column.null_count() > 0 {
                let column = field.name().clone();
                return Err(external(uplake_table::TableError::Null { column, is_key: false }));
            }
            if let Some(row) = uplake_table::first_cut(column) {
                return Err(too_fine(column, row, field.name()));
            }
            Ok(cast_with_options(column, field.data_type(), &exactly)?)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The error for a value of which the table would keep a part.
fn too_fine(column: &ArrayRef, row: usize, name: &str) -> DataFusionError {
    let value = array_value_to_string(column, row).unwrap_or_default();
    let reason = match column.data_type() {
        DataType::Timestamp(..) => format!(
            "is finer than the microseconds that a table keeps; write date_trunc('microsecond', {name})"
        ),
        DataType::Date64 => format!(
            "has a time of day, which a date does not keep; write CAST({name} AS TIMESTAMP)"
        ),
        _ => "holds a time finer than microseconds, or a date with a time of day, which a table \
              does not keep"
            .into(),
    };
    let message = format!("column `{name}`: {value} {reason}; nothing was written");
    EngineError::execution(SqlState::DatetimeFieldOverflow, message).into()
}

/// A query's tables by the names in its text: one that is unchanged is the same one.
pub(crate) type Tables = Vec<(String, Arc<LakeTable>)>;

/// The condition upon columns of whatever table.
pub(crate) fn unqualified(predicate: Expr) -> Result<Expr> {
    let bare = predicate.transform(|expr| {
        Ok(match expr {
            Expr::Column(column) => Transformed::yes(Expr::Column(
                datafusion::common::Column::new_unqualified(column.name),
            )),
            other => Transformed::no(other),
        })
    })?;
    Ok(bare.data)
}

pub(crate) fn external(error: uplake_table::TableError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
