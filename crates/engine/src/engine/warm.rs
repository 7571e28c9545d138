//! `WARM UP TABLE`: filling the store's cache before anybody asks.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan};
use uplake_table::{DataFile, WarmOptions, warm};

use crate::base::answer::{Answer, rows_answer};
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;
use crate::scan::lake_table::{LakeTable, unqualified};
use crate::sql::statement::Statement;
use crate::sql::warm_statement::WarmStatement;

impl Session {
    pub(crate) async fn run_warm(
        &self,
        about: &WarmStatement,
        statement: &Statement,
    ) -> Result<Answer> {
        let plan = self.plan(statement).await?;
        let (mut input, mut filters) = (&plan, Vec::<Expr>::new());
        let scan = loop {
            match input {
                LogicalPlan::Projection(projection) => input = &projection.input,
                LogicalPlan::Filter(filter) => {
                    filters.push(unqualified(filter.predicate.clone())?);
                    input = &filter.input;
                }
                LogicalPlan::TableScan(scan) => break scan,
                _ => {
                    return Err(EngineError::unsupported(
                        "WARM UP TABLE takes one table, WHERE and COLUMNS",
                    ));
                }
            }
        };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<LakeTable>() else {
            return Err(EngineError::unsupported("WARM UP is for tables of the lake"));
        };
        let all = table.snapshot().files();
        let files: Vec<DataFile> = table
            .candidate_files(&self.context().state(), &filters)?
            .into_iter()
            .map(|number| all[number].clone())
            .collect();
        let columns = about.columns.as_ref().map(|names| table.stored_names(names));
        let options = WarmOptions::default();
        let columns = columns.as_deref();
        let found =
            warm(&self.engine.lake, table.snapshot(), &files, columns, options, |_| {}).await?;
        let number = |n: u64| -> ArrayRef { Arc::new(Int64Array::from(vec![n as i64])) };
        if let Some((path, reason)) = found.failures.first() {
            let message = format!("{path} was not cached: {reason}");
            return Err(EngineError::execution(SqlState::IoError, message));
        }
        rows_answer(vec![
            ("objects", number(found.objects)),
            ("bytes_wanted", number(found.bytes_wanted)),
            ("bytes_there", number(found.bytes_there)),
            ("bytes_fetched", number(found.bytes_fetched)),
            ("bytes_without_room", number(found.bytes_without_room)),
            ("bytes_kept", number(found.bytes_kept)),
        ])
    }
}
