//! Exact order statistics: caps that are quantiles, and quantile metrics.
//!
//! A statement sorts the values of every cell (DataFusion spills what does not fit) and the ranks
//! wanted are counted out of the stream; sizes of the cells are known before. Several caps, and
//! several quantiles of users, share one statement: each user's row is repeated per item and slice.
//!
//! # Invariants
//! - Ranks are those of [`uplake_experiment::quantile::ranks`].

use std::collections::{BTreeMap, HashMap};

use datafusion::arrow::array::RecordBatch;
use futures::TryStreamExt;
use uplake_experiment::Moments;
use uplake_experiment::definition::Cap;
use uplake_experiment::quantile::{Band, Ranks, ranks};
use uplake_experiment::query::{
    MomentsQuery, MomentsTable, QuantileCell, QuantileQuery, UserColumn,
};

use super::collect::check_values;
use super::decode::{doubles, text};
use super::sql::{LAST_VARIANT, Output, Source, Sql, TIME, USER, VARIANT, number_of, text_literal};
use super::time::Times;
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;

/// One sorted set of values. `slice`: the dimension's number, -1 for everyone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    item: i64,
    slice: i64,
    value: String,
    variant: String,
}

impl Session {
    /// Caps that are quantiles, found: column and cap. Without users there are none.
    pub(super) async fn find_caps(
        &self,
        query: &MomentsQuery,
        times: &Times,
    ) -> Result<Vec<(usize, f64)>> {
        let columns = capped(query);
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let [(_, count), (_, sorted)] = caps_statements(query, times, &columns)?;
        // Per column: of everybody whose window is over, or of those of them whose number is not 0.
        let mut users = vec![0; columns.len()];
        let mut rows = self.definition_rows(&count).await?;
        while let Some(batch) = rows.try_next().await? {
            for (users, counts) in users.iter_mut().zip(batch.columns()) {
                *users += doubles(counts)?.iter().flatten().sum::<f64>() as u64;
            }
        }
        let mut wanted = HashMap::new();
        for (item, (_, level, _)) in columns.iter().enumerate().filter(|(item, _)| users[*item] > 0)
        {
            wanted.insert(key(item, -1, "", ""), ranks_of(users[item], *level)?);
        }
        let found = self.pick(&sorted, &wanted).await?;
        let cap = |(item, (column, ..)): (usize, &(usize, f64, bool))| {
            Some((*column, found.get(&key(item, -1, "", ""))?.quantile))
        };
        Ok(columns.iter().enumerate().filter_map(cap).collect())
    }

    /// All quantile cells. `table`: the cells, which know how many users there are.
    pub(super) async fn find_quantiles(
        &self,
        query: &MomentsQuery,
        times: &Times,
        table: &MomentsTable,
    ) -> Result<Vec<QuantileCell>> {
        let mut cells = self.find_user_quantiles(query, times, table).await?;
        for (number, quantile) in query.quantiles.iter().enumerate().filter(|(_, q)| q.per_row) {
            cells.extend(self.find_row_quantiles(query, times, number, quantile).await?);
        }
        cells.sort_by(|a, b| {
            (a.quantile, &a.slice, a.variant).cmp(&(b.quantile, &b.slice, b.variant))
        });
        Ok(cells)
    }

    async fn find_user_quantiles(
        &self,
        query: &MomentsQuery,
        times: &Times,
        table: &MomentsTable,
    ) -> Result<Vec<QuantileCell>> {
        let Some(text) = user_quantiles_statement(query, times)? else { return Ok(Vec::new()) };
        let (mut wanted, mut cells) = (HashMap::new(), Vec::new());
        let items = query.quantiles.iter().enumerate().filter(|(_, q)| !q.per_row).enumerate();
        for (item, (quantile, of)) in items {
            for cell in &table.cells {
                let (slice, value) = match &cell.slice {
                    None => (-1, ""),
                    Some((dimension, value)) => (*dimension as i64, value.as_str()),
                };
                let key = key(item, slice, value, &query.variants[cell.variant].value);
                let values = match query.complete_ms(of.metric) {
                    Some(_) => cell.groups[of.metric].count(),
                    None => cell.users,
                };
                if values > 0 {
                    wanted.insert(key.clone(), ranks_of(values, of.level)?);
                }
                let (slice, variant) = (cell.slice.clone(), cell.variant);
                let cell =
                    QuantileCell { quantile, slice, variant, values, band: None, clusters: None };
                cells.push((key, cell));
            }
        }
        let found = self.pick(&text, &wanted).await?;
        let filled = cells
            .into_iter()
            .map(|(key, cell)| QuantileCell { band: found.get(&key).copied(), ..cell });
        Ok(filled.collect())
    }

