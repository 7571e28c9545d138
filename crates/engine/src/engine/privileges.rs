//! Who may do what: whoever makes a session can give it a guard, which is asked.
//!
//! # Not here
//! Roles and what is granted to them: a server has those.

use std::fmt;

use crate::base::error::Result;

/// What a statement does with what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Read a table of the lake.
    Select,
    /// Add rows to it.
    Insert,
    /// Remove rows from it.
    Delete,
    /// Make or drop a table, or a set of ids.
    Create,
    /// Read files of this machine, or of where it can read.
    ReadFiles,
    /// Write such files.
    WriteFiles,
}

/// Decides for one user.
pub trait Guard: fmt::Debug + Send + Sync {
    /// May the user do this to what has this name?
    ///
    /// # Errors
    /// Says why not; [`Session::run`](crate::Session::run) fails with it.
    fn check(&self, privilege: Privilege, name: &str) -> Result<()>;
}
