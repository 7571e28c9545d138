//! Policies of several roles: one of the same name and condition for each.
//!
//! # Not here
//! How they are made and dropped: `change`.

use super::error::{AccessError, Result};
use super::model::{Access, RowPolicy};

impl Access {
    /// Gives a policy to another role as well.
    ///
    /// # Errors
    /// [`AccessError::NoSuch`] for the policy and the role.
    pub fn share_policy(&mut self, table: &str, name: &str, role: &str) -> Result<()> {
        self.known_role(role)?;
        let policy = self.policies_named(table, name)?.swap_remove(0);
        self.policies.insert(RowPolicy { role: role.to_owned(), ..policy });
        Ok(())
    }

    /// Gives a policy other roles, or another condition, which is new from `now` on.
    ///
    /// # Errors
    /// [`AccessError::NoSuch`] for the policy and its roles.
    pub fn alter_policy(
        &mut self,
        (table, name): (&str, &str),
        roles: Option<&[String]>,
        condition: Option<&str>,
        now: i64,
    ) -> Result<()> {
        let mut before = self.policies_named(table, name)?;
        let roles = match roles {
            Some(roles) => roles.to_vec(),
            None => before.iter().map(|policy| policy.role.clone()).collect(),
        };
        roles.iter().try_for_each(|role| self.known_role(role))?;
        self.drop_policy(table, name)?;
        // They differ in their roles alone.
        let mut policy = before.swap_remove(0);
        if let Some(condition) = condition {
            condition.clone_into(&mut policy.condition);
        }
        // Versions from before have rows that it may not know of.
        policy.made_at = now;
        let each = roles.into_iter().map(|role| RowPolicy { role, ..policy.clone() });
        self.policies.extend(each);
        Ok(())
    }

    /// One for each of its roles.
    fn policies_named(&self, table: &str, name: &str) -> Result<Vec<RowPolicy>> {
        let is_it = |policy: &&RowPolicy| policy.table == table && policy.name == name;
        let found: Vec<RowPolicy> = self.policies.iter().filter(is_it).cloned().collect();
        match found.is_empty() {
            true => Err(AccessError::NoSuch { what: "policy", name: name.to_owned() }),
            false => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Role;
    use super::*;

    fn code<T>(result: Result<T>) -> &'static str {
        result.err().map_or("00000", |error| error.code())
    }

    #[test]
    fn a_policy_has_several_roles_and_is_new_once_it_has_changed() {
        let mut access = Access::default();
        for name in ["ann", "bob"] {
            access.add_role(name, Role::default()).unwrap();
        }
        let (table, name) = ("t".to_owned(), "p".to_owned());
        let (role, condition) = ("ann".to_owned(), "a = 1".to_owned());
        access.add_policy(RowPolicy { table, name, role, condition, made_at: 5 }).unwrap();
        assert_eq!(code(access.share_policy("t", "q", "bob")), "42704");
        assert_eq!(code(access.share_policy("t", "p", "nobody")), "42704");
        access.share_policy("t", "p", "bob").unwrap();
        let all = |access: &Access| -> Vec<(String, String, i64)> {
            let one = |p: &RowPolicy| (p.role.clone(), p.condition.clone(), p.made_at);
            access.policies.iter().map(one).collect()
        };
        let row = |role: &str, condition: &str, at| (role.to_owned(), condition.to_owned(), at);
        assert_eq!(all(&access), [row("ann", "a = 1", 5), row("bob", "a = 1", 5)]);
        access.alter_policy(("t", "p"), None, Some("a = 2"), 7).unwrap();
        assert_eq!(all(&access), [row("ann", "a = 2", 7), row("bob", "a = 2", 7)]);
        let nobody = ["nobody".to_owned()];
        assert_eq!(code(access.alter_policy(("t", "p"), Some(&nobody), None, 8)), "42704");
        access.alter_policy(("t", "p"), Some(&["public".to_owned()]), None, 9).unwrap();
        assert_eq!(all(&access), [row("public", "a = 2", 9)]);
        access.drop_policy("t", "p").unwrap();
        assert_eq!(code(access.alter_policy(("t", "p"), None, None, 9)), "42704");
    }
}
