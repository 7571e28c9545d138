//! Points of a domain's log, which those who use its ids keep elsewhere.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;

use crate::domain::Domain;
use crate::error::Result;
use crate::log::Log;

/// How far a domain's log went when ids of it were used.
///
/// A run's nonce is a random number of its writer, and runs are numbered without gaps: two logs that
/// have the same run are the same up to it. So this is a digest of all runs so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Number of the last run.
    pub run: u32,
    /// Its nonce.
    pub nonce: u128,
    /// Keys there were: the ids are those below.
    pub keys: u64,
}

/// What has become of a log in which a mark was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// It goes on from there.
    Kept,
    /// Its end was lost, and perhaps others have written another one: ids up to the mark may be given,
    /// or have been given, to other keys.
    Lost,
    /// There is another log, or none: its ids are not those of this one.
    Replaced,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:032x}:{}", self.run, self.nonce, self.keys)
    }
}

impl FromStr for Mark {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or(());
        let (run, nonce, keys) = (next()?, next()?, next()?);
        Ok(Self {
            run: run.parse().map_err(drop)?,
            nonce: u128::from_str_radix(nonce, 16).map_err(drop)?,
            keys: keys.parse().map_err(drop)?,
        })
    }
}

impl Mark {
    /// Looks in the log `domain` (see [`Domain::identity`]) of that name: one small request, or two.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn look_up(
        self,
        store: Arc<dyn ObjectStore>,
        root: &Path,
        name: &str,
        domain: u128,
    ) -> Result<Marked> {
        let log = Log::new(store, root, name);
        let found = match log.run_header(self.run).await? {
            None if self.run > 1 => log.run_header(1).await?,
            found => found,
        };
        Ok(match found {
            Some(header) if header.domain != domain => Marked::Replaced,
            Some(header) if header.number == self.run && header.nonce == self.nonce => Marked::Kept,
            Some(_) => Marked::Lost,
            None => Marked::Replaced,
        })
    }
}

impl Domain {
    /// The end of the log as it is known here. It waits for a run that is being written.
    pub async fn mark(&self) -> Mark {
        let _writer = self.writer.lock().await;
        let position = self.position();
        Mark { run: position.run, nonce: position.nonce, keys: self.keys() }
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::domain::Options;

    #[tokio::test]
    async fn a_mark_is_kept_until_its_run_is_lost_or_another() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let root = Path::default();
        let open = |writer: u128| {
            Domain::create(Arc::clone(&store), &root, "users", None, Options::new(writer))
        };
        let users = open(1).await.unwrap();
        let log = users.identity();
        users.encode(&["anna"], &mut Vec::new()).await.unwrap();
        let early = users.mark().await;
        users.encode(&["bob", "carl"], &mut Vec::new()).await.unwrap();
        let late = users.mark().await;
        assert_eq!((early.run, early.keys, late.run, late.keys), (2, 1, 3, 3));
        let look = |mark: Mark, log: u128| mark.look_up(Arc::clone(&store), &root, "users", log);
        for mark in [early, late] {
            assert_eq!(mark.to_string().parse(), Ok(mark));
            assert_eq!(look(mark, log).await.unwrap(), Marked::Kept);
            assert_eq!(look(mark, log + 1).await.unwrap(), Marked::Replaced);
        }
        store.delete(&users.log.run_path(3)).await.unwrap();
        assert_eq!(look(early, log).await.unwrap(), Marked::Kept);
        assert_eq!(look(late, log).await.unwrap(), Marked::Lost, "shorter");
        open(2).await.unwrap().encode(&["dora", "emil"], &mut Vec::new()).await.unwrap();
        assert_eq!(look(late, log).await.unwrap(), Marked::Lost, "as long, but another");
        for run in 1..=3 {
            store.delete(&users.log.run_path(run)).await.unwrap();
        }
        assert_eq!(look(late, log).await.unwrap(), Marked::Replaced, "no log");
        assert!("3:x:1".parse::<Mark>().is_err() && "3:1".parse::<Mark>().is_err());
    }
}
