//! Files of web servers as objects of one store, for whoever reads parts of them: Parquet, from its end.
//!
//! ```text
//! https://host/a/day.parquet?b=c     the object `https:%2F%2Fhost%2Fa%2Fday.parquet%3Fb=c` of `web://files`
//! ```
//!
//! # Invariants
//! - An object's name says its address, so nothing has to be remembered of it; few clients stay open.
//! - All parts that are read between two looks at a file are of one version of it, as far as the server tells them apart.
//! - A server that sends nothing is given up after [`STALLED`].
//!
//! # Not here
//! Text, which is read from its beginning (`objects`); what is written.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use chrono::DateTime;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result as StoreResult,
};
use uplake_objectio::{StorageOptions, Store};
use url::Url;

use super::objects::STALLED;
use crate::error::{Result, TableError};

/// Where its objects are.
const ROOT: &str = "web://files";
/// Clients that stay open.
const MOST_OPEN: usize = 32;

/// Files of web servers.
#[derive(Debug)]
pub struct WebFiles {
    options: StorageOptions,
    opened: Mutex<HashMap<String, Opened>>,
    /// Looks at files of which no time is known.
    looks: AtomicI64,
}

#[derive(Debug)]
struct Opened {
    store: Arc<Store>,
    /// The version that was seen when somebody looked last.
    version: Option<Version>,
}

/// What a server tells versions of a file apart by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    size: u64,
    modified: DateTime<chrono::Utc>,
    /// Weak ones are of what is alike.
    e_tag: Option<String>,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Self {
        let e_tag = meta.e_tag.clone().filter(|e_tag| !e_tag.starts_with("W/"));
        Self { size: meta.size, modified: meta.last_modified, e_tag }
    }
}

impl WebFiles {
    pub(super) fn new(options: StorageOptions) -> Self {
        Self { options, opened: Mutex::default(), looks: AtomicI64::new(0) }
    }

    /// The store's own address, under which it is registered.
    pub fn root() -> Option<Url> {
        Url::parse(ROOT).ok()
    }

    /// The object that an address is, once the server has given a part of it.
    ///
    /// # Errors
    /// [`TableError::Input`] if it gives no parts; what it says otherwise.
    pub async fn object(&self, address: &str) -> Result<Url> {
        let location = Path::from_iter([address]);
        self.head(&location).await.map_err(|error| match error {
            StoreError::NotFound { .. } => TableError::NoSuchFile { pattern: address.to_owned() },
            StoreError::NotSupported { .. } => TableError::Input {
                file: address.to_owned(),
                reason: "is Parquet, which is read from its end, and the server gives no parts of files; \
                         download it, or `uplake load` it into a table"
                    .to_owned(),
            },
            error => TableError::store(format!("reading {address}"), error),
        })?;
        let unknown = || TableError::Invalid(format!("{address} is no address of a file"));
        let mut url = Self::root().ok_or_else(unknown)?;
        url.path_segments_mut().map_err(|()| unknown())?.push(location.as_ref());
        Ok(url)
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<String, Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, address: &str) -> StoreResult<Arc<Store>> {
        let mut opened = self.opened();
        if let Some(opened) = opened.get(address) {
            return Ok(Arc::clone(&opened.store));
        }
        let store = Store::open_address(address, &self.options).map_err(generic)?;
        if opened.len() >= MOST_OPEN {
            opened.clear();
        }
        let made = Opened { store: Arc::clone(&store), version: None };
        opened.insert(address.to_owned(), made);
        Ok(store)
    }

    /// Notes the version of a file, or refuses one that is another than was noted.
    fn note(&self, address: &str, meta: &ObjectMeta, looks: bool) -> StoreResult<()> {
        let version = Version::of(meta);
        let mut opened = self.opened();
        let Some(opened) = opened.get_mut(address) else { return Ok(()) };
        if !looks && opened.version.as_ref().is_some_and(|before| *before != version) {
            let reason = "was changed while it was being read".to_owned();
            return Err(generic(TableError::Input { file: address.to_owned(), reason }));
        }
        opened.version = Some(version);
        Ok(())
    }
}

fn generic(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Generic { store: "web", source: Box::new(error) }
}

/// The address that an object's name says.
fn address_of(location: &Path) -> StoreResult<String> {
    let (mut bytes, mut rest) = (Vec::new(), location.as_ref().as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).map_err(generic)
}

impl fmt::Display for WebFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ROOT)
    }
}

