//! From a URL to a [`Store`].

use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme};
use url::Url;

use crate::clock::{Clock, RealClock};
use crate::counted::Counted;
use crate::error::StoreError;
use crate::options::StorageOptions;
use crate::store::Store;

impl Store {
    /// Opens the store that `url` lies in: `s3://`, `gs://`, `az://`, `file://` or `memory://`.
    ///
    /// The store's root is the bucket (or `/` of files); the path of `url` is [`Store::prefix`].
    /// No request is made yet. Every `memory://` store is a new, empty one.
    ///
    /// # Errors
    /// [`StoreError::Url`] for other URLs, [`StoreError::Setting`] for settings that contradict each
    /// other, [`StoreError::Open`] if the provider's client refuses its settings.
    pub fn open(url: &str, options: &StorageOptions) -> Result<Arc<Self>, StoreError> {
        let refuse = |reason: String| StoreError::Url { url: url.to_owned(), reason };
        let parsed = Url::parse(url).map_err(|error| refuse(error.to_string()))?;
        let (scheme, prefix) =
            ObjectStoreScheme::parse(&parsed).map_err(|error| refuse(error.to_string()))?;
        let root = Url::parse(&parsed[..url::Position::BeforePath])
            .or_else(|_| Url::parse(&format!("{}:///", parsed.scheme())))
            .map_err(|error| refuse(error.to_string()))?;
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let local = |inner: Arc<dyn ObjectStore>, prefix: Path, clock| {
            Self::assemble(root.clone(), prefix, Arc::new(Counted(inner)), false, options, clock)
        };
        match scheme {
            ObjectStoreScheme::Local => local(Arc::new(LocalFileSystem::new()), prefix, clock),
            ObjectStoreScheme::Memory => local(Arc::new(InMemory::new()), prefix, clock),
            _ => Err(refuse("the scheme is not supported".to_owned())),
        }
    }
}
