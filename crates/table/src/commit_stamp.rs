//! Which of all objects that ever had its name a commit is.

use object_store::{ObjectMeta, ObjectStoreExt};

use crate::error::{Result, TableError};
use crate::lake::{Lake, Place};
use crate::names::commit_path;

/// Which of all objects that ever had its name a commit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommitStamp {
    File(std::time::SystemTime),
    /// Seconds since 1970, UTC.
    Object {
        modified: i64,
        e_tag: Option<String>,
    },
}

impl CommitStamp {
    /// The same whether the object was listed or looked at: in listings some stores tell more of the
    /// time, and some leave quotes out.
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        let e_tag = meta.e_tag.as_deref().map(|e_tag| e_tag.trim_matches('"').to_owned());
        Self::Object { modified: meta.last_modified.timestamp(), e_tag }
    }
}

impl Lake {
    /// Which object a commit is; `None` if there is none.
    pub(crate) async fn commit_stamp(
        &self,
        table: &str,
        version: u64,
    ) -> Result<Option<CommitStamp>> {
        let relative = commit_path(table, version);
        if let Place::Folder(folder) = self.place() {
            let path = folder.join(&relative);
            return match std::fs::metadata(&path).and_then(|m| m.modified()) {
                Ok(modified) => Ok(Some(CommitStamp::File(modified))),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(TableError::io(format!("reading {}", path.display()), e)),
            };
        }
        let path = self.path_of(&relative)?;
        match self.store().head(&path).await {
            Ok(meta) => Ok(Some(CommitStamp::of(&meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(TableError::store(format!("reading {path}"), e)),
        }
    }
}
