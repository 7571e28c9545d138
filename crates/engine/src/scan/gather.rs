//! Rows of a file picked from its decoded columns.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{filter_record_batch, take};
use datafusion::arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::ObjectStore;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, RowSelection,
};
use datafusion::parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::metrics::Count;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use uplake_functions::holds as true_only;
use uplake_table::Selection;

use crate::base::refusal::Unfit;
use crate::cache::columns::{Chunk, ColumnCache, SortedRuns};
use crate::cache::dictionary::{compact, picked, piece};
use crate::cache::dictionary_filter::DictionaryFilter;
use crate::cache::predicates::{PredicateKey, PredicateRows};
use crate::scan::id_range::IdRange;
use crate::scan::row_filter::{AppliedFilters, RowFilter, bit_of, select, sorted_runs_of};
use crate::scan::row_groups::{StoreReader, decoded_rows, groups_of, kept_bytes, wanted_rows};

/// What a scan wants of files, and how to get it from decoded columns.
pub(crate) struct Gather {
    cache: Arc<ColumnCache>,
    store: Arc<dyn ObjectStore>,
    table: TableSchema,
    /// The columns that are read, with the types that the table has.
    fields: Vec<FieldRef>,
    /// The conditions and the query's columns, over `fields`.
    conditions: Vec<Arc<dyn PhysicalExpr>>,
    projection: Vec<Arc<dyn PhysicalExpr>>,
    output: SchemaRef,
    batch_rows: usize,
    /// Does nobody keep what is handed out?
    lends: bool,
    /// What joins and filters would drop, and the rows that went because of it.
    row_filters: Option<(Arc<[RowFilter]>, Count)>,
}

/// Rows to pick from one row group, whose columns are at hand.
pub(crate) struct Picked {
    gather: Arc<Gather>,
    rows: PickedRows,
    columns: Vec<Values>,
    /// Of row filters that ask by bisection, where their columns are in order.
    in_order: Vec<Option<SortedRuns>>,
}

/// Rows of a row group.
enum PickedRows {
    /// By number.
    Numbers(Vec<u32>),
    Ranges(Vec<Range<usize>>),
}

enum Values {
    Decoded(ArrayRef),
    /// The same in the whole file.
    Same(ScalarValue),
}

impl Gather {
    /// `conditions` and `projection` are over `table`'s columns; NULL is no row. `lends`: see
    /// [`lent`](crate::scan::indexed::lent). `None` if it is not kept columns alone that decide what is handed out.
    pub fn new(
        cache: Arc<ColumnCache>,
        store: Arc<dyn ObjectStore>,
        table: &TableSchema,
        conditions: &[Arc<dyn PhysicalExpr>],
        projection: &ProjectionExprs,
        batch_rows: usize,
        lends: bool,
    ) -> Result<Option<Self>> {
        // Of random numbers each row has its own, and the name of a file is known to its reader.
        if projection.iter().map(|p| &p.expr).chain(conditions).any(is_volatile) {
            return Ok(None);
        }
        let all = table.table_schema();
        let mut used: Vec<usize> = projection.column_indices();
        for condition in conditions {
            used.extend(collect_columns(condition).iter().map(|c| c.index()));
        }
        used.sort_unstable();
        used.dedup();
        let fields: Vec<FieldRef> = used.iter().map(|i| Arc::clone(&all.fields()[*i])).collect();
        let schema = Schema::new(fields.clone());
        let over = |e: &Arc<dyn PhysicalExpr>| reassign_expr_columns(Arc::clone(e), &schema);
        Ok(Some(Self {
            cache,
            store,
            table: table.clone(),
            conditions: conditions.iter().map(over).collect::<Result<_>>()?,
            projection: projection.iter().map(|p| over(&p.expr)).collect::<Result<_>>()?,
            output: Arc::new(projection.project_schema(all)?),
            fields,
            batch_rows,
            lends,
            row_filters: None,
        }))
    }

