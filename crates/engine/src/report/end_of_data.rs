//! Up to when the data of a report are known, which says whose windows are over.
//!
//! That is the period's end or, if earlier, the last time in any table that the report reads for its own
//! users: rows of anybody count, because they show how far a table was loaded. Other experiments' exposures
//! do not: who asks about them gets the same figures. A definition may say it instead.
//!
//! # Not here
//! What becomes of users whose windows are not over: `collect`, and `sql` for ranks.

use chrono::{DateTime, Duration, Timelike, Utc};
use futures::TryStreamExt;
use uplake_experiment::query::{Aggregate, MomentsQuery};

use super::decode::doubles;
use super::sql::as_timestamp;
use super::time::{Times, instant};
use crate::base::error::Result;
use crate::engine::session::Session;

impl Session {
    /// When rows count, and up to when they are known if that matters.
    ///
    /// # Errors
    /// As [`Times::of`], and what the tables say.
    pub(super) async fn times(&self, query: &MomentsQuery) -> Result<Times> {
        let mut times = Times::of(query)?;
        if !query.needs_end_of_data() {
            return Ok(times);
        }
        let end = times.period.map(|(_, end)| end);
        let known = match &query.observed_until {
            Some(text) => Some(instant(text, times.zone)?),
            None => self.last_time(query).await?,
        };
        let earliest = known.into_iter().chain(end).min();
        times.observed = Some(earliest.unwrap_or(DateTime::UNIX_EPOCH));
        Ok(times)
    }

    /// Just after the last time in any of the tables.
    async fn last_time(&self, query: &MomentsQuery) -> Result<Option<DateTime<Utc>>> {
        let columns = query.columns.iter().filter(|column| column.aggregate != Aggregate::One);
        let columns = columns.chain(query.quantiles.iter().map(|quantile| &quantile.column));
        let mut sources = vec![(&query.exposures.table, query.exposures.time.as_ref())];
        let activating = query.exposures.activated_by.iter();
        sources.extend(activating.map(|rows| (&rows.table, rows.time.as_ref())));
        sources.extend(columns.map(|column| (&column.table, column.time.as_ref())));
        sources.sort();
        sources.dedup();
        let mut last = None;
        for (table, time) in sources {
            let Some(time) = time else { continue };
            let of_table = match self.last_of_files(table, time).await? {
                Some(last) => Some(last),
                None => self.last_of_rows(table, time).await?,
            };
            last = last.max(of_table);
        }
        Ok(last.and_then(DateTime::from_timestamp_micros))
    }

    /// One microsecond after the last time, if the bounds of all files are known.
    async fn last_of_files(&self, table: &str, time: &str) -> Result<Option<i64>> {
        let Some(table) = self.catalog.find(table).await? else { return Ok(None) };
        let times: Option<Vec<(i64, i64)>> = table.times(time).into_iter().collect();
        Ok(times.and_then(|times| times.into_iter().map(|(_, last)| last).max()))
    }

    async fn last_of_rows(&self, table: &str, time: &str) -> Result<Option<i64>> {
        let micros = format!("CAST(max({}) AS BIGINT)", as_timestamp(time));
        // Two doubles hold a time to the microsecond beyond the year 2255, too.
        let text = format!(
            "SELECT {micros} / 1000000 AS seconds, {micros} % 1000000 AS micros FROM {table}"
        );
        let mut rows = self.definition_rows(&text).await?;
        while let Some(batch) = rows.try_next().await? {
            let (seconds, micros) = (doubles(batch.column(0))?, doubles(batch.column(1))?);
            if let (Some(Some(seconds)), Some(Some(micros))) =
                (seconds.iter().next(), micros.iter().next())
            {
                return Ok(Some(seconds as i64 * 1_000_000 + micros as i64 + 1));
            }
        }
        Ok(None)
    }
}

impl Times {
    /// [`Self::observed`] as a local time, to the second that is over.
    pub fn observed_text(&self) -> Option<String> {
        let observed = self.observed?;
        let whole = observed.with_nanosecond(0)?;
        let over = if whole < observed { whole + Duration::seconds(1) } else { whole };
        Some(over.with_timezone(&self.zone).format("%Y-%m-%dT%H:%M:%S").to_string())
    }

    /// What is known, in microseconds since 1970; nothing if nobody asks.
    pub fn observed_micros(&self) -> i64 {
        self.observed.map_or(i64::MIN, |observed| observed.timestamp_micros())
    }
}
