//! What the rows of one user say, whoever reads them.

use uplake_experiment::query::{Aggregate, MomentsQuery};

/// A change of a user's rows: on a day so much is added to a column, or it is set. Of numbers of days and of
/// values that are first or last there is one per column and day.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// Since 1970, local.
    pub day: i32,
    pub column: usize,
    pub value: f64,
}

/// What the rows of one user say.
#[derive(Debug, Default)]
pub(super) struct UserRow {
    /// Microseconds since 1970.
    pub time: Option<i64>,
    /// Per column what is known at first exposure.
    pub known: Vec<f64>,
    pub changes: Vec<Change>,
    /// Per table with rows that count, the days of them.
    pub active: Vec<(usize, i32)>,
}

/// What is known of every user without rows: 1 per user where users are counted.
pub(super) fn without_rows(query: &MomentsQuery) -> Vec<f64> {
    let one = |aggregate: &Aggregate| f64::from(u8::from(*aggregate == Aggregate::One));
    query.columns.iter().map(|column| one(&column.aggregate)).collect()
}