    /// What `conditions` say of single columns that are read.
    pub fn row_filters(&self, conditions: &[Arc<dyn PhysicalExpr>]) -> Result<Vec<RowFilter>> {
        RowFilter::of(conditions, &self.fields)
    }

    /// Rows that the plan would drop need not be handed out; counts them.
    pub fn with_row_filters(
        mut self,
        row_filters: Arc<[RowFilter]>,
        skipped: impl FnOnce() -> Count,
    ) -> Self {
        self.row_filters = (!row_filters.is_empty()).then(|| (row_filters, skipped()));
        self
    }

    /// Is anything read but the number of rows?
    pub fn reads_columns(&self) -> bool {
        self.file_fields().next().is_some()
    }

    /// Are all columns of a file kept that are read of it?
    pub fn keeps_all(&self, file: &PartitionedFile, metadata: &ParquetMetaData) -> bool {
        let groups = groups_of(file, metadata);
        let of_group = |group| self.file_fields().map(move |f| (chunk_of(file, group, f), 0, 0));
        let chunks: Vec<_> = groups.into_iter().flat_map(of_group).collect();
        self.cache.keeps_all(&chunks)
    }

    /// Columns that are read from files, not known from the log.
    fn file_fields(&self) -> impl Iterator<Item = &FieldRef> {
        let partition = self.table.table_partition_cols();
        self.fields.iter().filter(move |f| !partition.iter().any(|p| p.name() == f.name()))
    }

    /// The rows of `file` by row group, if its columns are kept or worth keeping by now.
    /// `None` if they are not, or not as the table has them.
    pub async fn pick(
        self: &Arc<Self>,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        rows: &Selection,
    ) -> Result<Option<Vec<Picked>>> {
        let wanted = wanted_rows(file, metadata, rows);
        let chunk = |row_group: usize, field: &FieldRef| chunk_of(file, row_group, field);
        let mut chunks = Vec::new();
        for (group, rows) in &wanted {
            let group_rows = metadata.row_group(*group).num_rows().unsigned_abs();
            for field in self.file_fields() {
                let cost = decoded_rows(metadata, *group, field.name(), rows).unwrap_or(group_rows);
                chunks.push((chunk(*group, field), cost, group_rows));
            }
        }
        if !self.cache.worth_keeping(&chunks) {
            return Ok(None);
        }
        let wanted = wanted.into_iter().map(|(group, rows)| (group, PickedRows::Numbers(rows)));
        self.at_hand(file, metadata, wanted.collect()).await
    }

    /// As [`Self::pick`], for ranges of rows: `wanted` has those of each row group. `few`: the scan
    /// would decode a small part of them, so that nothing more is decoded for later ones.
    pub async fn scan(
        self: &Arc<Self>,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        wanted: Vec<(usize, Vec<Range<usize>>)>,
        few: bool,
    ) -> Result<Option<Vec<Picked>>> {
        let (mut chunks, mut bytes, mut long) = (Vec::new(), 0, false);
        for (group, ranges) in &wanted {
            let rows = metadata.row_group(*group).num_rows().unsigned_abs();
            let cost = ranges.iter().map(|range| range.len() as u64).sum();
            for field in self.file_fields() {
                let chunk = chunk_of(file, *group, field);
                if !self.cache.keeps(&chunk) {
                    let (kept, is_long) = kept_bytes(metadata, *group, field);
                    bytes += kept;
                    long |= is_long;
                }
                chunks.push((chunk, cost, rows));
            }
        }
        let worth = match few {
            true => self.cache.keeps_all(&chunks),
            false => self.cache.worth_scanning(&chunks, bytes, long),
        };
        if !worth {
            return Ok(None);
        }
        let wanted = wanted.into_iter().map(|(group, ranges)| (group, PickedRows::Ranges(ranges)));
        self.at_hand(file, metadata, wanted.collect()).await
    }

