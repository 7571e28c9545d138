//! Sets of ids that are stored in the lake under a name: `_uplake/id_sets/vips.parquet`.
//!
//! A set is one Parquet file of one sorted column without NULL or repetition, so any reader can
//! read it. It is replaced as a whole. The footer has a checksum of the file's bytes, its own digits aside.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::names::check_name;
use crate::unpanicked::unpanicked;

const FOLDER: &str = "_uplake/id_sets";
const EXTENSION: &str = ".parquet";
/// The file's column.
const COLUMN: &str = "id";
/// The key of the checksum in the footer.
const SUM_KEY: &str = "uplake.sum";
/// What stands in its place while it is computed.
const NO_SUM: &[u8] = b"????????";
/// Between key and value in the footer: what kind of field follows, and how long it is.
const SUM_HEADER_BYTES: usize = 2;
/// Who has written files that have one.
const CREATED_BY: &str = "uplake id sets with checksums";

/// One stored set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredIdSet {
    /// Its name.
    pub name: String,
    /// Bytes of its file.
    pub bytes: u64,
    /// When it was written: milliseconds since 1970, UTC.
    pub modified_millis: i64,
    /// The store's name for this version, which tells two of one second apart.
    pub e_tag: Option<String>,
}

impl Lake {
    /// The stored sets, by name.
    ///
    /// # Errors
    /// [`TableError::Io`], [`TableError::Store`].
    pub async fn id_sets(&self) -> Result<Vec<StoredIdSet>> {
        let folder = self.path_of(FOLDER)?;
        let found = self.store().list_with_delimiter(Some(&folder)).await;
        let found = found.map_err(|e| TableError::store("listing id sets", e))?;
        let set = |meta: ObjectMeta| {
            Some(StoredIdSet {
                name: meta.location.filename()?.strip_suffix(EXTENSION)?.to_owned(),
                bytes: meta.size,
                modified_millis: meta.last_modified.timestamp_millis(),
                e_tag: meta.e_tag,
            })
        };
        let mut sets: Vec<StoredIdSet> = found.objects.into_iter().filter_map(set).collect();
        sets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sets)
    }

    /// What there is under a name; `None` if nothing.
    ///
    /// # Errors
    /// [`TableError::Store`].
    pub async fn id_set_info(&self, name: &str) -> Result<Option<StoredIdSet>> {
        match self.store().head(&self.id_set_path(name)?).await {
            Ok(meta) => Ok(Some(StoredIdSet {
                name: name.to_owned(),
                bytes: meta.size,
                modified_millis: meta.last_modified.timestamp_millis(),
                e_tag: meta.e_tag,
            })),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(TableError::store(format!("reading id set {name}"), e)),
        }
    }

    /// Stores sorted, distinct `ids` under `name`.
    ///
    /// # Errors
    /// [`TableError::AlreadyThere`] if the name is taken and `replace` is false, [`TableError::Invalid`] if it
    /// is no name.
    pub async fn write_id_set(&self, name: &str, ids: ArrayRef, replace: bool) -> Result<()> {
        check_name("id set", name)?;
        self.initialise().await?;
        let parquet = |source| TableError::Parquet { file: format!("id set {name}"), source };
        let rows = RecordBatch::try_from_iter([(COLUMN, ids)])
            .map_err(|e| TableError::arrow(format!("id set {name}"), e))?;
        let sum = KeyValue::new(SUM_KEY.to_owned(), String::from_utf8_lossy(NO_SUM).into_owned());
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_key_value_metadata(Some(vec![sum]))
            .build();
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).map_err(parquet)?;
        writer.write(&rows).map_err(parquet)?;
        writer.close().map_err(parquet)?;
        if let Some(place) = sum_place(&bytes) {
            let sum = format!("{:08x}", crc32fast::hash(&bytes));
            bytes[place..place + NO_SUM.len()].copy_from_slice(sum.as_bytes());
        }
        let mode = if replace { PutMode::Overwrite } else { PutMode::Create };
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.store().put_opts(&self.id_set_path(name)?, bytes.into(), options).await {
            Ok(_) => Ok(()),
            Err(object_store::Error::AlreadyExists { .. }) => {
                Err(TableError::AlreadyThere(format!(
                    "id set `{name}` exists already; write CREATE OR REPLACE ID SET, or another name"
                )))
            }
            Err(e) => Err(TableError::store(format!("writing id set {name}"), e)),
        }
    }

    /// The ids of a stored set, sorted.
    ///
    /// # Errors
    /// [`TableError::NoSuch`] if there is none of that name, [`TableError::Damaged`].
    pub async fn read_id_set(&self, name: &str) -> Result<ArrayRef> {
        let store = Arc::clone(self.store());
        let bytes: Bytes = match store.get(&self.id_set_path(name)?).await {
            Ok(found) => found.bytes().await,
            Err(e) => Err(e),
        }
        .map_err(|e| match e {
            object_store::Error::NotFound { .. } => {
                TableError::NoSuch(format!("there is no id set `{name}`; SHOW ID SETS lists them"))
            }
            e => TableError::store(format!("reading id set {name}"), e),
        })?;
        if let Err(what) = compare(&bytes) {
            return Err(TableError::Damaged(format!(
                "id set `{name}` is damaged: {what}; make it again with CREATE OR REPLACE ID SET, \
                 or restore it from a copy"
            )));
        }
        let parquet = |source| TableError::Parquet { file: format!("id set {name}"), source };
        let open = || ParquetRecordBatchReaderBuilder::try_new(bytes);
        let reader = unpanicked(open).map_err(parquet)?;
        let schema = Arc::clone(reader.schema());
        let mut parts: Vec<ArrayRef> = Vec::new();
        for batch in reader.build().map_err(parquet)? {
            let batch = batch.map_err(|e| TableError::arrow(format!("id set {name}"), e))?;
            let ids = batch.column_by_name(COLUMN).ok_or_else(|| {
                TableError::Damaged(format!("id set `{name}` has no column `{COLUMN}`"))
            })?;
            parts.push(Arc::clone(ids));
        }
        if parts.is_empty() {
            return Ok(arrow::array::new_empty_array(schema.field(0).data_type()));
        }
        let parts: Vec<&dyn arrow::array::Array> = parts.iter().map(AsRef::as_ref).collect();
        concat(&parts).map_err(|e| TableError::arrow(format!("id set {name}"), e))
    }

    /// Removes a stored set; false if there was none.
    ///
    /// # Errors
    /// [`TableError::Store`].
    pub async fn drop_id_set(&self, name: &str) -> Result<bool> {
        match self.store().delete(&self.id_set_path(name)?).await {
            Ok(()) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(TableError::store(format!("removing id set {name}"), e)),
        }
    }

    fn id_set_path(&self, name: &str) -> Result<Path> {
        check_name("id set", name)?;
        self.path_of(&format!("{FOLDER}/{name}{EXTENSION}"))
    }
}

