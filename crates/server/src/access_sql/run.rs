//! Statements about access, done.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use uplake_engine::{
    AddedAnswer, AddedStatements, Engine, EngineError, Result, SessionFacts, SqlState,
};
use uplake_table::Lake;

use super::cursor::{Cursor, refused};
use super::parser::parse;
use super::secrets::without_secrets;
use super::statement::{
    AccessStatement, Condition, Granting, Named, On, Password, PolicyChange, RoleName, RoleOptions,
    Verbs,
};
use crate::access::{
    ADMIN, Access, AccessError, Change, Directory, Grant, HiddenColumns, Object, Role, RowPolicy,
    SALT_BYTES, SCHEMA, TOKEN_BYTES, Tenant, Token, TokenHash, Verb, Verifier, change, token_text,
};
use crate::audit::{Action, Audit, Note, PEER, PROTOCOL};
use crate::catalog::USER;
use crate::statements::KEPT_CHARACTERS;

/// The fact of a session whose client has shown a token, and no password.
pub(crate) const BY_TOKEN: &str = "by_token";

type Clock = dyn Fn() -> i64 + Send + Sync;
type Random = dyn Fn(&mut [u8]) + Send + Sync;
/// What is done to the newest state, again if another writer was faster.
type Work = Box<dyn FnMut(&mut Access) -> Result<(), AccessError> + Send>;

/// Answers statements that change access.
pub(crate) struct AccessStatements {
    pub(super) lake: Lake,
    /// What a server goes by; whoever opens the lake itself has none.
    pub(super) directory: Option<Arc<Directory>>,
    /// Milliseconds since 1970, UTC.
    clock: Arc<Clock>,
    /// Fills with random bytes that nobody can guess.
    random: Arc<Random>,
    /// Told of each statement, in a server.
    audit: Option<Arc<Audit>>,
    /// What conditions are checked by; it has this.
    pub(super) engine: OnceLock<Weak<Engine>>,
}

impl fmt::Debug for AccessStatements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessStatements")
    }
}

/// Who asks, when, and in what words.
pub(super) struct Asker<'a> {
    role: &'a str,
    now: i64,
    pub(super) text: &'a str,
}

impl Asker<'_> {
    fn name(&self, role: RoleName) -> String {
        match role {
            RoleName::Named(name) => name,
            RoleName::Own => self.role.to_owned(),
        }
    }

    fn names(&self, roles: Vec<RoleName>) -> Vec<String> {
        roles.into_iter().map(|role| self.name(role)).collect()
    }
}

/// What is answered, and what is done before.
enum Plan {
    Done(String, Work),
    /// A token is made, whose text is shown once.
    Token(String, Work),
}

fn done(
    message: impl Into<String>,
    work: impl FnMut(&mut Access) -> Result<(), AccessError> + Send + 'static,
) -> Result<Plan> {
    Ok(Plan::Done(message.into(), Box::new(work)))
}

/// The columns of the one row that CREATE TOKEN answers with; `None` for another statement.
pub(crate) fn token_columns(text: &str) -> Option<SchemaRef> {
    let is_it = Cursor::new(text).ok()?.sees_all(&["create", "token"]);
    is_it.then(|| Arc::new(Schema::new(vec![Field::new("token", DataType::Utf8, true)])))
}

/// That row.
fn token_row(token: String) -> Result<RecordBatch> {
    let unmade = |what: String| EngineError::execution(SqlState::InternalError, what);
    let columns = token_columns("CREATE TOKEN").ok_or_else(|| unmade("no columns".into()))?;
    let values: ArrayRef = Arc::new(StringArray::from(vec![token]));
    RecordBatch::try_new(columns, vec![values]).map_err(|error| unmade(error.to_string()))
}

/// May the role change access, or its own password, which everybody may?
fn permitted(access: &Access, role: &str, is_own_password: bool) -> Result<(), AccessError> {
    let is_there = access.roles.contains_key(role);
    if access.of(role).is_admin() || (is_own_password && is_there) {
        return Ok(());
    }
    Err(AccessError::NotAdmin)
}

