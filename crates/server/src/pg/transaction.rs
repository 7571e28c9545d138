//! Between BEGIN and its end.
//!
//! Reads see each table as it was when the transaction first read it. Writes take effect at once, statement by
//! statement, and the client is told so: ROLLBACK takes none of them back.

use pgwire::messages::response::TransactionStatus;

use crate::failure::Failure;

/// What a write in a transaction is told.
pub(crate) const WRITES_AT_ONCE: &str = "this took effect at once: ROLLBACK does not take it back";

/// Where a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transaction {
    #[default]
    None,
    Open {
        wrote: bool,
    },
    /// A statement of it failed.
    Failed {
        wrote: bool,
    },
}

impl Transaction {
    pub fn status(self) -> TransactionStatus {
        match self {
            Self::None => TransactionStatus::Idle,
            Self::Open { .. } => TransactionStatus::Transaction,
            Self::Failed { .. } => TransactionStatus::Error,
        }
    }

    pub fn is_open(self) -> bool {
        self != Self::None
    }

    /// May a statement run that does not end the transaction?
    ///
    /// # Errors
    /// 25P02 after one that failed.
    pub fn check(self) -> Result<(), Failure> {
        match self {
            Self::Failed { .. } => Err(Failure::new(
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
            *self = Self::Open { wrote: false };
        }
        is_open
    }

    /// COMMIT or ROLLBACK: what it was before.
    pub fn end(&mut self) -> Self {
        std::mem::take(self)
    }

    pub fn fail(&mut self) {
        if let Self::Open { wrote } = *self {
            *self = Self::Failed { wrote };
        }
    }

    pub fn write(&mut self) {
        if let Self::Open { wrote } = self {
            *wrote = true;
        }
    }

    /// SAVEPOINT, RELEASE and ROLLBACK TO, which need nothing while nothing is written.
    ///
    /// # Errors
    /// 25P01 outside of a transaction, 0A000 after a write.
    pub fn savepoint(&mut self, what: &str) -> Result<(), Failure> {
        match *self {
            Self::None => {
                Err(Failure::new("25P01", format!("{what} can only be used in transaction blocks")))
            }
            Self::Open { wrote: true } | Self::Failed { wrote: true } => Err(Failure::new(
                "0A000",
                format!("{what} is not supported once the transaction has written"),
            )),
            Self::Open { .. } => Ok(()),
            Self::Failed { .. } if what == "ROLLBACK TO SAVEPOINT" => {
                *self = Self::Open { wrote: false };
                Ok(())
            }
            Self::Failed { .. } => self.check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_error_only_the_end_is_taken() {
        let mut transaction = Transaction::default();
        transaction.fail();
        assert_eq!(transaction.status(), TransactionStatus::Idle);
        assert_eq!(transaction.savepoint("SAVEPOINT").unwrap_err().code, "25P01");
        assert!(!transaction.begin());
        assert!(transaction.begin());
        transaction.savepoint("SAVEPOINT").unwrap();
        transaction.fail();
        assert_eq!(transaction.status(), TransactionStatus::Error);
        assert_eq!(transaction.check().unwrap_err().code, "25P02");
        assert_eq!(transaction.savepoint("SAVEPOINT").unwrap_err().code, "25P02");
        transaction.savepoint("ROLLBACK TO SAVEPOINT").unwrap();
        transaction.check().unwrap();
        transaction.write();
        assert_eq!(transaction.savepoint("SAVEPOINT").unwrap_err().code, "0A000");
        assert_eq!(transaction.end(), Transaction::Open { wrote: true });
        assert_eq!(transaction.status(), TransactionStatus::Idle);
    }
}
