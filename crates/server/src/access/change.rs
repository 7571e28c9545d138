//! Changes of access, each refused if it would leave something that means nothing.
//!
//! Names come here folded (`names`).
//!
//! # Not here
//! Who may change it (`check`), how a change gets into the lake (`store`).

use super::error::{AccessError, Result};
use super::model::{Access, Grant, HiddenColumns, Role, RowPolicy, Tenant, is_built_in};
use super::names::checked;
use super::passwords::Verifier;
use super::tokens::Token;

/// A tenant's share is at most this many times another's.
const MAX_WEIGHT: u32 = 1000;

impl Access {
    /// # Errors
    /// [`AccessError::Exists`], [`AccessError::BuiltIn`], and [`AccessError::NoSuch`] for what it names.
    pub fn add_role(&mut self, name: &str, role: Role) -> Result<()> {
        self.own(name)?;
        if self.roles.contains_key(name) {
            return Err(AccessError::Exists { what: "role", name: name.to_owned() });
        }
        for of in &role.member_of {
            self.known_role(of)?;
        }
        if let Some(tenant) = &role.tenant {
            self.known_tenant(tenant)?;
        }
        self.roles.insert(checked(name.to_owned())?, role);
        Ok(())
    }

    /// Takes a role away with its grants, tokens and memberships.
    ///
    /// # Errors
    /// [`AccessError::InUse`] if a row policy or hidden columns name it: without them others might see more.
    pub fn drop_role(&mut self, name: &str) -> Result<()> {
        self.role_mut(name)?;
        let policy = self.policies.iter().find(|policy| policy.role == name);
        let policy = policy.map(|policy| format!("policy `{}` of {}", policy.name, policy.table));
        let hidden = self.hidden.iter().find(|hidden| hidden.role == name);
        let hidden = hidden.map(|hidden| format!("hidden columns of {}", hidden.table));
        if let Some(by) = policy.or(hidden) {
            return Err(AccessError::InUse { what: "role", name: name.to_owned(), by });
        }
        self.roles.remove(name);
        self.roles.values_mut().for_each(|role| {
            role.member_of.remove(name);
        });
        self.grants.retain(|grant| grant.role != name);
        self.tokens.retain(|token| token.role != name);
        Ok(())
    }

    /// Changes what is said of a role.
    ///
    /// # Errors
    /// [`AccessError::BuiltIn`], and [`AccessError::NoSuch`] for it and for its tenant.
    pub fn alter_role(&mut self, name: &str, change: impl FnOnce(&mut Role)) -> Result<()> {
        let role = self.role_mut(name)?;
        change(role);
        match role.tenant.clone() {
            Some(tenant) => self.known_tenant(&tenant),
            None => Ok(()),
        }
    }

    /// # Errors
    /// [`AccessError::NoSuch`], [`AccessError::BuiltIn`].
    pub fn set_password(&mut self, name: &str, password: Verifier) -> Result<()> {
        self.role_mut(name)?.password = Some(password);
        Ok(())
    }

    /// Makes a role a member of another.
    ///
    /// # Errors
    /// [`AccessError::Circle`] if that is a member of it, [`AccessError::NoSuch`].
    pub fn grant_role(&mut self, of: &str, role: &str) -> Result<()> {
        self.known_role(of)?;
        self.own(role)?;
        self.known_role(role)?;
        if self.memberships(of).contains(role) {
            return Err(AccessError::Circle { role: role.to_owned(), of: of.to_owned() });
        }
        self.role_mut(role)?.member_of.insert(of.to_owned());
        Ok(())
    }

    /// # Errors
    /// [`AccessError::NoSuch`] if it is none.
    pub fn revoke_role(&mut self, of: &str, role: &str) -> Result<()> {
        if self.role_mut(role)?.member_of.remove(of) {
            return Ok(());
        }
        Err(AccessError::NoSuch { what: "membership", name: format!("{role} of {of}") })
    }

    /// # Errors
    /// [`AccessError::Value`] for a right that does not go with the object, [`AccessError::NoSuch`].
    pub fn grant(&mut self, grant: Grant) -> Result<()> {
        self.granting(&grant)?;
        self.grants.insert(grant);
        Ok(())
    }

