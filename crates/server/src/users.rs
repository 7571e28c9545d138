//! Who connects, and the session that they get: the one place where protocols ask about users.
//!
//! # Invariants
//! - While there are no users, whoever is on this machine is `admin`, and nobody else is let in.
//! - A session of a user asks for each statement what the user may at that moment.
//!
//! # Not here
//! What roles there are and what is granted to them: `access`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ring::digest::{SHA256, digest};
use uplake_engine::{EngineError, Guard, Privilege, Readable, Session, SqlState};

use crate::access::{ADMIN, Denied, Directory, Object, Rights, SCHEMA, Verb, check_plain};
use crate::access_sql::BY_TOKEN;
use crate::audit::{Action, Note, PEER, PROTOCOL};
use crate::failure::Failure;
use crate::readable::{readable, sees_a_part};
use crate::server::Shared;
use crate::statements::{Client, Protocol};

/// Passwords that were right, so that a client that gives its password each time is not slow each time.
const KNOWN_LOGINS: usize = 1000;

impl Shared {
    /// Somebody came, and was let in or not: for the audit log and the counters.
    pub fn came(&self, name: &str, address: &str, protocol: Protocol, failed: Option<&Failure>) {
        self.metrics.login(failed.is_none());
        self.statements.audit.note(Note {
            at: self.statements.now(),
            action: Action::Login,
            role: name.to_owned(),
            address: address.to_owned(),
            protocol: protocol.name().to_owned(),
            what: String::new(),
            sqlstate: failed.map(|failure| failure.code.to_string()),
        });
    }

    /// The role of who gives a name and a password, or neither, with a request. Each that is refused is noted, and of
    /// those that are let in the first with this password.
    ///
    /// # Errors
    /// As [`Self::by_password`].
    pub async fn by_request(
        &self,
        given: Option<(String, String)>,
        peer: Option<SocketAddr>,
        protocol: Protocol,
    ) -> Result<String, Failure> {
        let name = given.as_ref().map_or_else(String::new, |(name, _)| name.clone());
        let is_new = self.directory.has_users()
            && given.as_ref().is_some_and(|(name, password)| !self.is_known(name, password));
        let role = self.by_password(given, peer).await;
        match &role {
            Err(failure) => self.came(&name, &shown(peer), protocol, Some(failure)),
            Ok(role) if is_new => self.came(role, &shown(peer), protocol, None),
            Ok(_) => {}
        }
        role
    }

    /// Has this password been right before?
    fn is_known(&self, name: &str, password: &str) -> bool {
        let key = login_key(self.directory.current().number, name, password);
        self.logins.right.lock().unwrap_or_else(PoisonError::into_inner).contains(&key)
    }

    /// The role of who gives a name and a password, or neither.
    ///
    /// # Errors
    /// 28000 and 28P01 for who is not let in, 53400 for who tries too often.
    pub async fn by_password(
        &self,
        given: Option<(String, String)>,
        peer: Option<SocketAddr>,
    ) -> Result<String, Failure> {
        if !self.directory.has_users() {
            self.check_access_is_read()?;
            return without_users(given.as_ref().map(|(name, _)| name.as_str()), peer);
        }
        let Some((name, password)) = given else {
            return Err(Failure::new("28000", "who is it? A name and a password are needed"));
        };
        let document = self.directory.current();
        let now = (self.options.clock)();
        let is_known = document.access.verifier_of(&name, now).is_some();
        let key = login_key(document.number, &name, &password);
        let right = || self.logins.right.lock().unwrap_or_else(PoisonError::into_inner);
        if is_known && right().contains(&key) {
            return Ok(name);
        }
        self.check_access_is_read()?;
        // Who comes from nowhere comes from here.
        let address = peer.map_or(Ipv4Addr::LOCALHOST.into(), |peer| peer.ip());
        self.pace_login(address).await?;
        let _turn = self.logins.turn.acquire().await;
        self.may_guess(&name, address)?;
        let (strangers, asked) = (self.strangers.clone(), name.clone());
        let check = self.statements.compute(async move {
            let known = document.access.verifier_of(&asked, now);
            Ok(check_plain(&asked, &password, known, &strangers))
        });
        if !check.await? {
            self.failed_logins.add(&name, address, Instant::now());
            return Err(wrong_password());
        }
        self.failed_logins.forget(&name, address);
        let mut right = right();
        if right.len() >= KNOWN_LOGINS {
            right.clear();
        }
        right.insert(key);
        Ok(name)
    }