    /// The rows of `file` whose ids are in a range.
    ///
    /// # Errors
    /// [`Unfit`] if the columns are not kept and there is no room for them, or if the rows are not in the order of
    /// ids.
    pub async fn scan_range(
        self: &Arc<Self>,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        range: &IdRange,
    ) -> Result<Vec<Picked>> {
        let all = metadata.row_groups().iter().enumerate().map(|(number, group)| {
            let rows = usize::try_from(group.num_rows()).unwrap_or_default();
            (number, std::iter::once(0..rows).collect())
        });
        let all = self.scan(file, metadata, all.collect(), false).await?;
        let mut picked = all.ok_or_else(|| DataFusionError::from(Unfit::NotKept))?;
        let ids = self.fields.iter().position(|field| *field.name() == *range.column);
        for of_group in &mut picked {
            let rows = match ids.map(|ids| &of_group.columns[ids]) {
                Some(Values::Decoded(ids)) => range.rows(ids),
                _ => None,
            };
            let rows = rows.ok_or_else(|| DataFusionError::from(Unfit::NotById))?;
            of_group.rows = PickedRows::Ranges(std::iter::once(rows).collect());
        }
        Ok(picked)
    }

    /// The rows of `file` that `ids`, some of the conditions, name, if they are kept with all columns.
    pub fn named(
        self: &Arc<Self>,
        file: &PartitionedFile,
        metadata: &ParquetMetaData,
        ids: &[Arc<dyn PhysicalExpr>],
    ) -> Option<Vec<Picked>> {
        let question = question(file, ids);
        let mut picked = Vec::new();
        for row_group in groups_of(file, metadata) {
            let named = self.cache.named(&question(Some(row_group)))?;
            if !named.rows.is_empty() {
                picked.push(self.of_named(file, &named)?);
            }
        }
        Some(picked)
    }

    /// The same, looked for in the ranges of each row group that `wanted` has, and kept from the second
    /// time on. `wanted` has all rows that `ids` name, whatever else is asked. `None` if this is the first
    /// time, or if the file does not have the columns as the table does.
    pub async fn name(
        self: &Arc<Self>,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        ids: &[Arc<dyn PhysicalExpr>],
        wanted: impl FnOnce() -> Result<Vec<(usize, Vec<Range<usize>>)>>,
    ) -> Result<Option<Vec<Picked>>> {
        let question = question(file, ids);
        if self.cache.named(&question(None)).is_none() {
            self.cache.keep_named(question(None), Arc::default());
            return Ok(None);
        }
        let wanted = wanted()?;
        let mut picked = Vec::new();
        for row_group in groups_of(file, metadata) {
            let question = question(Some(row_group));
            let kept = self.cache.named(&question);
            let mut named = kept.as_deref().cloned().unwrap_or_default();
            let ranges = wanted.iter().find(|(group, _)| *group == row_group);
            if let (None, Some((_, ranges))) = (kept, ranges) {
                match self.rows_with(file, metadata, row_group, ids, ranges).await? {
                    Some(rows) => named.rows = rows,
                    None => return Ok(None),
                }
            }
            let missing = self.file_fields().filter(|field| named.column(field).is_none());
            let missing: Vec<FieldRef> = missing.cloned().collect();
            if !named.rows.is_empty() && !missing.is_empty() {
                let each = named.rows.iter().map(|row| *row as usize..*row as usize + 1);
                let decoded = self.decode_some(file, metadata, row_group, &missing, each).await?;
                let Some(decoded) = decoded else { return Ok(None) };
                named.columns.extend(missing.into_iter().zip(decoded));
            }
            let named = Arc::new(named);
            self.cache.keep_named(question, Arc::clone(&named));
            if !named.rows.is_empty() {
                let Some(of_group) = self.of_named(file, &named) else { return Ok(None) };
                picked.push(of_group);
            }
        }
        Ok(Some(picked))
    }