    /// Takes a right back; of columns those alone.
    ///
    /// # Errors
    /// [`AccessError::NoSuch`] if it was not granted.
    pub fn revoke(&mut self, revoked: &Grant) -> Result<()> {
        let same = |grant: &&Grant| {
            grant.role == revoked.role && grant.verb == revoked.verb && grant.on == revoked.on
        };
        let granted: Vec<Grant> = self.grants.iter().filter(same).cloned().collect();
        let mut was_there = false;
        for grant in granted {
            if revoked.columns.is_empty() {
                was_there = self.grants.remove(&grant) || was_there;
            } else if !grant.columns.is_disjoint(&revoked.columns) {
                was_there = self.grants.remove(&grant) || was_there;
                let left: std::collections::BTreeSet<String> =
                    grant.columns.difference(&revoked.columns).cloned().collect();
                if !left.is_empty() {
                    self.grants.insert(Grant { columns: left, ..grant });
                }
            }
        }
        if was_there {
            return Ok(());
        }
        let name = format!("{} on {} for {}", revoked.verb, revoked.on, revoked.role);
        Err(AccessError::NoSuch { what: "grant", name })
    }

    /// # Errors
    /// [`AccessError::Exists`], [`AccessError::NoSuch`] for its role.
    pub fn add_policy(&mut self, policy: RowPolicy) -> Result<()> {
        self.known_role(&policy.role)?;
        checked(policy.name.clone())?;
        let is_same = |other: &RowPolicy| other.table == policy.table && other.name == policy.name;
        if self.policies.iter().any(is_same) {
            return Err(AccessError::Exists { what: "policy", name: policy.name });
        }
        self.policies.insert(policy);
        Ok(())
    }

    /// # Errors
    /// [`AccessError::NoSuch`].
    pub fn drop_policy(&mut self, table: &str, name: &str) -> Result<()> {
        let count = self.policies.len();
        self.policies.retain(|policy| !(policy.table == table && policy.name == name));
        gone("policy", name, count, self.policies.len())
    }

    /// Hides columns of a table from a role: these, and no longer others; none to show all.
    ///
    /// # Errors
    /// [`AccessError::NoSuch`] for its role.
    pub fn hide(&mut self, hidden: HiddenColumns) -> Result<()> {
        self.known_role(&hidden.role)?;
        self.hidden.retain(|old| !(old.table == hidden.table && old.role == hidden.role));
        if !hidden.columns.is_empty() {
            self.hidden.insert(hidden);
        }
        Ok(())
    }

    /// # Errors
    /// [`AccessError::Exists`], [`AccessError::Value`].
    pub fn add_tenant(&mut self, name: &str, tenant: Tenant) -> Result<()> {
        if self.tenants.contains_key(name) {
            return Err(AccessError::Exists { what: "tenant", name: name.to_owned() });
        }
        sensible(&tenant)?;
        self.tenants.insert(checked(name.to_owned())?, tenant);
        Ok(())
    }

    /// Changes limits of a tenant.
    ///
    /// # Errors
    /// [`AccessError::NoSuch`], [`AccessError::Value`].
    pub fn alter_tenant(&mut self, name: &str, change: impl FnOnce(&mut Tenant)) -> Result<()> {
        let none = || AccessError::NoSuch { what: "tenant", name: name.to_owned() };
        let tenant = self.tenants.get_mut(name).ok_or_else(none)?;
        change(tenant);
        sensible(tenant)
    }

    /// # Errors
    /// [`AccessError::InUse`] while a role has it.
    pub fn drop_tenant(&mut self, name: &str) -> Result<()> {
        let has = |role: &Role| role.tenant.as_deref() == Some(name);
        if let Some((role, _)) = self.roles.iter().find(|(_, role)| has(role)) {
            let by = format!("role `{role}`");
            return Err(AccessError::InUse { what: "tenant", name: name.to_owned(), by });
        }
        let count = self.tenants.len();
        self.tenants.remove(name);
        gone("tenant", name, count, self.tenants.len())
    }

    /// # Errors
    /// [`AccessError::Exists`] if the role has one of that name.
    pub fn add_token(&mut self, token: Token) -> Result<()> {
        self.role_mut(&token.role)?;
        checked(token.name.clone())?;
        let is_same = |other: &Token| other.role == token.role && other.name == token.name;
        if self.tokens.iter().any(is_same) {
            return Err(AccessError::Exists { what: "token", name: token.name });
        }
        self.tokens.push(token);
        Ok(())
    }

    /// # Errors
    /// [`AccessError::NoSuch`].
    pub fn drop_token(&mut self, role: &str, name: &str) -> Result<()> {
        let count = self.tokens.len();
        self.tokens.retain(|token| !(token.role == role && token.name == name));
        gone("token", name, count, self.tokens.len())
    }

    fn granting(&self, grant: &Grant) -> Result<()> {
        self.known_role(&grant.role)?;
        if is_built_in(&grant.role) && grant.role != super::model::PUBLIC {
            return Err(AccessError::BuiltIn { name: grant.role.clone() });
        }
        let (verb, on) = (grant.verb, &grant.on);
        let of_columns =
            verb == super::model::Verb::Select && matches!(on, super::model::Object::Table(_));
        if !verb.goes_with(on) {
            return Err(AccessError::Value(format!("{verb} cannot be granted on {on}")));
        }
        if !grant.columns.is_empty() && !of_columns {
            let text =
                format!("{verb} on {on} cannot be granted for columns; SELECT on a table can");
            return Err(AccessError::Value(text));
        }
        Ok(())
    }

