//! Definitions of experiments that are kept in the lake: `_uplake/experiments/free_shipping.toml`.
//!
//! # Not here
//! What a definition says (`experiment`).

use object_store::{ObjectStore, ObjectStoreExt};

use crate::error::{Result, TableError};
use crate::lake::{Lake, Place};

const FOLDER: &str = "_uplake/experiments";
const EXTENSION: &str = ".toml";

impl Lake {
    /// Names of the definitions, sorted.
    ///
    /// # Errors
    /// [`TableError::Store`] if the folder cannot be listed.
    pub async fn experiments(&self) -> Result<Vec<String>> {
        let folder = self.path_of(FOLDER)?;
        let found = self.store().list_with_delimiter(Some(&folder)).await;
        let found = found.map_err(|e| TableError::store(format!("listing {folder}"), e))?;
        let names = found.objects.iter().filter_map(|o| o.location.filename());
        let mut names: Vec<String> =
            names.filter_map(|n| n.strip_suffix(EXTENSION)).map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// The text of a definition and where it lies; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`TableError::Store`], and [`TableError::Invalid`] if it is no text.
    pub async fn experiment(&self, name: &str) -> Result<Option<(String, String)>> {
        let relative = format!("{FOLDER}/{name}{EXTENSION}");
        // A name that cannot be a path is the name of nothing.
        let Ok(path) = self.path_of(&relative) else { return Ok(None) };
        let failed = |e| TableError::store(format!("reading {path}"), e);
        let bytes = match self.store().get(&path).await {
            Ok(found) => found.bytes().await.map_err(failed)?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let shown = match self.place() {
            Place::Folder(folder) => folder.join(&relative).display().to_string(),
            Place::Url(url) => format!("{url}{relative}"),
        };
        let text = String::from_utf8(bytes.into())
            .map_err(|_| TableError::Invalid(format!("{shown} is not text")))?;
        Ok(Some((text, shown)))
    }
}