    /// Rows that are kept, as the scan reads them; `None` without one of the columns.
    fn of_named(self: &Arc<Self>, file: &PartitionedFile, named: &PredicateRows) -> Option<Picked> {
        let partition = self.table.table_partition_cols();
        let value = |field: &FieldRef| match partition.iter().position(|p| p.name() == field.name())
        {
            Some(at) => Some(Values::Same(file.partition_values[at].clone())),
            None => named.column(field).map(|values| Values::Decoded(Arc::clone(values))),
        };
        let columns = self.fields.iter().map(value).collect::<Option<Vec<_>>>()?;
        let rows = PickedRows::Ranges(std::iter::once(0..named.rows.len()).collect());
        Some(Picked { gather: Arc::clone(self), rows, columns, in_order: Vec::new() })
    }

    /// The numbers of rows in these ranges of a row group for which all of `conditions` hold.
    async fn rows_with(
        &self,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        row_group: usize,
        conditions: &[Arc<dyn PhysicalExpr>],
        ranges: &[Range<usize>],
    ) -> Result<Option<Vec<u32>>> {
        let used: Vec<_> = conditions.iter().flat_map(collect_columns).collect();
        let is_used = |f: &&FieldRef| used.iter().any(|column| column.name() == f.name());
        let fields: Vec<FieldRef> = self.fields.iter().filter(is_used).cloned().collect();
        let read = ranges.iter().cloned();
        let Some(columns) = self.decode_some(file, metadata, row_group, &fields, read).await?
        else {
            return Ok(None);
        };
        let schema = Arc::new(Schema::new(fields));
        let columns = columns.iter().map(|c| piece(c, 0, c.len(), false));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect::<Result<_>>()?)?;
        let mut rows: Vec<u32> = ranges.iter().cloned().flatten().map(|row| row as u32).collect();
        let mut held = BooleanBuffer::new_set(batch.num_rows());
        for condition in conditions {
            let condition = reassign_expr_columns(Arc::clone(condition), &schema)?;
            let holds = condition.evaluate(&batch)?.into_array(batch.num_rows())?;
            held = &held & &true_only(holds.as_boolean());
        }
        let mut held = held.iter();
        rows.retain(|_| held.next().unwrap_or_default());
        Ok(Some(rows))
    }

    /// The columns of row groups, decoded now if they are not kept.
    async fn at_hand(
        self: &Arc<Self>,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        wanted: Vec<(usize, PickedRows)>,
    ) -> Result<Option<Vec<Picked>>> {
        let chunk = |row_group: usize, field: &Field| chunk_of(file, row_group, field);
        let mut picked = Vec::with_capacity(wanted.len());
        for (row_group, rows) in wanted {
            let mut missing = Vec::new();
            for field in self.file_fields() {
                if self.cache.get(&chunk(row_group, field)).is_none() {
                    missing.push(Arc::clone(field));
                }
            }
            let decoded = match missing.is_empty() {
                true => Vec::new(),
                false => match self.decode(file, metadata, row_group, &missing).await? {
                    Some(decoded) => decoded,
                    None => return Ok(None),
                },
            };
            let mut columns = Vec::with_capacity(self.fields.len());
            for field in &self.fields {
                let partition = self.table.table_partition_cols();
                if let Some(at) = partition.iter().position(|p| p.name() == field.name()) {
                    columns.push(Values::Same(file.partition_values[at].clone()));
                    continue;
                }
                let chunk = chunk(row_group, field);
                let fresh = missing.iter().position(|m| m.name() == field.name());
                let values = match fresh.and_then(|at| decoded.get(at)) {
                    Some(values) => Arc::clone(values),
                    None => match self.cache.get(&chunk) {
                        Some(values) => values,
                        // Let go in between.
                        None => return Ok(None),
                    },
                };
                if fresh.is_some() {
                    let bytes = values.get_array_memory_size();
                    self.cache.keep(chunk, Arc::clone(&values), bytes);
                }
                columns.push(Values::Decoded(values));
            }
            let in_order = self.in_order(&columns, |field| chunk(row_group, field));
            picked.push(Picked { gather: Arc::clone(self), rows, columns, in_order });
        }
        Ok(Some(picked))
    }

    /// Where the columns of these chunks are in order, by row filter, if it asks that.
    fn in_order(
        &self,
        columns: &[Values],
        chunk: impl Fn(&Field) -> Chunk,
    ) -> Vec<Option<SortedRuns>> {
        let Some((row_filters, _)) = &self.row_filters else { return Vec::new() };
        let of_filter = |filter: &RowFilter| match &columns[filter.column] {
            Values::Decoded(values) if filter.asks_order() => {
                let chunk = chunk(&self.fields[filter.column]);
                self.cache.sorted_runs(&chunk, || sorted_runs_of(values))
            }
            _ => None,
        };
        row_filters.iter().map(of_filter).collect()
    }

    /// Whole columns of a row group; `None` if the file does not have them as the table does.
    async fn decode(
        &self,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        row_group: usize,
        fields: &[FieldRef],
    ) -> Result<Option<Vec<ArrayRef>>> {
        let rows = usize::try_from(metadata.row_group(row_group).num_rows()).unwrap_or_default();
        self.decode_some(file, metadata, row_group, fields, std::iter::once(0..rows)).await
    }

    /// The same of some rows, of which there must be one.
    async fn decode_some(
        &self,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        row_group: usize,
        fields: &[FieldRef],
        rows: impl Iterator<Item = Range<usize>>,
    ) -> Result<Option<Vec<ArrayRef>>> {
        let options = ArrowReaderOptions::new();
        let found = ArrowReaderMetadata::try_new(Arc::clone(metadata), options.clone())?;
        // The table's types where it has the column: text as views, which are not copied.
        let mut as_table = Vec::new();
        for field in found.schema().fields() {
            let wanted = fields.iter().find(|f| f.name() == field.name());
            as_table.push(match wanted {
                Some(f) => Arc::new(field.as_ref().clone().with_data_type(f.data_type().clone())),
                None => Arc::clone(field),
            });
        }
        if fields.iter().any(|f| found.schema().index_of(f.name()).is_err()) {
            return Ok(None);
        }
        let schema = Schema::new_with_metadata(as_table, found.schema().metadata().clone());
        let options = options.with_schema(Arc::new(schema));
        let Ok(read_as) = ArrowReaderMetadata::try_new(Arc::clone(metadata), options) else {
            return Ok(None);
        };
        let reader = StoreReader {
            store: Arc::clone(&self.store),
            file: file.clone(),
            metadata: Arc::clone(metadata),
        };
        let names = fields.iter().map(|f| f.name().as_str());
        let mask = ProjectionMask::columns(metadata.file_metadata().schema_descr(), names);
        let all = usize::try_from(metadata.row_group(row_group).num_rows()).unwrap_or_default();
        let selected = RowSelection::from_consecutive_ranges(rows, all);
        let rows = selected.row_count();
        let mut stream = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, read_as)
            .with_projection(mask)
            .with_row_groups(vec![row_group])
            .with_batch_size(rows.max(1));
        if rows < all {
            stream = stream.with_row_selection(selected);
        }
        let stream = stream.build()?;
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        let [batch] = batches.as_slice() else { return Ok(None) };
        let column = |f: &FieldRef| batch.column_by_name(f.name()).map(compact);
        Ok(fields.iter().map(column).collect())
    }
}

