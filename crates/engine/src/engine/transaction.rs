//! Transactions: reads at one version of each table, writes into one table that are committed together.
//!
//! # Invariants
//! - What a transaction has written is read by its own statements, and by nobody else before its commit.
//! - A transaction that is dropped writes nothing.

use std::sync::Arc;

use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::common::TableReference;
use datafusion::datasource::source_as_provider;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::DmlStatement;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use uplake_table::{OnConflict, StreamWriter, WriteKind};

use crate::base::error::{EngineError, Result};
use crate::engine::catalog::LakeCatalog;
use crate::engine::pending::{Pending, PendingWrites, Savepoint};
use crate::engine::returning::Returning;
use crate::engine::seen;
use crate::engine::session::{Engine, Session};
use crate::scan::lake_table::LakeTable;
use crate::sql::returning;
use crate::sql::statement::Statement;
use crate::sql::words::split_version;

/// What to do about what a transaction refuses.
const COMMIT_FIRST: &str = "COMMIT first";

impl Session {
    /// A session with a transaction, and after its end with the next one. It reads every table at the version that it has
    /// when a statement of the transaction first reads it, with what the transaction has written. Settings are its own
    /// from now on.
    ///
    /// # Errors
    /// [`EngineError::Execution`] if it cannot be made.
    pub fn transaction(&self) -> Result<Self> {
        self.within(Arc::new(LakeCatalog::of_transaction(Arc::clone(&self.catalog))))
    }

    /// This session's settings in a transaction that has begun.
    ///
    /// # Errors
    /// As [`Self::transaction`].
    pub fn in_transaction_of(&self, transaction: &Self) -> Result<Self> {
        self.within(Arc::clone(&transaction.catalog))
    }

    fn within(&self, catalog: Arc<LakeCatalog>) -> Result<Self> {
        let state = SessionStateBuilder::new_from_existing(self.context().state())
            .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
            .build();
        let mut session = self.over(state, catalog)?;
        session.prepared = Arc::clone(&self.prepared);
        Ok(session)
    }

    fn pending(&self) -> Result<&PendingWrites> {
        self.catalog.pending.as_ref().ok_or_else(|| EngineError::bug("there is no transaction"))
    }

    /// Publishes what the transaction has written, in one commit. Another transaction begins.
    ///
    /// A future that is dropped commits nothing, or what a commit that was sent comes to ([`QueryProgress`] knows).
    ///
    /// # Errors
    /// 40001 if others have changed what it builds on; nothing of it is committed then.
    ///
    /// [`QueryProgress`]: crate::QueryProgress
    pub async fn commit(&self) -> Result<()> {
        let pending = self.pending()?.lock().await.take();
        // Before it is published, too: nobody may come back here.
        self.catalog.forget_versions();
        let Some(pending) = pending else { return Ok(()) };
        let table = pending.staged.base().table().to_owned();
        let committed = self.publish(pending).await;
        self.catalog.forget(&table);
        committed
    }

    async fn publish(&self, mut pending: Pending) -> Result<()> {
        pending.stage(&self.engine.lake, &self.engine.budget).await?;
        pending.staged.commit().await?;
        Ok(())
    }

    /// Gives up what the transaction has written. Another one begins.
    ///
    /// # Errors
    /// A bug if there is no transaction.
    pub async fn rollback(&self) -> Result<()> {
        let pending = self.pending()?.lock().await.take();
        self.catalog.forget_versions();
        if let Some(pending) = pending {
            pending.staged.abort().await;
        }
        Ok(())
    }

    /// What the transaction has written so far, to go back to.
    ///
    /// # Errors
    /// What stops a writer.
    pub async fn savepoint(&self) -> Result<Savepoint> {
        let mut pending = self.pending()?.lock().await;
        let Some(pending) = pending.as_mut() else { return Ok(Savepoint(None)) };
        self.stage(pending).await?;
        Ok(Savepoint(Some(pending.staged.changes())))
    }

