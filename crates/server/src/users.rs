//! Who connects, and the session that they get: the one place where protocols ask about users.
//!
//! # Invariants
//! - While there are no users, whoever is on this machine is `admin`, and nobody else is let in.
//! - A session of a user asks for each statement what the user may at that moment.
//!
//! # Not here
//! What roles there are and what is granted to them: `access`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ring::digest::{SHA256, digest};
use uplake_engine::{EngineError, Guard, Privilege, Session, SqlState};

use crate::access::{ADMIN, Directory, Object, Rights, RowFilter, Verb, check_plain};
use crate::failure::Failure;
use crate::server::Shared;

/// Passwords that were right, so that a client that gives its password each time is not slow each time.
const KNOWN_LOGINS: usize = 1000;

impl Shared {
    /// The role of who gives a name and a password, or neither.
    ///
    /// # Errors
    /// 28000 and 28P01 for who is not let in.
    pub fn by_password(
        &self,
        given: Option<(&str, &str)>,
        peer: Option<SocketAddr>,
    ) -> Result<String, Failure> {
        if !self.directory.has_users() {
            self.check_access_is_read()?;
            return without_users(given.map(|(name, _)| name), peer);
        }
        let Some((name, password)) = given else {
            return Err(Failure::new("28000", "who is it? A name and a password are needed"));
        };
        let document = self.directory.current();
        let known = document.access.verifier_of(name, (self.options.clock)());
        let text = format!("{}\0{name}\0{password}", document.number);
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        let mut logins = self.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() && logins.contains(&key) {
            return Ok(name.to_owned());
        }
        drop(logins);
        self.check_access_is_read()?;
        if !check_plain(name, password, known, &self.strangers) {
            return Err(wrong_password());
        }
        logins = self.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logins.len() >= KNOWN_LOGINS {
            logins.clear();
        }
        logins.insert(key);
        Ok(name.to_owned())
    }

    /// The role of a token.
    ///
    /// # Errors
    /// 28P01 if there is no such token now.
    pub fn by_token(&self, token: &str) -> Result<String, Failure> {
        self.check_access_is_read()?;
        let document = self.directory.current();
        let role = document.access.role_of_token(token, (self.options.clock)());
        role.map(str::to_owned).ok_or_else(|| Failure::new("28P01", "there is no such token"))
    }

    /// # Errors
    /// 57P03 while it cannot be read who may connect: nobody new is let in then.
    pub fn check_access_is_read(&self) -> Result<(), Failure> {
        if self.directory.is_read() {
            return Ok(());
        }
        let message = "who may connect cannot be read: nobody new is let in";
        Err(Failure::new("57P03", message)
            .with_hint("whoever looks after the lake restores its newest file of _uplake/access"))
    }

    /// A session for a role.
    pub fn session(&self, role: &str) -> Session {
        let session = self.engine.session();
        session.set_fact(crate::catalog::USER, Some(role));
        if !self.directory.has_users() {
            return session;
        }
        let (directory, role) = (Arc::clone(&self.directory), role.to_owned());
        session.guarded(Arc::new(RoleGuard { directory, role, kept: Mutex::default() }))
    }

    /// Whose share of the time its statements get.
    pub fn tenant(&self, role: &str) -> uplake_engine::Tenant {
        let document = self.directory.current();
        let name = document.access.roles.get(role).and_then(|role| role.tenant.as_deref());
        let found = name.and_then(|name| document.access.tenants.get_key_value(name));
        found.map_or_else(uplake_engine::Tenant::default, |(name, tenant)| uplake_engine::Tenant {
            name: name.as_str().into(),
            weight: tenant.weight,
            slots: tenant.slots.map(|slots| slots as usize),
        })
    }

    /// What a role may now.
    pub fn rights(&self, role: &str) -> Rights {
        self.directory.current().access.of(if self.directory.has_users() { role } else { ADMIN })
    }

    /// May a role add rows to a table, which is made if it is not there?
    ///
    /// # Errors
    /// 42501, and those of a lake that cannot be read.
    pub async fn may_load(&self, role: &str, table: &str) -> Result<(), Failure> {
        if !self.directory.has_users() {
            return Ok(());
        }
        let session = self.engine.session();
        let is_there = session.lake().has_table(table).await.map_err(EngineError::from)?;
        let verb = if is_there { Verb::Insert } else { Verb::Create };
        let object = Object::Table(table.to_owned());
        let denied =
            |denied: crate::access::Denied| Failure::new(denied.code(), denied.to_string());
        self.rights(role).may(verb, &object).map_err(denied)
    }
}

/// What somebody hears whose password, or name, is not known: which of both is not said.
pub(crate) fn wrong_password() -> Failure {
    Failure::new("28P01", "there is no such user, or the password is another")
}

