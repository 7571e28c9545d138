//! Prepared statements: parsed once, with typed values in the places of `$1`, `$2` and so on.
//!
//! Values stand in the plan before our rules see it, so that a key that is bound is looked up as one that is written.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Statement as PlanStatement};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;

use crate::base::alarm::within;
use crate::base::answer::Answer;
use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::parameter_types::parameter_types;
use crate::engine::session::Session;
use crate::sql::prepared::Prepared;
use crate::sql::statement::{self, Statement};
use crate::sql::words::spelled;

/// Prepared statements that a session may have.
const MANY: usize = 1024;

impl Session {
    /// A query, INSERT or DELETE to be run with values for `$1`, `$2` and so on. Types are those that its places ask for.
    ///
    /// # Errors
    /// [`EngineError::Statement`] if it is none of these, or is wrong.
    pub async fn prepare(&self, statement: &Statement) -> Result<Prepared> {
        self.prepare_typed(statement, &[]).await
    }

    /// [`Self::prepare`] with types that some of `$1`, `$2` and so on have whatever their places ask for: `n > $1` with a
    /// double compares doubles. Of a statement that writes, they count only where its places ask for nothing.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub async fn prepare_typed(
        &self,
        statement: &Statement,
        types: &[Option<DataType>],
    ) -> Result<Prepared> {
        within(self.timeout(), Box::pin(self.prepared(statement.clone(), &[], types))).await?
    }

    async fn prepared(
        &self,
        mut statement: Statement,
        declared: &[String],
        typed: &[Option<DataType>],
    ) -> Result<Prepared> {
        statement.prepare = None;
        let with_views = Box::pin(self.with_views(&statement)).await?;
        let read = with_views.as_ref().unwrap_or(&statement);
        let seen = self.check_rights(read).await?;
        let work = self.prepared_seeing(read, declared, typed);
        let (types, schema) = Box::pin(seen.during(work)).await?;
        // Views are looked up again when it is run.
        Ok(Prepared::new(statement, types, schema))
    }

    /// The same, once it is known what the statement sees.
    async fn prepared_seeing(
        &self,
        statement: &Statement,
        declared: &[String],
        typed: &[Option<DataType>],
    ) -> Result<(Vec<Option<DataType>>, SchemaRef)> {
        let writes = statement.writes_rows();
        if !statement.only_asks() && !writes {
            return Err(EngineError::unsupported("only queries can be prepared")
                .with_hint("and INSERT, DELETE, UPDATE and MERGE"));
        }
        self.catalog.begin_statement();
        let plan = self.parsed_plan(statement).await?;
        let returned = statement.returned();
        let given = match &returned {
            Some(returned) => Some(self.parsed_plan(returned).await?),
            None => None,
        };
        let mut types: Vec<Option<DataType>> = Vec::new();
        let mut asked = given.as_ref().map(parameter_types).transpose()?.unwrap_or_default();
        for (name, data_type) in parameter_types(&plan)? {
            let known = asked.entry(name).or_default();
            *known = data_type.or(known.take());
        }
        for (name, data_type) in asked {
            let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
            let Some(at) = number.and_then(|number| number.checked_sub(1)) else {
                return refuse!(SyntaxError, "parameters are $1, $2 and so on, not {name}");
            };
            if at >= MANY {
                return refuse!(ProgramLimitExceeded, "parameters end at ${MANY}");
            }
            types.resize(types.len().max(at + 1), None);
            types[at] = data_type;
        }
        types.resize(types.len().max(declared.len()), None);
        for (data_type, text) in types.iter_mut().zip(declared) {
            *data_type = Some(self.type_of(text).await?);
        }
        types.resize(types.len().max(typed.len()), None);
        for (data_type, typed) in types.iter_mut().zip(typed) {
            // Of decimals the statement knows the digits better, and of lists what is in them.
            let both = |is: fn(&DataType) -> bool| {
                [&*data_type, typed].iter().all(|of| of.as_ref().is_some_and(is))
            };
            let is_list = |of: &DataType| matches!(of, DataType::List(_));
            let stays = writes || both(DataType::is_decimal) || both(is_list);
            if typed.is_some() && (data_type.is_none() || !stays) {
                data_type.clone_from(typed);
            }
        }
        let asked = match (&returned, given) {
            (Some(returned), Some(given)) => Some((returned, given)),
            _ => (!writes).then_some((statement, plan)),
        };
        let schema = match asked {
            None => Schema::empty().into(),
            Some((asked, plan)) => {
                let columns = self.columns_of(&with_types(plan, &types)?)?;
                self.spell(asked, &Arc::new(columns)).await?
            }
        };
        Ok((types, schema))
    }

    /// The type that SQL has for a name.
    pub(crate) async fn type_of(&self, text: &str) -> Result<DataType> {
        let cast = statement::parse(&format!("SELECT CAST(NULL AS {text})"))?;
        let cast = cast.first().ok_or_else(|| EngineError::bug("a type is missing"))?;
        let plan = self.parsed_plan(cast).await?;
        Ok(plan.schema().field(0).data_type().clone())
    }

    /// PREPARE and DEALLOCATE.
    pub(crate) async fn run_prepare(&self, statement: &Statement) -> Result<Option<Answer>> {
        if let Some(prepare) = &statement.prepare {
            let prepared = self.prepared(statement.clone(), &prepare.types, &[]).await?;
            let mut all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            if all.contains_key(&prepare.name) {
                let message = format!("there is a prepared statement {} already", prepare.name);
                return Err(EngineError::statement(SqlState::DuplicatePreparedStatement, message)
                    .with_hint("DEALLOCATE it first"));
            }
            if all.len() >= MANY {
                let message = format!("a session has at most {MANY} prepared statements");
                return Err(EngineError::statement(SqlState::ProgramLimitExceeded, message)
                    .with_hint("DEALLOCATE some"));
            }
            all.insert(prepare.name.clone(), prepared);
            let message = format!("prepared {}", prepare.name);
            return Ok(Some(Answer::Done { message, rows: None }));
        }
        let DfStatement::Statement(inner) = &statement.parsed else { return Ok(None) };
        let ast::Statement::Deallocate { name, .. } = inner.as_ref() else { return Ok(None) };
        let mut all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let name = spelled(name);
        if name == "all" {
            all.clear();
        } else if all.remove(&name).is_none() {
            return Err(none_called(&name, &all));
        }
        Ok(Some(Answer::Done { message: format!("deallocated {name}"), rows: None }))
    }

    /// The query that an EXECUTE runs, with its values; `None` if the statement is none.
    pub(crate) async fn executed(&self, statement: &Statement) -> Result<Option<Statement>> {
        let inner = match &statement.parsed {
            DfStatement::Statement(inner) => inner,
            DfStatement::Explain(explain) => {
                let is_execute =
                    |inner: &ast::Statement| matches!(inner, ast::Statement::Execute { .. });
                return match explain.statement.as_ref() {
                    DfStatement::Statement(inner) if is_execute(inner) => {
                        Err(EngineError::unsupported("EXPLAIN EXECUTE is not supported")
                            .with_hint("EXPLAIN the query, with its values written"))
                    }
                    _ => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        let ast::Statement::Execute { name: Some(name), using, immediate: false, .. } =
            inner.as_ref()
        else {
            return Ok(None);
        };
        if !using.is_empty() {
            return refuse!(SyntaxError, "write EXECUTE name (value, …)");
        }
        let plan = self.context().state().statement_to_plan(statement.parsed.clone()).await?;
        let LogicalPlan::Statement(PlanStatement::Execute(execute)) = plan else {
            return refuse!(SyntaxError, "write EXECUTE name (value, …)");
        };
        let values = execute.parameters.into_iter().map(constant).collect::<Result<Vec<_>>>()?;
        let all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name.0.last().and_then(ast::ObjectNamePart::as_ident).map(spelled);
        let name = name.unwrap_or(execute.name);
        let prepared = all.get(&name).ok_or_else(|| none_called(&name, &all))?;
        prepared.bind(&values).map(Some)
    }
}

/// The plan with a NULL of its type in place of each parameter, so that columns have the types that values will give them.
fn with_types(plan: LogicalPlan, types: &[Option<DataType>]) -> Result<LogicalPlan> {
    if types.is_empty() {
        return Ok(plan);
    }
    let null = |of: &Option<DataType>| match of {
        Some(data_type) => ScalarValue::try_new_null(data_type),
        None => Ok(ScalarValue::Null),
    };
    let nulls = types.iter().map(null).collect::<Result<Vec<_>, _>>()?;
    // What takes no NULL says so when it is run.
    Ok(plan.clone().with_param_values(nulls).unwrap_or(plan))
}

fn none_called(name: &str, all: &HashMap<String, Prepared>) -> EngineError {
    let mut known: Vec<&str> = all.keys().map(String::as_str).collect();
    known.sort_unstable();
    let known = match known.as_slice() {
        [] => "none was prepared in this session".to_owned(),
        known => format!("there are {}", known.join(", ")),
    };
    let message = format!("there is no prepared statement {name}");
    EngineError::statement(SqlState::InvalidSqlStatementName, message).with_hint(known)
}

/// The value of an expression without columns.
fn constant(expr: Expr) -> Result<ScalarValue> {
    let nothing = SimplifyContext::builder().with_schema(DFSchema::empty().into()).build();
    let simplifier = ExprSimplifier::new(nothing);
    let expr = simplifier.coerce(expr, &DFSchema::empty())?;
    match simplifier.simplify(expr)? {
        Expr::Literal(value, _) => Ok(value),
        other => {
            let other = other.human_display();
            refuse!(InvalidParameterValue, "EXECUTE takes constants, and `{other}` is none")
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use super::*;
    use crate::engine::session::for_tests;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
    }

    fn run(session: &Session, sql: &str) -> Result<String> {
        let rows = block_on(session.query(sql))?;
        Ok(pretty_format_batches(&rows).unwrap().to_string())
    }

    fn error(session: &Session, sql: &str) -> String {
        run(session, sql).unwrap_err().to_string()
    }

    const DATA: &str = "
        CREATE TABLE e (user_id TEXT, Day DATE, n BIGINT) CLUSTERED BY (user_id) ID DOMAINS (user_id users);
        INSERT INTO e SELECT concat('u', CAST(v % 90 AS TEXT)), DATE '2026-01-01' + CAST(v % 7 AS INT), v
          FROM generate_series(1, 2000) AS s(v)";

    #[test]
    fn a_value_that_is_bound_is_as_one_that_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        run(&session, DATA).unwrap();
        for (query, values) in [
            ("SELECT count(*), sum(n) FROM e WHERE user_id = $1", vec!["'u7'", "'nobody'", "NULL"]),
            (
                "SELECT count(*) FROM e WHERE user_id IN ($1, $2, 'u3')",
                vec!["'u7', 'u8'", "'u3', NULL"],
            ),
            (
                "SELECT day, sum(n) FROM e WHERE day >= $1 AND n % $2 = 0 GROUP BY day ORDER BY day LIMIT $3",
                vec!["'2026-01-03', 2, 3", "DATE '2026-01-03', 1 + 1, 10"],
            ),
            (
                "SELECT count(*) FROM e WHERE user_id LIKE $1 OR n BETWEEN $2 AND $2 + 10",
                vec!["'%7', 5"],
            ),
            (
                "WITH u AS (SELECT user_id, min(n) AS m FROM e WHERE n > $1 GROUP BY user_id)
              SELECT count(*), max(m) FROM e JOIN u ON e.user_id = u.user_id WHERE e.user_id < $2",
                vec!["100, 'u5'"],
            ),
        ] {
            run(&session, &format!("PREPARE q AS {query}")).unwrap();
            for values in values {
                let mut written = query.to_owned();
                for (at, value) in values.split(", ").enumerate() {
                    written = written.replace(&format!("${}", at + 1), &format!("({value})"));
                }
                let expected = run(&session, &written).unwrap();
                for _ in 0..2 {
                    let found = run(&session, &format!("EXECUTE q({values})"));
                    assert_eq!(found.unwrap(), expected, "{query} {values}");
                }
            }
            run(&session, "DEALLOCATE q").unwrap();
        }
    }

    #[test]
    fn a_bound_key_is_looked_up_and_types_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        run(&session, DATA).unwrap();
        let parsed = |text: &str| statement::parse(text).unwrap().pop().unwrap();
        let text = "SELECT n AS Found, user_id FROM e WHERE user_id = $1 AND n > $2 AND day = $3";
        let prepared = block_on(session.prepare(&parsed(text))).unwrap();
        let types = [DataType::Utf8View, DataType::Int64, DataType::Date32].map(Some);
        let found = prepared.types();
        assert!(matches!(found[0], Some(DataType::Utf8 | DataType::Utf8View)), "{found:?}");
        assert_eq!(found[1..], types[1..]);
        assert_eq!(prepared.schema().field(1).name(), "user_id");
        let text = |text: &str| ScalarValue::Utf8(Some(text.into()));
        let bound = prepared.bind(&[text("u7"), text("5"), text("2026-01-02")]).unwrap();
        let plan = block_on(async {
            let plan = session.plan(&bound).await?;
            let (state, _) = session.query_state();
            session.optimized(&state, plan).await
        });
        let plan = plan.unwrap().display_indent().to_string();
        assert!(plan.contains("__id_user_id = Int32("), "{plan}");
        for (values, says) in [
            (vec![text("u7")], "has 3 parameters, and 1 values came"),
            (vec![text("u7"), text("x"), text("2026-01-02")], "$2: "),
            (vec![text("u7"), text("5"), text("tomorrow")], "$3: "),
        ] {
            let error = prepared.bind(&values).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let drop = block_on(session.prepare(&parsed("DROP TABLE e"))).unwrap_err();
        assert!(drop.to_string().contains("only queries"), "{drop}");
        let typed = block_on(session.prepare_typed(
            &parsed("SELECT count(*) FROM e WHERE n < $1 AND n <> $2"),
            &[Some(DataType::Float64)],
        ));
        let typed = typed.unwrap();
        assert_eq!(typed.types(), [DataType::Float64, DataType::Int64].map(Some));
        let text = "SELECT TIMESTAMP '2026-01-01 00:00:00' + $1";
        let added = block_on(session.prepare(&parsed(text))).unwrap();
        assert!(matches!(added.types(), [Some(DataType::Interval(_))]), "{:?}", added.types());
    }

    #[test]
    fn rows_are_inserted_and_deleted_by_values() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        run(&session, DATA).unwrap();
        let parsed = |text: &str| statement::parse(text).unwrap().pop().unwrap();
        let text = |text: &str| ScalarValue::Utf8(Some(text.into()));
        let insert = parsed("INSERT INTO e (n, user_id) VALUES ($1, $2), (1 + $3, 'w')");
        let insert = block_on(session.prepare(&insert)).unwrap();
        assert_eq!(insert.types()[0], Some(DataType::Int64));
        assert!(insert.schema().fields().is_empty());
        let values = [text("7000"), text("v"), ScalarValue::Int16(Some(7000))];
        block_on(session.run(&insert.bind(&values).unwrap())).unwrap();
        let found = run(&session, "SELECT user_id, n FROM e WHERE n >= 7000 ORDER BY n").unwrap();
        assert!(found.contains("| v       | 7000 |") && found.contains("7001"), "{found}");
        let delete = parsed("DELETE FROM e WHERE user_id = $1 AND n > $2");
        let delete = block_on(session.prepare(&delete)).unwrap();
        let bound = delete.bind(&[text("v"), text("10")]).unwrap();
        block_on(session.run(&bound)).unwrap();
        let left = run(&session, "SELECT count(*) AS n FROM e WHERE n >= 7000").unwrap();
        assert!(left.contains("| 1 |"), "{left}");
    }

    #[test]
    fn names_belong_to_a_session() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let other = session.engine().session();
        run(&session, "CREATE TABLE t AS SELECT 1 AS k; PREPARE Q (INT, DECIMAL(9, 2)) AS SELECT k + $1, $2 FROM t")
            .unwrap();
        let found = run(&session, "EXECUTE q(2, 1.5)").unwrap();
        assert!(found.contains("| 3 ") && found.contains("| 1.50 "), "{found}");
        assert!(error(&other, "EXECUTE q(2, 1.5)").contains("none was prepared in this session"));
        assert!(error(&session, "EXECUTE r").contains("there are q"));
        run(&session, "PREPARE \"Q\" AS SELECT 7; EXECUTE \"Q\"; DEALLOCATE \"Q\"").unwrap();
        assert!(error(&session, "EXPLAIN EXECUTE q(2, 1.5)").contains("EXPLAIN the query"));
        assert!(error(&session, "EXECUTE q(k, 1)").contains("k"));
        assert!(error(&session, "EXECUTE q(2)").contains("2 parameters"));
        assert!(error(&session, "PREPARE q AS SELECT 1").contains("already"));
        assert!(error(&session, "PREPARE").contains("write PREPARE name"));
        assert!(error(&session, "PREPARE r (INT, ) AS SELECT 1").contains("write PREPARE name"));
        assert!(error(&session, "PREPARE r AS DROP TABLE t").contains("only queries"));
        assert!(error(&session, "PREPARE r AS DESCRIBE SELECT 1").contains("only queries"));
        assert!(error(&session, "PREPARE r AS SELECT nothing FROM t").contains("nothing"));
        // What was prepared sees what came later.
        run(&session, "PREPARE n AS SELECT count(*) FROM t; INSERT INTO t VALUES (2)").unwrap();
        assert!(run(&session, "EXECUTE n").unwrap().contains('2'));
        run(&session, "DEALLOCATE ALL").unwrap();
        assert!(error(&session, "EXECUTE n").contains("none was prepared"));
        assert!(error(&session, "DEALLOCATE n").contains("none was prepared"));
    }
}
