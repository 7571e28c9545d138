//! Files that a statement names in place of a table.
//!
//! What a file is, is seen from its content, as a load sees it. Text is read by the reader that loads have; Parquet by
//! DataFusion's, which is asked for columns and rows.
//!
//! # Invariants
//! - No file is opened that the session's store does not give (`own_files`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProviderList, DynamicFileCatalog, TableProvider, UrlTableFactory,
};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::dynamic_file::DynamicListTableFactory;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::context::SessionContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::session_state::SessionState;
use datafusion::object_store::ObjectStoreExt;
use datafusion::object_store::path::Path as StorePath;
use uplake_table::{InputFile, TableError, TextFiles, TextOptions, expand_inputs, is_parquet};

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;
use crate::base::warnings::Warnings;
use crate::scan::text_files::TextTable;

const PARQUET: &str = "parquet";

/// The context, whose names may be files.
pub(crate) fn with_files(context: SessionContext, warnings: &Arc<Warnings>) -> SessionContext {
    let tables = Arc::clone(context.state_ref().read().catalog_list());
    let listed = DynamicListTableFactory::new(Default::default());
    let files = Arc::new(FileTables { listed, warnings: Arc::clone(warnings) });
    let names: Arc<dyn CatalogProviderList> =
        Arc::new(DynamicFileCatalog::new(tables, Arc::clone(&files) as _));
    let id = context.session_id();
    let builder = context.into_state_builder().with_session_id(id).with_catalog_list(names);
    let context = SessionContext::from(builder.build());
    files.listed.session_store().with_state(context.state_weak_ref());
    context
}

#[derive(Debug)]
struct FileTables {
    /// DataFusion's, which lists files.
    listed: DynamicListTableFactory,
    warnings: Arc<Warnings>,
}

#[async_trait]
impl UrlTableFactory for FileTables {
    async fn try_new(&self, named: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        // A folder of the name of a table that is not there is not meant.
        let is_path = named.contains(['/', '.']);
        let Some(path) = on_this_machine(named).filter(|_| is_path) else {
            return self.listed.try_new(named).await;
        };
        let mut files = match expand_inputs(&[path]) {
            Ok(files) => files,
            // A folder of folders, or nothing.
            Err(TableError::NoSuchFile { .. }) => return self.listed.try_new(named).await,
            Err(error) => return Err(EngineError::from(error).into()),
        };
        let state = self.state()?;
        for file in &mut files {
            check(&state, file).await?;
        }
        let first = files.first().map(is_parquet).transpose().map_err(EngineError::from)?;
        if first.unwrap_or_default() {
            let is_named_so = |file: &InputFile| {
                Path::new(&file.name).extension().is_some_and(|extension| extension == PARQUET)
            };
            if files.iter().any(is_named_so) {
                return self.listed.try_new(named).await;
            }
            return parquet(&state, &files).await.map(Some);
        }
        let mut text = TextFiles::new(TextOptions::default());
        for file in &files {
            text.add(file).map_err(EngineError::from)?;
            // Of thousands, whoever stops the statement is heard in between.
            tokio::task::yield_now().await;
        }
        for note in text.notes() {
            self.warnings.add(&note, &note);
        }
        Ok(Some(Arc::new(TextTable::new(text))))
    }
}

impl FileTables {
    fn state(&self) -> Result<SessionState> {
        let session = self.listed.session_store().get_session().upgrade();
        let state = session.and_then(|s| s.read().as_any().downcast_ref::<SessionState>().cloned());
        state.ok_or_else(|| DataFusionError::Internal("a session that is gone plans".to_owned()))
    }
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
    let path = file.path.as_deref().filter(|path| path.is_file());
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
    file.path = Some(path);
    Ok(())
}

/// Parquet files of other names.
async fn parquet(state: &SessionState, files: &[InputFile]) -> Result<Arc<dyn TableProvider>> {
    let format = state.get_file_format_factory(PARQUET);
    let format = format
        .ok_or_else(|| DataFusionError::Internal("Parquet is not known".to_owned()))?
        .create(state, &HashMap::new())?;
    let options = ListingOptions::new(format).with_file_extension("");
    let paths = files.iter().filter_map(|file| file.path.as_deref()?.to_str());
    let paths = paths.map(ListingTableUrl::parse);
    let config = ListingTableConfig::new_with_multi_paths(paths.collect::<Result<_>>()?)
        .with_listing_options(options)
        .infer_schema(state)
        .await?;
    Ok(Arc::new(ListingTable::try_new(config)?))
}
