//! The id domains of a lake.

use std::path::PathBuf;
use std::sync::Arc;

use uplake_domain::{Domain, DomainError, Options, Progress, list};

use super::open::DomainProgress;
use crate::error::{Result, TableError};
use crate::lake::Lake;

/// Of a domain's dictionary in memory: 25 million keys of 32 bytes. Keys of a larger one stay in the
/// local files, and only their index, 10 bytes a key, is in memory.
const DICTIONARY_BYTES: u64 = 1 << 30;

impl Lake {
    /// Names of the id domains, sorted.
    ///
    /// # Errors
    /// [`TableError::Domain`] if the store cannot be listed.
    pub async fn domain_names(&self) -> Result<Vec<String>> {
        Ok(list(self.store().as_ref(), self.root()).await?)
    }

    /// A domain that exists, with everything that was in its log when this was called.
    ///
    /// # Errors
    /// [`TableError::Domain`].
    pub async fn domain(&self, name: &str) -> Result<Arc<Domain>> {
        let mut open = self.domains().open.lock().await;
        if let Some(domain) = open.get(name).cloned() {
            drop(open);
            match domain.refresh().await {
                Ok(()) => return Ok(domain),
                // Deleted and made anew by somebody: this one is of no use any more.
                Err(DomainError::Replaced { .. } | DomainError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            open = self.domains().open.lock().await;
            match open.get(name).cloned() {
                Some(other) if !Arc::ptr_eq(&other, &domain) => return Ok(other),
                _ => drop(open.remove(name)),
            }
        }
        let (store, root) = (Arc::clone(self.store()), self.root().clone());
        let (folder, options) = (self.domain_folder(name), self.domain_options(name));
        let domain = Domain::open(store, &root, name, folder, options).await?;
        open.insert(name.to_owned(), Arc::clone(&domain));
        Ok(domain)
    }

    /// The domain of that name and log (32 hexadecimal digits) with its ids up to `highest`; `None` if
    /// the domain's log is another one. No request if this process knows them; without `highest` the
    /// log is read to its end.
    ///
    /// # Errors
    /// As [`Lake::domain`].
    pub async fn domain_with_ids(
        &self,
        name: &str,
        log: &str,
        highest: Option<u32>,
    ) -> Result<Option<Arc<Domain>>> {
        let is_it = |domain: &Arc<Domain>| format!("{:032x}", domain.identity()) == log;
        if let Some(highest) = highest {
            let open = self.domains().open.lock().await;
            if let Some(domain) = open.get(name).filter(|d| is_it(d) && d.has_ids_to(highest)) {
                return Ok(Some(Arc::clone(domain)));
            }
        }
        Ok(Some(self.domain(name).await?).filter(is_it))
    }

    /// The same for those who give ids: the domain is made if it does not exist.
    ///
    /// # Errors
    /// Also [`TableError::LostIds`], before anything is given twice.
    pub(crate) async fn domain_for_writing(&self, name: &str) -> Result<Arc<Domain>> {
        match self.domain(name).await {
            Err(TableError::Domain(error)) if matches!(*error, DomainError::Missing { .. }) => {}
            found => {
                let domain = found?;
                self.check_ids_of_all(&domain, name).await?;
                return Ok(domain);
            }
        }
        self.initialise().await?;
        let mut open = self.domains().open.lock().await;
        let (store, root) = (Arc::clone(self.store()), self.root().clone());
        let (folder, options) = (self.domain_folder(name), self.domain_options(name));
        let domain = Domain::create(store, &root, name, folder, options).await?;
        open.insert(name.to_owned(), Arc::clone(&domain));
        Ok(domain)
    }

    /// Keeps the indexes of the dictionaries that were written to, so that the next process need not
    /// make them. Without it answers are the same.
    pub(crate) async fn keep_dictionaries(&self) {
        let open: Vec<_> = self.domains().open.lock().await.values().cloned().collect();
        for domain in open {
            domain.checkpoint().await;
        }
    }

    /// Opens the domain anew next time.
    pub(crate) async fn forget_domain(&self, name: &str) {
        self.domains().open.lock().await.remove(name);
    }

    /// Where the dictionary of a domain is kept on this machine.
    pub fn domain_folder(&self, name: &str) -> Option<PathBuf> {
        Some(self.local_folder()?.join("domains").join(name))
    }

    fn domain_options(&self, name: &str) -> Options {
        let mut options = Options::new(uuid::Uuid::new_v4().as_u128());
        options.memory_bytes = Some(DICTIONARY_BYTES);
        if let Some(report) = self.domains().report.clone() {
            let domain = name.to_owned();
            options.progress = Some(Arc::new(move |p: Progress| {
                report(DomainProgress {
                    domain: domain.clone(),
                    done_bytes: p.done_bytes,
                    total_bytes: p.total_bytes,
                    keys: p.keys,
                });
            }));
        }
        options
    }
}
