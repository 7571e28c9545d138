//! One partition's scan: each file as it is opened, its index asked, its rows picked from kept columns or read.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    ParquetRowSelection, transform_schema_to_view,
};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::ObjectStore;
use datafusion::parquet::arrow::arrow_reader::RowSelection;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::metrics::{Count, MetricBuilder};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use uplake_table::{Answered, DataFile, Fallback, Question, Selection};

use crate::base::refusal::Unfit;
use crate::cache::columns::Chunk;
use crate::scan::gather::{Gather, Picked};
use crate::scan::id_range::IdRange;
use crate::scan::index_predicate::join_question;
use crate::scan::indexed_source::{Applies, FileAnswer, IndexedSource};
use crate::scan::prefetch::{PrefetchPlan, Wanted, read_footer};
use crate::scan::pruned::without_long_lists;
use crate::scan::row_filter::RowFilter;
use crate::scan::row_groups::group_rows;

/// Rows to which a condition could be applied in the time that skipping to a run takes.
const ROWS_PER_RUN: u64 = 2;
/// Rows are picked from decoded columns if they are at most one in so many.
const PICKED_SHARE: u64 = 8;

pub(super) fn has_range(file: &PartitionedFile) -> bool {
    file.extensions.get::<IdRange>().is_some()
}

/// One partition's scan.
#[derive(Clone)]
pub(super) struct Scan {
    pub(super) source: IndexedSource,
    pub(super) plain: Arc<dyn Morselizer>,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) config: FileScanConfig,
    pub(super) partition: usize,
    pub(super) batch_rows: usize,
    /// Columns that the query reads, by position in the file's schema.
    pub(super) columns: Vec<usize>,
    pub(super) conditions: Vec<Arc<dyn PhysicalExpr>>,
    /// What each condition asks.
    pub(super) questions: Vec<Option<Question>>,
    /// All conditions but a part's ranges of ids, if there are such ranges; within, `None` if there are no others.
    pub(super) but_ranges: Option<Option<Arc<dyn PhysicalExpr>>>,
    /// What the plan would drop as of when a file was opened last, and how often joins had changed their
    /// minds by then.
    pub(super) row_filters: Arc<Mutex<RowFilters>>,
}

/// What a plan would drop, and how often each condition had changed its mind by then.
type RowFilters = (Vec<u64>, Arc<[RowFilter]>);

pub(super) struct IndexedMorselizer(pub(super) Arc<Scan>);

impl fmt::Debug for IndexedMorselizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexedMorselizer").field("partition", &self.0.partition).finish()
    }
}

impl Morselizer for IndexedMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let file = match self.0.source.ahead.get() {
            Some(ahead) => ahead.open(file),
            None => file,
        };
        if !self.0.asks() && !self.0.may_keep() && self.0.source.applies != Applies::Ranges {
            return self.0.plain.plan_file(file);
        }
        Ok(Box::new(IndexedPlanner { scan: Arc::clone(&self.0), file }))
    }
}

struct IndexedPlanner {
    pub(super) scan: Arc<Scan>,
    pub(super) file: PartitionedFile,
}

impl fmt::Debug for IndexedPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexedPlanner").field("file", &self.file.object_meta.location).finish()
    }
}

impl MorselPlanner for IndexedPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { scan, file } = *self;
        Ok(Some(MorselPlan::new().with_pending_planner(async move {
            let answer = match scan.asks() && !has_range(&file) {
                true => scan.ask(&file).await?,
                false => Arc::new(FileAnswer::everything()),
            };
            let picked = match &answer.rows {
                Some(_) => scan.pick(&file, &answer).await?,
                None => scan.whole(&file).await?,
            };
            if let Some(picked) = picked {
                return Ok(Box::new(PickedPlanner(picked)) as Box<dyn MorselPlanner>);
            }
            if has_range(&file) {
                return Err(Unfit::NotKept.into());
            }
            scan.plan_file(file, &answer).await
        })))
    }
}

/// Plans nothing: no row of the file is wanted.
#[derive(Debug)]
struct Nothing;

impl MorselPlanner for Nothing {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        Ok(None)
    }
}

/// Rows that are picked from decoded columns.
struct PickedPlanner(Vec<Picked>);