#[async_trait]
impl ObjectStore for WebFiles {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        let address = address_of(location)?;
        let store = self.open(&address)?;
        // Not every address that is read may be asked about with HEAD; and this says whether there are parts.
        let range = if options.head { Some(GetRange::Bounded(0..1)) } else { options.range };
        let asked = GetOptions { range, ..GetOptions::default() };
        let charged = store.charged();
        let whole = Path::default();
        let got = charged.get_opts(&whole, asked);
        let stalled = || {
            let message = format!("{address}: nothing came for {} s", STALLED.as_secs());
            generic(std::io::Error::new(std::io::ErrorKind::TimedOut, message))
        };
        let mut got = tokio::time::timeout(STALLED, got).await.map_err(|_| stalled())??;
        self.note(&address, &got.meta, options.head)?;
        if got.meta.last_modified == DateTime::UNIX_EPOCH {
            // What is kept of a file is kept by its size and time: of one without a time nothing is.
            let look = self.looks.fetch_add(i64::from(options.head), Ordering::Relaxed);
            got.meta.last_modified = DateTime::from_timestamp_nanos(look + 1);
        }
        got.meta.location = location.clone();
        if options.head {
            got.range = 0..got.meta.size;
            got.payload = GetResultPayload::Stream(futures::stream::empty().boxed());
            return Ok(got);
        }
        if let GetResultPayload::Stream(parts) = got.payload {
            let message = stalled().to_string();
            let waited = futures::stream::unfold(Some(parts), move |parts| {
                let message = message.clone();
                async move {
                    let mut parts = parts?;
                    match tokio::time::timeout(STALLED, parts.next()).await {
                        Ok(part) => Some((part?, Some(parts))),
                        Err(_) => Some((Err(generic(std::io::Error::other(message))), None)),
                    }
                }
            });
            got.payload = GetResultPayload::Stream(waited.boxed());
        }
        Ok(got)
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> StoreResult<PutResult> {
        Err(only_read("put"))
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        Err(only_read("put"))
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        futures::stream::iter([Err(only_read("delete"))]).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        futures::stream::iter([Err(only_read("list"))]).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> StoreResult<ListResult> {
        Err(only_read("list"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> StoreResult<()> {
        Err(only_read("copy"))
    }
}

fn only_read(operation: &str) -> StoreError {
    StoreError::NotImplemented { operation: operation.to_owned(), implementer: ROOT.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// Answers requests with these heads and bodies, one each, then ends.
    fn server(answers: Vec<(&'static str, &'static str)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/a.parquet", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for (head, body) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    fn opened() -> WebFiles {
        WebFiles::new(StorageOptions::default())
    }

    #[tokio::test]
    async fn a_file_of_no_time_is_another_each_time_that_it_is_looked_at() {
        const OF_NO_TIME: (&str, &str) = ("206 OK\r\nContent-Range: bytes 0-0/7", "P");
        const MODIFIED: (&str, &str) = (
            "206 OK\r\nContent-Range: bytes 0-0/7\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT",
            "P",
        );
        let address = server(vec![OF_NO_TIME, OF_NO_TIME, MODIFIED, MODIFIED]);
        let (files, location) = (opened(), Path::from_iter([address.as_str()]));
        let mut looks = Vec::new();
        for _ in 0..4 {
            let meta = files.head(&location).await.unwrap();
            assert_eq!((meta.size, &meta.location), (7, &location));
            looks.push(meta.last_modified);
        }
        assert!(looks[0] != looks[1] && looks[1] != looks[2] && looks[2] == looks[3], "{looks:?}");
    }

    #[tokio::test]
    async fn parts_are_of_one_version() {
        let address = server(vec![
            ("206 OK\r\nContent-Range: bytes 0-0/7", "P"),
            ("206 OK\r\nContent-Range: bytes 2-3/7", "R1"),
            ("206 OK\r\nContent-Range: bytes 2-3/8", "R2"),
            ("206 OK\r\nContent-Range: bytes 0-0/8", "P"),
            ("206 OK\r\nContent-Range: bytes 2-3/8", "R2"),
        ]);
        let (files, location) = (opened(), Path::from_iter([address.as_str()]));
        files.head(&location).await.unwrap();
        assert_eq!(files.get_range(&location, 2..4).await.unwrap(), "R1");
        let changed = files.get_range(&location, 2..4).await.unwrap_err().to_string();
        assert!(changed.contains("was changed while it was being read"), "{changed}");
        files.head(&location).await.unwrap();
        assert_eq!(files.get_range(&location, 2..4).await.unwrap(), "R2");
    }

    #[tokio::test]
    async fn a_server_without_parts_is_said_to_have_none() {
        let address = server(vec![("200 OK", "PAR1PAR1"), ("404 Not Found", "")]);
        let error = opened().object(&address).await.unwrap_err().to_string();
        assert!(error.starts_with(&address) && error.contains("no parts of files"), "{error}");
        let error = opened().object(&address).await.unwrap_err();
        assert!(
            matches!(&error, TableError::NoSuchFile { pattern } if *pattern == address),
            "{error}"
        );
    }

    #[test]
    fn the_name_of_an_object_says_its_address() {
        for address in [
            "https://host/a/day.parquet",
            "http://127.0.0.1:8080/a//b.parquet?x=1&y=%2F*#z",
            "https://host/ä%20ö [1].parquet",
            "https://host/100%",
        ] {
            let location = Path::from_iter([address]);
            assert_eq!(location.parts().count(), 1, "{location}");
            assert_eq!(address_of(&location).unwrap(), address);
            // As a URL says it, and whoever reads that.
            let mut url = WebFiles::root().unwrap();
            url.path_segments_mut().unwrap().push(location.as_ref());
            assert_eq!(Path::from_url_path(url.path()).unwrap(), location, "{url}");
        }
    }
}