/// How the columns of a row group become the query's.
struct Layout {
    /// Which of the fields are put beside each row, and questions about others.
    plain: Vec<usize>,
    asked: Vec<(DictionaryFilter, Before)>,
    /// Of both.
    schema: SchemaRef,
    conditions: Vec<(Arc<dyn PhysicalExpr>, Before)>,
    projection: Vec<(Arc<dyn PhysicalExpr>, Before)>,
    output: SchemaRef,
    lends: bool,
}

/// The row_filter that asks the same.
#[derive(Clone, Copy)]
struct Before(Option<usize>);

impl Before {
    /// Has it let these rows through?
    fn holds_for(self, part: &Part) -> bool {
        let (Part::Numbers(_, passed) | Part::Piece(_, _, passed)) = part;
        self.0.is_some_and(|row_filter| passed & bit_of(row_filter) != 0)
    }
}

/// Yes, for so many rows.
fn yes(rows: usize) -> ArrayRef {
    Arc::new(BooleanArray::new(BooleanBuffer::new_set(rows), None))
}

impl Layout {
    fn new(gather: &Gather, columns: &[Values]) -> Result<Self> {
        let kept = |column: usize| match &columns[column] {
            Values::Decoded(values) => Some(values),
            Values::Same(_) => None,
        };
        let ask = |expr| DictionaryFilter::new(expr, &gather.fields, kept);
        let answers: Vec<Option<DictionaryFilter>> = gather.projection.iter().map(ask).collect();
        let rest = gather.projection.iter().zip(&answers).filter(|(_, asked)| asked.is_none());
        let by_row = gather.conditions.iter().chain(rest.map(|(expr, _)| expr));
        let mut plain: Vec<usize> =
            by_row.flat_map(collect_columns).map(|column| column.index()).collect();
        plain.sort_unstable();
        plain.dedup();
        let mut fields: Vec<FieldRef> =
            plain.iter().map(|column| Arc::clone(&gather.fields[*column])).collect();
        let row_filters =
            gather.row_filters.as_ref().map_or(&[][..], |(row_filters, _)| row_filters);
        let before = |expr: &Arc<dyn PhysicalExpr>| Before(RowFilter::position(row_filters, expr));
        let mut asked: Vec<(DictionaryFilter, Before)> = Vec::new();
        let mut outputs = Vec::new();
        for (expr, answers) in gather.projection.iter().zip(answers) {
            outputs.push(match answers {
                None => (Arc::clone(expr), before(expr)),
                Some(answers) => {
                    let name = format!("__asked_{}", asked.len());
                    fields.push(Arc::new(Field::new(&name, answers.data_type(), true)));
                    asked.push((answers, before(expr)));
                    (Arc::new(Column::new(&name, fields.len() - 1)) as _, Before(None))
                }
            });
        }
        let schema = Arc::new(Schema::new(fields));
        let over = |(expr, before): (Arc<dyn PhysicalExpr>, Before)| {
            Ok((reassign_expr_columns(expr, &schema)?, before))
        };
        let conditions = gather.conditions.iter().map(|expr| (Arc::clone(expr), before(expr)));
        Ok(Self {
            conditions: conditions.map(over).collect::<Result<_>>()?,
            projection: outputs.into_iter().map(over).collect::<Result<_>>()?,
            output: Arc::clone(&gather.output),
            lends: gather.lends,
            plain,
            asked,
            schema,
        })
    }