impl fmt::Debug for PickedPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PickedPlanner").field("row_groups", &self.0.len()).finish()
    }
}

impl MorselPlanner for PickedPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        // No row of this part of the file: DataFusion takes a plan without a morsel for unfinished.
        if self.0.is_empty() {
            return Ok(None);
        }
        Ok(Some(MorselPlan::new().with_morsels(vec![Box::new(PickedMorsel(self.0))])))
    }
}

struct PickedMorsel(Vec<Picked>);

impl fmt::Debug for PickedMorsel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PickedMorsel").field("row_groups", &self.0.len()).finish()
    }
}

impl Morsel for PickedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        futures::stream::iter(self.0).flat_map(Picked::into_stream).boxed()
    }
}

impl Scan {
    /// Is there anything to ask an index?
    fn asks(&self) -> bool {
        self.questions.iter().any(Option::is_some) || self.conditions.iter().any(is_dynamic)
    }

    async fn plan_file(
        &self,
        mut file: PartitionedFile,
        answer: &FileAnswer,
    ) -> Result<Box<dyn MorselPlanner>> {
        let by_ranges = self.source.applies == Applies::Ranges;
        let (runs, total): (Vec<Range<usize>>, usize) = match &answer.rows {
            Some(rows) => {
                let runs = rows.runs().map(|run| run.start as usize..run.end as usize);
                (runs.collect(), answer.total as usize)
            }
            // The reader is told of the ranges alone; what the other conditions rule out is not read either.
            None if by_ranges => self.bounded_rows(&file).await?,
            None => return self.plan_parquet(file, self.conditions.clone()),
        };
        if runs.is_empty() {
            return Ok(Box::new(Nothing));
        }
        let selection = RowSelection::from_consecutive_ranges(runs.into_iter(), total);
        file.extensions.insert(ParquetRowSelection::new(selection));
        let applied = |at: usize| answer.applied.get(at).copied().unwrap_or_default();
        let left = self.conditions.iter().enumerate().filter(|(at, _)| !applied(*at));
        let left = left.map(|(_, condition)| Arc::clone(condition));
        let left = left.filter(|condition| !by_ranges || self.source.applies(condition)).collect();
        self.plan_parquet(file, left)
    }

    /// The rows of a file that bounds do not rule out, and how many it has.
    async fn bounded_rows(&self, file: &PartitionedFile) -> Result<(Vec<Range<usize>>, usize)> {
        let (inner, metadata) = (&self.source.inner, self.metadata(file).await?);
        let (table, predicate) = (inner.table_schema(), inner.filter());
        let mut wanted = self.source.pruner.rows(file, &metadata, table, predicate.as_ref())?;
        wanted.reverse();
        let (mut runs, mut first) = (Vec::new(), 0);
        for (number, group) in metadata.row_groups().iter().enumerate() {
            if let Some((_, rows)) = wanted.pop_if(|(wanted, _)| *wanted == number) {
                runs.extend(rows.into_iter().map(|run| first + run.start..first + run.end));
            }
            first += usize::try_from(group.num_rows()).unwrap_or_default();
        }
        Ok((runs, first))
    }