/// Where the checksum's digits are, which come after their key.
fn sum_place(file: &[u8]) -> Option<usize> {
    let key = file.windows(SUM_KEY.len()).rposition(|bytes| bytes == SUM_KEY.as_bytes())?;
    let place = key + SUM_KEY.len() + SUM_HEADER_BYTES;
    (place + NO_SUM.len() <= file.len()).then_some(place)
}

/// What is wrong with the bytes of a set. Files of earlier versions have no checksum.
fn compare(file: &[u8]) -> std::result::Result<(), &'static str> {
    let Some(place) = sum_place(file) else {
        let is_summed = file.windows(CREATED_BY.len()).any(|bytes| bytes == CREATED_BY.as_bytes());
        return if is_summed { Err("its checksum is gone") } else { Ok(()) };
    };
    let (before, rest) = file.split_at(place);
    let (sum, after) = rest.split_at(NO_SUM.len());
    let mut hasher = crc32fast::Hasher::new();
    [before, NO_SUM, after].iter().for_each(|part| hasher.update(part));
    match format!("{:08x}", hasher.finalize()).as_bytes() == sum {
        true => Ok(()),
        false => Err("its checksum is another than it says"),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[tokio::test]
    async fn any_other_byte_of_a_set_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..200));
        lake.write_id_set("s", Arc::clone(&ids), false).await.unwrap();
        assert!(lake.write_id_set("s", Arc::clone(&ids), false).await.is_err());
        lake.write_id_set("s", ids, true).await.unwrap();
        let path = folder.path().join("_uplake/id_sets/s.parquet");
        let whole = std::fs::read(&path).unwrap();
        let read = lake.read_id_set("s").await.unwrap();
        assert_eq!(read.as_primitive::<Int64Type>().values().iter().sum::<i64>(), 199 * 100);
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 1 << (at % 8);
            assert!(compare(&other).is_err(), "byte {at}");
        }
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        assert!(lake.read_id_set("s").await.is_err());
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
