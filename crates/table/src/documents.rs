//! Documents of the lake that are numbered from 1, of which the newest counts: who may what,
//! `_uplake/access/00000042.json`.
//!
//! # Invariants
//! - A number is written once, by whoever creates its object, and never again.
//! - Names sort as numbers, so those after a known one are listed alone.
//!
//! # Not here
//! What the documents say (`server`).

use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore};

use crate::error::{Result, TableError};
use crate::lake::Lake;

/// Digits of a number's name.
const DIGITS: usize = 8;
/// The last number that has a name.
const LAST: u32 = 99_999_999;

/// What has numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// Roles, rights, tenants and tokens.
    Access,
}

impl Numbered {
    fn folder(self) -> &'static str {
        match self {
            Self::Access => "_uplake/access",
        }
    }

    fn path(self, number: u32) -> String {
        format!("{}/{number:0DIGITS$}.json", self.folder())
    }

    fn number_of(file: &str) -> Option<u32> {
        let digits = file.strip_suffix(".json")?;
        let is_number = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|number| is_number && *number > 0)
    }
}

impl Lake {
    /// The newest number, if it is above `after`; those up to `after` are not listed where the store
    /// can leave them out.
    ///
    /// # Errors
    /// [`TableError::Store`] if the folder cannot be listed.
    pub async fn newest_document(&self, of: Numbered, after: u32) -> Result<Option<u32>> {
        let folder = self.path_of(of.folder())?;
        let offset = self.path_of(&of.path(after))?;
        let listed = self.store().list_with_offset(Some(&folder), &offset).try_collect().await;
        let listed: Vec<ObjectMeta> = match listed {
            Ok(listed) => listed,
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(e) => return Err(TableError::store(format!("listing {folder}"), e)),
        };
        let numbers = listed.iter().filter_map(|object| object.location.filename());
        Ok(numbers.filter_map(Numbered::number_of).filter(|number| *number > after).max())
    }

    /// A document's text and where it lies; `None` if it is not there.
    ///
    /// # Errors
    /// [`TableError::Store`], and [`TableError::Invalid`] if it is no text.
    pub async fn document(&self, of: Numbered, number: u32) -> Result<Option<(String, String)>> {
        self.text(&of.path(number)).await
    }

    /// Writes a document; false if another writer has made it.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for a number that has no name, [`TableError::Store`].
    pub async fn add_document(&self, of: Numbered, number: u32, text: &str) -> Result<bool> {
        let relative = of.path(number);
        if number == 0 || number > LAST {
            return Err(TableError::Invalid(format!("{relative}: numbers are from 1 to {LAST}")));
        }
        self.add_text(&relative, text).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_told_from_names() {
        assert_eq!(Numbered::number_of("00000042.json"), Some(42));
        for other in ["00000000.json", "42.json", "+0000042.json", "00000042.json.tmp", "a.json"] {
            assert_eq!(Numbered::number_of(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn of_writers_of_one_number_one_is_told_that_it_did() {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
        let of = Numbered::Access;
        assert_eq!(lake.newest_document(of, 0).await.unwrap(), None, "there is no folder");
        let texts: Vec<String> = (0..20).map(|writer| format!("writer {writer}")).collect();
        let writers = texts.iter().map(|text| lake.add_document(of, 1, text));
        let won = futures::future::join_all(writers).await;
        assert_eq!(won.iter().filter(|won| *won.as_ref().unwrap()).count(), 1);
        assert!(lake.add_document(of, 2, "two").await.unwrap());
        assert!(lake.add_document(of, 2, "two").await.unwrap(), "sent again it finds itself");
        assert!(!lake.add_document(of, 2, "other").await.unwrap());
        assert_eq!(lake.newest_document(of, 0).await.unwrap(), Some(2));
        assert_eq!(lake.newest_document(of, 1).await.unwrap(), Some(2));
        assert_eq!(lake.newest_document(of, 2).await.unwrap(), None);
        assert_eq!(lake.document(of, 2).await.unwrap().unwrap().0, "two");
        assert!(lake.document(of, 3).await.unwrap().is_none());
        assert!(lake.add_document(of, 0, "").await.is_err());
    }
}