    /// By DataFusion's scan, whose bounds are asked of these conditions. It looks at each value of a list that a join
    /// has sent, several times for each file: 100,000 of them took 20 times as long as the rows.
    fn plan_parquet(
        &self,
        file: PartitionedFile,
        mut left: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Box<dyn MorselPlanner>> {
        let by_ranges = self.source.applies == Applies::Ranges;
        let mut is_whole = left.len() == self.conditions.len() && !by_ranges;
        for condition in left.iter_mut().filter(|c| is_dynamic(c)) {
            if let Some(short) = without_long_lists(condition)? {
                (*condition, is_whole) = (short, false);
            }
        }
        if is_whole {
            return self.plain.plan_file(file);
        }
        let inner = match left.is_empty() {
            // A predicate cannot be taken away; one that is always true is not worth applying.
            true => {
                self.source.inner.clone().with_pushdown_filters(false).with_predicate(lit(true))
            }
            false => {
                let applies = self.source.applies != Applies::Nothing;
                let inner = self.source.inner.clone().with_pushdown_filters(applies);
                inner.with_predicate(conjunction(left))
            }
        };
        inner
            .create_morselizer(Arc::clone(&self.store), &self.config, self.partition)?
            .plan_file(file)
    }

    /// The rows from decoded columns, if their columns are asked for again.
    async fn pick(
        &self,
        file: &PartitionedFile,
        answer: &FileAnswer,
    ) -> Result<Option<Vec<Picked>>> {
        let Some(rows) = &answer.rows else { return Ok(None) };
        if rows.is_empty() {
            return Ok(None);
        }
        let inner = &self.source.inner;
        let Some(projection) = inner.projection() else { return Ok(None) };
        let left = self.conditions.iter().zip(&answer.applied).filter(|(_, applied)| !**applied);
        let left = left.filter(|(condition, _)| self.source.applies(condition));
        let asked: Vec<_> = left.map(|(condition, _)| Arc::clone(condition)).collect();
        let few = rows.cardinality() <= answer.total / PICKED_SHARE;
        // Of few rows it is worth while to leave out what a join would drop.
        let left: Vec<_> = asked.iter().filter(|c| few || !is_dynamic(c)).cloned().collect();
        let gather = Gather::new(
            Arc::clone(&self.source.indexes.columns),
            Arc::clone(&self.store),
            self.source.inner.table_schema(),
            &left,
            projection,
            self.batch_rows,
            self.source.lends,
        )?;
        let Some(gather) = gather else { return Ok(None) };
        let metadata = self.metadata(file).await?;
        let picked = if few || !gather.reads_columns() {
            Arc::new(gather).pick(file, &metadata, rows).await?
        } else {
            // Many rows are read like those of a whole file.
            let table = inner.table_schema();
            let mut read = projection.column_indices();
            read.extend(left.iter().flat_map(collect_columns).map(|column| column.index()));
            if !self.may_keep() || !has_types(&metadata, table, &read) {
                return Ok(None);
            }
            let row_filters = gather.row_filters(&asked)?.into();
            let gather = gather.with_row_filters(row_filters, || self.counter("hot_rows_skipped"));
            let wanted = group_rows(file, &metadata, rows);
            Arc::new(gather).scan(file, &metadata, wanted, false).await?
        };
        if picked.is_some() {
            self.count("hot_files", 1);
        }
        Ok(picked)
    }

    /// Could the scan be served from columns that are kept, or have them kept? A limit reads few rows.
    fn may_keep(&self) -> bool {
        self.config.limit.is_none()
    }

    /// All rows that statistics do not rule out, or those of the file's range, if their columns are kept or
    /// worth keeping by now.
    async fn whole(&self, file: &PartitionedFile) -> Result<Option<Vec<Picked>>> {
        let inner = &self.source.inner;
        let (Some(projection), true) = (inner.projection(), self.may_keep()) else {
            return Ok(None);
        };
        // What a join says it asks again itself: here it is a row filter, while that drops enough.
        let applied = self.conditions.iter().filter(|c| self.source.applies(c) && !is_dynamic(c));
        let conditions: Vec<_> = applied.cloned().collect();
        let gather = Gather::new(
            Arc::clone(&self.source.indexes.columns),
            Arc::clone(&self.store),
            inner.table_schema(),
            &conditions,
            projection,
            self.batch_rows,
            self.source.lends,
        )?;
        let Some(gather) = gather else { return Ok(None) };
        let row_filters = self.row_filters(&gather)?;
        let skipped = || self.counter("hot_rows_skipped");
        let gather = Arc::new(gather.with_row_filters(row_filters, skipped));
        let metadata = self.metadata(file).await?;
        let predicate = inner.filter();
        let mut read: Vec<usize> = projection.column_indices();
        read.extend(predicate.iter().flat_map(collect_columns).map(|column| column.index()));
        if let Some(range) = file.extensions.get::<IdRange>() {
            if !has_types(&metadata, inner.table_schema(), &read) {
                return Err(Unfit::NotById.into());
            }
            let picked = gather.scan_range(file, &metadata, range).await?;
            self.count("hot_files", 1);
            return Ok(Some(picked));
        }
        let ids = conditions.iter().filter(|c| self.source.names_constant_ids(c));
        let ids: Vec<_> = ids.cloned().collect();
        if !ids.is_empty()
            && let Some(picked) = gather.named(file, &metadata, &ids)
        {
            self.count("hot_files", 1);
            return Ok(Some(picked));
        }
        if !gather.reads_columns() || !has_types(&metadata, inner.table_schema(), &read) {
            return Ok(None);
        }
        let (table, pruner) = (inner.table_schema(), &self.source.pruner);
        // In kept columns the rows of a part's ids are found faster than bounds are compared with each of their ranges.
        let bounded = match &self.but_ranges {
            Some(others) if gather.keeps_all(file, &metadata) => others.clone(),
            _ => predicate.clone(),
        };
        let wanted = pruner.rows(file, &metadata, table, bounded.as_ref())?;
        let few = self.conditions.iter().any(|c| self.source.names_ids(c));
        let mut picked = gather.scan(file, &metadata, wanted, few).await?;
        if picked.is_none() && !ids.is_empty() {
            // Not what other conditions rule out: others may ask for the rest.
            let predicate = conjunction(ids.iter().cloned());
            let wanted = || pruner.rows(file, &metadata, table, Some(&predicate));
            picked = gather.name(file, &metadata, &ids, wanted).await?;
        }
        if picked.is_some() {
            self.count("hot_files", 1);
        }
        Ok(picked)
    }

    /// What the plan would drop by now, made anew if joins know something else than at the last file.
    fn row_filters(&self, gather: &Gather) -> Result<Arc<[RowFilter]>> {
        let known: Vec<u64> = self.conditions.iter().map(|c| c.snapshot_generation()).collect();
        let mut row_filters = self.row_filters.lock().unwrap_or_else(PoisonError::into_inner);
        if row_filters.0 != known {
            *row_filters = (known, gather.row_filters(&self.conditions)?.into());
        }
        Ok(Arc::clone(&row_filters.1))
    }

    pub(super) async fn metadata(&self, file: &PartitionedFile) -> Result<Arc<ParquetMetaData>> {
        let metadata = &self.source.indexes.metadata;
        match self.source.ahead.get() {
            Some(ahead) => ahead.footer(file).await,
            None => read_footer(self.store.as_ref(), file, metadata, None).await,
        }
    }

    async fn ask(&self, file: &PartitionedFile) -> Result<Arc<FileAnswer>> {
        let dynamic = self.dynamic_questions()?;
        if !dynamic.is_empty() {
            // They may be others when the file is opened again, in a recursive query.
            return self.ask_index(file, dynamic).await;
        }
        let cell = {
            let mut asked = self.source.asked.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(asked.entry(file.object_meta.location.clone()).or_default())
        };
        cell.get_or_try_init(|| self.ask_index(file, Vec::new())).await.cloned()
    }

    async fn ask_index(
        &self,
        file: &PartitionedFile,
        dynamic: Vec<Question>,
    ) -> Result<Arc<FileAnswer>> {
        let everything = FileAnswer::everything;
        let indexes = &self.source.indexes;
        let Some(data_file) = indexes.files.get(&file.object_meta.location) else {
            return Ok(Arc::new(everything()));
        };
        // The condition that a question is of; what comes while the query runs is of none, because
        // whoever sent it applies it anyway.
        let mut of: Vec<Option<usize>> = Vec::new();
        let mut questions: Vec<Question> = Vec::new();
        for (at, question) in self.questions.iter().enumerate() {
            if let Some(question) = question {
                of.push(Some(at));
                questions.push(question.clone());
            }
        }
        of.extend(dynamic.iter().map(|_| None));
        questions.extend(dynamic);
        if questions.is_empty() {
            return Ok(Arc::new(everything()));
        }
        let found = indexes.cache.rows(self.store.as_ref(), data_file, &questions).await;
        self.count("index_lookups", questions.iter().map(Question::lookups).sum());
        self.count("index_bytes_read", found.bytes_read as usize);
        let mut applied = vec![false; self.conditions.len()];
        for (answered, of) in found.answered.iter().zip(&of) {
            match (answered, of) {
                (Answered::Exactly, Some(at)) => applied[*at] = true,
                (Answered::Not(fallback), _) => self.fell_back(data_file, fallback),
                _ => {}
            }
        }
        let Some(rows) = found.rows else { return Ok(Arc::new(everything())) };
        let total = found.total;
        let (selected, runs) = (rows.cardinality(), rows.run_count() as u64);
        self.count("index_runs", runs as usize);
        let skipped = total.saturating_sub(selected);
        if selected > 0 && runs * ROWS_PER_RUN >= skipped {
            self.count("index_not_worth_it", 1);
            return Ok(Arc::new(everything()));
        }
        self.count("index_rows_selected", selected as usize);
        self.count("index_rows_skipped", skipped as usize);
        self.count_pages(file, &rows).await?;
        Ok(Arc::new(FileAnswer { rows: Some(rows), total, applied }))
    }

    /// What the build sides of joins ask by now.
    fn dynamic_questions(&self) -> Result<Vec<Question>> {
        let mut questions = Vec::new();
        if self.source.indexes.specs.is_empty() {
            return Ok(questions);
        }
        for condition in &self.conditions {
            let Some(filter) = condition.downcast_ref::<DynamicFilterPhysicalExpr>() else {
                continue;
            };
            let current = filter.current()?;
            let conditions = split_conjunction(&current);
            let specs = &self.source.indexes.specs;
            questions.extend(conditions.into_iter().filter_map(|c| join_question(c, specs)));
        }
        Ok(questions)
    }

    fn fell_back(&self, file: &DataFile, fallback: &Fallback) {
        let name = match fallback {
            Fallback::Missing => "index_missing",
            Fallback::NotIndexed => "index_without_column",
            Fallback::Vague => "index_pattern_too_vague",
            Fallback::Broken(_) => "index_broken",
            Fallback::Unreadable(_) => "index_unreadable",
        };
        self.count(name, 1);
        if fallback.is_fault() {
            let table = &self.source.indexes.table;
            let repair = self.source.indexes.repairs.ask(table, file, fallback);
            self.source.indexes.warnings.add(
                table,
                &format!(
                    "table {table}: {} was read without its index ({fallback}); {repair}",
                    file.path
                ),
            );
        }
    }

    /// Counts the pages of the query's columns that hold none of the rows.
    async fn count_pages(&self, file: &PartitionedFile, rows: &Selection) -> Result<()> {
        let metadata = self.metadata(file).await?;
        let mut columns = self.columns.clone();
        for condition in &self.conditions {
            columns.extend(collect_columns(condition).iter().map(|c| c.index()));
        }
        columns.sort_unstable();
        columns.dedup();
        if let Some((pages, bytes)) = skipped_pages(&metadata, &columns, rows) {
            self.count("index_pages_skipped", pages);
            self.count("index_page_bytes_skipped", bytes);
        }
        Ok(())
    }

    fn count(&self, name: &'static str, value: usize) {
        self.counter(name).add(value);
    }

    fn counter(&self, name: &'static str) -> Count {
        MetricBuilder::new(self.source.inner.metrics()).counter(name, self.partition)
    }
}

impl PrefetchPlan for Scan {
    fn wanted<'a>(
        &'a self,
        file: &'a PartitionedFile,
        footer: &'a Arc<ParquetMetaData>,
    ) -> BoxFuture<'a, Result<Vec<Wanted>>> {
        async move {
            if self.conditions.iter().any(|c| self.may_ask_later(c)) {
                // What a join will ask is not known yet, and may leave out nearly everything.
                return Ok(Vec::new());
            }
            let answer = match self.questions.iter().any(Option::is_some) {
                true => self.ask(file).await?,
                false => Arc::new(FileAnswer::everything()),
            };
            let (inner, source) = (&self.source.inner, &self.source);
            let groups = match &answer.rows {
                Some(rows) => group_rows(file, footer, rows),
                None => {
                    let filter = inner.filter();
                    source.pruner.rows(file, footer, inner.table_schema(), filter.as_ref())?
                }
            };
            let columns = Arc::new(self.columns_by_turn(&answer));
            let chunk = |row_group: usize, column: &String| {
                let (file, column) = (file.object_meta.location.clone(), column.clone());
                (Chunk { file, row_group, column }, 0, 0)
            };
            let names = || columns.iter().flatten();
            let chunks: Vec<_> =
                groups.iter().flat_map(|(group, _)| names().map(|c| chunk(*group, c))).collect();
            if source.indexes.columns.keeps_all(&chunks) {
                return Ok(Vec::new());
            }
            let wanted =
                |(row_group, rows)| Wanted { row_group, rows, columns: Arc::clone(&columns) };
            Ok(groups.into_iter().map(wanted).collect())
        }
        .boxed()
    }
}

