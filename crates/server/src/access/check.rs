//! What a role may: worked out once of all that it is a member of, then asked for each statement.
//!
//! # Invariants
//! - What is not granted is denied; an unknown role has no rights at all.
//! - Admins have all rights, and no policy or hidden column is for them.
//! - [`Rights::fingerprint`] is the same only for roles that see the same rows and columns of all tables, so
//!   what is kept of answers may be kept by it.
//!
//! # Not here
//! Which rights a statement needs (`statements`), how conditions get into plans (`engine`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::model::{ADMIN, Access, BUILT_IN, Grant, Object, Verb};

/// What PostgreSQL says to those who may not.
pub const DENIED: &str = "42501";

/// A right that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub verb: Verb,
    pub object: Object,
    /// Those of a table that may not be read, if others may.
    pub columns: Vec<String>,
}

impl Denied {
    /// PostgreSQL's code.
    pub const fn code(&self) -> &'static str {
        DENIED
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permission denied: {} on {}", self.verb, self.object)?;
        match self.columns.as_slice() {
            [] => Ok(()),
            columns => write!(f, ", columns {}", columns.join(", ")),
        }
    }
}

impl std::error::Error for Denied {}

/// Rows of a table that a role may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowFilter<'a> {
    All,
    /// The table has policies, and none is for the role.
    Nothing,
    /// Those for which any of these conditions is true.
    AnyOf(&'a BTreeSet<String>),
}

/// What a role may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    role: String,
    seen: Seen,
    fingerprint: u64,
}

/// What decides which rows and columns there are, in one form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Seen {
    is_admin: bool,
    /// Without those that others cover; columns of a table in one.
    grants: BTreeSet<(Verb, Object, BTreeSet<String>)>,
    /// Of id domains that a role has by name, and not as a member of a built-in role.
    own_domains: BTreeSet<Object>,
    conditions: BTreeMap<String, BTreeSet<String>>,
    hidden: BTreeMap<String, BTreeSet<String>>,
    /// Who reads, if a condition may ask for that.
    reader: Option<String>,
}

impl Access {
    /// The rights of a role, as a member of others as well.
    pub fn of(&self, role: &str) -> Rights {
        let roles = self.memberships(role);
        let mut seen = Seen { is_admin: roles.contains(ADMIN), ..Seen::default() };
        if !seen.is_admin {
            let granted: Vec<&Grant> =
                self.grants.iter().filter(|grant| roles.contains(grant.role.as_str())).collect();
            let domains = granted.iter().filter(|grant| grant.verb == Verb::Usage);
            seen.own_domains = domains.map(|grant| grant.on.clone()).collect();
            seen.grants = in_one_form(&roles, &granted);
            for policy in &self.policies {
                // A table with policies has an entry, whether one is for the role or not.
                let conditions = seen.conditions.entry(policy.table.clone()).or_default();
                if roles.contains(policy.role.as_str()) {
                    conditions.insert(policy.condition.clone());
                }
            }
            for hidden in self.hidden.iter().filter(|hidden| roles.contains(hidden.role.as_str())) {
                let columns = seen.hidden.entry(hidden.table.clone()).or_default();
                columns.extend(hidden.columns.iter().cloned());
            }
            if seen.conditions.values().flatten().any(|condition| may_ask_who(condition)) {
                seen.reader = Some(role.to_owned());
            }
        }
        let fingerprint = number_of(&seen);
        Rights { role: role.to_owned(), seen, fingerprint }
    }
}

/// Grants, with those of built-in roles; none that another covers.
fn in_one_form(
    roles: &BTreeSet<&str>,
    granted: &[&Grant],
) -> BTreeSet<(Verb, Object, BTreeSet<String>)> {
    let mut whole: BTreeSet<(Verb, Object)> = BTreeSet::new();
    for (_, verbs) in BUILT_IN.iter().filter(|(name, _)| roles.contains(name)) {
        whole.extend(verbs.iter().map(|verb| (*verb, Object::Lake)));
    }
    let all = granted.iter().filter(|grant| grant.columns.is_empty());
    whole.extend(all.map(|grant| (grant.verb, grant.on.clone())));
    let is_covered = |verb: Verb, on: &Object, itself: bool| {
        let covers =
            |(other, by): &(Verb, Object)| *other == verb && by.covers(on) && (itself || by != on);
        whole.iter().any(covers)
    };
    let mut of_columns: BTreeMap<(Verb, Object), BTreeSet<String>> = BTreeMap::new();
    for grant in granted.iter().filter(|grant| !grant.columns.is_empty()) {
        if !is_covered(grant.verb, &grant.on, true) {
            let columns = of_columns.entry((grant.verb, grant.on.clone())).or_default();
            columns.extend(grant.columns.iter().cloned());
        }
    }
    let widest = whole.iter().filter(|(verb, on)| !is_covered(*verb, on, false));
    let widest = widest.map(|(verb, on)| (*verb, on.clone(), BTreeSet::new()));
    widest.chain(of_columns.into_iter().map(|((verb, on), columns)| (verb, on, columns))).collect()
}