#[async_trait]
impl AddedStatements for AccessStatements {
    async fn run(&self, text: &str, facts: SessionFacts) -> Result<AddedAnswer> {
        let answered = self.answer(text, &facts).await;
        if let Some(audit) = &self.audit {
            let fact = |name: &str| facts.get(name).unwrap_or_default().to_owned();
            audit.note(Note {
                at: (self.clock)(),
                action: Action::Access,
                role: fact(USER),
                address: fact(PEER),
                protocol: fact(PROTOCOL),
                what: without_secrets(text).trim().chars().take(KEPT_CHARACTERS).collect(),
                sqlstate: answered.as_ref().err().map(|error| error.code().as_str().to_owned()),
            });
        }
        answered
    }
}

impl AccessStatements {
    async fn answer(&self, text: &str, facts: &SessionFacts) -> Result<AddedAnswer> {
        let statement = parse(text)?;
        let role = match (facts.get(USER), &self.directory) {
            (Some(role), _) => role,
            // Whoever opens the lake itself is an admin anyway.
            (None, None) => ADMIN,
            // A server's sessions are told whose they are.
            (None, Some(_)) => return Err(refused(AccessError::NotAdmin)),
        };
        let asker = Asker { role, now: (self.clock)(), text };
        let own_options = match &statement {
            AccessStatement::AlterRole { role: of, options } if asker.name(of.clone()) == role => {
                Some(options)
            }
            _ => None,
        };
        let is_own_password = own_options.is_some_and(RoleOptions::is_password_alone);
        let has_password = own_options.is_some_and(|options| options.password.is_some());
        if has_password && facts.get(BY_TOKEN).is_some() {
            let what =
                "permission denied: who comes by a token does not change its role's password";
            return Err(EngineError::statement(SqlState::InsufficientPrivilege, what)
                .with_hint("connect by the password, or ask an admin: docs/access.md"));
        }
        if let Some(directory) = &self.directory {
            permitted(&directory.current().access, role, is_own_password).map_err(refused)?;
        }
        let (answer, mut work) = match self.plan(statement, &asker).await? {
            Plan::Done(message, work) => (AddedAnswer::Done(message), work),
            Plan::Token(token, work) => (AddedAnswer::Rows(token_row(token)?), work),
        };
        let who = Change { by: role, now: asker.now };
        let changed = change(&self.lake, who, |access| {
            // Another server may have changed that.
            permitted(access, role, is_own_password)?;
            work(access)
        });
        let (document, ()) = changed.await.map_err(refused)?;
        if let Some(directory) = &self.directory {
            directory.replace(document);
        }
        Ok(answer)
    }

    pub fn new(
        lake: Lake,
        directory: Option<Arc<Directory>>,
        clock: Arc<Clock>,
        random: Arc<Random>,
    ) -> Self {
        Self { lake, directory, clock, random, audit: None, engine: OnceLock::new() }
    }

    /// Tells this of each statement.
    #[must_use]
    pub fn audited(self, audit: Arc<Audit>) -> Self {
        Self { audit: Some(audit), ..self }
    }

    /// Says which engine has it; the first that is said counts.
    pub fn set_engine(&self, engine: &Arc<Engine>) {
        self.engine.get_or_init(|| Arc::downgrade(engine));
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }

    async fn plan(&self, statement: AccessStatement, asker: &Asker<'_>) -> Result<Plan> {
        use AccessStatement as S;

        match statement {
            S::CreateRole { name, options } => self.create_role(name, options),
            S::AlterRole { role, options } => self.alter_role(asker.name(role), options),
            S::DropRoles { names, if_exists } => {
                done(format!("dropped role {}", names.join(", ")), move |access| {
                    let there = names.iter().filter(|name| !if_exists || access.has_role(name));
                    let there: Vec<String> = there.cloned().collect();
                    there.iter().try_for_each(|name| access.drop_role(name))
                })
            }
            S::GrantRoles { of, to } => {
                let to = asker.names(to);
                done(format!("granted {} to {}", of.join(", "), to.join(", ")), move |access| {
                    pairs(&of, &to).try_for_each(|(of, role)| access.grant_role(of, role))
                })
            }
            S::RevokeRoles { of, from } => {
                let from = asker.names(from);
                let message = format!("revoked {} from {}", of.join(", "), from.join(", "));
                done(message, move |access| {
                    pairs(&of, &from).try_for_each(|(of, role)| access.revoke_role(of, role))
                })
            }
            S::Grant(granting) => {
                let (grants, _) = self.grants(granting, asker, true).await?;
                done(format!("granted {} to {}", told(&grants), roles_of(&grants)), move |access| {
                    grants.iter().try_for_each(|grant| access.grant(grant.clone()))
                })
            }
            S::Revoke(granting) => {
                let (grants, is_all) = self.grants(granting, asker, false).await?;
                done(
                    format!("revoked {} from {}", told(&grants), roles_of(&grants)),
                    move |access| {
                        grants.iter().try_for_each(|grant| match access.revoke(grant) {
                            // Of ALL some need not be there.
                            Err(AccessError::NoSuch { what: "grant", .. }) if is_all => Ok(()),
                            revoked => revoked,
                        })
                    },
                )
            }
            S::CreatePolicy { name, table, roles, condition } => {
                self.create_policy(name, &table, asker.names(roles), condition, asker).await
            }
            S::AlterPolicy { name, table, change } => {
                self.alter_policy(name, &table, change, asker).await
            }
            S::DropPolicy { name, table, if_exists } => {
                let table = self.table(&table, asker, false).await?;
                done(format!("dropped policy {name} of {table}"), move |access| {
                    unless_gone(access.drop_policy(&table, &name), if_exists)
                })
            }
            S::Columns { table, columns, roles, hides } => {
                self.columns(&table, &columns, asker.names(roles), hides, asker).await
            }
            S::CreateTenant { name, limits } => {
                let mut tenant = Tenant::default();
                limits.into_iter().for_each(|limit| limit.put(&mut tenant));
                done(format!("created tenant {name}"), move |access| {
                    access.add_tenant(&name, tenant.clone())
                })
            }
            S::AlterTenant { name, limits } => {
                done(format!("changed tenant {name}"), move |access| {
                    access.alter_tenant(&name, |tenant| {
                        limits.iter().for_each(|limit| limit.put(tenant));
                    })
                })
            }
            S::DropTenant { name, if_exists } => {
                done(format!("dropped tenant {name}"), move |access| {
                    unless_gone(access.drop_tenant(&name), if_exists)
                })
            }
            S::CreateToken { name, role, valid_until } => {
                Ok(self.create_token(name, asker.name(role), valid_until, asker.now))
            }
            S::DropToken { name, role, if_exists } => {
                let role = asker.name(role);
                done(format!("dropped token {name} of {role}"), move |access| {
                    unless_gone(access.drop_token(&role, &name), if_exists)
                })
            }
        }
    }

    fn verifier(&self, password: Password) -> Result<Verifier> {
        match password {
            Password::Plain(text) => {
                Verifier::new(&text, self.random::<SALT_BYTES>()).map_err(refused)
            }
            Password::Verifier(verifier) => Ok(verifier),
        }
    }

    fn create_role(&self, name: String, options: RoleOptions) -> Result<Plan> {
        let password = options.password.flatten().map(|password| self.verifier(password));
        let role = Role {
            login: options.login.unwrap_or(false),
            password: password.transpose()?,
            member_of: options.member_of.into_iter().collect(),
            valid_until: options.valid_until.flatten(),
            connection_limit: options.connection_limit.flatten(),
            tenant: options.tenant.flatten(),
        };
        done(format!("created role {name}"), move |access| access.add_role(&name, role.clone()))
    }

