//! A Parquet scan that asks the index of each file first.
//!
//! ```text
//! file ─► conditions the index answers ─► its rows ─► row selection ─► DataFusion's Parquet scan
//!             │                              └─ none: the file is not opened
//!             └─ no answer, or too many rows: scanned, as if there were no index
//! ```
//!
//! The scan is DataFusion's own (`ParquetSource`); this stands before it and hands each file on with
//! the rows to read. Conditions that come while the query runs (the build side of a join) are asked,
//! too, when a file is opened.
//!
//! # Invariants
//! - Every condition that the scan took over is applied: by the index, if it answered exactly, and
//!   otherwise by the Parquet reader.
//! - A file is asked once per scan, however many partitions read parts of it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder, FileSource};
use datafusion::datasource::source::DataSource;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr, conjunction_opt,
    split_conjunction,
};
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::file_stream::FileOpener;
use datafusion_datasource::morsel::Morselizer;

use crate::base::can_fail::may_fail;
use crate::scan::index_predicate::question;
use crate::scan::indexed_source::{Applies, IndexedSource};
use crate::scan::opened::{IndexedMorselizer, Scan, has_range};
use crate::scan::prefetch::Ahead;

impl IndexedSource {
    /// Begins to read ahead, once for all partitions.
    fn read_ahead(&self, config: &FileScanConfig, scan: impl FnOnce(Self, FileScanConfig) -> Scan) {
        let Some((pool, memory_bytes)) = &self.indexes.ahead else { return };
        // A limit reads few rows; by ranges, kept columns are read.
        let by_ranges = config.file_groups.iter().flat_map(|group| group.iter()).any(has_range);
        if by_ranges || config.limit.is_some() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        self.ahead.get_or_init(|| {
            // Its own source, also within the configuration, so that what is read ahead does not keep itself alive.
            let source = Self { ahead: Arc::default(), ..self.clone() };
            let of_source = FileScanConfigBuilder::from(config.clone());
            let of_source = of_source.with_source(Arc::new(source.clone())).build();
            Ahead::start(
                in_order(config, self),
                Arc::new(scan(source, of_source)),
                Arc::clone(&self.store),
                Arc::clone(&self.indexes.metadata),
                pool,
                *memory_bytes,
            )
        });
    }
}

