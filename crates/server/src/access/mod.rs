//! Who may connect, and who may what: roles, rights, row policies, tenants and tokens of a lake.
//!
//! ```text
//! store (documents of the lake) ─► Directory (the newest that was read) ─► Access ─► Rights, Verifier, Token
//! ```
//!
//! # Invariants
//! - What a server goes by is one whole document: changes take effect together, and for a connection at its
//!   next statement.
//! - A document that cannot be read changes nothing: the last good one counts on.
//! - Passwords and tokens are not in the lake, only what they can be checked with.
//!
//! # Not here
//! Statements (`CREATE ROLE`, `GRANT`), protocols, and the loop that looks every few seconds (`server`).

#![allow(dead_code, unused_imports, reason = "the protocols that ask it come after it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use uplake_table::Lake;

mod change;
mod check;
mod error;
mod model;
mod names;
mod passwords;
mod policies;
mod store;
mod tokens;

pub use check::{DENIED, Denied, Rights, RowFilter};
pub use error::{AccessError, Result};
pub use model::{
    ADMIN, Access, BUILT_IN, Grant, HiddenColumns, Object, PUBLIC, Role, RowPolicy, SCHEMA, Tenant,
    Verb, is_built_in,
};
pub use names::{NAME_MAX_BYTES, folded};
pub use passwords::{
    Login, LoginError, PASSWORD_MAX_BYTES, SALT_BYTES, Strangers, Verifier, check_plain,
};
pub use store::{Change, Document, change, newest};
pub use tokens::{TOKEN_BYTES, TOKEN_PREFIX, Token, TokenHash, token_text};

/// What a server goes by: the newest document that it could read.
#[derive(Debug, Default)]
pub struct Directory {
    current: RwLock<Arc<Document>>,
    /// False since a document was found that cannot be understood, or lost.
    is_read: AtomicBool,
}

impl From<Document> for Directory {
    fn from(document: Document) -> Self {
        Self { current: RwLock::new(Arc::new(document)), is_read: AtomicBool::new(true) }
    }
}

impl Directory {
    /// Reads the newest document. A server does not start without: it would let everybody in.
    ///
    /// # Errors
    /// [`AccessError`].
    pub async fn open(lake: &Lake) -> Result<Self> {
        Ok(newest(lake).await?.into())
    }

    /// The document that counts now; one statement goes by one.
    pub fn current(&self) -> Arc<Document> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the newest document if there is one that is newer: one request in between. True if it is
    /// another now.
    ///
    /// # Errors
    /// [`AccessError`]; then what counted goes on counting.
    pub async fn refresh(&self, lake: &Lake) -> Result<bool> {
        let looked = self.look(lake).await;
        match &looked {
            Ok(_) => self.is_read.store(true, Ordering::Relaxed),
            // A lake that does not answer has the document that is known, as far as anybody can tell.
            Err(AccessError::Table(_)) => {}
            Err(_) => self.is_read.store(false, Ordering::Relaxed),
        }
        looked
    }

    /// False while the newest document is damaged or gone: what counted goes on counting, and nobody new is to be
    /// let in by it, who may have lost the right to.
    pub fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    async fn look(&self, lake: &Lake) -> Result<bool> {
        let known = self.current().number;
        // The one that is known is listed as well: should it be gone, so may be those after it.
        let found = lake.newest_document(uplake_table::Numbered::Access, known.saturating_sub(1));
        let found = found.await?.unwrap_or_default();
        if found < known {
            let lake = lake.location();
            return Err(AccessError::Missing { lake, expected: known, found });
        }
        if found == known {
            return Ok(false);
        }
        match store::newer(lake, known).await? {
            Some(newer) => Ok(self.replace(newer)),
            None => Ok(false),
        }
    }

    /// Goes by a document that this server has just written; an older one than the current is left alone.
    pub fn replace(&self, document: Document) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let is_newer = document.number > current.number;
        if is_newer {
            *current = Arc::new(document);
        }
        is_newer
    }

    /// Is there anybody who can log in? If not, whoever connects on loopback is [`ADMIN`], and nobody
    /// connects from elsewhere.
    pub fn has_users(&self) -> bool {
        self.current().access.has_users()
    }

    /// The role of a connection without a password: [`ADMIN`] on loopback as long as there are no users.
    pub fn role_without_users(&self, is_loopback: bool) -> Option<&'static str> {
        (is_loopback && !self.has_users()).then_some(ADMIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Change<'_> = Change { by: "test", now: 0 };

    async fn add(lake: &Lake, name: &str) {
        let role = || Role { login: true, ..Role::default() };
        change(lake, WHO, |access| access.add_role(name, role())).await.unwrap();
    }

    #[tokio::test]
    async fn a_directory_follows_the_lake() {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
        let directory = Directory::open(&lake).await.unwrap();
        assert!(!directory.has_users() && !directory.refresh(&lake).await.unwrap());
        assert_eq!(directory.role_without_users(true), Some("admin"));
        assert_eq!(directory.role_without_users(false), None);

        add(&lake, "ann").await;
        add(&lake, "bob").await;
        let before = directory.current();
        assert!(directory.refresh(&lake).await.unwrap());
        assert!(!directory.refresh(&lake).await.unwrap(), "nothing is new");
        assert_eq!((before.number, directory.current().number), (0, 2));
        assert!(directory.has_users());
        assert_eq!(directory.role_without_users(true), None);
        assert!(!directory.replace(Document::default()), "an older one does not count");
    }

    #[tokio::test]
    async fn what_is_damaged_or_gone_leaves_the_last_good_one() {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
        add(&lake, "ann").await;
        let directory = Directory::open(&lake).await.unwrap();
        let file = |number: u32| folder.path().join(format!("_uplake/access/{number:08}.json"));
        std::fs::write(file(2), "{}").unwrap();
        assert!(directory.is_read());
        assert_eq!(directory.refresh(&lake).await.unwrap_err().code(), "XX001");
        assert!(!directory.is_read());
        assert!(directory.current().access.has_role("ann"));
        assert!(Directory::open(&lake).await.is_err(), "a server does not start by it");

        std::fs::remove_file(file(2)).unwrap();
        directory.refresh(&lake).await.unwrap();
        assert!(directory.is_read(), "it is as it was");
        std::fs::remove_file(file(1)).unwrap();
        let error = directory.refresh(&lake).await.unwrap_err();
        assert!(matches!(error, AccessError::Missing { expected: 1, found: 0, .. }), "{error}");
        assert!(directory.has_users());
    }
}