    async fn find_row_quantiles(
        &self,
        query: &MomentsQuery,
        times: &Times,
        number: usize,
        quantile: &QuantileQuery,
    ) -> Result<Vec<QuantileCell>> {
        let sql = RowsSql::new(query, times, &quantile.column)?;
        let mut sizes: BTreeMap<Key, u64> = BTreeMap::new();
        let mut rows = self.definition_rows(&sql.sizes()).await?;
        while let Some(batch) = rows.try_next().await? {
            let counts = doubles(batch.column(4))?;
            for (row, key) in keys(&batch)?.into_iter().enumerate() {
                sizes.insert(key, counts.value(row) as u64);
            }
        }
        for (number, dimension) in query.dimensions.iter().enumerate() {
            let values = sizes.keys().filter(|key| key.slice == number as i64);
            check_values(&dimension.name, values.count() / query.variants.len().max(1))?;
        }
        let wanted = sizes
            .iter()
            .map(|(key, values)| Ok((key.clone(), ranks_of(*values, quantile.level)?)))
            .collect::<Result<HashMap<_, _>>>()?;
        let found = self.pick(&sql.sorted(), &wanted).await?;
        let mut clusters = self.cluster_moments(&sql, &found).await?;
        let mut cells = Vec::new();
        for (variant, arm) in query.variants.iter().enumerate() {
            // The cell of everyone is there even without values.
            sizes.entry(key(0, -1, "", &arm.value)).or_insert(0);
            for (key, values) in sizes.iter().filter(|(key, _)| key.variant == arm.value) {
                cells.push(QuantileCell {
                    quantile: number,
                    slice: usize::try_from(key.slice).ok().map(|slice| (slice, key.value.clone())),
                    variant,
                    values: *values,
                    band: found.get(key).copied(),
                    clusters: Some(clusters.remove(key).unwrap_or_else(|| Moments::new(2))),
                });
            }
        }
        Ok(cells)
    }

    /// Per cell, the moments over users of (values at or below the quantile, values).
    async fn cluster_moments(
        &self,
        sql: &RowsSql<'_>,
        found: &HashMap<Key, Band>,
    ) -> Result<HashMap<Key, Moments>> {
        let mut moments: HashMap<Key, Moments> = HashMap::new();
        if found.is_empty() {
            return Ok(moments);
        }
        let mut quantiles: Vec<(&Key, f64)> =
            found.iter().map(|(key, band)| (key, band.quantile)).collect();
        quantiles.sort_by_key(|(key, _)| *key);
        let mut rows = self.definition_rows(&sql.clusters(&quantiles)).await?;
        while let Some(batch) = rows.try_next().await? {
            let (below, values) = (doubles(batch.column(4))?, doubles(batch.column(5))?);
            for (row, key) in keys(&batch)?.into_iter().enumerate() {
                let cell = moments.entry(key).or_insert_with(|| Moments::new(2));
                cell.add(&[below.value(row), values.value(row)]);
            }
        }
        Ok(moments)
    }

    /// Counts the values at the ranks out of a statement's sorted rows.
    async fn pick(&self, sorted: &str, wanted: &HashMap<Key, Ranks>) -> Result<HashMap<Key, Band>> {
        let mut found: HashMap<Key, Band> = HashMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        let mut rows = self.definition_rows(sorted).await?;
        let (mut current, mut rank) = (None, 0);
        while let Some(batch) = rows.try_next().await? {
            let values = doubles(batch.column(4))?;
            for (row, key) in keys(&batch)?.into_iter().enumerate() {
                if current.as_ref() != Some(&key) {
                    current = Some(key);
                    rank = 0;
                }
                rank += 1;
                let Some(key) = &current else { continue };
                let Some(ranks) = wanted.get(key) else { continue };
                if rank != ranks.low && rank != ranks.quantile && rank != ranks.high {
                    continue;
                }
                let value = values.value(row);
                let band = found.entry(key.clone()).or_insert(Band {
                    low: value,
                    quantile: value,
                    high: value,
                });
                if rank <= ranks.quantile {
                    band.quantile = value;
                }
                band.high = value;
            }
        }
        Ok(found)
    }
}