    /// The role of a token.
    ///
    /// # Errors
    /// 28P01 if there is no such token now.
    pub fn by_token(
        &self,
        token: &str,
        peer: Option<SocketAddr>,
        protocol: Protocol,
    ) -> Result<String, Failure> {
        let role = self.role_of(token);
        if let Err(failure) = &role {
            self.came("", &shown(peer), protocol, Some(failure));
        }
        role
    }

    fn role_of(&self, token: &str) -> Result<String, Failure> {
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

    /// [`Self::session`] for who has shown who it is.
    pub fn session_of(&self, client: &Client) -> Session {
        let session = self.session(&client.role, &client.address, client.protocol);
        session.set_fact(BY_TOKEN, client.by_token.then_some("true"));
        session
    }

    /// A session for a role that comes from here and speaks this.
    pub fn session(&self, role: &str, address: &str, protocol: Protocol) -> Session {
        let mut session = self.within_tenant(role, self.engine.session());
        if self.directory.has_users() {
            let (directory, role) = (Arc::clone(&self.directory), role.to_owned());
            let guard = RoleGuard { directory, role, kept: Mutex::default() };
            session = session.guarded(Arc::new(guard));
        }
        session.set_fact(crate::catalog::USER, Some(role));
        session.set_fact(PEER, Some(address));
        session.set_fact(PROTOCOL, Some(protocol.name()));
        session
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
            queue: tenant.queue.map(|queue| queue as usize),
        })
    }

    /// What a role may now.
    pub fn rights(&self, role: &str) -> Rights {
        self.directory.current().access.of(if self.directory.has_users() { role } else { ADMIN })
    }

    /// May a role add rows to a table of exactly this name, which is made if it is not there?
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
        may_change(&self.rights(role), verb, &object)
            .map_err(|denied| Failure::new(denied.code(), denied.to_string()))
    }
}

/// A name and a password, as they are known to a document, as a digest.
fn login_key(document: u32, name: &str, password: &str) -> [u8; 32] {
    let text = format!("{document}\0{name}\0{password}");
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    key
}

