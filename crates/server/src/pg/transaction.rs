//! Between BEGIN and its end.
//!
//! Reads see each table as it was when the transaction first read it; rows are written with COMMIT. What changes which
//! tables there are takes effect at once, and the client is told so.
//!
//! # Not here
//! What was written, and what a savepoint is of it: the engine's session.

use pgwire::messages::response::TransactionStatus;
use uplake_engine::Savepoint;

use crate::failure::Failure;

/// What a statement that takes effect at once is told in a transaction.
pub(crate) const AT_ONCE: &str = "this took effect at once: ROLLBACK does not take it back";
/// Savepoints of a transaction.
const MOST_SAVEPOINTS: usize = 1000;

/// Where a connection is.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    state: State,
    /// By their names, the oldest first; a name may come again and covers the one before.
    savepoints: Vec<(String, Savepoint)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    None,
    Open,
    /// A statement of it failed.
    Failed,
}

impl Transaction {
    pub fn status(&self) -> TransactionStatus {
        match self.state {
            State::None => TransactionStatus::Idle,
            State::Open => TransactionStatus::Transaction,
            State::Failed => TransactionStatus::Error,
        }
    }

    pub fn is_open(&self) -> bool {
        self.state != State::None
    }

    /// May a statement run that does not end the transaction?
    ///
    /// # Errors
    /// 25P02 after one that failed.
    pub fn check(&self) -> Result<(), Failure> {
        match self.state {
            State::Failed => Err(Failure::new(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            )
            .with_hint("ROLLBACK")),
            _ => Ok(()),
        }
    }

    /// BEGIN; was there one already?
    pub fn begin(&mut self) -> bool {
        let is_open = self.is_open();
        if !is_open {
            self.state = State::Open;
        }
        is_open
    }

    /// COMMIT or ROLLBACK: what it was before.
    pub fn end(&mut self) -> State {
        std::mem::take(self).state
    }

    pub fn fail(&mut self) {
        if self.state == State::Open {
            self.state = State::Failed;
        }
    }

    /// May there be one more savepoint?
    ///
    /// # Errors
    /// 25P01 outside of a transaction, 25P02 after a failure, 54000 if there are too many.
    pub fn check_savepoint(&self) -> Result<(), Failure> {
        if !self.is_open() {
            return Err(outside("SAVEPOINT"));
        }
        if self.savepoints.len() >= MOST_SAVEPOINTS {
            let message = format!("a transaction has at most {MOST_SAVEPOINTS} savepoints");
            return Err(Failure::new("54000", message).with_hint("RELEASE some"));
        }
        self.check()
    }

    /// SAVEPOINT: what was written until now is that of the name.
    pub fn save(&mut self, name: String, savepoint: Savepoint) {
        self.savepoints.push((name, savepoint));
    }

    fn place(&self, what: &str, name: &str) -> Result<usize, Failure> {
        if !self.is_open() {
            return Err(outside(what));
        }
        let place = self.savepoints.iter().rposition(|(known, _)| known == name);
        place.ok_or_else(|| Failure::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    /// RELEASE: the savepoint is gone, and those after it.
    ///
    /// # Errors
    /// 25P01 outside of a transaction, 25P02 after a failure, 3B001 if there is none of the name.
    pub fn release(&mut self, name: &str) -> Result<(), Failure> {
        self.check()?;
        let place = self.place("RELEASE SAVEPOINT", name)?;
        self.savepoints.truncate(place);
        Ok(())
    }

    /// ROLLBACK TO: those after it are gone, and the failure with them.
    ///
    /// # Errors
    /// 25P01 outside of a transaction, 3B001 if there is none of the name.
    pub fn go_back(&mut self, name: &str) -> Result<Savepoint, Failure> {
        let place = self.place("ROLLBACK TO SAVEPOINT", name)?;
        self.savepoints.truncate(place + 1);
        self.state = State::Open;
        Ok(self.savepoints[place].1.clone())
    }
}

fn outside(what: &str) -> Failure {
    Failure::new("25P01", format!("{what} can only be used in transaction blocks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_error_only_the_end_is_taken() {
        let mut transaction = Transaction::default();
        transaction.fail();
        assert_eq!(transaction.status(), TransactionStatus::Idle);
        assert_eq!(transaction.check_savepoint().unwrap_err().code, "25P01");
        assert_eq!(transaction.go_back("a").unwrap_err().code, "25P01");
        assert!(!transaction.begin());
        assert!(transaction.begin());
        transaction.check_savepoint().unwrap();
        for name in ["a", "b", "a", "c"] {
            transaction.save(name.into(), Savepoint::default());
        }
        transaction.fail();
        assert_eq!(transaction.status(), TransactionStatus::Error);
        assert_eq!(transaction.check().unwrap_err().code, "25P02");
        assert_eq!(transaction.check_savepoint().unwrap_err().code, "25P02");
        assert_eq!(transaction.release("a").unwrap_err().code, "25P02");
        transaction.go_back("a").unwrap();
        transaction.check().unwrap();
        // The later of two of a name is gone with what came after it, and can be gone back to again.
        assert_eq!(transaction.go_back("c").unwrap_err().code, "3B001");
        transaction.go_back("a").unwrap();
        transaction.release("a").unwrap();
        transaction.release("a").unwrap();
        assert_eq!(transaction.release("b").unwrap_err().code, "3B001");
        assert_eq!(transaction.end(), State::Open);
        assert_eq!(transaction.status(), TransactionStatus::Idle);
    }
}