    fn batch(&self, columns: &[Values], part: &Part) -> Result<RecordBatch> {
        let of_rows = self.plain.iter().map(|column| match (&columns[*column], part) {
            (Values::Decoded(values), Part::Numbers(rows, _)) => picked(values, rows),
            (Values::Decoded(values), Part::Piece(from, rows, _)) => {
                piece(values, *from, *rows, self.lends)
            }
            (Values::Same(value), part) => value.to_array_of_size(part.rows()),
        });
        // The numbers of a column's values are taken once for all that is asked of it.
        let mut keys: Vec<(usize, ArrayRef)> = Vec::new();
        let of_values = self.asked.iter().map(|(asked, before)| {
            if before.holds_for(part) {
                return Ok(yes(part.rows()));
            }
            let known = keys.iter().find(|(column, _)| *column == asked.column);
            let keys_of_rows = match (known, &columns[asked.column]) {
                (Some((_, keys)), _) => Arc::clone(keys),
                (None, Values::Decoded(values)) => {
                    let all = values.as_any_dictionary().keys();
                    let found = match part {
                        Part::Numbers(rows, _) => take(all, rows, None)?,
                        Part::Piece(from, rows, _) => all.slice(*from, *rows),
                    };
                    keys.push((asked.column, Arc::clone(&found)));
                    found
                }
                (None, Values::Same(_)) => return internal_err!("a question without a column"),
            };
            Ok(asked.of(&keys_of_rows))
        });
        let options = RecordBatchOptions::new().with_row_count(Some(part.rows()));
        let columns = of_rows.chain(of_values).collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    fn project(&self, batch: &RecordBatch, part: &Part) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let column = |(expr, before): &(Arc<dyn PhysicalExpr>, Before)| match before.holds_for(part)
        {
            true => Ok(yes(rows)),
            false => expr.evaluate(batch)?.into_array(rows),
        };
        let columns = self.projection.iter().map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.output), columns, &options)?)
    }

    fn apply(&self, mut batch: RecordBatch, part: &Part) -> Result<RecordBatch> {
        for (condition, before) in &self.conditions {
            if before.holds_for(part) {
                continue;
            }
            let found = condition.evaluate(&batch)?.into_array(batch.num_rows())?;
            let found = found.as_boolean_opt().ok_or_else(|| {
                DataFusionError::Internal(format!("{condition} is not a condition"))
            })?;
            batch = filter_record_batch(&batch, found)?;
            if batch.num_rows() == 0 {
                break;
            }
        }
        Ok(batch)
    }
}

