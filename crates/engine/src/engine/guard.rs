//! What of a statement its session's guard is asked about, before anything is planned.
//!
//! # Invariants
//! - A statement that a guard refuses has read no table and no file, whether its plan is kept or not.
//! - What a bare word names is a table of the lake or nothing: files are named by a path or an ending.
//! - The guard is asked by the names that tables have in the lake, however a statement spells them.
//!
//! # Not here
//! Roles and what is granted to them: a server has those. What becomes of a part of a table: `seen`.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::engine::alter::commented;
use crate::engine::catalog::with_table;
use crate::engine::own_files;
use crate::engine::privileges::{Guard, Privilege, Readable};
use crate::engine::seen::{Seen, Sight, TablePart};
use crate::engine::session::Session;
use crate::engine::session_context::Held;
use crate::scan::lake_table::LakeTable;
use crate::sql::returning;
use crate::sql::statement::{self, IdSetStatement, Statement};
use crate::sql::view_statement::ViewStatement;
use crate::sql::words::split_version;

/// What names mean, as far as a statement has been looked at.
type Names = HashMap<String, Sight>;

impl Session {
    /// This session, which was just made and has no settings yet, with a guard that is asked about its statements.
    /// Reports and batches are refused: their expressions are no statements.
    #[must_use]
    pub fn guarded(mut self, guard: Arc<dyn Guard>) -> Self {
        self.guard = Some(guard);
        self.context = Held::default();
        self
    }

    /// Asks the guard, if there is one, and says what the statement sees of its tables.
    pub(crate) async fn check_rights(&self, statement: &Statement) -> Result<Seen> {
        let mut names = Names::new();
        let Some(guard) = &self.guard else { return Ok(names.into()) };
        if statement.added.is_some() {
            // Who answers it asks.
            return Ok(names.into());
        }
        match &statement.id_set {
            Some(IdSetStatement::Create { name, .. }) => guard.check(Privilege::Create, name)?,
            Some(IdSetStatement::Drop { name, .. }) => {
                guard.check(Privilege::Create, name)?;
                return Ok(names.into());
            }
            Some(IdSetStatement::Show) => return Ok(names.into()),
            None => {}
        }
        match &statement.view {
            Some(ViewStatement::Create { name, .. }) => {
                guard.check(Privilege::Create, &self.own_view(name).await?)?;
            }
            Some(ViewStatement::Drop { name, .. }) => {
                guard.check(Privilege::Create, &self.own_view(name).await?)?;
                return Ok(names.into());
            }
            // Its text names tables and columns: who may read them may see it.
            Some(ViewStatement::Show { name }) => {
                let name = self.own_view(name).await?;
                let query = statement::parse_as_is(&format!("SELECT * FROM \"{name}\""))?;
                let query = Box::pin(self.with_views(&query)).await?.unwrap_or(query);
                self.check_reads(guard.as_ref(), Some(&query.parsed), &mut names).await?;
                must_be_whole(&names, "SHOW CREATE VIEW")?;
                return Ok(names.into());
            }
            None => {}
        }
        Box::pin(self.check_parsed(guard.as_ref(), &statement.parsed, &mut names)).await?;
        for file in statement.copy_from.iter().flat_map(|copy| &copy.files) {
            self.check_file(guard.as_ref(), Privilege::ReadFiles, file)?;
        }
        if statement.warm.is_some() {
            must_be_whole(&names, "WARM UP")?;
        }
        Ok(names.into())
    }

    /// The lake's tables that are listed to this session.
    pub(crate) async fn listed_tables(&self) -> Result<Vec<String>> {
        let mut names = self.engine.lake.table_names().await?;
        if let Some(guard) = &self.guard {
            names.retain(|name| guard.lists(name));
        }
        Ok(names)
    }

    /// Refuses what is made of expressions, and names its tables in them, if there is a guard.
    pub(crate) fn must_be_unguarded(&self, what: &str) -> Result<()> {
        match self.guard {
            None => Ok(()),
            Some(_) => Err(EngineError::statement(
                SqlState::InsufficientPrivilege,
                format!("{what} need the role admin"),
            )),
        }
    }