fn without_users(name: Option<&str>, peer: Option<SocketAddr>) -> Result<String, Failure> {
    if peer.is_some_and(|peer| !peer.ip().to_canonical().is_loopback()) {
        return Err(Failure::new("28000", "there are no users, so only this machine may connect")
            .with_hint("make one: uplake user add NAME"));
    }
    match name {
        Some(name) if name != ADMIN => {
            Err(Failure::new("28000", format!("role \"{name}\" does not exist"))
                .with_hint("connect as admin, or make it: uplake user add NAME"))
        }
        _ => Ok(ADMIN.to_owned()),
    }
}

/// Asks what a role may when a statement comes.
#[derive(Debug)]
struct RoleGuard {
    directory: Arc<Directory>,
    role: String,
    /// Worked out of the document with this number.
    kept: Mutex<Option<(u32, Arc<Rights>)>>,
}

impl RoleGuard {
    fn rights(&self) -> Arc<Rights> {
        let document = self.directory.current();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref() {
            Some((number, rights)) if *number == document.number => Arc::clone(rights),
            _ => {
                let rights = Arc::new(document.access.of(&self.role));
                *kept = Some((document.number, Arc::clone(&rights)));
                rights
            }
        }
    }
}

impl Guard for RoleGuard {
    fn check(&self, privilege: Privilege, name: &str) -> uplake_engine::Result<()> {
        let table = || Object::Table(name.to_owned());
        let (verb, object) = match privilege {
            Privilege::Select => (Verb::Select, table()),
            Privilege::Insert => (Verb::Insert, table()),
            Privilege::Delete => (Verb::Delete, table()),
            Privilege::Create => (Verb::Create, table()),
            Privilege::ReadFiles => (Verb::ReadFiles, Object::Lake),
            Privilege::WriteFiles => (Verb::WriteFiles, Object::Lake),
        };
        let denied = |what: String| {
            Err(EngineError::statement(SqlState::InsufficientPrivilege, what)
                .with_hint("who may grant it is an admin: docs/access.md"))
        };
        let rights = self.rights();
        if let Err(missing) = rights.may(verb, &object) {
            return denied(missing.to_string());
        }
        // Conditions of rows and hidden columns do not get into plans yet: nothing is better than all.
        let is_whole = rights.hidden(name).is_none() && rights.rows(name) == RowFilter::All;
        if matches!(privilege, Privilege::Select | Privilege::Delete) && !is_whole {
            return denied(format!(
                "permission denied: {name} has rows or columns that this role does not see"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Document, Grant, Role};

    #[test]
    fn without_users_only_admin_comes_in_and_only_from_here() {
        let from = |name: Option<&str>, peer: &str| without_users(name, peer.parse().ok());
        assert_eq!(from(Some("admin"), "127.0.0.1:5").unwrap(), "admin");
        assert!(from(None, "[::1]:5").is_ok() && from(None, "[::ffff:127.0.0.1]:5").is_ok());
        for (name, peer) in [("admin", "10.0.0.1:5"), ("ann", "127.0.0.1:5"), ("", "127.0.0.1:5")] {
            assert_eq!(from(Some(name), peer).unwrap_err().code, "28000");
        }
    }

    /// Verbs by roles: what is not granted is refused.
    #[test]
    fn a_role_may_what_it_is_granted() {
        use Privilege::{Create, Delete, Insert, ReadFiles, Select, WriteFiles};

        let mut access = Access::default();
        for name in ["boss", "looks", "loads", "one", "nobody"] {
            access.add_role(name, Role { login: true, ..Role::default() }).unwrap();
        }
        for (role, of) in [("boss", "admin"), ("looks", "reader"), ("loads", "writer")] {
            access.grant_role(of, role).unwrap();
        }
        let on = Object::Table("t".into());
        access
            .grant(Grant {
                role: "one".into(),
                verb: Verb::Select,
                on,
                columns: Default::default(),
            })
            .unwrap();
        let all = [Select, Insert, Delete, Create, ReadFiles, WriteFiles];
        let directory =
            Arc::new(Directory::from(Document { number: 1, at: 0, by: "test".into(), access }));
        for (role, table, expected) in [
            ("boss", "t", "select insert delete create readfiles writefiles"),
            ("looks", "t", "select"),
            ("loads", "t", "select insert delete create"),
            ("one", "t", "select"),
            ("one", "u", ""),
            ("nobody", "t", ""),
            ("never", "t", ""),
        ] {
            let guard = RoleGuard {
                directory: Arc::clone(&directory),
                role: role.into(),
                kept: Mutex::default(),
            };
            let may = all.iter().filter(|privilege| guard.check(**privilege, table).is_ok());
            let may: Vec<String> = may.map(|p| format!("{p:?}").to_lowercase()).collect();
            assert_eq!(may.join(" "), expected, "{role} on {table}");
        }
    }
}