/// Comment and text of every statement that finds caps.
pub(super) fn caps_sql(query: &MomentsQuery, times: &Times) -> Result<Vec<(String, String)>> {
    let columns = capped(query);
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    Ok(caps_statements(query, times, &columns)?.into())
}

/// Comment and text of every statement that finds quantiles.
pub(super) fn quantiles_sql(query: &MomentsQuery, times: &Times) -> Result<Vec<(String, String)>> {
    let mut statements = Vec::new();
    if let Some(text) = user_quantiles_statement(query, times)? {
        let comment = "Users' numbers in order, of which the quantiles are those at their ranks";
        statements.push((comment.to_owned(), text));
    }
    for quantile in query.quantiles.iter().filter(|q| q.per_row) {
        let sql = RowsSql::new(query, times, &quantile.column)?;
        let name = query.metrics.get(quantile.metric).map_or("", String::as_str);
        statements.push((format!("How many values `{name}` has per slice and arm"), sql.sizes()));
        let comment = format!("Values of `{name}` in order, of which the quantile is one");
        statements.push((comment, sql.sorted()));
        let comment = format!(
            "Per user of `{name}`, values and those at or below the quantile: put the quantiles \
             found in place of 0.0"
        );
        let keys: Vec<Key> =
            query.variants.iter().map(|variant| key(0, -1, "", &variant.value)).collect();
        let quantiles: Vec<(&Key, f64)> = keys.iter().map(|key| (key, 0.0)).collect();
        statements.push((comment, sql.clusters(&quantiles)));
    }
    Ok(statements)
}

fn key(item: usize, slice: i64, value: &str, variant: &str) -> Key {
    Key { item: item as i64, slice, value: value.to_owned(), variant: variant.to_owned() }
}

fn keys(batch: &RecordBatch) -> Result<Vec<Key>> {
    let (items, slices) = (doubles(batch.column(0))?, doubles(batch.column(1))?);
    let (values, variants) = (text(batch.column(2))?, text(batch.column(3))?);
    let key = |row| Key {
        item: items.value(row) as i64,
        slice: slices.value(row) as i64,
        value: values.value(row).to_owned(),
        variant: variants.value(row).to_owned(),
    };
    Ok((0..batch.num_rows()).map(key).collect())
}

fn ranks_of(values: u64, level: f64) -> Result<Ranks> {
    ranks(values, level)
        .map_err(|e| EngineError::report(SqlState::ProgramLimitExceeded, e.to_string()))
}

/// Columns whose cap is a quantile, with its level and whether users with 0 count.
fn capped(query: &MomentsQuery) -> Vec<(usize, f64, bool)> {
    let level = |(number, column): (usize, &UserColumn)| match column.cap {
        Some(Cap::Quantile { level, zeros }) => Some((number, level, zeros)),
        _ => None,
    };
    query.columns.iter().enumerate().filter_map(level).collect()
}

/// The same users with other columns.
pub(super) fn only(query: &MomentsQuery, columns: Vec<UserColumn>) -> MomentsQuery {
    MomentsQuery {
        columns,
        groups: Vec::new(),
        metrics: Vec::new(),
        since: Vec::new(),
        quantiles: Vec::new(),
        assignment: None,
        days: false,
        paths: Vec::new(),
        conversion_times: Vec::new(),
        ..query.clone()
    }
}