    async fn check_parsed(
        &self,
        guard: &dyn Guard,
        parsed: &DfStatement,
        names: &mut Names,
    ) -> Result<()> {
        let inner = match parsed {
            DfStatement::Statement(inner) => inner.as_ref(),
            DfStatement::Explain(explain) => {
                Box::pin(self.check_parsed(guard, &explain.statement, names)).await?;
                return must_be_whole(names, "EXPLAIN");
            }
            DfStatement::CopyTo(copy) => {
                self.check_file(guard, Privilege::WriteFiles, &copy.target)?;
                return match &copy.source {
                    CopyToSource::Relation(name) => {
                        let query = format!("SELECT * FROM {name}");
                        let query = statement::parse(&query)?;
                        self.check_reads(guard, query.first().map(|query| &query.parsed), names)
                            .await
                    }
                    CopyToSource::Query(query) => self.check_query(guard, Some(query), names).await,
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
                if let ast::TableObject::TableName(name) = &insert.table
                    && let Some(last) = name.0.last().and_then(ast::ObjectNamePart::as_ident)
                    && last.value.contains(['/', '.', ':'])
                {
                    self.check_file(guard, Privilege::WriteFiles, &last.value)?;
                }
                let table = own_name(&insert.table.to_string());
                guard.check(Privilege::Insert, &self.catalog.exact_name(&table).await?)?;
                self.check_query(guard, insert.source.as_deref(), names).await?;
                if let Some(returned) = returning::query_of(parsed) {
                    self.check_reads(guard, Some(&returned), names).await?;
                    // Rows are written by all columns.
                    if matches!(names.get(&table), Some(Sight::Part(part)) if part.hides_columns())
                    {
                        must_be_whole(names, "RETURNING")?;
                    }
                }
                names.entry(table).or_insert(Sight::Whole);
                Ok(())
            }
            ast::Statement::Delete(delete) => {
                let (ast::FromTable::WithFromKeyword(tables)
                | ast::FromTable::WithoutKeyword(tables)) = &delete.from;
                for table in tables {
                    let needed = [Privilege::Delete];
                    self.check_target(guard, &table.relation, &needed, names).await?;
                }
                // What is removed is found by what is read.
                self.check_reads(guard, Some(parsed), names).await?;
                must_be_whole(names, "DELETE")
            }
            ast::Statement::Update(update) => {
                let target = &update.table.relation;
                self.check_target(guard, target, &[Privilege::Update], names).await?;
                self.check_reads(guard, Some(parsed), names).await?;
                must_be_whole(names, "UPDATE")
            }
            ast::Statement::Merge(merge) => {
                let of = |clause: &ast::MergeClause| match clause.action {
                    ast::MergeAction::Insert(_) => Privilege::Insert,
                    ast::MergeAction::Update(_) => Privilege::Update,
                    ast::MergeAction::Delete { .. } => Privilege::Delete,
                };
                let needed: Vec<Privilege> = merge.clauses.iter().map(of).collect();
                self.check_target(guard, &merge.table, &needed, names).await?;
                self.check_reads(guard, Some(parsed), names).await?;
                must_be_whole(names, "MERGE")
            }
            ast::Statement::CreateTable(create) => {
                let table = own_name(&create.name.to_string());
                guard.check(Privilege::Create, &self.catalog.exact_name(&table).await?)?;
                self.check_query(guard, create.query.as_deref(), names).await?;
                names.entry(table).or_insert(Sight::Whole);
                Ok(())
            }
            ast::Statement::AlterTable(alter) => {
                let table = own_name(&alter.name.to_string());
                guard.check(Privilege::Create, &self.catalog.exact_name(&table).await?)?;
                names.insert(table, Sight::Whole);
                Ok(())
            }
            ast::Statement::Comment { object_type, object_name, .. } => {
                let table = own_name(&commented(object_type, object_name).0.to_string());
                guard.check(Privilege::Create, &self.catalog.exact_name(&table).await?)?;
                names.insert(table, Sight::Whole);
                Ok(())
            }
            ast::Statement::Drop { names: dropped, .. } => {
                for name in dropped {
                    let table = own_name(&name.to_string());
                    guard.check(Privilege::Create, &self.catalog.exact_name(&table).await?)?;
                    names.insert(table, Sight::Whole);
                }
                Ok(())
            }
            ast::Statement::Explain { .. } => {
                self.check_reads(guard, Some(parsed), names).await?;
                must_be_whole(names, "EXPLAIN")
            }
            ast::Statement::ShowCreate { .. } => {
                self.check_reads(guard, Some(parsed), names).await?;
                must_be_whole(names, "SHOW CREATE TABLE")
            }
            _ => self.check_reads(guard, Some(parsed), names).await,
        }
    }

    /// May rows of the table be changed so? They are found by what is read of it.
    async fn check_target(
        &self,
        guard: &dyn Guard,
        target: &ast::TableFactor,
        needed: &[Privilege],
        names: &mut Names,
    ) -> Result<()> {
        let ast::TableFactor::Table { name, .. } = target else {
            return Err(EngineError::unsupported("rows are changed in one table"));
        };
        let own = own_name(&name.to_string());
        let name = self.catalog.exact_name(split_version(&own).0).await?;
        needed.iter().try_for_each(|privilege| guard.check(*privilege, &name))?;
        let reference = TableReference::bare(own.clone());
        if let Some(sight) = self.sight(guard, &reference).await? {
            names.insert(own, sight);
        }
        Ok(())
    }

    /// May a file be read, or written, that a statement names?
    pub(crate) fn check_file(
        &self,
        guard: &dyn Guard,
        privilege: Privilege,
        named: &str,
    ) -> Result<()> {
        guard.check(privilege, named)?;
        if own_files::are_own(&self.engine.lake, named) {
            guard.check(Privilege::OwnFiles, named).map_err(|_| own_files::refused(named))?;
        }
        Ok(())
    }

    async fn check_query(
        &self,
        guard: &dyn Guard,
        query: Option<&ast::Query>,
        names: &mut Names,
    ) -> Result<()> {
        let Some(query) = query else { return Ok(()) };
        let query = ast::Statement::Query(Box::new(query.clone()));
        self.check_reads(guard, Some(&DfStatement::Statement(Box::new(query))), names).await
    }

    async fn check_reads(
        &self,
        guard: &dyn Guard,
        parsed: Option<&DfStatement>,
        names: &mut Names,
    ) -> Result<()> {
        let Some(parsed) = parsed else { return Ok(()) };
        for reference in self.references(parsed)? {
            if !names.contains_key(reference.table())
                && let Some(sight) = self.sight(guard, &reference).await?
            {
                names.insert(reference.table().to_owned(), sight);
            }
        }
        Ok(())
    }

    /// What is seen of what a statement reads; `None` if it is no table of the lake.
    async fn sight(&self, guard: &dyn Guard, reference: &TableReference) -> Result<Option<Sight>> {
        let is_information = reference.schema() == Some(INFORMATION_SCHEMA);
        if is_information || self.catalog.additions.names(reference) {
            return Ok(None);
        }
        let name = split_version(reference.table()).0;
        match self.catalog.find(reference.table()).await {
            Ok(Some(table)) => {
                let readable = guard.readable(table.snapshot().table())?;
                if readable.is_whole() {
                    return Ok(Some(Sight::Whole));
                }
                let part = Box::pin(self.part_of(table, readable)).await?;
                Ok(Some(Sight::Part(Arc::new(part))))
            }
            Ok(None) if self.is_no_table(name) => Ok(None),
            Ok(None) if name.contains(['/', '.', ':']) => {
                self.check_file(guard, Privilege::ReadFiles, name)?;
                Ok(None)
            }
            Ok(None) => {
                let what = format!("there is no table `{name}`");
                Err(EngineError::statement(SqlState::UndefinedTable, what))
            }
            // It is there all the same: only who may read it hears why it cannot be.
            Err(error) => {
                guard.readable(&self.catalog.exact_name(name).await?)?;
                Err(error.into())
            }
        }
    }

    /// Is it a table of a catalog, which is there for everybody, or a function that makes rows of its arguments?
    pub(crate) fn is_no_table(&self, name: &str) -> bool {
        self.catalog.additions.searched(name).is_some()
            || self.context().state_ref().read().table_functions().contains_key(name)
    }

    async fn part_of(&self, table: Arc<LakeTable>, readable: Readable) -> Result<TablePart> {
        let name = table.snapshot().table().to_owned();
        let rows = match &readable.condition {
            Some(condition) => self.rows_where(condition, &table).await.map_err(|_| {
                // What is wrong would tell of columns that may be hidden.
                let what = format!("permission denied: a row policy of `{name}` cannot be applied");
                EngineError::statement(SqlState::InsufficientPrivilege, what).with_hint(
                    "an admin sees why with its condition as WHERE of a query on the table",
                )
            })?,
            None => {
                let source = provider_as_source(Arc::clone(&table) as _);
                LogicalPlanBuilder::scan(name.as_str(), source, None)?.build()?
            }
        };
        Ok(TablePart::new(table, rows, readable)?)
    }

    /// All columns of the rows for which a condition is true. It is planned as a query of somebody who may read all,
    /// without this session's settings; only what it asks about the user is the session's.
    async fn rows_where(&self, condition: &str, table: &Arc<LakeTable>) -> Result<LogicalPlan> {
        let name = table.snapshot().table();
        let quoted = name.replace('"', "\"\"");
        let text = format!("SELECT * FROM \"{quoted}\" WHERE ({condition}\n)");
        let mut parsed = statement::parse(&text)?;
        let query = parsed.pop().filter(|query| parsed.is_empty() && query.only_asks());
        let query = query.ok_or_else(|| EngineError::unsupported("a policy is one condition"))?;
        let all = self.engine.session();
        with_table(name, Arc::clone(table), Box::pin(all.plan(&query))).await
    }
}

/// Refuses what would tell of rows and columns that a statement does not see.
fn must_be_whole(names: &Names, what: &str) -> Result<()> {
    if names.values().all(|sight| matches!(sight, Sight::Whole)) {
        return Ok(());
    }
    let message = format!("permission denied: {what} on a table that this role sees a part of");
    Err(EngineError::statement(SqlState::InsufficientPrivilege, message))
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
    use std::sync::Mutex;

    use super::*;
    use crate::engine::session::for_tests;

    /// What was asked: a privilege, or none for what is read.
    type Asked = Vec<(Option<Privilege>, String)>;

    /// Lets those through whose right it has, and writes down what it was asked.
    #[derive(Debug)]
    struct Only(&'static [Privilege], Option<Readable>, Mutex<Asked>);

    impl Only {
        fn answer<T>(&self, what: Option<Privilege>, name: &str, may: Option<T>) -> Result<T> {
            self.2.lock().unwrap().push((what, name.to_owned()));
            may.ok_or_else(|| EngineError::statement(SqlState::InsufficientPrivilege, "no"))
        }
    }

    impl Guard for Only {
        fn check(&self, privilege: Privilege, name: &str) -> Result<()> {
            self.answer(Some(privilege), name, self.0.contains(&privilege).then_some(()))
        }

        fn readable(&self, table: &str) -> Result<Readable> {
            self.answer(None, table, self.1.clone())
        }

        fn hides(&self, _: &str, _: &str) -> bool {
            false
        }

        fn lists(&self, _: &str) -> bool {
            self.1.is_some()
        }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn every_statement_is_asked_about_by_what_it_does() {
        use Privilege::{Create, Delete, Insert, ReadFiles, Update, WriteFiles};

        let folder = tempfile::tempdir().unwrap();
        let admin = for_tests(folder.path(), true);
        block_on(admin.query("CREATE TABLE t AS SELECT 1 AS k; CREATE TABLE u AS SELECT 2 AS k"))
            .unwrap();
        let all: &'static [Privilege] = &[Insert, Update, Delete, Create, ReadFiles, WriteFiles];
        let table = |name: &str| (None, name.to_owned());
        for (sql, expected) in [
            ("SELECT * FROM t JOIN u ON t.k = u.k", vec![table("t"), table("u")]),
            ("EXPLAIN SELECT * FROM t", vec![table("t")]),
            ("EXPLAIN ANALYZE SELECT * FROM t", vec![table("t")]),
            ("WITH c AS (SELECT * FROM u) SELECT * FROM c", vec![table("u")]),
            ("SELECT (SELECT max(k) FROM u) FROM t", vec![table("t"), table("u")]),
            ("SELECT * FROM t VERSION AS OF 0", vec![table("t")]),
            ("DESCRIBE t", vec![table("t")]),
            ("INSERT INTO t SELECT * FROM u", vec![(Some(Insert), "t".into()), table("u")]),
            ("INSERT INTO t VALUES (7)", vec![(Some(Insert), "t".into())]),
            (
                "INSERT INTO t VALUES (7) RETURNING (SELECT max(k) FROM u)",
                vec![(Some(Insert), "t".into()), table("t"), table("u")],
            ),
            (
                "DELETE FROM t WHERE k = 7 RETURNING (SELECT max(k) FROM u)",
                vec![(Some(Delete), "t".into()), table("t"), table("u")],
            ),
            ("DELETE FROM t WHERE k = 7", vec![(Some(Delete), "t".into()), table("t")]),
            (
                "UPDATE t SET k = u.k FROM u WHERE t.k = u.k - 1",
                vec![(Some(Update), "t".into()), table("t"), table("u")],
            ),
            (
                "MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN DELETE \
                 WHEN NOT MATCHED THEN INSERT VALUES (u.k)",
                vec![
                    (Some(Delete), "t".into()),
                    (Some(Insert), "t".into()),
                    table("t"),
                    table("u"),
                ],
            ),
            ("CREATE TABLE v AS SELECT * FROM u", vec![(Some(Create), "v".into()), table("u")]),
            ("ALTER TABLE t ADD COLUMN n INT", vec![(Some(Create), "t".into())]),
            ("ALTER TABLE t RENAME COLUMN n TO m", vec![(Some(Create), "t".into())]),
            ("ALTER TABLE t DROP COLUMN m", vec![(Some(Create), "t".into())]),
            ("ALTER TABLE t SET (clustered_by = 'k')", vec![(Some(Create), "t".into())]),
            ("ALTER TABLE t RESET (clustered_by)", vec![(Some(Create), "t".into())]),
            ("COMMENT ON COLUMN t.k IS 'a key'", vec![(Some(Create), "t".into())]),
            ("DROP TABLE v", vec![(Some(Create), "v".into())]),
            ("CREATE VIEW w AS SELECT * FROM u", vec![(Some(Create), "w".into()), table("u")]),
            ("SHOW CREATE VIEW w", vec![table("u")]),
            ("SHOW CREATE TABLE t", vec![table("t")]),
            ("DROP VIEW w", vec![(Some(Create), "w".into())]),
            ("DESCRIBE SELECT * FROM t", vec![table("t")]),
            ("SUMMARIZE t", vec![table("t")]),
            ("PREPARE p AS SELECT * FROM t", vec![table("t")]),
            ("COPY t TO '/tmp/x.csv'", vec![(Some(WriteFiles), "/tmp/x.csv".into()), table("t")]),
            (
                "COPY t FROM '/tmp/x.csv'",
                vec![(Some(ReadFiles), "/tmp/x.csv".into()), (Some(Insert), "t".into())],
            ),
            (
                "INSERT INTO \"/tmp/x/\" VALUES (7)",
                vec![(Some(WriteFiles), "/tmp/x/".into()), (Some(Insert), "/tmp/x/".into())],
            ),
            ("SELECT * FROM '/etc/x.csv'", vec![(Some(ReadFiles), "/etc/x.csv".into())]),
        ] {
            let parsed = statement::parse(sql).unwrap().pop().unwrap();
            let told = Arc::new(Only(all, Some(Readable::default()), Mutex::default()));
            let session = admin.engine().session().guarded(Arc::clone(&told) as _);
            block_on(session.check_rights(&parsed)).unwrap();
            let mut asked = told.2.lock().unwrap().clone();
            // Which each session asks when it begins.
            asked.retain(|(privilege, _)| *privilege != Some(Privilege::OwnFiles));
            asked.sort_by_key(|(privilege, name)| (privilege.is_none(), name.clone()));
            assert_eq!(asked, expected, "{sql}");
            // Without the right nothing is done, and a plan that is kept makes no difference.
            let _ = block_on(admin.query(sql));
            let nobody = Arc::new(Only(&[], None, Mutex::default()));
            let session = admin.engine().session().guarded(nobody as _);
            let error = block_on(session.query(sql)).unwrap_err();
            assert_eq!(error.code(), SqlState::InsufficientPrivilege, "{sql}");
        }
        let nobody = Arc::new(Only(&[], None, Mutex::default()));
        let session = admin.engine().session().guarded(nobody as _);
        assert!(block_on(session.query("SELECT 1; SHOW TABLES")).is_ok());
        let error = block_on(session.query("SELECT * FROM nothing")).unwrap_err();
        assert_eq!(error.code(), SqlState::UndefinedTable);
    }
}