impl Scan {
    /// May this become a question while the query runs, see [`join_question`]? What joins on several
    /// columns and the first rows of an order say never does.
    fn may_ask_later(&self, condition: &Arc<dyn PhysicalExpr>) -> bool {
        let specs = &self.source.indexes.specs;
        let is_indexed = |c: &Column| specs.iter().any(|spec| spec.column == c.name());
        let columns = collect_columns(condition);
        condition.is::<DynamicFilterPhysicalExpr>()
            && columns.len() == 1
            && columns.iter().any(is_indexed)
    }

    /// Columns of the file that are read first, and those that are read of the rows that are left.
    fn columns_by_turn(&self, answer: &FileAnswer) -> [HashSet<String>; 2] {
        let schema = self.source.inner.table_schema().file_schema();
        let name = |at: usize| schema.fields().get(at).map(|field| field.name().clone());
        let applied = |at: usize| answer.applied.get(at).copied().unwrap_or_default();
        let left = self.conditions.iter().enumerate().filter(|(at, _)| !applied(*at));
        let of_conditions = left.flat_map(|(_, c)| collect_columns(c)).map(|c| c.index());
        let first: HashSet<String> = of_conditions.filter_map(name).collect();
        let later: HashSet<String> = self.columns.iter().filter_map(|at| name(*at)).collect();
        match self.source.applies {
            Applies::All => [first, later],
            // Of nearly all rows that are read of the file.
            _ => [first.union(&later).cloned().collect(), HashSet::new()],
        }
    }
}

