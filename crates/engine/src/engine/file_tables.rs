//! Files that a statement names in place of a table.
//!
//! What a file is, is seen from its content, as a load sees it. Text is read by the reader that loads have; Parquet by
//! DataFusion's, which is asked for columns and rows. Standard input is put down in a file when it is named first, and
//! is the same for every statement.
//!
//! # Invariants
//! - No file is opened that the session's store does not give (`own_files`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProviderList, DynamicFileCatalog, TableProvider, UrlTableFactory,
};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::dynamic_file::DynamicListTableFactory;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableConfigExt, ListingTableUrl,
};
use datafusion::execution::context::SessionContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::session_state::SessionState;
use datafusion::object_store::ObjectStoreExt;
use datafusion::object_store::path::Path as StorePath;
use tempfile::NamedTempFile;
use tokio::sync::OnceCell;
use uplake_table::{
    InputFile, InputStores, Lake, Place, TableError, TextFiles, TextOptions, WebFiles,
    expand_inputs, is_address, keep_standard_input,
};

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;
use crate::base::warnings::Warnings;
use crate::scan::text_files::TextTable;

const PARQUET: &str = "parquet";
/// Names of standard input.
const STANDARD_INPUT: [&str; 3] = ["-", "/dev/stdin", "/proc/self/fd/0"];

/// Where files are that statements of an engine name.
#[derive(Debug)]
pub(crate) struct FilePlaces {
    stores: InputStores,
    may_read_standard_input: AtomicBool,
    /// Put down in the folder when it is named first.
    standard_input: OnceCell<NamedTempFile>,
    folder: PathBuf,
}

impl FilePlaces {
    /// Of one lake; `folder` is for what goes with the process.
    pub fn new(lake: &Lake, folder: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            stores: InputStores::new(lake),
            may_read_standard_input: AtomicBool::new(false),
            standard_input: OnceCell::new(),
            folder: folder.unwrap_or_else(std::env::temp_dir),
        })
    }

    /// Standard input is for statements from now on.
    pub fn allow_standard_input(&self) {
        self.may_read_standard_input.store(true, Ordering::Relaxed);
    }

    async fn standard_input(&self) -> Result<InputFile, TableError> {
        let keep = || keep_standard_input(self.folder.clone());
        let kept = self.standard_input.get_or_try_init(keep).await?;
        Ok(InputFile::of_path("standard input", kept.path()))
    }
}

/// The context, whose names may be files.
pub(crate) fn with_files(
    context: SessionContext,
    places: &Arc<FilePlaces>,
    warnings: &Arc<Warnings>,
) -> SessionContext {
    let tables = Arc::clone(context.state_ref().read().catalog_list());
    let (places, warnings) = (Arc::clone(places), Arc::clone(warnings));
    let files =
        Arc::new(FileTables { sessions: DynamicListTableFactory::default(), places, warnings });
    let names: Arc<dyn CatalogProviderList> =
        Arc::new(DynamicFileCatalog::new(tables, Arc::clone(&files) as _));
    let id = context.session_id();
    let builder = context.into_state_builder().with_session_id(id).with_catalog_list(names);
    let context = SessionContext::from(builder.build());
    files.sessions.session_store().with_state(context.state_weak_ref());
    context
}

#[derive(Debug)]
struct FileTables {
    /// DataFusion's, for its way to the session alone.
    sessions: DynamicListTableFactory,
    places: Arc<FilePlaces>,
    warnings: Arc<Warnings>,
}

type Table = Option<Arc<dyn TableProvider>>;

#[async_trait]
impl UrlTableFactory for FileTables {
    async fn try_new(&self, named: &str) -> Result<Table> {
        if STANDARD_INPUT.contains(&named) {
            if !self.places.may_read_standard_input.load(Ordering::Relaxed) {
                let message = "standard input is read by statements of `uplake sql -c` and `uplake sql -f FILE` alone";
                let refused = EngineError::statement(SqlState::InvalidParameterValue, message);
                return Err(refused.with_hint("write it to a file, and name that").into());
            }
            let file = self.places.standard_input().await.map_err(EngineError::from)?;
            return self.of_content(named, vec![file]).await;
        }
        if is_address(named) {
            return self.at_address(named).await;
        }
        // A folder of the name of a table that is not there is not meant.
        let is_path = named.contains(['/', '.']);
        let Some(path) = on_this_machine(named).filter(|_| is_path) else {
            return self.listed(named).await;
        };
        let mut files = match expand_inputs(&[path]) {
            Ok(files) => files,
            // A folder of folders, or nothing.
            Err(TableError::NoSuchFile { .. }) => return self.listed(named).await,
            Err(error) => return Err(EngineError::from(error).into()),
        };
        let state = self.state()?;
        for file in &mut files {
            check(&state, file).await?;
        }
        self.of_content(named, files).await
    }
}

impl FileTables {
    async fn at_address(&self, named: &str) -> Result<Table> {
        let bucket = self.places.stores.bucket(named).map_err(EngineError::from)?;
        if let Some(bucket) = &bucket {
            let runtime = self.state()?.runtime_env().clone();
            runtime.register_object_store(bucket.url(), Arc::clone(bucket) as _);
            if is_named_parquet(named) && !is_pattern_of_objects(named) {
                return self.listed(named).await;
            }
        }
        match self.places.stores.inputs(&[named.to_owned()]).await {
            Ok(files) => self.of_content(named, files).await,
            // A folder of folders, or nothing.
            Err(TableError::NoSuchFile { .. }) if named.ends_with('/') => self.listed(named).await,
            Err(error) => Err(EngineError::from(error).into()),
        }
    }