    fn alter_role(&self, name: String, options: RoleOptions) -> Result<Plan> {
        let RoleOptions { login, password, member_of, valid_until, connection_limit, tenant } =
            options;
        let password = match password {
            Some(Some(password)) => Some(Some(self.verifier(password)?)),
            Some(None) => Some(None),
            None => None,
        };
        done(format!("changed role {name}"), move |access| {
            access.alter_role(&name, |role| {
                role.login = login.unwrap_or(role.login);
                put(&mut role.password, &password);
                put(&mut role.valid_until, &valid_until);
                put(&mut role.connection_limit, &connection_limit);
                put(&mut role.tenant, &tenant);
            })?;
            member_of.iter().try_for_each(|of| access.grant_role(of, &name))
        })
    }

    /// Each right for each object and role; is it all that the objects have?
    async fn grants(
        &self,
        granting: Granting,
        asker: &Asker<'_>,
        must_be: bool,
    ) -> Result<(Vec<Grant>, bool)> {
        let Granting { verbs, on, roles } = granting;
        let roles = asker.names(roles);
        let mut grants = Vec::new();
        for on in on {
            let table = match &on {
                On::Table(named) => Some(self.table(named, asker, must_be).await?),
                _ => None,
            };
            let object = match on {
                On::Lake => Object::Lake,
                On::Schema => Object::Schema(SCHEMA.to_owned()),
                On::Table(named) => Object::Table(table.clone().unwrap_or(named.name)),
                On::IdDomain(name) => Object::IdDomain(name),
                On::Experiment(name) => Object::Experiment(name),
            };
            let each: Vec<(Verb, Vec<Named>)> = match &verbs {
                Verbs::All => verbs_of(&object).map(|verb| (verb, Vec::new())).collect(),
                Verbs::Some(each) => each.clone(),
            };
            for (verb, named) in each {
                let columns = match &table {
                    Some(table) => self.columns_of(table, &named, asker, must_be).await?,
                    None => named.into_iter().map(|named| named.name).collect(),
                };
                grants.extend(roles.iter().map(|role| Grant {
                    role: role.clone(),
                    verb,
                    on: object.clone(),
                    columns: columns.clone(),
                }));
            }
        }
        Ok((grants, verbs == Verbs::All))
    }

    async fn create_policy(
        &self,
        name: String,
        table: &Named,
        roles: Vec<String>,
        condition: Condition,
        asker: &Asker<'_>,
    ) -> Result<Plan> {
        let table = self.table(table, asker, true).await?;
        self.check_condition(&table, &condition, asker).await?;
        let made_at = asker.now;
        done(format!("created policy {name} of {table}"), move |access| {
            let (first, others) = match roles.split_first() {
                Some((first, others)) => (first.clone(), others),
                None => return Ok(()),
            };
            let (table, name, condition) = (table.clone(), name.clone(), condition.text.clone());
            access.add_policy(RowPolicy {
                table: table.clone(),
                name: name.clone(),
                role: first,
                condition,
                made_at,
            })?;
            others.iter().try_for_each(|role| access.share_policy(&table, &name, role))
        })
    }

    async fn alter_policy(
        &self,
        name: String,
        table: &Named,
        change: PolicyChange,
        asker: &Asker<'_>,
    ) -> Result<Plan> {
        let PolicyChange { roles, condition } = change;
        let table = self.table(table, asker, true).await?;
        if let Some(condition) = &condition {
            self.check_condition(&table, condition, asker).await?;
        }
        let (roles, now) = (roles.map(|roles| asker.names(roles)), asker.now);
        let condition = condition.map(|condition| condition.text);
        done(format!("changed policy {name} of {table}"), move |access| {
            let condition = condition.as_deref();
            access.alter_policy((table.as_str(), name.as_str()), roles.as_deref(), condition, now)
        })
    }