    /// Gives up what the transaction has written since.
    ///
    /// # Errors
    /// As [`Self::savepoint`].
    pub async fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        let mut pending = self.pending()?.lock().await;
        match (&mut *pending, &savepoint.0) {
            (None, _) => {}
            (Some(pending), Some(changes)) => {
                pending.restore(changes.clone());
                self.catalog.read_as(pending.staged.snapshot()?);
            }
            (some, None) => {
                if let Some(pending) = some.take() {
                    self.catalog.read_as(pending.staged.base().clone());
                    pending.staged.abort().await;
                }
            }
        }
        Ok(())
    }

    async fn stage(&self, pending: &mut Pending) -> Result<()> {
        if pending.holds() {
            pending.stage(&self.engine.lake, &self.engine.budget).await?;
            self.catalog.read_as(pending.staged.snapshot()?);
        }
        Ok(())
    }

    /// Before a statement of a transaction: what it reads of the transaction's writes is in files then.
    ///
    /// # Errors
    /// 0A000 for what cannot be done once rows are written.
    pub(crate) async fn settle(&self, statement: &Statement) -> Result<()> {
        let Some(pending) = &self.catalog.pending else { return Ok(()) };
        let refuse = |what: &str| Err(EngineError::unsupported(what).with_hint(COMMIT_FIRST));
        if analyzes_write(&statement.parsed) {
            return refuse(
                "EXPLAIN ANALYZE of a statement that writes is not done in a transaction",
            );
        }
        let mut pending = pending.lock().await;
        let Some(pending) = pending.as_mut() else { return Ok(()) };
        let changes_lake = [
            "CREATE TABLE",
            "DROP TABLE",
            "ALTER TABLE",
            "COMMENT",
            "CREATE VIEW",
            "DROP VIEW",
            "CREATE ID SET",
            "DROP ID SET",
        ];
        if changes_lake.contains(&statement.command()) {
            return refuse(&format!(
                "{} takes effect at once, and this transaction has rows that are not committed",
                statement.command()
            ));
        }
        let table = pending.staged.base().table().to_lowercase();
        let is_it = |r: &TableReference| split_version(r.table()).0.to_lowercase() == table;
        if !self.read_by(&statement.parsed)?.iter().any(is_it) {
            return Ok(());
        }
        // Rows of a key are made one when they are committed. After a DELETE none are inserted.
        if pending.is_keyed() && !pending.staged.removes() {
            return refuse(&format!(
                "table `{}` has a primary key: rows that a transaction writes into it are seen after COMMIT",
                pending.staged.base().table()
            ));
        }
        self.stage(pending).await
    }

    /// The tables whose rows a statement reads.
    fn read_by(&self, parsed: &DfStatement) -> Result<Vec<TableReference>> {
        if let DfStatement::Statement(inner) = parsed
            && let ast::Statement::Insert(insert) = inner.as_ref()
        {
            let Some(source) = &insert.source else { return Ok(Vec::new()) };
            let query = ast::Statement::Query(source.clone());
            let mut read = self.references(&DfStatement::Statement(Box::new(query)))?;
            if let Some(beside) = returning::read_beside(parsed) {
                read.extend(self.references(&beside)?);
            }
            return Ok(read);
        }
        self.references(parsed)
    }

    /// INSERT in a transaction, or with RETURNING.
    pub(crate) async fn insert_rows(
        &self,
        insert: DmlStatement,
        mut returning: Option<&mut Returning>,
    ) -> Result<u64> {
        let target = source_as_provider(&insert.target)?;
        let Some(table) = seen::written_table(target.as_ref()) else {
            return Err(EngineError::unsupported("INSERT is for tables of the lake"));
        };
        let (snapshot, on_conflict) = (table.snapshot().clone(), table.on_conflict());
        let keys =
            snapshot.primary_key().iter().filter_map(|key| snapshot.schema().index_of(key).ok());
        let keys: Vec<usize> = keys.collect();
        if let Some(returning) = returning.as_deref_mut().filter(|_| !keys.is_empty()) {
            if on_conflict == OnConflict::Ignore {
                let what = "RETURNING with ON CONFLICT DO NOTHING is not supported";
                return Err(EngineError::unsupported(what).with_hint(
                    "which rows are new is known when they are committed: SELECT them then",
                ));
            }
            returning.holds_too(&keys)?;
        }
        let schema = Arc::clone(snapshot.schema());
        let mut writer = self.row_writer_into(snapshot, on_conflict).await?;
        let mut rows = self.run_query(insert.input.as_ref().clone()).await?;
        if let Some(returning) = &returning {
            rows = returning.holding(rows, &schema);
        }
        while let Some(batch) = rows.try_next().await? {
            writer.write(&batch).await?;
        }
        if let Some(returning) = returning {
            if !keys.is_empty() {
                returning.must_have_each_once(self, &keys).await?;
            }
            returning.compute(self).await?;
        }
        writer.finish().await
    }

    /// The end of a statement that changes rows in a transaction: those of `writer` come in the place of files.
    pub(crate) async fn replace_later(
        &self,
        table: &LakeTable,
        writer: StreamWriter,
        kind: WriteKind,
    ) -> Result<()> {
        let snapshot = table.snapshot();
        let Engine { lake, budget, .. } = self.engine.as_ref();
        let mut pending = self.pending()?.lock().await;
        let replace = OnConflict::Replace;
        let pending = Pending::of(&mut pending, lake, budget, snapshot, replace).await?;
        pending.stage(lake, budget).await?;
        pending.take(writer, kind).await?;
        self.catalog.read_as(pending.staged.snapshot()?);
        Ok(())
    }
}