impl FileSource for IndexedSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.inner.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let predicate = self.inner.filter();
        let conditions: Vec<Arc<dyn PhysicalExpr>> =
            predicate.iter().flat_map(|p| split_conjunction(p)).cloned().collect();
        let questions = conditions.iter().map(|c| question(c, &self.indexes.specs)).collect();
        let of_part = |c: &Arc<dyn PhysicalExpr>| self.divides_ids(c) && !self.names_ids(c);
        let others: Vec<_> = conditions.iter().filter(|c| !of_part(c)).cloned().collect();
        let but_ranges = (others.len() < conditions.len()).then(|| conjunction_opt(others));
        let columns = self.inner.projection().map(ProjectionExprs::column_indices);
        let scan = Scan {
            plain: Arc::from(self.inner.create_morselizer(
                Arc::clone(&store),
                config,
                partition,
            )?),
            columns: columns.unwrap_or_default(),
            source: self.clone(),
            // The one that is registered counts for nobody.
            store: Arc::clone(&self.store),
            config: config.clone(),
            partition,
            batch_rows: self.batch_rows,
            conditions,
            questions,
            but_ranges,
            row_filters: Arc::default(),
        };
        self.read_ahead(config, |source, config| Scan { source, config, ..scan.clone() });
        Ok(Box::new(IndexedMorselizer(Arc::new(scan))))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        let inner = self.inner.with_batch_size(batch_size);
        match self.around(&inner) {
            // Done for each partition; they share what was asked.
            Ok(source) => {
                let (asked, ahead) = (Arc::clone(&self.asked), Arc::clone(&self.ahead));
                let pruner = Arc::clone(&self.pruner);
                Arc::new(Self { asked, ahead, pruner, batch_rows: batch_size, ..source })
            }
            Err(_) => inner,
        }
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_extra(kind, f)?;
        let filter = self.inner.filter();
        let asked: Vec<String> = filter
            .iter()
            .flat_map(|p| split_conjunction(p))
            .filter_map(|c| question(c, &self.indexes.specs))
            .map(|q| q.column().to_owned())
            .collect();
        if asked.is_empty() { Ok(()) } else { write!(f, ", indexes=[{}]", asked.join(", ")) }
    }

    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning()
    }

    fn repartitioned(
        &self,
        partitions: usize,
        min_size: usize,
        order: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        self.inner.repartitioned(partitions, min_size, order, config)
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        // With an index there are few rows to apply the other conditions to, so the reader does it
        // before it reads other columns. Without one that costs more than it gains, but for the ids of a
        // part.
        let specs = &self.indexes.specs;
        let askable = |f: &Arc<dyn PhysicalExpr>| {
            split_conjunction(f).iter().any(|c| question(c, specs).is_some())
        };
        let one_id = filters.iter().any(|f| split_conjunction(f).iter().any(|c| self.names_ids(c)));
        let of_part =
            |f: &Arc<dyn PhysicalExpr>| split_conjunction(f).iter().all(|c| self.divides_ids(c));
        let applies = match self.applies {
            _ if one_id || filters.iter().any(askable) => Applies::All,
            Applies::Nothing if filters.iter().any(of_part) => Applies::Ranges,
            before => before,
        };
        let mut inner = self.inner.clone();
        if applies == Applies::All {
            inner = inner.with_pushdown_filters(true);
        }
        if one_id {
            // Ids are in order or nearly so: bounds of pages say what a bloom filter could.
            inner = inner.with_bloom_filter_on_read(false);
        }
        // An error within Parquet's reader is a text without a code: what may fail is asked above the scan.
        let schema = inner.table_schema().table_schema();
        let stays: Vec<bool> =
            filters.iter().map(|filter| !askable(filter) && may_fail(filter, schema)).collect();
        let goes = filters.iter().zip(&stays).filter(|(_, stays)| !**stays);
        let mut pushed = inner
            .try_pushdown_filters(goes.map(|(filter, _)| Arc::clone(filter)).collect(), config)?;
        let mut said = pushed.filters.into_iter();
        let answers = stays.iter().map(|stays| if *stays { None } else { said.next() });
        pushed.filters = answers.map(|said| said.unwrap_or(PushedDown::No)).collect();
        if let Some(node) = pushed.updated_node {
            let source = Self { applies, ..self.around(&node)? };
            if applies == Applies::Ranges {
                let known = source.inner.filter();
                let known: Vec<_> = known.iter().flat_map(|p| split_conjunction(p)).collect();
                let is_known = |f: &_| split_conjunction(f).iter().all(|c| known.contains(c));
                for (answer, filter) in pushed.filters.iter_mut().zip(&filters) {
                    if of_part(filter) && is_known(filter) {
                        *answer = PushedDown::Yes;
                    }
                }
            }
            pushed.updated_node = Some(Arc::new(source));
        }
        Ok(pushed)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        Ok(match self.inner.try_pushdown_sort(order, properties)? {
            SortOrderPushdownResult::Exact { inner } => {
                SortOrderPushdownResult::Exact { inner: Arc::new(self.around(&inner)?) }
            }
            SortOrderPushdownResult::Inexact { inner } => {
                SortOrderPushdownResult::Inexact { inner: Arc::new(self.around(&inner)?) }
            }
            SortOrderPushdownResult::Unsupported => SortOrderPushdownResult::Unsupported,
        })
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.inner.reorder_files(files)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        match self.inner.try_pushdown_projection(projection)? {
            Some(inner) => Ok(Some(Arc::new(self.around(&inner)?))),
            None => Ok(None),
        }
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }
}

/// The same scan, for one that keeps no row of it: pieces of kept columns are handed out as they are.
/// They refer to all of the column, and who keeps one counts all of it.
pub(crate) fn lent(scan: Arc<dyn DataSource>) -> Arc<dyn DataSource> {
    let config = scan.downcast_ref::<FileScanConfig>();
    let source = config.and_then(|c| c.file_source().downcast_ref::<IndexedSource>());
    let (Some(config), Some(source)) = (config, source) else { return scan };
    let source = Arc::new(IndexedSource { lends: true, ..source.clone() });
    Arc::new(FileScanConfigBuilder::from(config.clone()).with_source(source).build())
}

/// The files of a scan in the order in which its partitions will open them.
fn in_order(config: &FileScanConfig, source: &IndexedSource) -> Vec<PartitionedFile> {
    let groups = &config.file_groups;
    if !config.preserve_order && config.output_partitioning.is_none() {
        // One queue for all.
        return source.reorder_files(groups.iter().flat_map(|g| g.iter().cloned()).collect());
    }
    let longest = groups.iter().map(|group| group.len()).max().unwrap_or_default();
    let turn = |at: usize| groups.iter().filter_map(move |group| group.files().get(at).cloned());
    (0..longest).flat_map(turn).collect()
}