fn caps_statements(
    query: &MomentsQuery,
    times: &Times,
    columns: &[(usize, f64, bool)],
) -> Result<[(String, String); 2]> {
    let without_zeros: Vec<bool> = columns.iter().map(|(_, _, zeros)| !zeros).collect();
    let columns = columns.iter().map(|(number, ..)| query.columns[*number].clone()).collect();
    let query = MomentsQuery { dimensions: Vec::new(), others: Vec::new(), ..only(query, columns) };
    let times = Times { days: None, ..times.clone() };
    let sql = Sql::new(&query, &times)?;
    let counts = sql.query.columns.iter().enumerate().map(|(item, column)| {
        let number = without_zeros[item].then(|| number_or_null(&sql, item, true));
        let counted = match (sql.is_complete(column, "e"), number) {
            (None, None) => "count(*)".to_owned(),
            (None, Some(number)) => format!("count({number})"),
            (Some(complete), None) => format!("sum(CASE WHEN {complete} THEN 1.0 ELSE 0.0 END)"),
            (Some(complete), Some(number)) => {
                format!("count(CASE WHEN {complete} THEN {number} END)")
            }
        };
        format!("{counted} AS users{item}")
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    let (tables, joins) = match without_zeros.contains(&true) {
        true => (sql.tables(), joins(&sql)),
        false => (format!("WITH exposed AS (\n{}\n)", sql.exposed()), String::new()),
    };
    let count =
        format!("{tables}\nSELECT {counts}\nFROM exposed e{joins}\nWHERE {}", sql.in_one_arm("e"));
    let sorted = sorted_numbers(&sql, "''", &without_zeros);
    Ok([
        ("How many users share the caps' quantiles".to_owned(), count),
        ("Users' numbers in order, of which the caps are those at their ranks".to_owned(), sorted),
    ])
}

fn user_quantiles_statement(query: &MomentsQuery, times: &Times) -> Result<Option<String>> {
    let of_users = query.quantiles.iter().filter(|quantile| !quantile.per_row);
    let columns: Vec<UserColumn> = of_users.map(|quantile| quantile.column.clone()).collect();
    if columns.is_empty() {
        return Ok(None);
    }
    let query = only(query, columns);
    let times = Times { days: None, ..times.clone() };
    let sql = Sql::new(&query, &times)?;
    let with_zeros = vec![false; query.columns.len()];
    Ok(Some(sorted_numbers(&sql, &format!("e.{VARIANT}"), &with_zeros)))
}

/// A user's number of a column; NULL for 0 where those are left out.
fn number_or_null(sql: &Sql<'_>, column: usize, without_zeros: bool) -> String {
    let of_source = |(number, source): (usize, &Source)| {
        let is_of = |output: &Output| *output == Output::Number { column };
        source.outputs.iter().position(is_of).map(|place| format!("m{number}.c{place}"))
    };
    let number = sql.sources.iter().enumerate().find_map(of_source).unwrap_or("NULL".into());
    if without_zeros {
        format!("nullif({number}, 0.0)")
    } else {
        format!("coalesce({number}, 0.0)")
    }
}

fn joins(sql: &Sql<'_>) -> String {
    let join = |number| format!("\n  LEFT JOIN m{number} ON m{number}.{USER} = e.{USER}");
    (0..sql.sources.len()).map(join).collect()
}

/// Every column's numbers in order, per slice and `variant`; item 0 is the first column. `without_zeros`: of which
/// columns those come last, as NULL.
fn sorted_numbers(sql: &Sql<'_>, variant: &str, without_zeros: &[bool]) -> String {
    let number = |column| number_or_null(sql, column, without_zeros[column]);
    let numbers: String = (0..sql.query.columns.len())
        .map(|column| format!(" WHEN {column} THEN {}", number(column)))
        .collect();
    let joins = joins(sql);
    let complete = sql.query.columns.iter().enumerate().filter_map(|(item, column)| {
        Some(format!(" AND (t.item <> {item} OR {})", sql.is_complete(column, "e")?))
    });
    let complete: String = complete.collect();
    let repeated = (0..sql.query.columns.len())
        .flat_map(|item| (-1..sql.query.dimensions.len() as i64).map(move |slice| (item, slice)))
        .map(|(item, slice)| format!("({item}, {slice})"))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "{}\nSELECT t.item, t.slice, {} AS value, {variant} AS variant,\n  \
         CASE t.item{numbers} END AS number\nFROM exposed e{joins}\n  \
         CROSS JOIN (VALUES {repeated}) AS t(item, slice)\nWHERE {}{complete}\n\
         ORDER BY item, slice, value, variant, number",
        sql.tables(),
        slice_value(sql.query),
        sql.in_one_arm("e"),
    )
}

/// The value of the dimension with the number `t.slice`.
fn slice_value(query: &MomentsQuery) -> String {
    if query.dimensions.is_empty() {
        return "''".to_owned();
    }
    let whens: String = (0..query.dimensions.len())
        .map(|number| format!(" WHEN {number} THEN {}", Sql::dimension(number)))
        .collect();
    format!("CASE t.slice{whens} ELSE '' END")
}

/// The statements of a quantile over rows.
struct RowsSql<'a> {
    query: &'a MomentsQuery,
    /// WITH clause and the rows `t` with item, slice, value, variant, user and number.
    with: String,
}

