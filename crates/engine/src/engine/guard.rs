//! What of a statement its session's guard is asked about, before anything is planned.
//!
//! # Invariants
//! - A statement that a guard refuses has read no table and no file, whether its plan is kept or not.
//! - What a bare word names is a table of the lake or nothing: files are named by a path or an ending.
//!
//! # Not here
//! Roles and what is granted to them: a server has those.

use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::common::TableReference;
use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::engine::privileges::{Guard, Privilege};
use crate::engine::session::Session;
use crate::sql::statement::{IdSetStatement, Statement};
use crate::sql::words::split_version;

impl Session {
    /// This session, whose statements `guard` is asked about. Reports are refused: their expressions are no
    /// statements.
    #[must_use]
    pub fn guarded(mut self, guard: std::sync::Arc<dyn Guard>) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Asks the guard, if there is one.
    pub(crate) async fn check_rights(&self, statement: &Statement) -> Result<()> {
        let Some(guard) = &self.guard else { return Ok(()) };
        if statement.added.is_some() {
            // Who answers it asks.
            return Ok(());
        }
        match &statement.id_set {
            Some(IdSetStatement::Create { name, .. }) => guard.check(Privilege::Create, name)?,
            Some(IdSetStatement::Drop { name, .. }) => return guard.check(Privilege::Create, name),
            Some(IdSetStatement::Show) => return Ok(()),
            None => {}
        }
        Box::pin(self.check_parsed(guard.as_ref(), &statement.parsed)).await
    }

    /// The same of what is made of expressions, and names its tables in them.
    pub(crate) fn must_be_unguarded(&self, what: &str) -> Result<()> {
        match self.guard {
            None => Ok(()),
            Some(_) => Err(EngineError::statement(
                SqlState::InsufficientPrivilege,
                format!("{what} need the role admin"),
            )),
        }
    }

    async fn check_parsed(&self, guard: &dyn Guard, parsed: &DfStatement) -> Result<()> {
        let inner = match parsed {
            DfStatement::Statement(inner) => inner.as_ref(),
            DfStatement::Explain(explain) => {
                return Box::pin(self.check_parsed(guard, &explain.statement)).await;
            }
            DfStatement::CopyTo(copy) => {
                guard.check(Privilege::WriteFiles, &copy.target)?;
                return match &copy.source {
                    CopyToSource::Relation(name) => {
                        let query = format!("SELECT * FROM {name}");
                        let query = crate::sql::statement::parse(&query)?;
                        self.check_reads(guard, query.first().map(|query| &query.parsed)).await
                    }
                    CopyToSource::Query(query) => self.check_query(guard, Some(query)).await,
                };
            }
            // They are refused anyway, but by what they name.
            DfStatement::CreateExternalTable(create) => {
                return guard.check(Privilege::ReadFiles, &create.name.to_string());
            }
            DfStatement::Reset(_) => return Ok(()),
        };
        match inner {
            ast::Statement::Insert(insert) => {
                guard.check(Privilege::Insert, &own_name(&insert.table.to_string()))?;
                self.check_query(guard, insert.source.as_deref()).await
            }
            ast::Statement::Delete(_) => {
                for reference in self.references(parsed)? {
                    guard.check(Privilege::Delete, split_version(reference.table()).0)?;
                }
                // What is removed is found by what is read.
                self.check_reads(guard, Some(parsed)).await
            }
            ast::Statement::CreateTable(create) => {
                guard.check(Privilege::Create, &own_name(&create.name.to_string()))?;
                self.check_query(guard, create.query.as_deref()).await
            }
            ast::Statement::Drop { names, .. } => names
                .iter()
                .try_for_each(|name| guard.check(Privilege::Create, &own_name(&name.to_string()))),
            ast::Statement::ExplainTable { table_name, .. } => {
                guard.check(Privilege::Select, &own_name(&table_name.to_string()))
            }
            _ => self.check_reads(guard, Some(parsed)).await,
        }
    }

    async fn check_query(&self, guard: &dyn Guard, query: Option<&ast::Query>) -> Result<()> {
        let Some(query) = query else { return Ok(()) };
        let query = ast::Statement::Query(Box::new(query.clone()));
        self.check_reads(guard, Some(&DfStatement::Statement(Box::new(query)))).await
    }

    async fn check_reads(&self, guard: &dyn Guard, parsed: Option<&DfStatement>) -> Result<()> {
        let Some(parsed) = parsed else { return Ok(()) };
        for reference in self.references(parsed)? {
            self.check_read(guard, &reference).await?;
        }
        Ok(())
    }