/// Is it EXPLAIN ANALYZE of what writes?
fn analyzes_write(parsed: &DfStatement) -> bool {
    let DfStatement::Explain(explain) = parsed else { return false };
    let writes = |inner: &ast::Statement| {
        use ast::Statement::{Delete, Insert, Merge, Update};
        matches!(inner, Insert(_) | Delete(_) | Update(_) | Merge(_))
    };
    let inner =
        matches!(explain.statement.as_ref(), DfStatement::Statement(inner) if writes(inner));
    explain.options.analyze && inner
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
    use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
    use uplake_table::AsOf;

    use super::*;
    use crate::base::sql_state::SqlState;
    use crate::engine::session::for_tests;

    struct Case {
        session: Session,
        runtime: tokio::runtime::Runtime,
        folder: tempfile::TempDir,
    }

    impl Case {
        fn new(tables: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let session = for_tests(folder.path(), true);
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let case = Self { session, runtime, folder };
            case.run(&case.session, tables);
            case
        }

        fn run(&self, session: &Session, text: &str) {
            self.runtime.block_on(session.query(text)).unwrap();
        }

        fn code(&self, session: &Session, text: &str) -> SqlState {
            self.runtime.block_on(session.query(text)).unwrap_err().code()
        }

        fn numbers(&self, session: &Session, table: &str) -> Vec<i64> {
            let text = format!("SELECT n FROM {table} ORDER BY n");
            let batches = self.runtime.block_on(session.query(&text)).unwrap();
            let numbers = batches
                .iter()
                .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
            numbers.collect()
        }

        fn version(&self, table: &str) -> u64 {
            let snapshot = self.session.lake().snapshot(table, &AsOf::Latest);
            self.runtime.block_on(snapshot).unwrap().version()
        }

        /// Data files on the disk, of this version or of none.
        fn files(&self, table: &str) -> usize {
            let folder = std::fs::read_dir(self.folder.path().join(table)).unwrap();
            let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
            let is_data = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".parquet");
            folder.map(name).filter(is_data).count()
        }
    }

    const TWO: &str = "CREATE TABLE a (n BIGINT, t TEXT); INSERT INTO a VALUES (1, 'x'); CREATE TABLE b (n BIGINT)";

    #[test]
    fn a_transaction_reads_a_table_as_it_first_was() {
        let case = Case::new(TWO);
        let (session, transaction) = (&case.session, case.session.transaction().unwrap());
        assert_eq!(case.numbers(&transaction, "a"), [1]);
        case.run(session, "INSERT INTO a VALUES (2, 'y'); INSERT INTO b VALUES (2)");
        assert_eq!(case.numbers(&transaction, "a"), [1]);
        assert_eq!(case.numbers(&transaction, "b"), [2]);
        case.runtime.block_on(transaction.commit()).unwrap();
        assert_eq!(case.numbers(&transaction, "a"), [1, 2]);
    }

    #[test]
    fn writes_are_read_by_their_own_transaction_and_committed_together() {
        let case = Case::new(TWO);
        let (session, transaction) = (&case.session, case.session.transaction().unwrap());
        let before = case.version("a");
        case.run(&transaction, "INSERT INTO a VALUES (2, 'y')");
        case.run(&transaction, "INSERT INTO a (n) SELECT n + 10 FROM a");
        assert_eq!(case.numbers(&transaction, "a"), [1, 2, 11, 12]);
        assert_eq!(case.numbers(&transaction, "A VERSION AS OF 0"), [] as [i64; 0]);
        // Others write meanwhile, and are not seen.
        case.run(session, "INSERT INTO a VALUES (100, 'z')");
        case.run(&transaction, "DELETE FROM a WHERE n IN (1, 12)");
        case.run(&transaction, "INSERT INTO a VALUES (3, NULL)");
        assert_eq!(case.numbers(&transaction, "a"), [2, 3, 11]);
        assert_eq!(case.numbers(session, "a"), [1, 100]);
        case.runtime.block_on(transaction.commit()).unwrap();
        assert_eq!(case.numbers(session, "a"), [2, 3, 11, 100]);
        assert_eq!(case.version("a"), before + 2);
        assert_eq!(case.numbers(&transaction, "a"), [2, 3, 11, 100]);
        // A thousand statements of a row are one file.
        let files = case.files("a");
        for n in 1000..1100 {
            case.run(&transaction, &format!("INSERT INTO a VALUES ({n}, 'many')"));
        }
        case.runtime.block_on(transaction.commit()).unwrap();
        assert_eq!(case.files("a"), files + 1);
    }

    #[test]
    fn what_is_given_up_leaves_nothing() {
        let case = Case::new(TWO);
        let transaction = case.session.transaction().unwrap();
        let (version, files) = (case.version("a"), case.files("a"));
        let write = || {
            case.run(&transaction, "INSERT INTO a VALUES (2, 'y')");
            case.run(&transaction, "DELETE FROM a WHERE n = 1");
            assert_eq!(case.numbers(&transaction, "a"), [2]);
        };
        write();
        case.runtime.block_on(transaction.rollback()).unwrap();
        assert_eq!(case.numbers(&transaction, "a"), [1]);
        assert_eq!((case.version("a"), case.files("a")), (version, files));
        write();
        assert!(case.files("a") > files);
        drop(transaction);
        for _ in 0..1000 {
            if case.files("a") == files {
                break;
            }
            std::thread::yield_now();
            case.run(&case.session, "SELECT 1");
        }
        assert_eq!((case.version("a"), case.files("a")), (version, files));
    }

    #[test]
    fn savepoints_take_back_what_came_after_them() {
        let case = Case::new(TWO);
        let transaction = case.session.transaction().unwrap();
        let first = case.runtime.block_on(transaction.savepoint()).unwrap();
        case.run(&transaction, "INSERT INTO a VALUES (2, 'y')");
        let second = case.runtime.block_on(transaction.savepoint()).unwrap();
        case.run(&transaction, "DELETE FROM a WHERE n <= 2; INSERT INTO a VALUES (3, 'z')");
        assert_eq!(case.numbers(&transaction, "a"), [3]);
        case.runtime.block_on(transaction.rollback_to(&second)).unwrap();
        assert_eq!(case.numbers(&transaction, "a"), [1, 2]);
        case.run(&transaction, "INSERT INTO a VALUES (4, 'z')");
        case.runtime.block_on(transaction.rollback_to(&second)).unwrap();
        case.run(&transaction, "INSERT INTO a VALUES (5, 'z')");
        case.runtime.block_on(transaction.commit()).unwrap();
        assert_eq!(case.numbers(&case.session, "a"), [1, 2, 5]);
        // The first of the next transaction has another table.
        case.run(&transaction, "INSERT INTO a VALUES (6, 'z')");
        case.runtime.block_on(transaction.rollback_to(&first)).unwrap();
        case.run(&transaction, "INSERT INTO b VALUES (7)");
        case.runtime.block_on(transaction.commit()).unwrap();
        assert_eq!(case.numbers(&case.session, "a"), [1, 2, 5]);
        assert_eq!(case.numbers(&case.session, "b"), [7]);
    }

    #[test]
    fn what_a_transaction_cannot_do_is_refused() {
        let case = Case::new(TWO);
        case.run(
            &case.session,
            "CREATE TABLE k (n BIGINT PRIMARY KEY, t TEXT); INSERT INTO k VALUES (1, 'a')",
        );
        let transaction = case.session.transaction().unwrap();
        let unsupported = SqlState::FeatureNotSupported;
        assert_eq!(
            case.code(&transaction, "EXPLAIN ANALYZE INSERT INTO b VALUES (1)"),
            unsupported
        );
        case.run(&transaction, "INSERT INTO b VALUES (1)");
        for text in [
            "INSERT INTO a VALUES (9, 'q')",
            "DELETE FROM a",
            "DROP TABLE a",
            "CREATE TABLE c (n INT)",
        ] {
            assert_eq!(case.code(&transaction, text), unsupported, "{text}");
        }
        case.runtime.block_on(transaction.rollback()).unwrap();
        // One row of a key is kept at the end.
        case.run(&transaction, "INSERT INTO k VALUES (1, 'b'); INSERT INTO k VALUES (2, 'c'); INSERT INTO k VALUES (2, 'd')");
        for text in [
            "SELECT * FROM k",
            "DELETE FROM K WHERE n = 1",
            "INSERT INTO k SELECT n + 1, t FROM k",
            "INSERT INTO k VALUES (3, 'x') ON CONFLICT DO NOTHING",
        ] {
            assert_eq!(case.code(&transaction, text), unsupported, "{text}");
        }
        case.runtime.block_on(transaction.commit()).unwrap();
        assert_eq!(case.numbers(&case.session, "k WHERE t IN ('b', 'd')"), [1, 2]);
        assert_eq!(case.numbers(&case.session, "k"), [1, 2]);
        // Two that replace one file.
        case.run(&transaction, "DELETE FROM a WHERE n = 1");
        case.run(&case.session, "DELETE FROM a WHERE n = 1");
        let error = case.runtime.block_on(transaction.commit()).unwrap_err();
        assert_eq!(error.code(), SqlState::SerializationFailure);
        assert_eq!(case.numbers(&transaction, "a"), [] as [i64; 0]);
    }

    fn rows(schema: &SchemaRef, numbers: std::ops::Range<i64>) -> RecordBatch {
        let texts = numbers.clone().map(|n| Some(format!("{n:0>50}")));
        let texts: StringArray = texts.collect();
        let numbers = Int64Array::from_iter_values(numbers);
        RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
    }

    #[test]
    fn a_writer_of_many_rows_waits_for_memory_and_loses_none() {
        let case = Case::new(TWO);
        let take = || case.session.hold_memory("a test", usize::MAX, 8 << 20).ok();
        let mut held: Vec<_> = std::iter::from_fn(take).collect();
        let write = async {
            let mut writer = case.session.row_writer("a").await.unwrap();
            for at in 0..20 {
                writer.write(&rows(writer.schema(), at * 10_000..(at + 1) * 10_000)).await.unwrap();
            }
            writer.finish().await.unwrap()
        };
        case.runtime.block_on(async {
            let mut write = Box::pin(write);
            let soon = tokio::time::timeout(Duration::from_millis(100), &mut write).await;
            assert!(soon.is_err(), "statements have all of it");
            held.clear();
            assert_eq!(write.await, 200_000);
        });
        assert_eq!(case.numbers(&case.session, "a").len(), 200_001);
        assert_eq!(case.session.usage().memory_bytes, 0);
        held.extend(std::iter::from_fn(take));
        let files = case.files("a");
        let refused = case.runtime.block_on(async {
            let mut writer = case.session.row_writer("a").await.unwrap();
            writer.make_writer(Duration::from_millis(50)).await.err().unwrap()
        });
        assert_eq!(refused.code(), SqlState::OutOfMemory);
        assert_eq!(case.files("a"), files);
    }

    #[test]
    fn a_row_writer_commits_all_rows_or_none() {
        let case = Case::new(TWO);
        let transaction = case.session.transaction().unwrap();
        // It reads the table as it is now.
        assert_eq!(case.numbers(&transaction, "a"), [1]);
        let files = case.files("a");
        let write = async |session: &Session, count: i64| {
            let mut writer = session.row_writer("A").await.unwrap();
            for at in 0..count {
                let batch = rows(writer.schema(), at * 10_000..(at + 1) * 10_000);
                writer.write(&batch).await.unwrap();
            }
            writer
        };
        case.runtime.block_on(async {
            assert!(case.session.row_writer("nothing").await.is_err());
            // So many that they have a writer, and so few that they have none.
            for count in [20, 1] {
                drop(write(&case.session, count).await);
                let rows = write(&case.session, count).await.finish().await.unwrap();
                assert_eq!(rows, count as u64 * 10_000);
                let rows = write(&transaction, count).await.finish().await.unwrap();
                assert_eq!(rows, count as u64 * 10_000);
            }
        });
        let count = |session: &Session| case.numbers(session, "a").len();
        assert_eq!((count(&case.session), count(&transaction)), (210_001, 210_001));
        case.runtime.block_on(transaction.commit()).unwrap();
        assert_eq!(count(&case.session), 420_001);
        assert!(case.files("a") > files);
    }
}
