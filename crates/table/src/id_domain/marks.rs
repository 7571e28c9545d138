//! Whether tables have ids that their domains have no more.
//!
//! Each data file has how far the log of the domain went when the file was written. A log that is
//! shorter by now, or another one from there on, would give ids of the table's keys to other keys:
//! its newest run was lost, or it was restored from a copy that is older than the table.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use futures::{StreamExt, TryStreamExt};
use uplake_domain::{Domain, Marked};

use super::{DomainMark, LostIds};
use crate::as_of::AsOf;
use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::snapshot::Snapshot;

/// Marks that are known to be in their logs: one for each new version of a table.
const KEPT_MARKS: usize = 10_000;
/// Tables looked at together before ids are given.
const TABLES_AT_ONCE: usize = 16;

impl Lake {
    /// The domains that have lost ids of the table. No request for what this process has found in
    /// order before; else one small one a domain.
    ///
    /// # Errors
    /// [`TableError::Domain`] if a domain's log cannot be read.
    pub async fn lost_ids(&self, table: &Snapshot) -> Result<Vec<LostIds>> {
        let looked_up = self.look_up_marks(table).await?.into_iter();
        let lost = looked_up.filter(|(_, found)| *found == Marked::Lost);
        let named = |(DomainMark { domain, mark, .. }, _)| LostIds {
            table: table.table().to_owned(),
            domain,
            keys: mark.keys,
            run: mark.run,
        };
        Ok(lost.map(named).collect())
    }

    /// Logs, as [`crate::DataFile::ids`] has them, of the table's ids that are not those of its domains
    /// any more.
    pub(crate) async fn replaced_ids(&self, table: &Snapshot) -> Result<Vec<String>> {
        let looked_up = self.look_up_marks(table).await?.into_iter();
        let replaced = looked_up.filter(|(_, found)| *found == Marked::Replaced);
        Ok(replaced.map(|(of, _)| format!("{}:{:032x}", of.domain, of.log)).collect())
    }

    async fn look_up_marks(&self, table: &Snapshot) -> Result<Vec<(DomainMark, Marked)>> {
        let known = |mark: &DomainMark| self.kept_marks().contains(mark);
        let mut found = Vec::new();
        for marked in table.id_marks().into_iter().filter(|mark| !known(mark)) {
            let DomainMark { domain, log, mark } = &marked;
            let (store, root) = (Arc::clone(self.store()), self.root());
            let now = mark.look_up(store, root, domain, *log).await?;
            if now == Marked::Kept {
                let mut kept = self.kept_marks();
                if kept.len() >= KEPT_MARKS {
                    kept.clear();
                }
                kept.insert(marked.clone());
            }
            found.push((marked, now));
        }
        Ok(found)
    }

    /// Tables of the lake that have ids which a domain of theirs has no more. Those that cannot be
    /// read are left out.
    ///
    /// # Errors
    /// [`TableError::Store`] if the store fails, [`TableError::Domain`] if a domain's log cannot be read.
    pub async fn tables_with_lost_ids(&self) -> Result<Vec<LostIds>> {
        let lost_of = |table: String| async move {
            let snapshot = match self.snapshot(&table, &AsOf::Latest).await {
                Ok(snapshot) => snapshot,
                Err(error @ (TableError::Store { .. } | TableError::NoCredentials(_))) => {
                    return Err(error);
                }
                // Dropped, or damaged: whoever reads it hears of it.
                Err(_) => return Ok(Vec::new()),
            };
            self.lost_ids(&snapshot).await
        };
        let tables = futures::stream::iter(self.table_names().await?);
        let lost: Vec<Vec<LostIds>> =
            tables.map(lost_of).buffered(TABLES_AT_ONCE).try_collect().await?;
        Ok(lost.into_iter().flatten().collect())
    }

    /// Fails if a table has ids that this domain has no more and would give again. All tables are looked
    /// at, once as long as the domain is open.
    pub(crate) async fn check_ids_of_all(&self, domain: &Domain, name: &str) -> Result<()> {
        if self.domains().is_vouched(domain.identity()) {
            return Ok(());
        }
        let lost = self.tables_with_lost_ids().await?;
        if let Some(lost) = lost.into_iter().find(|lost| lost.domain == name) {
            return Err(TableError::LostIds { lost: Box::new(lost) });
        }
        self.domains().vouch(domain.identity());
        Ok(())
    }

    fn kept_marks(&self) -> std::sync::MutexGuard<'_, HashSet<DomainMark>> {
        self.domains().kept_marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
