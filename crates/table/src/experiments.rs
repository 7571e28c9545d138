//! Definitions of experiments that are kept in the lake: `_uplake/experiments/free_shipping.toml`.
//!
//! # Not here
//! What a definition says (`experiment`).

use object_store::{ObjectStore, ObjectStoreExt, PutMode};

use crate::error::{Result, TableError};
use crate::lake::{Lake, Place};
use crate::versioned::check_experiment_name;

const FOLDER: &str = "_uplake/experiments";
const EXTENSION: &str = ".toml";

/// What became of a definition that was put into the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutDefinition {
    Created,
    Replaced,
    /// The same was there already.
    Unchanged,
}

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
        self.text(&format!("{FOLDER}/{name}{EXTENSION}")).await
    }

    /// Puts a definition into the lake under a name.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for what is no name, [`TableError::AlreadyThere`] if there is another one
    /// and `replace` is false; [`TableError::Store`].
    pub async fn put_experiment(
        &self,
        name: &str,
        text: &str,
        replace: bool,
    ) -> Result<PutDefinition> {
        check_experiment_name(name)?;
        self.initialise().await?;
        let relative = format!("{FOLDER}/{name}{EXTENSION}");
        let path = self.path_of(&relative)?;
        let put = |mode: PutMode| self.store().put_opts(&path, text.to_owned().into(), mode.into());
        let failed = |e| TableError::store(format!("writing {path}"), e);
        match put(PutMode::Create).await {
            Ok(_) => return Ok(PutDefinition::Created),
            Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(e) => return Err(failed(e)),
        }
        if self.text(&relative).await?.is_some_and(|(there, _)| there == text) {
            return Ok(PutDefinition::Unchanged);
        }
        if !replace {
            return Err(TableError::AlreadyThere(format!(
                "the lake has another definition of `{name}`; compare them with `uplake experiments show \
                 {name}`, and add --replace if this one shall take its place"
            )));
        }
        put(PutMode::Overwrite).await.map_err(failed)?;
        Ok(PutDefinition::Replaced)
    }

    /// Writes a text at a path below the lake; false if another writer has made it.
    pub(crate) async fn add_text(&self, relative: &str, text: &str) -> Result<bool> {
        self.check_promise().await?;
        self.initialise().await?;
        let path = self.path_of(relative)?;
        let put = self.store().put_opts(&path, text.to_owned().into(), PutMode::Create.into());
        match put.await {
            Ok(_) => Ok(true),
            // One whose answer was lost and that was sent again finds itself.
            Err(object_store::Error::AlreadyExists { .. }) => {
                Ok(self.text(relative).await?.is_some_and(|(there, _)| there == text))
            }
            Err(e) => Err(TableError::store(format!("writing {relative}"), e)),
        }
    }

    /// A text at a path below the lake, and how that is shown; `None` if it is not there.
    pub(crate) async fn text(&self, relative: &str) -> Result<Option<(String, String)>> {
        // A name that cannot be a path is the name of nothing.
        let Ok(path) = self.path_of(relative) else { return Ok(None) };
        let failed = |e| TableError::store(format!("reading {path}"), e);
        let bytes = match self.store().get(&path).await {
            Ok(found) => found.bytes().await.map_err(failed)?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let shown = match self.place() {
            Place::Folder(folder) => folder.join(relative).display().to_string(),
            Place::Url(url) => format!("{url}{relative}"),
        };
        let text = String::from_utf8(bytes.into())
            .map_err(|_| TableError::Invalid(format!("{shown} is not text")))?;
        Ok(Some((text, shown)))
    }
}
