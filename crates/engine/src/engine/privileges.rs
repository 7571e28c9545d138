//! Who may do what: whoever makes a session can give it a guard, which is asked.
//!
//! # Not here
//! Roles and what is granted to them: a server has those. How a part of a table gets into plans: `seen`.

use std::collections::BTreeSet;
use std::fmt;

use crate::base::error::Result;

/// What a statement does with what it names, beside reading tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Add rows to a table of the lake.
    Insert,
    /// Remove rows from it.
    Delete,
    /// Change rows of it.
    Update,
    /// Make or drop a table, or a set of ids.
    Create,
    /// Read files of this machine, or of where it can read.
    ReadFiles,
    /// Write such files.
    WriteFiles,
    /// Read and write the lake's own files as files, past what there is of tables.
    OwnFiles,
    /// Ask an id domain for ids and keys.
    AskDomain,
    /// Use a set of ids that is stored, whoever made it of whatever.
    UseIdSet,
}

/// What a user may read of a table: all of it by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readable {
    /// A condition in SQL over the table's columns: rows are there for which it is true.
    pub condition: Option<String>,
    /// Columns that do not exist, in lower case.
    pub hidden: BTreeSet<String>,
    /// Columns that may be read, in lower case, if not all: others exist, and a statement that uses one is refused.
    pub granted: Option<BTreeSet<String>>,
}

impl Readable {
    /// Is it the whole table?
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    /// Are there rows or columns that do not exist for the user?
    pub fn hides(&self) -> bool {
        self.condition.is_some() || !self.hidden.is_empty()
    }
}

/// Decides for one user.
pub trait Guard: fmt::Debug + Send + Sync {
    /// May the user do this to what has this name?
    ///
    /// # Errors
    /// Says why not; [`Session::run`](crate::Session::run) fails with it.
    fn check(&self, privilege: Privilege, name: &str) -> Result<()>;

    /// What the user may read of a table. A statement asks once about each table that it names, and goes by that.
    ///
    /// # Errors
    /// As [`Self::check`] if it is nothing.
    fn readable(&self, table: &str) -> Result<Readable>;

    /// Is a column of this name hidden from anybody?
    fn hides(&self, table: &str, column: &str) -> bool;

    /// Is a table listed to the user among those that there are?
    fn lists(&self, table: &str) -> bool;
}