    async fn columns(
        &self,
        table: &Named,
        columns: &[Named],
        roles: Vec<String>,
        hides: bool,
        asker: &Asker<'_>,
    ) -> Result<Plan> {
        let table = self.table(table, asker, hides).await?;
        let columns = self.columns_of(&table, columns, asker, hides).await?;
        let [verb, from] = if hides { ["hid", "from"] } else { ["showed", "to"] };
        let names = columns.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("{verb} columns {names} of {table} {from} {}", roles.join(", "));
        done(message, move |access| {
            roles.iter().try_for_each(|role| {
                let is_it = |hidden: &&HiddenColumns| hidden.table == table && hidden.role == *role;
                let before = access.hidden.iter().find(is_it);
                let mut all = before.map(|hidden| hidden.columns.clone()).unwrap_or_default();
                match hides {
                    true => all.extend(columns.iter().cloned()),
                    false => all.retain(|column| !columns.contains(column)),
                }
                let (table, role) = (table.clone(), role.clone());
                access.hide(HiddenColumns { table, role, columns: all })
            })
        })
    }

    fn create_token(
        &self,
        name: Option<String>,
        role: String,
        valid_until: Option<i64>,
        made_at: i64,
    ) -> Plan {
        let text = token_text(&self.random::<TOKEN_BYTES>());
        let hash = TokenHash::of(&text);
        let work = move |access: &mut Access| {
            let name = match &name {
                Some(name) => name.clone(),
                None => free_name(access, &role),
            };
            access.add_token(Token { name, role: role.clone(), hash, made_at, valid_until })
        };
        Plan::Token(text, Box::new(work))
    }
}

fn pairs<'a>(
    of: &'a [String],
    roles: &'a [String],
) -> impl Iterator<Item = (&'a String, &'a String)> {
    of.iter().flat_map(move |of| roles.iter().map(move |role| (of, role)))
}

/// Each of some texts once, in their order.
fn each_once(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Rights, and what they are on by the tables' own names.
fn told(grants: &[Grant]) -> String {
    let of_objects =
        each_once(grants.iter().map(|grant| grant.on.to_string())).into_iter().map(|on| {
            let verbs = grants.iter().filter(|grant| grant.on.to_string() == on).map(|grant| {
                let columns =
                    grant.columns.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let columns = if columns.is_empty() { columns } else { format!(" ({columns})") };
                format!("{}{columns}", grant.verb)
            });
            format!("{} on {on}", each_once(verbs).join(", "))
        });
    of_objects.collect::<Vec<_>>().join(" and ")
}

fn roles_of(grants: &[Grant]) -> String {
    each_once(grants.iter().map(|grant| grant.role.clone())).join(", ")
}

fn put<T: Clone>(place: &mut Option<T>, value: &Option<Option<T>>) {
    if let Some(value) = value {
        place.clone_from(value);
    }
}

fn unless_gone(dropped: Result<(), AccessError>, if_exists: bool) -> Result<(), AccessError> {
    match dropped {
        Err(AccessError::NoSuch { .. }) if if_exists => Ok(()),
        dropped => dropped,
    }
}

/// What ALL is on an object.
fn verbs_of(object: &Object) -> impl Iterator<Item = Verb> {
    let all = [
        Verb::Select,
        Verb::Insert,
        Verb::Update,
        Verb::Delete,
        Verb::Create,
        Verb::Usage,
        Verb::ExecuteReport,
    ];
    let goes: Vec<Verb> = all.into_iter().filter(|verb| verb.goes_with(object)).collect();
    goes.into_iter()
}

/// `token_1`, or the next that the role has none of.
fn free_name(access: &Access, role: &str) -> String {
    let is_taken =
        |name: &String| access.tokens.iter().any(|token| token.role == role && token.name == *name);
    let names = (1_usize..=access.tokens.len() + 1).map(|number| format!("token_{number}"));
    // Of one more than there are, one is free.
    names.into_iter().find(|name| !is_taken(name)).unwrap_or_default()
}