    async fn check_read(&self, guard: &dyn Guard, reference: &TableReference) -> Result<()> {
        let is_information = reference.schema() == Some(INFORMATION_SCHEMA);
        if is_information || self.catalog.additions.names(reference) {
            return Ok(());
        }
        let name = split_version(reference.table()).0;
        // One that cannot be read is there all the same.
        if !matches!(self.catalog.find(reference.table()).await, Ok(None)) {
            return guard.check(Privilege::Select, name);
        }
        if name.contains(['/', '.', ':']) {
            return guard.check(Privilege::ReadFiles, name);
        }
        Err(EngineError::statement(SqlState::UndefinedTable, format!("there is no table `{name}`")))
    }
}

/// The table's own name: without schemas and quotes.
fn own_name(written: &str) -> String {
    let last = written.rsplit('.').next().unwrap_or(written);
    match last.strip_prefix('"').and_then(|last| last.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => last.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::engine::session::for_tests;
    use crate::sql::statement;

    /// Lets those through whose right it has, and writes down what it was asked.
    #[derive(Debug)]
    struct Only(&'static [Privilege], Mutex<Vec<(Privilege, String)>>);

    impl Guard for Only {
        fn check(&self, privilege: Privilege, name: &str) -> Result<()> {
            self.1.lock().unwrap().push((privilege, name.to_owned()));
            match self.0.contains(&privilege) {
                true => Ok(()),
                false => Err(EngineError::statement(SqlState::InsufficientPrivilege, "no")),
            }
        }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn every_statement_is_asked_about_by_what_it_does() {
        use Privilege::{Create, Delete, Insert, ReadFiles, Select, WriteFiles};

        let folder = tempfile::tempdir().unwrap();
        let admin = for_tests(folder.path(), true);
        block_on(admin.query("CREATE TABLE t AS SELECT 1 AS k; CREATE TABLE u AS SELECT 2 AS k"))
            .unwrap();
        let all: &'static [Privilege] = &[Select, Insert, Delete, Create, ReadFiles, WriteFiles];
        let table = |name: &str| (Select, name.to_owned());
        for (sql, expected) in [
            ("SELECT * FROM t JOIN u ON t.k = u.k", vec![table("t"), table("u")]),
            ("EXPLAIN SELECT * FROM t", vec![table("t")]),
            ("EXPLAIN ANALYZE SELECT * FROM t", vec![table("t")]),
            ("WITH c AS (SELECT * FROM u) SELECT * FROM c", vec![table("u")]),
            ("SELECT (SELECT max(k) FROM u) FROM t", vec![table("t"), table("u")]),
            ("SELECT * FROM t VERSION AS OF 1", vec![table("t")]),
            ("DESCRIBE t", vec![table("t")]),
            ("INSERT INTO t SELECT * FROM u", vec![(Insert, "t".into()), table("u")]),
            ("INSERT INTO t VALUES (7)", vec![(Insert, "t".into())]),
            ("DELETE FROM t WHERE k = 7", vec![(Delete, "t".into()), table("t")]),
            ("CREATE TABLE v AS SELECT * FROM u", vec![(Create, "v".into()), table("u")]),
            ("DROP TABLE v", vec![(Create, "v".into())]),
            ("PREPARE p AS SELECT * FROM t", vec![table("t")]),
            ("COPY t TO '/tmp/x.csv'", vec![(WriteFiles, "/tmp/x.csv".into()), table("t")]),
            ("SELECT * FROM '/etc/x.csv'", vec![(ReadFiles, "/etc/x.csv".into())]),
        ] {
            let parsed = statement::parse(sql).unwrap().pop().unwrap();
            let told = Arc::new(Only(all, Mutex::default()));
            let session = admin.engine().session().guarded(Arc::clone(&told) as _);
            block_on(session.check_rights(&parsed)).unwrap();
            let mut asked = told.1.lock().unwrap().clone();
            asked.sort_by_key(|(privilege, name)| (*privilege == Select, name.clone()));
            assert_eq!(asked, expected, "{sql}");
            // Without the right nothing is done, and a plan that is kept makes no difference.
            let _ = block_on(admin.query(sql));
            let nobody = Arc::new(Only(&[], Mutex::default()));
            let session = admin.engine().session().guarded(nobody as _);
            let error = block_on(session.query(sql)).unwrap_err();
            assert_eq!(error.code(), SqlState::InsufficientPrivilege, "{sql}");
        }
        let nobody = Arc::new(Only(&[], Mutex::default()));
        let session = admin.engine().session().guarded(nobody as _);
        assert!(block_on(session.query("SELECT 1; SHOW TABLES")).is_ok());
        let error = block_on(session.query("SELECT * FROM nothing")).unwrap_err();
        assert_eq!(error.code(), SqlState::UndefinedTable);
    }
}
