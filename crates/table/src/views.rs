//! Views of a lake: `_uplake/views/buyers.sql`, the statement that makes one, replaced as a whole.
//!
//! # Not here
//! What the statement says (`engine`).

use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode};

use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::names::check_name;

pub(crate) const FOLDER: &str = "_uplake/views";
const EXTENSION: &str = ".sql";

impl Lake {
    /// The names of the views, sorted.
    ///
    /// # Errors
    /// [`TableError::Store`] if the folder cannot be listed.
    pub async fn view_names(&self) -> Result<Vec<String>> {
        let folder = self.path_of(FOLDER)?;
        let found = self.store().list_with_delimiter(Some(&folder)).await;
        let found = match found {
            Ok(found) => found.objects,
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(e) => return Err(TableError::store("listing views", e)),
        };
        let name =
            |meta: ObjectMeta| Some(meta.location.filename()?.strip_suffix(EXTENSION)?.to_owned());
        let mut names: Vec<String> = found.into_iter().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// The statement that makes a view; `None` if there is no view of that name.
    ///
    /// # Errors
    /// [`TableError::Store`], and [`TableError::Invalid`] if it is no text.
    pub async fn view(&self, name: &str) -> Result<Option<String>> {
        if check_name("view", name).is_err() {
            return Ok(None);
        }
        Ok(self.text(&path_of(name)).await?.map(|(text, _)| text))
    }

    /// Stores the statement that makes a view.
    ///
    /// # Errors
    /// [`TableError::AlreadyThere`] if there is a table of that name, or a view that is not to be replaced;
    /// [`TableError::Invalid`] if it is no name; [`TableError::Store`].
    pub async fn write_view(&self, name: &str, text: &str, replace: bool) -> Result<()> {
        check_name("view", name)?;
        self.check_promise().await?;
        self.initialise().await?;
        if self.has_table(name).await? {
            return Err(TableError::AlreadyThere(format!(
                "`{name}` is a table; give the view another name"
            )));
        }
        let mode = if replace { PutMode::Overwrite } else { PutMode::Create };
        let path = self.path_of(&path_of(name))?;
        match self.store().put_opts(&path, text.to_owned().into(), mode.into()).await {
            Ok(_) => Ok(()),
            Err(object_store::Error::AlreadyExists { .. }) => {
                // One whose answer was lost and that was sent again finds itself.
                if self.view(name).await?.is_some_and(|there| there == text) {
                    return Ok(());
                }
                Err(TableError::AlreadyThere(format!(
                    "view `{name}` exists already; write CREATE OR REPLACE VIEW, or another name"
                )))
            }
            Err(e) => Err(TableError::store(format!("writing view {name}"), e)),
        }
    }

    /// Removes a view; false if there was none.
    ///
    /// # Errors
    /// [`TableError::Store`].
    pub async fn drop_view(&self, name: &str) -> Result<bool> {
        if self.view(name).await?.is_none() {
            return Ok(false);
        }
        match self.store().delete(&self.path_of(&path_of(name))?).await {
            Ok(()) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(TableError::store(format!("removing view {name}"), e)),
        }
    }

    /// Refuses a new table that has the name of a view.
    pub(crate) async fn refuse_view(&self, name: &str) -> Result<()> {
        match self.view(name).await? {
            None => Ok(()),
            Some(_) => Err(TableError::AlreadyThere(format!(
                "`{name}` is a view; drop it, or give the table another name"
            ))),
        }
    }
}

fn path_of(name: &str) -> String {
    format!("{FOLDER}/{name}{EXTENSION}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_a_table_or_a_view() {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
        assert!(lake.view_names().await.unwrap().is_empty(), "there is no folder");
        assert!(!lake.drop_view("v").await.unwrap());
        lake.write_view("v", "one", false).await.unwrap();
        lake.write_view("v", "one", false).await.unwrap();
        assert!(lake.write_view("v", "two", false).await.is_err());
        lake.write_view("v", "two", true).await.unwrap();
        assert_eq!(lake.view("v").await.unwrap().as_deref(), Some("two"));
        assert!(lake.refuse_view("v").await.is_err() && lake.refuse_view("w").await.is_ok());
        for bad in ["a/b", "..", "_x", "a b"] {
            assert!(lake.write_view(bad, "x", true).await.is_err(), "{bad}");
            assert_eq!(lake.view(bad).await.unwrap(), None, "{bad}");
        }
        assert_eq!(lake.view_names().await.unwrap(), ["v"]);
        assert!(lake.drop_view("v").await.unwrap());
        assert!(lake.view_names().await.unwrap().is_empty());
    }
}