    /// Is it no built-in role?
    fn own(&self, name: &str) -> Result<()> {
        if is_built_in(name) {
            return Err(AccessError::BuiltIn { name: name.to_owned() });
        }
        Ok(())
    }

    pub(super) fn known_role(&self, name: &str) -> Result<()> {
        if self.has_role(name) {
            return Ok(());
        }
        Err(AccessError::NoSuch { what: "role", name: name.to_owned() })
    }

    fn known_tenant(&self, name: &str) -> Result<()> {
        if self.tenants.contains_key(name) {
            return Ok(());
        }
        Err(AccessError::NoSuch { what: "tenant", name: name.to_owned() })
    }

    fn role_mut(&mut self, name: &str) -> Result<&mut Role> {
        self.own(name)?;
        let none = || AccessError::NoSuch { what: "role", name: name.to_owned() };
        self.roles.get_mut(name).ok_or_else(none)
    }
}

/// Can anything run with these limits?
fn sensible(tenant: &Tenant) -> Result<()> {
    if !(1..=MAX_WEIGHT).contains(&tenant.weight) {
        return Err(AccessError::Value(format!("a tenant's weight is 1 to {MAX_WEIGHT}")));
    }
    if tenant.slots == Some(0) || tenant.memory_bytes == Some(0) {
        let text = "a tenant without slots or memory could run nothing";
        return Err(AccessError::Value(text.to_owned()));
    }
    Ok(())
}