/// What is asked of the row groups of a file, and of the file.
fn question(
    file: &PartitionedFile,
    ids: &[Arc<dyn PhysicalExpr>],
) -> impl Fn(Option<usize>) -> PredicateKey + use<> {
    let conditions: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let conditions: Arc<str> = conditions.join(" AND ").into();
    let file = file.object_meta.location.clone();
    move |row_group| PredicateKey {
        file: file.clone(),
        row_group,
        conditions: Arc::clone(&conditions),
    }
}

fn chunk_of(file: &PartitionedFile, row_group: usize, field: &Field) -> Chunk {
    let (file, column) = (file.object_meta.location.clone(), field.name().clone());
    Chunk { file, row_group, column }
}

impl Picked {
    /// The rows that satisfy the conditions, as the query wants them.
    pub fn into_stream(mut self) -> BoxStream<'static, Result<RecordBatch>> {
        let passed = self.narrow();
        let Self { gather, rows, columns, .. } = self;
        let batch_rows = gather.batch_rows.max(1);
        let layout = match Layout::new(&gather, &columns) {
            Ok(layout) => layout,
            Err(error) => return futures::stream::iter([Err(error)]).boxed(),
        };
        let columns: Arc<[Values]> = columns.into();
        let parts: Box<dyn Iterator<Item = Result<Part>> + Send> = match rows {
            PickedRows::Numbers(rows) => {
                let numbers = |part: &[u32]| Ok(Part::Numbers(part.to_vec().into(), 0));
                Box::new(rows.chunks(batch_rows).map(numbers).collect::<Vec<_>>().into_iter())
            }
            PickedRows::Ranges(ranges) => {
                let pieces = move |range: Range<usize>| {
                    let end = range.end;
                    let piece = move |from| (from, batch_rows.min(end - from));
                    range.step_by(batch_rows).map(piece)
                };
                let pieces = ranges.into_iter().flat_map(pieces);
                let filters = gather.row_filters.as_ref().map_or(0, |(filters, _)| filters.len());
                match (0..filters).all(|filter| passed & bit_of(filter) != 0) {
                    true => Box::new(
                        pieces.map(move |(from, rows)| Ok(Part::Piece(from, rows, passed))),
                    ),
                    false => Box::new(Sifted {
                        gather: Arc::clone(&gather),
                        columns: Arc::clone(&columns),
                        pieces: Box::new(pieces),
                        all_passed: passed,
                        found: Vec::new(),
                        passed: AppliedFilters::MAX,
                        next: None,
                    }),
                }
            }
        };
        futures::stream::iter(parts)
            .map(move |part| {
                let part = part?;
                let batch = layout.apply(layout.batch(&columns, &part)?, &part)?;
                layout.project(&batch, &part)
            })
            .boxed()
    }

    /// Leaves out what conditions on columns that are in order rule out, and says which of the row_filters all others pass.
    fn narrow(&mut self) -> AppliedFilters {
        let Some((row_filters, skipped)) = &self.gather.row_filters else { return 0 };
        let PickedRows::Ranges(ranges) = &mut self.rows else { return 0 };
        let mut passed = 0;
        for (number, (one, runs)) in row_filters.iter().zip(&self.in_order).enumerate() {
            let (Values::Decoded(values), Some(runs)) = (&self.columns[one.column], runs) else {
                continue;
            };
            let left: Option<Vec<_>> =
                ranges.iter().map(|rows| one.of_sorted(values, rows, runs)).collect();
            let Some(left) = left else { continue };
            let before: usize = ranges.iter().map(Range::len).sum();
            *ranges = left.into_iter().flatten().collect();
            skipped.add(before - ranges.iter().map(Range::len).sum::<usize>());
            passed |= bit_of(number);
        }
        passed
    }
}