/// May a condition be another one for another reader (`current_user`, `pg_has_role`, `current_setting`)? A
/// column whose name looks like it only makes answers be kept for each alone.
fn may_ask_who(condition: &str) -> bool {
    let condition = condition.to_ascii_lowercase();
    ["user", "role", "setting", "privilege"].iter().any(|word| condition.contains(word))
}

fn number_of(seen: &Seen) -> u64 {
    // Strings, numbers and sets always have a JSON; keys of maps are strings.
    let text = serde_json::to_vec(seen).unwrap_or_default();
    let digest = ring::digest::digest(&ring::digest::SHA256, &text);
    digest.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Rights {
    /// Whose they are.
    pub fn role(&self) -> &str {
        &self.role
    }

    pub fn is_admin(&self) -> bool {
        self.seen.is_admin
    }

    /// Equal rights, equal number.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// May it do that to all of the object? For the columns of a table see [`Rights::may_read`].
    ///
    /// # Errors
    /// [`Denied`] names the right and the object.
    pub fn may(&self, verb: Verb, object: &Object) -> Result<(), Denied> {
        let covers = |on: &Object| on.covers(object);
        let is_granted =
            match verb {
                _ if self.seen.is_admin => true,
                // Keys of rows that a policy leaves out would be seen: such a role needs a grant of its own.
                Verb::Usage if self.is_restricted() => self.seen.own_domains.iter().any(covers),
                _ => self.seen.grants.iter().any(|(granted, on, columns)| {
                    *granted == verb && columns.is_empty() && covers(on)
                }),
            };
        if is_granted {
            return Ok(());
        }
        Err(Denied { verb, object: object.clone(), columns: Vec::new() })
    }

    /// May it read these columns of a table? With none, as for `count(*)`: any column of it. Hidden ones do
    /// not exist ([`Rights::hidden`]); asked for all the same, they are denied.
    ///
    /// # Errors
    /// [`Denied`] names the columns, if there are others that may be read.
    pub fn may_read(&self, table: &str, columns: &[&str]) -> Result<(), Denied> {
        let object = Object::Table(table.to_owned());
        let whole = self.may(Verb::Select, &object);
        let of_columns = self.granted_columns(&object);
        if whole.is_err() && of_columns.is_none() {
            return whole;
        }
        let hidden = self.hidden(table);
        let may = |column: &str| {
            let is_hidden = hidden.is_some_and(|hidden| hidden.contains(column));
            !is_hidden && (whole.is_ok() || of_columns.is_some_and(|of| of.contains(column)))
        };
        let denied = columns.iter().filter(|column| !may(column));
        let denied: Vec<String> = denied.map(|column| (*column).to_owned()).collect();
        if denied.is_empty() {
            return Ok(());
        }
        Err(Denied { verb: Verb::Select, object, columns: denied })
    }

    /// Columns of a table that it may read, if these are not all of them.
    pub fn granted(&self, table: &str) -> Option<&BTreeSet<String>> {
        self.granted_columns(&Object::Table(table.to_owned()))
    }

    fn granted_columns(&self, table: &Object) -> Option<&BTreeSet<String>> {
        let mut grants = self.seen.grants.iter();
        let found = grants.find(|(verb, on, columns)| {
            *verb == Verb::Select && on == table && !columns.is_empty()
        });
        found.map(|(_, _, columns)| columns)
    }

    /// Does it see that the table is there? Who may do anything to it does.
    pub fn sees(&self, table: &str) -> bool {
        let object = Object::Table(table.to_owned());
        let verbs = [Verb::Select, Verb::Insert, Verb::Update, Verb::Delete, Verb::Create];
        self.granted_columns(&object).is_some()
            || verbs.iter().any(|verb| self.may(*verb, &object).is_ok())
    }

    /// Columns of a table that do not exist for it.
    pub fn hidden(&self, table: &str) -> Option<&BTreeSet<String>> {
        self.seen.hidden.get(table)
    }

    /// Columns that do not exist for it, by table.
    pub fn all_hidden(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.seen.hidden
    }

    /// Tables that have policies, for it or for others; none of an admin.
    pub fn tables_with_policies(&self) -> impl Iterator<Item = &str> {
        self.seen.conditions.keys().map(String::as_str)
    }

    /// Rows of a table that it may read.
    pub fn rows(&self, table: &str) -> RowFilter<'_> {
        match self.seen.conditions.get(table) {
            None => RowFilter::All,
            Some(conditions) if conditions.is_empty() => RowFilter::Nothing,
            Some(conditions) => RowFilter::AnyOf(conditions),
        }
    }

    /// Is there any table of which it may not read all rows or columns? Then it has no sets of ids that
    /// others made, and no keys of id domains without a grant of its own.
    pub fn is_restricted(&self) -> bool {
        !self.seen.conditions.is_empty() || !self.seen.hidden.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{HiddenColumns, Role, RowPolicy};
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Roles and what they are members of.
    fn access(roles: &[(&str, &[&str])]) -> Access {
        let role = |of: &[&str]| Role { login: true, member_of: set(of), ..Role::default() };
        let roles = roles.iter().map(|(name, of)| ((*name).to_owned(), role(of))).collect();
        Access { roles, ..Access::default() }
    }

    fn grant(role: &str, verb: Verb, on: Object, columns: &[&str]) -> Grant {
        Grant { role: role.into(), verb, on, columns: set(columns) }
    }

    fn policy(table: &str, name: &str, role: &str, condition: &str) -> RowPolicy {
        let (table, name) = (table.to_owned(), name.to_owned());
        let (role, condition) = (role.to_owned(), condition.to_owned());
        RowPolicy { table, name, role, condition, made_at: 50 }
    }

    fn table(name: &str) -> Object {
        Object::Table(name.into())
    }

    #[test]
    fn built_in_roles_may_what_they_are_for() {
        use Verb::{
            Administer, Create, Delete, ExecuteReport, Insert, Monitor, ReadFiles, Select, Update,
            Usage, WriteFiles,
        };
        let all = [
            Select,
            Insert,
            Update,
            Delete,
            Create,
            Usage,
            ExecuteReport,
            Monitor,
            ReadFiles,
            WriteFiles,
            Administer,
        ];
        let access = access(&[("nobody", &[])]);
        for (role, may) in [
            ("admin", all.to_vec()),
            ("public", vec![]),
            ("reader", vec![Select, Usage, ExecuteReport]),
            ("writer", vec![Select, Insert, Update, Delete, Create, Usage, ExecuteReport]),
            ("monitor", vec![Monitor]),
            ("read_files", vec![ReadFiles]),
            ("write_files", vec![WriteFiles]),
            ("nobody", vec![]),
            ("unknown", vec![]),
        ] {
            let rights = access.of(role);
            for verb in all {
                let asked = rights.may(verb, &Object::Lake);
                assert_eq!(asked.is_ok(), may.contains(&verb), "{role} {verb}");
            }
            assert_eq!(rights.is_admin(), role == "admin");
            assert_eq!(rights.sees("t"), may.contains(&Select), "{role}");
        }
    }

    #[test]
    fn a_member_may_what_its_roles_may_and_circles_end() {
        let mut access =
            access(&[("ann", &["team"]), ("team", &["all"]), ("all", &["ann"]), ("bob", &[])]);
        access.grants.insert(grant("all", Verb::Insert, table("t"), &[]));
        for role in ["ann", "team", "all"] {
            assert_eq!(access.of(role).may(Verb::Insert, &table("t")), Ok(()), "{role}");
        }
        let denied = access.of("bob").may(Verb::Insert, &table("t")).unwrap_err();
        assert_eq!(denied.code(), "42501");
        assert_eq!(denied.to_string(), "permission denied: INSERT on table `t`");
        assert!(access.of("ann").may(Verb::Insert, &table("u")).is_err());
        assert!(access.of("ann").may(Verb::Delete, &table("t")).is_err());
        access.grants.insert(grant("public", Verb::Insert, Object::Schema("public".into()), &[]));
        assert_eq!(access.of("bob").may(Verb::Insert, &table("u")), Ok(()));
        assert!(access.of("unknown").may(Verb::Insert, &table("u")).is_err());
    }

    #[test]
    fn columns_are_granted_one_by_one() {
        let mut access = access(&[("ann", &["team"]), ("team", &[])]);
        access.grants.insert(grant("ann", Verb::Select, table("t"), &["a"]));
        access.grants.insert(grant("team", Verb::Select, table("t"), &["b"]));
        let rights = access.of("ann");
        assert_eq!(rights.may_read("t", &["a", "b"]), Ok(()));
        assert_eq!(rights.may_read("t", &[]), Ok(()), "count(*)");
        assert!(rights.may(Verb::Select, &table("t")).is_err(), "not the whole table");
        let denied = rights.may_read("t", &["a", "c", "d"]).unwrap_err();
        assert_eq!(denied.to_string(), "permission denied: SELECT on table `t`, columns c, d");
        assert!(rights.sees("t") && !rights.sees("u"));
        assert!(rights.may_read("u", &[]).is_err());
        access.grants.insert(grant("team", Verb::Select, Object::Lake, &[]));
        assert_eq!(access.of("ann").may_read("t", &["c"]), Ok(()));
    }

    #[test]
    fn hidden_columns_are_hidden_from_members_and_not_from_admins() {
        let mut access =
            access(&[("ann", &["team", "reader"]), ("team", &[]), ("boss", &["admin"])]);
        let (table, role) = ("t".to_owned(), "team".to_owned());
        access.hidden.insert(HiddenColumns { table, role, columns: set(&["email"]) });
        let rights = access.of("ann");
        assert_eq!(rights.hidden("t"), Some(&set(&["email"])));
        assert_eq!(rights.may_read("t", &["a"]), Ok(()));
        assert_eq!(rights.may_read("t", &["email"]).unwrap_err().columns, ["email"]);
        assert_eq!(rights.may_read("u", &["email"]), Ok(()));
        assert!(rights.is_restricted());
        access.grant_role("team", "boss").unwrap();
        assert_eq!(access.of("boss").hidden("t"), None);
        assert_eq!(access.of("boss").may_read("t", &["email"]), Ok(()));
    }

    #[test]
    fn rows_are_those_that_any_policy_lets_a_role_read() {
        let mut access = access(&[
            ("ann", &["de", "fr", "reader"]),
            ("de", &[]),
            ("fr", &[]),
            ("bob", &["reader"]),
        ]);
        access.policies.insert(policy("t", "p", "de", "country = 'DE'"));
        access.policies.insert(policy("t", "q", "fr", "country = 'FR'"));
        let both = set(&["country = 'DE'", "country = 'FR'"]);
        let ann = access.of("ann");
        assert_eq!(ann.rows("t"), RowFilter::AnyOf(&both));
        assert_eq!(ann.rows("u"), RowFilter::All);
        assert_eq!(access.of("bob").rows("t"), RowFilter::Nothing);
        assert_eq!(access.of("admin").rows("t"), RowFilter::All);
        access.policies.insert(policy("t", "r", "public", "true"));
        assert_eq!(access.of("bob").rows("t"), RowFilter::AnyOf(&set(&["true"])));
    }

    #[test]
    fn a_role_with_policies_needs_a_grant_of_its_own_for_keys() {
        let mut access = access(&[("ann", &["reader"])]);
        let users = Object::IdDomain("users".into());
        assert_eq!(access.of("ann").may(Verb::Usage, &users), Ok(()));
        access.policies.insert(policy("t", "p", "ann", "a = 1"));
        assert!(access.of("ann").may(Verb::Usage, &users).is_err());
        access.grants.insert(grant("ann", Verb::Usage, users.clone(), &[]));
        assert_eq!(access.of("ann").may(Verb::Usage, &users), Ok(()));
        assert!(access.of("ann").may(Verb::Usage, &Object::IdDomain("other".into())).is_err());
    }

    #[test]
    fn equal_rights_have_equal_numbers_and_others_others() {
        let mut access = access(&[
            ("ann", &["team"]),
            ("bob", &[]),
            ("team", &[]),
            ("r1", &["reader"]),
            ("r2", &["reader"]),
            ("w", &["writer"]),
            ("boss", &["admin"]),
        ]);
        // One by a role and once more, the other itself.
        access.grants.insert(grant("team", Verb::Select, table("t"), &[]));
        access.grants.insert(grant("ann", Verb::Select, table("t"), &["a"]));
        access.grants.insert(grant("bob", Verb::Select, table("t"), &[]));
        access.grants.insert(grant("r1", Verb::Select, table("t"), &[]));
        let number = |access: &Access, role: &str| access.of(role).fingerprint();
        assert_eq!(number(&access, "ann"), number(&access, "bob"));
        assert_eq!(number(&access, "r1"), number(&access, "r2"));
        assert_eq!(number(&access, "boss"), number(&access, "admin"));
        let different = ["ann", "r1", "w", "boss", "monitor", "public"];
        let numbers: BTreeSet<u64> = different.iter().map(|role| number(&access, role)).collect();
        assert_eq!(numbers.len(), different.len());

        let before = number(&access, "r1");
        access.policies.insert(policy("t", "p", "public", "country = 'DE'"));
        assert_ne!(number(&access, "r1"), before, "a policy is another right");
        assert_eq!(number(&access, "r1"), number(&access, "r2"));
        access.policies.insert(policy("t", "q", "public", "owner = CURRENT_USER"));
        assert_ne!(number(&access, "r1"), number(&access, "r2"), "it asks who reads");
        assert_eq!(number(&access, "boss"), number(&access, "admin"));
        let (table, role) = ("t".to_owned(), "w".to_owned());
        let before = number(&access, "w");
        access.hidden.insert(HiddenColumns { table, role, columns: set(&["email"]) });
        assert_ne!(number(&access, "w"), before);
    }
}