/// Does what is above the scan, such as a join, say this while it runs? It asks again itself.
fn is_dynamic(condition: &Arc<dyn PhysicalExpr>) -> bool {
    condition.is::<DynamicFilterPhysicalExpr>()
}

/// Has a file these of the table's columns, with the types that the table has?
fn has_types(metadata: &ParquetMetaData, table: &TableSchema, columns: &[usize]) -> bool {
    let file = metadata.file_metadata();
    let Ok(found) = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()) else {
        return false;
    };
    let found = transform_schema_to_view(&found);
    let wanted = table.table_schema().fields();
    let of_file = table.file_schema().fields().len();
    columns.iter().filter(|column| **column < of_file).all(|column| {
        let wanted = &wanted[*column];
        found.field_with_name(wanted.name()).is_ok_and(|f| f.data_type() == wanted.data_type())
    })
}

/// Pages of `columns` without a row of `rows`, and their bytes; `None` without a page index.
fn skipped_pages(
    metadata: &ParquetMetaData,
    columns: &[usize],
    rows: &Selection,
) -> Option<(usize, usize)> {
    let (mut pages, mut bytes) = (0, 0);
    let mut first_row = 0u64;
    for (group, offsets) in metadata.row_groups().iter().zip(metadata.offset_index()?) {
        let group_rows = u64::try_from(group.num_rows()).ok()?;
        for column in columns.iter().filter_map(|c| offsets.get(*c)) {
            let locations = column.page_locations();
            let mut starts = locations.iter().map(|page| page.first_row_index as u64).skip(1);
            let mut runs = rows.runs();
            for page in locations {
                let range: Range<u64> = first_row + page.first_row_index as u64
                    ..first_row + starts.next().unwrap_or(group_rows);
                runs.skip_to(u32::try_from(range.start).ok()?);
                let hit = runs.clone().next().is_some_and(|run| u64::from(run.start) < range.end);
                if !hit {
                    pages += 1;
                    bytes += page.compressed_page_size as usize;
                }
            }
        }
        first_row += group_rows;
    }
    Some((pages, bytes))
}