fn gone(what: &'static str, name: &str, before: usize, after: usize) -> Result<()> {
    if before == after {
        return Err(AccessError::NoSuch { what, name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::model::{Object, Verb};
    use super::super::tokens::TokenHash;
    use super::*;

    fn with(roles: &[&str]) -> Access {
        let mut access = Access::default();
        for role in roles {
            access.add_role(role, Role { login: true, ..Role::default() }).unwrap();
        }
        access
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn code<T>(result: Result<T>) -> &'static str {
        result.err().map_or("00000", |error| error.code())
    }

    #[test]
    fn built_in_roles_stay_what_they_are() {
        let mut access = with(&["ann"]);
        for (name, _) in super::super::model::BUILT_IN {
            assert_eq!(code(access.add_role(name, Role::default())), "42939", "{name}");
            assert_eq!(code(access.drop_role(name)), "42939", "{name}");
            assert_eq!(code(access.grant_role("ann", name)), "42939", "{name}");
        }
        let on = Object::Table("t".into());
        let grant = |role: &str| {
            let (role, columns) = (role.to_owned(), BTreeSet::new());
            Grant { role, verb: Verb::Select, on: on.clone(), columns }
        };
        assert_eq!(code(access.grant(grant("reader"))), "42939");
        assert_eq!(code(access.grant(grant("public"))), "00000");
    }

    #[test]
    fn roles_are_made_once_of_what_there_is() {
        let mut access = with(&["ann"]);
        assert_eq!(code(access.add_role("ann", Role::default())), "42710");
        assert_eq!(code(access.add_role("", Role::default())), "42602");
        let of = Role { member_of: set(&["nobody"]), ..Role::default() };
        assert_eq!(code(access.add_role("bob", of)), "42704");
        let tenant = Role { tenant: Some("none".into()), ..Role::default() };
        assert_eq!(code(access.add_role("bob", tenant)), "42704");
        assert_eq!(code(access.set_password("bob", Verifier::new("x", [0; 16]).unwrap())), "42704");
        assert_eq!(access.roles.len(), 1);
    }

    #[test]
    fn nobody_is_a_member_of_itself() {
        let mut access = with(&["a", "b", "c"]);
        access.grant_role("b", "a").unwrap();
        access.grant_role("c", "b").unwrap();
        assert_eq!(code(access.grant_role("a", "c")), "0LP01");
        assert_eq!(code(access.grant_role("a", "a")), "0LP01");
        access.revoke_role("c", "b").unwrap();
        assert_eq!(code(access.revoke_role("c", "b")), "42704");
        access.grant_role("a", "c").unwrap();
    }

    #[test]
    fn a_role_goes_with_what_is_its_own() {
        let mut access = with(&["team", "ann"]);
        access.grant_role("team", "ann").unwrap();
        let on = Object::Table("t".into());
        let (role, verb) = ("team".to_owned(), Verb::Select);
        access.grant(Grant { role, verb, on, columns: BTreeSet::new() }).unwrap();
        let (name, role) = ("ci".to_owned(), "team".to_owned());
        let hash = TokenHash::of("x");
        let token = Token { name, role, hash, made_at: 0, valid_until: None };
        access.add_token(token.clone()).unwrap();
        assert_eq!(code(access.add_token(token)), "42710");
        let policy = RowPolicy {
            table: "t".into(),
            name: "p".into(),
            role: "team".into(),
            condition: "a = 1".into(),
            made_at: 0,
        };
        access.add_policy(policy.clone()).unwrap();
        assert_eq!(code(access.add_policy(policy)), "42710");
        assert_eq!(code(access.drop_role("team")), "2BP01");
        access.drop_policy("t", "p").unwrap();
        assert_eq!(code(access.drop_policy("t", "p")), "42704");
        access.drop_role("team").unwrap();
        assert_eq!(access, with(&["ann"]));
    }

    #[test]
    fn rights_go_with_what_they_are_for() {
        let mut access = with(&["ann"]);
        let mut grant = |verb: Verb, on: Object, columns: &[&str]| {
            let role = "ann".to_owned();
            code(access.grant(Grant { role, verb, on, columns: set(columns) }))
        };
        let table = || Object::Table("t".into());
        assert_eq!(grant(Verb::Select, table(), &["a", "b"]), "00000");
        assert_eq!(grant(Verb::Insert, table(), &["a"]), "22023");
        assert_eq!(grant(Verb::Select, Object::Lake, &["a"]), "22023");
        assert_eq!(grant(Verb::Usage, table(), &[]), "22023");
        assert_eq!(grant(Verb::Monitor, Object::Lake, &[]), "22023");
        assert_eq!(grant(Verb::Administer, Object::Lake, &[]), "22023");
        let (role, verb) = ("ann".to_owned(), Verb::Select);
        let mut revoked = Grant { role, verb, on: table(), columns: set(&["b", "c"]) };
        access.revoke(&revoked).unwrap();
        assert_eq!(access.grants.first().unwrap().columns, set(&["a"]));
        assert_eq!(code(access.revoke(&revoked)), "42704");
        revoked.columns = BTreeSet::new();
        access.revoke(&revoked).unwrap();
        assert!(access.grants.is_empty());
    }

    #[test]
    fn a_tenant_stays_while_a_role_has_it() {
        let mut access = with(&[]);
        let weight = |weight| Tenant { weight, ..Tenant::default() };
        assert_eq!(code(access.add_tenant("growth", weight(0))), "22023");
        assert_eq!(code(access.add_tenant("growth", weight(1001))), "22023");
        access.add_tenant("growth", weight(3)).unwrap();
        assert_eq!(code(access.add_tenant("growth", weight(3))), "42710");
        let ann = Role { tenant: Some("growth".into()), ..Role::default() };
        access.add_role("ann", ann).unwrap();
        assert_eq!(code(access.drop_tenant("growth")), "2BP01");
        access.drop_role("ann").unwrap();
        access.drop_tenant("growth").unwrap();
        assert_eq!(code(access.drop_tenant("growth")), "42704");
    }

    #[test]
    fn roles_and_tenants_change_to_what_can_be() {
        let mut access = with(&["ann"]);
        access.alter_role("ann", |role| role.login = false).unwrap();
        assert!(!access.roles["ann"].login);
        let nowhere = |role: &mut Role| role.tenant = Some("nowhere".into());
        assert_eq!(code(access.alter_role("ann", nowhere)), "42704");
        assert_eq!(code(access.alter_role("admin", |_| {})), "42939");
        access.add_tenant("growth", Tenant::default()).unwrap();
        access.alter_tenant("growth", |tenant| tenant.weight = 7).unwrap();
        assert_eq!(access.tenants["growth"].weight, 7);
        assert_eq!(code(access.alter_tenant("growth", |tenant| tenant.weight = 0)), "22023");
        assert_eq!(code(access.alter_tenant("nowhere", |_| {})), "42704");
    }

    #[test]
    fn hidden_columns_are_replaced() {
        let mut access = with(&["ann"]);
        let hidden = |columns: &[&str]| HiddenColumns {
            table: "t".into(),
            role: "ann".into(),
            columns: set(columns),
        };
        access.hide(hidden(&["a", "b"])).unwrap();
        access.hide(hidden(&["c"])).unwrap();
        assert_eq!(access.hidden, BTreeSet::from([hidden(&["c"])]));
        assert_eq!(code(access.drop_role("ann")), "2BP01");
        access.hide(hidden(&[])).unwrap();
        assert!(access.hidden.is_empty());
    }
}
