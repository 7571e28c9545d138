//! Who was exposed to what, and what was assigned to arms.

/// Where exposures are; SQL identifiers and expressions, opaque here.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Exposures {
    pub table: String,
    pub user: String,
    pub variant: String,
    pub time: Option<String>,
    pub filter: Option<String>,
    pub unit: Unit,
    /// Users with any of these rows are left out: a holdout, or an experiment that excludes this one.
    pub exclude: Vec<UserRows>,
    /// Users count from their first such row at or after first exposure; without one, not at all.
    pub activated_by: Option<UserRows>,
}

/// Rows of users in some table.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct UserRows {
    pub table: String,
    pub user: String,
    /// Known of rows that activate.
    pub time: Option<String>,
    pub filter: Option<String>,
}

/// What was assigned to arms, and so is the unit of randomness.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Unit {
    User,
    /// Groups of users, by a SQL expression over the exposures: shops, teams, cities. Metrics stay
    /// per user; errors come from clusters.
    Cluster {
        key: String,
    },
    /// Regions that change arms from one stretch of time to the next. A region and stretch is one
    /// unit; metrics are sums per unit. `region` is an expression that the exposures and every
    /// metric's table have.
    Switchback {
        region: String,
        every_ms: i64,
    },
    /// Users, of whom only counts, means and variances are known; `users` is the SQL of the count.
    Summary {
        users: String,
    },
}

impl Unit {
    /// What units are called, plural.
    pub fn name(&self) -> &'static str {
        match self {
            Self::User | Self::Summary { .. } => "users",
            Self::Cluster { .. } => "clusters",
            Self::Switchback { .. } => "region-times",
        }
    }
}
