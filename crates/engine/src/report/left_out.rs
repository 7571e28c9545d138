//! What no figure has: exposures that cannot count, users who come for the second time, conditions that
//! no row passes.
//!
//! Where users are the units the scan counts the first two on the way (`one_scan::exposed`); for
//! everything else statements of their own do, over the exposures alone. Conditions are looked at only
//! for numbers that are 0 for everybody, each until its first row.

use std::collections::HashMap;

use futures::TryStreamExt;
use uplake_experiment::left_out::{LeftOut, NoExposures, filter_of, is_zero};
use uplake_experiment::query::{Aggregate, MomentsQuery, MomentsTable, UserColumn};

use super::collect::knows_before;
use super::decode::doubles;
use super::sql::Sql;
use crate::base::error::Result;
use crate::engine::session::Session;

impl Session {
    /// What of the exposures is left out, by statements of their own: most tables have no such rows, and
    /// the bounds of their files say so.
    pub(super) async fn left_out_by_sql(&self, sql: &Sql<'_>) -> Result<LeftOut> {
        let rows = self.counts(&sql.left_out()).await?;
        let count = |number: usize| rows.get(number).copied().unwrap_or(0);
        let mut left_out = LeftOut {
            exposures_without_user: count(0),
            exposures_without_time: count(1),
            ..LeftOut::default()
        };
        if !knows_before(sql.query) {
            return Ok(left_out);
        }
        let any = match sql.any_before() {
            Some(text) => self.has_row(&text).await?,
            None => false,
        };
        let before = match sql.users_before().filter(|_| any) {
            Some(text) => self.counts(&text).await?.into_iter().sum(),
            None => 0,
        };
        left_out.users_exposed_before = Some(before);
        Ok(left_out)
    }

    /// The counts of a statement of one row.
    async fn counts(&self, text: &str) -> Result<Vec<u64>> {
        let mut counts = Vec::new();
        let mut rows = self.definition_rows(text).await?;
        while let Some(batch) = rows.try_next().await? {
            counts.resize(batch.num_columns(), 0);
            for (count, column) in counts.iter_mut().zip(batch.columns()) {
                *count += doubles(column)?.iter().flatten().sum::<f64>() as u64;
            }
        }
        Ok(counts)
    }

    /// Says why nobody is exposed, or why numbers are 0 for everybody.
    pub(super) async fn explain_nothing(
        &self,
        query: &MomentsQuery,
        table: &mut MomentsTable,
    ) -> Result<()> {
        let in_arms = table.cells.iter().any(|cell| cell.users > 0);
        let elsewhere = table.users_in_many_variants > 0
            || !table.unknown_variants.is_empty()
            || table.users_excluded.iter().any(|users| *users > 0)
            || table.never_activated.iter().any(|cell| cell.users > 0);
        if !in_arms && !elsewhere {
            table.left_out.no_exposures = Some(self.why_nobody(query).await?);
        }
        if !in_arms {
            return Ok(());
        }
        let mut known = HashMap::new();
        for (number, column) in query.columns.iter().enumerate() {
            if column.aggregate == Aggregate::One || !is_zero(query, table, number) {
                continue;
            }
            let found = match self.has_rows(column, &mut known).await? {
                true => &mut table.left_out.zero_columns,
                false => &mut table.left_out.unmatched_columns,
            };
            found.push(number);
        }
        for (number, quantile) in query.quantiles.iter().enumerate() {
            let mut cells = table.quantiles.iter().filter(|cell| cell.quantile == number);
            let nothing = cells.all(|cell| {
                let ends = cell.band.map(|band| (band.low, band.quantile, band.high));
                ends.is_none_or(|ends| ends == (0.0, 0.0, 0.0))
            });
            if nothing && !self.has_rows(&quantile.column, &mut known).await? {
                table.left_out.unmatched_quantiles.push(number);
            }
        }
        Ok(())
    }

    async fn why_nobody(&self, query: &MomentsQuery) -> Result<NoExposures> {
        let exposures = &query.exposures;
        if self.passes(&exposures.table, exposures.filter.as_deref()).await? {
            return Ok(NoExposures::NoneCounts);
        }
        let has_rows = exposures.filter.is_some() && self.passes(&exposures.table, None).await?;
        Ok(if has_rows { NoExposures::WherePassesNothing } else { NoExposures::EmptyTable })
    }

    /// Does any row of its table pass a column's filter? `known`: by table and filter.
    async fn has_rows<'q>(
        &self,
        column: &'q UserColumn,
        known: &mut HashMap<(&'q str, Option<&'q str>), bool>,
    ) -> Result<bool> {
        let key = (column.table.as_str(), filter_of(column));
        if let Some(found) = known.get(&key) {
            return Ok(*found);
        }
        let found = self.passes(key.0, key.1).await?;
        known.insert(key, found);
        Ok(found)
    }

    async fn passes(&self, table: &str, filter: Option<&str>) -> Result<bool> {
        let condition = filter.map(|filter| format!(" WHERE ({filter})")).unwrap_or_default();
        self.has_row(&format!("SELECT 1 AS one FROM {table}{condition} LIMIT 1")).await
    }

    async fn has_row(&self, text: &str) -> Result<bool> {
        let mut rows = self.definition_rows(text).await?;
        while let Some(batch) = rows.try_next().await? {
            if batch.num_rows() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