/// The rows of pieces that pass all row_filters.
struct Sifted {
    gather: Arc<Gather>,
    columns: Arc<[Values]>,
    pieces: Box<dyn Iterator<Item = (usize, usize)> + Send>,
    /// The row_filters that all rows of them pass.
    all_passed: AppliedFilters,
    /// Rows to hand out, fewer than a batch.
    found: Vec<u32>,
    /// The row_filters that all of them have passed.
    passed: AppliedFilters,
    /// The piece after them.
    next: Option<(usize, usize)>,
}

impl Iterator for Sifted {
    type Item = Result<Part>;

    fn next(&mut self) -> Option<Result<Part>> {
        let batch_rows = self.gather.batch_rows.max(1);
        let (row_filters, skipped) = self.gather.row_filters.as_ref()?;
        let decoded = |column: usize| match &self.columns[column] {
            Values::Decoded(values) => Some(values),
            Values::Same(_) => None,
        };
        loop {
            if let Some((from, rows)) = self.next.take() {
                return Some(Ok(Part::Piece(from, rows, self.all_passed)));
            }
            let Some((from, rows)) = self.pieces.next() else { break };
            let before = self.found.len();
            let piece = from..from + rows;
            let passed = match select(row_filters, self.all_passed, decoded, piece, &mut self.found)
            {
                Ok(passed) => passed,
                Err(error) => return Some(Err(error)),
            };
            let kept = self.found.len() - before;
            // Copying a piece is faster than picking most of its rows.
            if kept * 4 > rows * 3 {
                self.found.truncate(before);
                self.next = Some((from, rows));
                if before > 0 {
                    break;
                }
                continue;
            }
            skipped.add(rows - kept);
            if kept > 0 {
                self.passed &= passed;
            }
            if self.found.len() >= batch_rows {
                break;
            }
        }
        let later = self.found.split_off(self.found.len().min(batch_rows));
        let found = std::mem::replace(&mut self.found, later);
        let passed = self.passed;
        if self.found.is_empty() {
            self.passed = AppliedFilters::MAX;
        }
        (!found.is_empty()).then(|| Ok(Part::Numbers(found.into(), passed)))
    }
}

/// Rows of one batch.
enum Part {
    Numbers(UInt32Array, AppliedFilters),
    /// From a row on, so many.
    Piece(usize, usize, AppliedFilters),
}

impl Part {
    fn rows(&self) -> usize {
        match self {
            Self::Numbers(rows, _) => rows.len(),
            Self::Piece(_, rows, _) => *rows,
        }
    }
}