    /// Parquet files as DataFusion finds them: also in folders of a folder, whose names may be columns (`dt=2026-11-01`).
    async fn listed(&self, named: &str) -> Result<Table> {
        let Ok(url) = ListingTableUrl::parse(named) else { return Ok(None) };
        let state = self.state()?;
        let Ok(config) = ListingTableConfig::new(url).infer_options(&state).await else {
            return Ok(None);
        };
        // Its readers of text take in a record however long, and find other columns than a load.
        if config.options.as_ref().is_none_or(|options| options.format.get_ext() != PARQUET) {
            return Ok(None);
        }
        let config = config.infer_partitions_from_path(&state).await?;
        let table = ListingTable::try_new(config.infer_schema(&state).await?)?;
        Ok(Some(Arc::new(table)))
    }

    async fn of_content(&self, named: &str, files: Vec<InputFile>) -> Result<Table> {
        let first = match files.first() {
            Some(file) => file.is_parquet().await.map_err(EngineError::from)?,
            None => false,
        };
        if first {
            let is_named_so = files.iter().any(|file| is_named_parquet(&file.name));
            // DataFusion has no store for what is in no bucket.
            let may_be_listed =
                files.iter().all(|file| file.path().is_some() || file.url().is_some());
            if is_named_so && may_be_listed && !is_pattern_of_objects(named) {
                return self.listed(named).await;
            }
            return self.parquet(&files).await.map(Some);
        }
        let mut text = TextFiles::new(TextOptions::default());
        for file in files {
            text = text.with(file).await.map_err(EngineError::from)?;
            // Of thousands, whoever stops the statement is heard in between.
            tokio::task::yield_now().await;
        }
        for note in text.notes() {
            self.warnings.add(&note, &note);
        }
        Ok(Some(Arc::new(TextTable::new(text))))
    }

    /// Parquet files of other names.
    async fn parquet(&self, files: &[InputFile]) -> Result<Arc<dyn TableProvider>> {
        let state = self.state()?;
        let format = state.get_file_format_factory(PARQUET);
        let format = format
            .ok_or_else(|| DataFusionError::Internal("Parquet is not known".to_owned()))?
            .create(&state, &HashMap::new())?;
        let options = ListingOptions::new(format).with_file_extension("");
        let mut paths = Vec::new();
        for file in files {
            paths.push(match (&file.place, file.url()) {
                (Place::File(path), _) => ListingTableUrl::parse(path.to_string_lossy())?,
                (_, Some(url)) => ListingTableUrl::try_new(url, None)?,
                _ => self.on_web_server(&state, file).await?,
            });
        }
        let config = ListingTableConfig::new_with_multi_paths(paths)
            .with_listing_options(options)
            .infer_schema(&state)
            .await?;
        Ok(Arc::new(ListingTable::try_new(config)?))
    }

    /// What a web server has, of which parts are read.
    async fn on_web_server(
        &self,
        state: &SessionState,
        file: &InputFile,
    ) -> Result<ListingTableUrl> {
        let web = self.places.stores.web();
        if let Some(root) = WebFiles::root() {
            state.runtime_env().register_object_store(&root, Arc::clone(web) as _);
        }
        let url = web.object(&file.name).await.map_err(EngineError::from)?;
        ListingTableUrl::try_new(url, None)
    }

    fn state(&self) -> Result<SessionState> {
        let session = self.sessions.session_store().get_session().upgrade();
        let state = session.and_then(|s| s.read().as_any().downcast_ref::<SessionState>().cloned());
        state.ok_or_else(|| DataFusionError::Internal("a session that is gone plans".to_owned()))
    }
}

fn is_named_parquet(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == PARQUET)
}

/// DataFusion knows patterns of paths alone.
fn is_pattern_of_objects(named: &str) -> bool {
    is_address(named) && named.contains(['*', '?', '['])
}

/// A path, if the name is one and no address of something else.
fn on_this_machine(named: &str) -> Option<String> {
    if !named.contains("://") {
        return Some(named.to_owned());
    }
    let url = ListingTableUrl::parse(named).ok().filter(|url| url.scheme() == "file")?;
    let path = format!("/{}", url.prefix());
    Some(match url.get_glob() {
        Some(pattern) => format!("{path}/{}", pattern.as_str()),
        None => path,
    })
}

/// Is it a file whose bytes are there for everybody who asks, and may the session read it? Its path is where links
/// lead, from now on.
async fn check(state: &SessionState, file: &mut InputFile) -> Result<()> {
    let path = file.path().filter(|path| path.is_file());
    let Some(path) = path.and_then(|path| path.canonicalize().ok()) else {
        let message = format!(
            "{}: is no file that can be read again; write it to one, or `uplake load` it into a table",
            file.name
        );
        return Err(EngineError::statement(SqlState::InvalidParameterValue, message).into());
    };
    let runtime = state.runtime_env();
    let store = runtime.object_store(ObjectStoreUrl::local_filesystem())?;
    store.head(&StorePath::from_absolute_path(&path)?).await?;
    file.place = Place::File(path);
    Ok(())
}