fn shown(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(String::new, |peer| peer.to_string())
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

/// May a role change a table, of which it must see all?
fn may_change(rights: &Rights, verb: Verb, object: &Object) -> Result<(), Denied> {
    rights.may(verb, object)?;
    match object {
        Object::Table(table) if sees_a_part(rights, table) => {
            Err(Denied { verb, object: object.clone(), columns: Vec::new() })
        }
        _ => Ok(()),
    }
}

fn refusal(denied: &Denied) -> EngineError {
    EngineError::statement(SqlState::InsufficientPrivilege, denied.to_string())
        .with_hint("who may grant it is an admin: docs/access.md")
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
        let rights = self.rights();
        let may = match privilege {
            Privilege::Insert => may_change(&rights, Verb::Insert, &table()),
            Privilege::Delete => may_change(&rights, Verb::Delete, &table()),
            Privilege::Update => may_change(&rights, Verb::Update, &table()),
            Privilege::Create => may_change(&rights, Verb::Create, &table()),
            Privilege::ReadFiles => rights.may(Verb::ReadFiles, &Object::Lake),
            Privilege::WriteFiles => rights.may(Verb::WriteFiles, &Object::Lake),
            Privilege::OwnFiles => rights.may(Verb::Administer, &Object::Lake),
            Privilege::AskDomain => rights.may(Verb::Usage, &Object::IdDomain(name.to_owned())),
            // Nobody knows of which rows it was made.
            Privilege::UseIdSet if rights.is_restricted() => {
                let what = format!("permission denied: id set `{name}`");
                return Err(EngineError::statement(SqlState::InsufficientPrivilege, what)
                    .with_hint("it may be of rows that this role does not see: docs/access.md"));
            }
            Privilege::UseIdSet => rights.may(Verb::Select, &Object::Schema(SCHEMA.to_owned())),
        };
        may.map_err(|denied| refusal(&denied))
    }

    fn readable(&self, table: &str) -> uplake_engine::Result<Readable> {
        readable(&self.rights(), table).map_err(|denied| refusal(&denied))
    }

    fn hides(&self, table: &str, column: &str) -> bool {
        let (table, column) = (table.to_lowercase(), column.to_lowercase());
        let document = self.directory.current();
        document.access.hidden.iter().any(|hidden| {
            hidden.table.to_lowercase() == table
                && hidden.columns.iter().any(|hidden| hidden.to_lowercase() == column)
        })
    }

    fn lists(&self, table: &str) -> bool {
        self.rights().sees(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Document, Grant, HiddenColumns, Role, RowPolicy};

    #[test]
    fn without_users_only_admin_comes_in_and_only_from_here() {
        let from = |name: Option<&str>, peer: &str| without_users(name, peer.parse().ok());
        assert_eq!(from(Some("admin"), "127.0.0.1:5").unwrap(), "admin");
        assert!(from(None, "[::1]:5").is_ok() && from(None, "[::ffff:127.0.0.1]:5").is_ok());
        for (name, peer) in [("admin", "10.0.0.1:5"), ("ann", "127.0.0.1:5"), ("", "127.0.0.1:5")] {
            assert_eq!(from(Some(name), peer).unwrap_err().code, "28000");
        }
    }

    /// Rows as texts, sorted, or the code of what was refused.
    async fn asked(session: &Session, sql: &str) -> Vec<String> {
        let batches = match session.query(sql).await {
            Ok(batches) => batches,
            Err(error) => return vec![error.code().as_str().to_owned()],
        };
        let mut rows = Vec::new();
        for batch in &batches {
            let value = |column: &arrow::array::ArrayRef, row: usize| {
                arrow::util::display::array_value_to_string(column, row).unwrap()
            };
            for row in 0..batch.num_rows() {
                let values = batch.columns().iter().map(|column| value(column, row));
                rows.push(values.collect::<Vec<_>>().join("|"));
            }
        }
        rows.sort_unstable();
        rows
    }

    /// A lake with a policy and a hidden column on `t`, and sessions of an admin, of a role with the policy and of
    /// one without, in one engine.
    async fn sessions(folder: &std::path::Path) -> [Session; 3] {
        let options = uplake_engine::SessionOptions {
            memory_bytes: 256 << 20,
            threads: 2,
            as_of: uplake_table::AsOf::Latest,
            spill_folder: None,
            use_indexes: true,
            at_once: None,
            timeout: None,
            clock: Arc::new(|| 1_793_491_200_000),
        };
        let lake = uplake_table::Lake::open(folder.to_str().unwrap()).unwrap();
        let engine = uplake_engine::Engine::new(lake, &options).unwrap();
        let admin = engine.session();
        let made = "CREATE TABLE t (user_id TEXT, country TEXT, n BIGINT, mail TEXT)
              CLUSTERED BY (user_id) ID DOMAINS (user_id users);
            INSERT INTO t SELECT concat('u', CAST(v % 90 AS TEXT)),
                CASE WHEN v % 3 = 0 THEN 'DE' ELSE 'FR' END, v, 'm' FROM generate_series(1, 900) AS s(v);
            CREATE ID SET some AS SELECT user_id FROM t WHERE n < 10";
        admin.query(made).await.unwrap();
        let mut access = Access::default();
        for name in ["de", "none"] {
            access.add_role(name, Role { login: true, ..Role::default() }).unwrap();
            access.grant_role("reader", name).unwrap();
        }
        let condition = "country = 'DE' AND n IN (SELECT n FROM t)".to_owned();
        let (table, name, role) = ("t".to_owned(), "p".to_owned(), "de".to_owned());
        access.policies.insert(RowPolicy { table, name, role, condition, made_at: 0 });
        let (table, role) = ("T".to_owned(), "de".to_owned());
        access.hidden.insert(HiddenColumns { table, role, columns: ["Mail".to_owned()].into() });
        let document = Document { number: 1, at: 0, by: "test".into(), access };
        let directory = Arc::new(Directory::from(document));
        let of = |role: &str| {
            let (directory, role) = (Arc::clone(&directory), role.to_owned());
            let guard = RoleGuard { directory, role, kept: Mutex::default() };
            engine.session().guarded(Arc::new(guard))
        };
        [of("de"), of("none"), admin]
    }

    /// The same texts of roles with other rights, in every order: plans, sides of joins, ids and sets that are kept
    /// for one are not another's.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_kept_does_not_cross_rights() {
        let folder = tempfile::tempdir().unwrap();
        let [de, none, admin] = sessions(folder.path()).await;
        let text = |rows: &[&str]| rows.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>();
        for (sql, of_de, of_none, of_admin) in [
            ("SELECT count(*) FROM t", "300", "0", "900"),
            ("SELECT count(*), max(n) FROM t WHERE n < 10", "3|9", "0|", "9|9"),
            ("SELECT count(*) FROM t WHERE user_id = 'u1'", "0", "0", "10"),
            ("SELECT count(*) FROM t WHERE user_id IN ('u3', 'u4')", "10", "0", "20"),
            ("SELECT count(DISTINCT user_id) FROM t", "30", "0", "90"),
            (
                "SELECT count(*) FROM t JOIN (SELECT user_id, min(n) AS first FROM t GROUP BY user_id) f                  ON t.user_id = f.user_id WHERE t.n > f.first",
                "270",
                "0",
                "810",
            ),
            ("SELECT max(mail) FROM t", "42703", "", "m"),
            ("SELECT count(*) FROM t WHERE user_id IN ID SET some", "42501", "42501", "90"),
            ("SELECT key_of('users', 0) IS NULL", "42501", "42501", "false"),
            ("SELECT id_of('users', 'u1') IS NULL", "42501", "42501", "false"),
            ("EXPLAIN SELECT n FROM t", "42501", "42501", ""),
            ("DELETE FROM t WHERE n = 1", "42501", "42501", ""),
            ("INSERT INTO t (n) VALUES (1)", "42501", "42501", ""),
        ] {
            let roles = [(&de, of_de), (&none, of_none), (&admin, of_admin)];
            for order in [[2, 0, 1], [0, 2, 1], [1, 0, 2], [2, 1, 0]] {
                for (session, expected) in order.map(|at| roles[at]) {
                    let is_change =
                        ["EXPLAIN", "DELETE", "INSERT"].iter().any(|w| sql.starts_with(w));
                    if is_change && expected.is_empty() {
                        continue;
                    }
                    assert_eq!(asked(session, sql).await, text(&[expected]), "{sql}");
                }
            }
        }
        let all = asked(&admin, "SELECT * FROM t WHERE n = 3").await;
        assert_eq!(all, text(&["u3|DE|3|m"]));
        assert_eq!(asked(&de, "SELECT * FROM t WHERE n = 3").await, text(&["u3|DE|3"]));
        assert_eq!(asked(&de, "DESCRIBE t").await.len(), 3);
        assert_eq!(asked(&de, "SELECT count(*) FROM t VERSION AS OF 1").await, text(&["300"]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_prepared_statement_goes_by_what_counts_when_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let [de, _, admin] = sessions(folder.path()).await;
        for session in [&de, &admin] {
            asked(session, "PREPARE p AS SELECT count(*) FROM t WHERE n < $1").await;
        }
        assert_eq!(asked(&de, "EXECUTE p(10)").await, ["3"]);
        assert_eq!(asked(&admin, "EXECUTE p(10)").await, ["9"]);
        asked(&admin, "DELETE FROM t WHERE n = 3").await;
        assert_eq!(asked(&de, "EXECUTE p(10)").await, ["2"]);
    }

    /// Verbs by roles: what is not granted is refused.
    #[test]
    fn a_role_may_what_it_is_granted() {
        use Privilege::{
            AskDomain, Create, Delete, Insert, ReadFiles, Update, UseIdSet, WriteFiles,
        };

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
        let all = [Insert, Update, Delete, Create, ReadFiles, WriteFiles, AskDomain, UseIdSet];
        let directory =
            Arc::new(Directory::from(Document { number: 1, at: 0, by: "test".into(), access }));
        for (role, table, expected) in [
            (
                "boss",
                "t",
                "read insert update delete create readfiles writefiles askdomain useidset",
            ),
            ("looks", "t", "read askdomain useidset"),
            ("loads", "t", "read insert update delete create askdomain useidset"),
            ("one", "t", "read"),
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
            let may = may.map(|p| format!("{p:?}").to_lowercase());
            let reads = guard.readable(table).ok().map(|_| "read".to_owned());
            let may: Vec<String> = reads.into_iter().chain(may).collect();
            assert_eq!(may.join(" "), expected, "{role} on {table}");
        }
    }
}