impl<'a> RowsSql<'a> {
    fn new(query: &'a MomentsQuery, times: &Times, column: &UserColumn) -> Result<Self> {
        let sql = Sql::new(query, times)?;
        sql.check(column)?;
        let value = format!(",\n    {} AS number", number_of(column));
        let mut counts = sql.window_condition(column).unwrap_or_else(|| "true".into());
        if let Some(complete) = sql.is_complete(column, "exposed") {
            counts = format!("{counts} AND {complete}");
        }
        let dimensions: String = (0..query.dimensions.len())
            .map(|number| format!(", {}", Sql::dimension(number).replacen("e.", "exposed.", 1)))
            .collect();
        let slices: Vec<String> =
            (-1..query.dimensions.len() as i64).map(|slice| format!("({slice})")).collect();
        let with = format!(
            "WITH exposed AS (\n{}\n),\ncounted AS (\n  SELECT exposed.{USER}, exposed.{VARIANT}, \
             exposed.{LAST_VARIANT}, exposed.{TIME}{dimensions}, x.number\n  FROM {}\n  WHERE {counts}\n),\n\
             sliced AS (\n  SELECT 0 AS item, t.slice, {} AS value, e.{VARIANT} AS variant, \
             e.{USER}, e.number\n  FROM counted e CROSS JOIN (VALUES {}) AS t(slice)\n  \
             WHERE {} AND e.number IS NOT NULL\n)",
            sql.exposed(),
            sql.joined(column, &[column], &value),
            slice_value(query),
            slices.join(", "),
            sql.in_one_arm("e"),
        );
        Ok(Self { query, with })
    }

    fn sizes(&self) -> String {
        format!(
            "{}\nSELECT item, slice, value, variant, count(*) AS values\nFROM sliced\n\
             GROUP BY item, slice, value, variant",
            self.with
        )
    }

    fn sorted(&self) -> String {
        format!(
            "{}\nSELECT item, slice, value, variant, number\nFROM sliced\n\
             ORDER BY item, slice, value, variant, number",
            self.with
        )
    }

    fn clusters(&self, quantiles: &[(&Key, f64)]) -> String {
        debug_assert!(!self.query.variants.is_empty());
        let rows: Vec<String> = quantiles
            .iter()
            .map(|(key, quantile)| {
                let number = if quantile.is_finite() {
                    format!("{quantile:?}")
                } else {
                    format!("CAST('{quantile}' AS DOUBLE)")
                };
                let (value, variant) = (text_literal(&key.value), text_literal(&key.variant));
                format!("({}, {value}, {variant}, {number})", key.slice)
            })
            .collect();
        format!(
            "{},\nquantiles AS (\n  SELECT column1 AS slice, column2 AS value, column3 AS variant, \
             column4 AS quantile\n  FROM (VALUES {})\n)\n\
             SELECT s.item, s.slice, s.value, s.variant,\n  \
             sum(CASE WHEN s.number <= q.quantile THEN 1.0 ELSE 0.0 END) AS below, \
             CAST(count(*) AS DOUBLE) AS values\nFROM sliced s JOIN quantiles q\n  \
             ON q.slice = s.slice AND q.value = s.value AND q.variant = s.variant\n\
             GROUP BY s.item, s.slice, s.value, s.variant, s.{USER}",
            self.with,
            rows.join(", "),
        )
    }
}
