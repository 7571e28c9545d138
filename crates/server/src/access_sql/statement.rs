//! What a statement about access says.

use std::fmt;

use crate::access::{Tenant, Verb, Verifier};

/// A statement about access, as it is written: nothing is looked up yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AccessStatement {
    CreateRole {
        name: String,
        options: RoleOptions,
    },
    AlterRole {
        role: RoleName,
        options: RoleOptions,
    },
    DropRoles {
        names: Vec<String>,
        if_exists: bool,
    },
    GrantRoles {
        of: Vec<String>,
        to: Vec<RoleName>,
    },
    RevokeRoles {
        of: Vec<String>,
        from: Vec<RoleName>,
    },
    Grant(Granting),
    Revoke(Granting),
    CreatePolicy {
        name: String,
        table: Named,
        roles: Vec<RoleName>,
        condition: Condition,
    },
    AlterPolicy {
        name: String,
        table: Named,
        change: PolicyChange,
    },
    DropPolicy {
        name: String,
        table: Named,
        if_exists: bool,
    },
    /// Hides columns, or shows them again.
    Columns {
        table: Named,
        columns: Vec<Named>,
        roles: Vec<RoleName>,
        hides: bool,
    },
    CreateTenant {
        name: String,
        limits: Vec<Limit>,
    },
    AlterTenant {
        name: String,
        limits: Vec<Limit>,
    },
    DropTenant {
        name: String,
        if_exists: bool,
    },
    CreateToken {
        name: Option<String>,
        role: RoleName,
        valid_until: Option<i64>,
    },
    DropToken {
        name: String,
        role: RoleName,
        if_exists: bool,
    },
}

/// Whom a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RoleName {
    Named(String),
    /// `CURRENT_USER`.
    Own,
}

/// The name of a table or a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub name: String,
    /// In double quotes: no other case is meant.
    pub is_exact: bool,
    /// The byte at which it begins.
    pub at: usize,
}

/// What is said of a role; `Some(None)` is that it has no such limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RoleOptions {
    pub login: Option<bool>,
    pub password: Option<Option<Password>>,
    pub member_of: Vec<String>,
    pub valid_until: Option<Option<i64>>,
    pub connection_limit: Option<Option<u32>>,
    pub tenant: Option<Option<String>>,
}

impl RoleOptions {
    /// Is it a new password, and nothing else?
    pub fn is_password_alone(&self) -> bool {
        let others = Self { password: None, ..self.clone() };
        matches!(self.password, Some(Some(_))) && others == Self::default()
    }
}

/// A password, or what checks one.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Password {
    Plain(String),
    Verifier(Verifier),
}

/// Logs do not have it.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// `GRANT verbs ON objects TO roles`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Granting {
    pub verbs: Verbs,
    pub on: Vec<On>,
    pub roles: Vec<RoleName>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verbs {
    /// All that the object has.
    All,
    Some(Vec<(Verb, Vec<Named>)>),
}

/// What a right is on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum On {
    Lake,
    Schema,
    Table(Named),
    IdDomain(String),
    Experiment(String),
}

/// The condition of a policy, and the byte at which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub text: String,
    pub at: usize,
}

/// What changes of a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PolicyChange {
    pub roles: Option<Vec<RoleName>>,
    pub condition: Option<Condition>,
}

/// A limit of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    Weight(u32),
    Slots(Option<u32>),
    Queue(Option<u32>),
    Memory(Option<u64>),
    Spool(Option<u64>),
    ScanBytesPerDay(Option<u64>),
    ComputeSecondsPerHour(Option<u64>),
    MicrodollarsPerDay(Option<u64>),
    IngestBytesPerSecond(Option<u64>),
}

impl Limit {
    pub fn put(self, tenant: &mut Tenant) {
        match self {
            Self::Weight(weight) => tenant.weight = weight,
            Self::Slots(slots) => tenant.slots = slots,
            Self::Queue(queue) => tenant.queue = queue,
            Self::Memory(bytes) => tenant.memory_bytes = bytes,
            Self::Spool(bytes) => tenant.spool_bytes = bytes,
            Self::ScanBytesPerDay(bytes) => tenant.scan_bytes_per_day = bytes,
            Self::ComputeSecondsPerHour(seconds) => tenant.compute_seconds_per_hour = seconds,
            Self::MicrodollarsPerDay(dollars) => tenant.microdollars_per_day = dollars,
            Self::IngestBytesPerSecond(bytes) => tenant.ingest_bytes_per_second = bytes,
        }
    }
}
