//! What a query asks of the store that the lake lies in.
//!
//! Every query reads through a handle of its own ([`Store::scoped`]), carried in DataFusion's session
//! config: cache, limits and connections are shared, and the counts are the query's.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::ObjectStore;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use uplake_table::{Lake, Store};

/// The store as one query uses it.
#[derive(Clone, Debug)]
pub(crate) struct QueryStore(pub Arc<Store>);

impl QueryStore {
    /// A query's own handle.
    pub fn new(lake: &Lake) -> Self {
        Self(lake.storage().scoped())
    }

    /// The handle of the query that is being planned; the lake's outside of one.
    pub fn of(config: &SessionConfig, lake: &Lake) -> Arc<dyn ObjectStore> {
        match config.get_extension::<Self>() {
            Some(query) => Arc::<Store>::clone(&query.0),
            None => Arc::clone(lake.store()),
        }
    }

    /// The rows of an EXPLAIN ANALYZE, then one with what the query asked of the store.
    pub fn explained(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let two_texts = schema.fields().len() == 2
            && schema.fields().iter().all(|f| f.data_type() == &DataType::Utf8);
        if !two_texts {
            return rows;
        }
        let wanted = Arc::clone(&schema);
        let last = futures::stream::once(async move {
            let texts = ["Storage".to_owned(), self.text()];
            let columns = texts.map(|t| Arc::new(StringArray::from(vec![t])) as ArrayRef);
            Ok(RecordBatch::try_new(wanted, columns.to_vec())?)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows.chain(last)))
    }

    fn text(&self) -> String {
        let counts = self.0.counts();
        let dollars = self.0.dollars();
        format!("requests={} {counts} dollars={dollars:.7}", counts.requests())
    }
}

/// The name under which DataFusion knows the lake's store.
pub(crate) fn store_url(lake: &Lake) -> Result<ObjectStoreUrl> {
    match lake.is_remote() {
        true => ObjectStoreUrl::parse(lake.storage().url()),
        false => Ok(ObjectStoreUrl::local_filesystem()),
    }
}

/// Makes the store known; files of a folder are known anyway.
pub(crate) fn register(runtime: &RuntimeEnv, lake: &Lake) {
    if lake.is_remote() {
        runtime.register_object_store(lake.storage().url(), Arc::clone(lake.store()));
    }
}
