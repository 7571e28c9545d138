//! The folder of a domain in object storage: `_uplake/domains/<name>/`.
//!
//! ```text
//! 00000001.run …     runs; put if absent, never deleted, cut to their header by a vacuum
//! base-00000010.run  all keys of runs 1 to 10
//! ```
//! A run's name stays taken for ever. If it were deleted, a writer that slept since before could
//! still put "its" run there, and nobody would read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::error::{DomainError, Result};
use crate::run::{self, HEADER_BYTES, Header, Kind, Run};

const SUFFIX: &str = ".run";
const BASE_PREFIX: &str = "base-";
/// Digits of a run's number. Ten million runs a domain sort as they count.
const DIGITS: usize = 8;
const MAX_NAME_BYTES: usize = 64;

/// Access to one domain's objects.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    store: Arc<dyn ObjectStore>,
    folder: Path,
}

/// What there is, by number.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) runs: BTreeMap<u32, ObjectMeta>,
    pub(crate) bases: BTreeMap<u32, ObjectMeta>,
}

impl Listing {
    pub(crate) fn bytes(&self) -> u64 {
        self.runs.values().chain(self.bases.values()).map(|object| object.size).sum()
    }
}

/// A run as it was found.
#[derive(Debug)]
pub(crate) enum Found {
    Whole(Run),
    /// A vacuum has been here: a base has its keys.
    Emptied(Header),
}

/// How a put ended.
#[derive(Debug)]
pub(crate) enum Put {
    Done,
    /// The name is taken, by whomever.
    Taken,
    /// Nobody knows: it may be there now, or later.
    Unknown(Error),
}

/// Whether `name` can be a domain's.
///
/// # Errors
/// [`DomainError::Name`] says what names are made of.
pub fn check_name(name: &str) -> Result<()> {
    let is_ours = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let letter_first = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    if letter_first && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_ours) {
        return Ok(());
    }
    Err(DomainError::Name { name: name.to_owned() })
}

fn domains_folder(root: &Path) -> Path {
    root.clone().join("_uplake").join("domains")
}

/// Where the log of a domain is, below a lake's root.
pub fn log_folder(root: &Path, name: &str) -> Path {
    domains_folder(root).join(name)
}

/// The names of the domains below a lake's root, in order.
///
/// # Errors
/// If the store cannot list.
pub async fn list(store: &dyn ObjectStore, root: &Path) -> Result<Vec<String>> {
    let folder = domains_folder(root);
    let found = store.list_with_delimiter(Some(&folder)).await;
    let found = found.map_err(DomainError::store("listing", &folder))?;
    let names = found.common_prefixes.iter().filter_map(Path::filename);
    let mut domains = Vec::new();
    for name in names.filter(|name| check_name(name).is_ok()) {
        // Whoever made the folder may have been killed before the first run.
        let mut objects = store.list(Some(&log_folder(root, name)));
        if objects.try_next().await.map_err(DomainError::store("listing", &folder))?.is_some() {
            domains.push(name.to_owned());
        }
    }
    domains.sort_unstable();
    Ok(domains)
}

impl Log {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, root: &Path, name: &str) -> Self {
        Self { store, folder: log_folder(root, name) }
    }

    pub(crate) fn run_path(&self, number: u32) -> Path {
        self.folder.clone().join(format!("{number:0DIGITS$}{SUFFIX}"))
    }

    pub(crate) fn base_path(&self, number: u32) -> Path {
        self.folder.clone().join(format!("{BASE_PREFIX}{number:0DIGITS$}{SUFFIX}"))
    }

    pub(crate) async fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        let mut objects = self.store.list(Some(&self.folder));
        let failed = || DomainError::store("listing", &self.folder);
        while let Some(object) = objects.try_next().await.map_err(|error| failed()(error))? {
            let Some(name) = object.location.filename() else { continue };
            // Anything else, such as a half-written file of a local store, is not ours to read.
            let Some(stem) = name.strip_suffix(SUFFIX) else { continue };
            let (digits, objects) = match stem.strip_prefix(BASE_PREFIX) {
                Some(digits) => (digits, &mut listing.bases),
                None => (stem, &mut listing.runs),
            };
            let is_number = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
            if let (true, Ok(number)) = (is_number, digits.parse()) {
                objects.insert(number, object);
            }
        }
        Ok(listing)
    }

    async fn get(&self, path: &Path) -> Result<Option<Bytes>> {
        let failed = || DomainError::store("reading", path);
        match self.store.get(path).await {
            Ok(object) => Ok(Some(object.bytes().await.map_err(|error| failed()(error))?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed()(error)),
        }
    }

    /// A run with the bytes it was stored in.
    pub(crate) async fn run(&self, number: u32) -> Result<Option<(Found, u64)>> {
        let path = self.run_path(number);
        let Some(bytes) = self.get(&path).await? else { return Ok(None) };
        let header = Header::parse(path.as_ref(), &bytes)?;
        self.check(&path, &header, Kind::Run, number)?;
        let size = bytes.len() as u64;
        if header.emptied {
            return Ok(Some((Found::Emptied(header), size)));
        }
        Ok(Some((Found::Whole(run::decode(path.as_ref(), &bytes)?), size)))
    }

    /// A run's header alone.
    pub(crate) async fn run_header(&self, number: u32) -> Result<Option<Header>> {
        let path = self.run_path(number);
        let bytes = match self.store.get_range(&path, 0..HEADER_BYTES as u64).await {
            Ok(bytes) => bytes,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(DomainError::store("reading", &path)(error)),
        };
        let header = Header::parse(path.as_ref(), &bytes)?;
        self.check(&path, &header, Kind::Run, number)?;
        Ok(Some(header))
    }

    pub(crate) async fn base(&self, number: u32) -> Result<Option<(Run, u64)>> {
        let path = self.base_path(number);
        let Some(bytes) = self.get(&path).await? else { return Ok(None) };
        let run = run::decode(path.as_ref(), &bytes)?;
        self.check(&path, &run.header, Kind::Base, number)?;
        Ok(Some((run, bytes.len() as u64)))
    }

    fn check(&self, path: &Path, header: &Header, kind: Kind, number: u32) -> Result<()> {
        if header.kind != kind || header.number != number {
            let what = "it was written under another name";
            return Err(DomainError::corrupt(path.as_ref(), what));
        }
        if kind == Kind::Run && number == 1 && header.nonce != header.domain {
            return Err(DomainError::corrupt(path.as_ref(), "the first run names another log"));
        }
        Ok(())
    }

    pub(crate) async fn put_new(&self, path: &Path, bytes: Vec<u8>) -> Put {
        let payload = PutPayload::from(bytes);
        match self.store.put_opts(path, payload, PutMode::Create.into()).await {
            Ok(_) => Put::Done,
            // Some stores answer a failed condition with the one, some with the other.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Put::Taken,
            Err(error) => Put::Unknown(error),
        }
    }

    /// Cuts a run to its header.
    pub(crate) async fn empty(&self, header: Header) -> Result<()> {
        let path = self.run_path(header.number);
        let payload = PutPayload::from(header.emptied().to_vec());
        let put = self.store.put(&path, payload).await;
        put.map(drop).map_err(DomainError::store("emptying", &path))
    }

    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        match self.store.delete(path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(DomainError::store("deleting", path)(error)),
        }
    }
}
