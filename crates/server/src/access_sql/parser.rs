//! What a statement about access says: roles, tenants, tokens; the others in `grants` and `policies`.

use uplake_engine::{Result, SqlState};

use super::cursor::Cursor;
use super::statement::{AccessStatement, Limit, Password, RoleName, RoleOptions};
use super::{grants, policies, values};
use crate::access::Verifier;
use crate::catalog::Kind;

const ROLE_USAGE: &str = "CREATE ROLE name [LOGIN | NOLOGIN] [PASSWORD 'text' | NULL] [VALID UNTIL 'time'] \
                          [CONNECTION LIMIT n] [IN ROLE name, …] [TENANT name | NULL]";
const TENANT_USAGE: &str = "CREATE TENANT name [WITH (weight 3, slots 8, memory '8GB', …)]";
const TOKEN_USAGE: &str = "CREATE TOKEN [name] FOR role [VALID UNTIL 'time']";
const DROP_TOKEN_USAGE: &str = "DROP TOKEN [IF EXISTS] name FOR role";

/// Reads a statement.
///
/// # Errors
/// 42601 with the place of what is not understood, 42602 and 22023 for names and values, 0A000 for what there is not.
pub(super) fn parse(text: &str) -> Result<AccessStatement> {
    let mut cursor = Cursor::new(text)?;
    let c = &mut cursor;
    if c.takes("grant") {
        return grants::grant(c);
    }
    if c.takes("revoke") {
        return grants::revoke(c);
    }
    if c.takes_all(&["alter", "table"]) {
        return policies::columns(c);
    }
    let verb = ["create", "alter", "drop"].into_iter().find(|verb| c.takes(verb));
    let verb = verb.ok_or_else(|| c.expected("CREATE, ALTER, DROP, GRANT or REVOKE"))?;
    let is_user = c.sees("user");
    if c.takes("role") || c.takes("user") || c.takes("group") {
        return match verb {
            "create" => create_role(c, is_user),
            "alter" => alter_role(c),
            _ => drop_roles(c),
        };
    }
    if c.takes("policy") {
        return match verb {
            "create" => policies::create(c),
            "alter" => policies::alter(c),
            _ => policies::drop_policy(c),
        };
    }
    if c.takes("tenant") {
        return tenant(c, verb);
    }
    c.word("token", "ROLE, USER, POLICY, TENANT or TOKEN")?;
    match verb {
        "create" => create_token(c),
        "drop" => drop_token(c),
        _ => Err(c.unsupported("a token is not changed").with_hint("drop it, and make another")),
    }
}

fn create_role(c: &mut Cursor<'_>, is_user: bool) -> Result<AccessStatement> {
    let name = c.name(ROLE_USAGE)?;
    let mut options = role_options(c)?;
    if is_user {
        options.login.get_or_insert(true);
    }
    Ok(AccessStatement::CreateRole { name, options })
}

fn alter_role(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    let role = c.role(ROLE_USAGE)?;
    for other in ["rename", "set", "reset", "in"] {
        // IN ROLE is ours, IN DATABASE has settings.
        if c.sees(other) && !c.sees_all(&["in", "role"]) && !c.sees_all(&["in", "group"]) {
            let what = format!("ALTER ROLE … {} is not supported", other.to_uppercase());
            return Err(c.unsupported(what));
        }
    }
    let options = role_options(c)?;
    if options == RoleOptions::default() {
        return Err(c.expected(ROLE_USAGE));
    }
    Ok(AccessStatement::AlterRole { role, options })
}

fn drop_roles(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    let usage = "DROP ROLE [IF EXISTS] name, …";
    let if_exists = c.takes_all(&["if", "exists"]);
    let names = c.list(usage, Cursor::name)?;
    c.ends(usage)?;
    Ok(AccessStatement::DropRoles { names, if_exists })
}

/// Options of PostgreSQL that say what is so anyway.
const SAID: [&str; 6] =
    ["nosuperuser", "nocreatedb", "nocreaterole", "inherit", "noreplication", "nobypassrls"];
/// Those that there are not.
const NOT_HERE: [&str; 8] = [
    "superuser",
    "createdb",
    "createrole",
    "noinherit",
    "replication",
    "bypassrls",
    "admin",
    "sysid",
];

fn role_options(c: &mut Cursor<'_>) -> Result<RoleOptions> {
    let mut options = RoleOptions::default();
    c.takes("with");
    while let Some(token) = c.peek() {
        if let Some(word) = NOT_HERE.iter().find(|word| token.is_word(word)) {
            let what = format!("there is no {}", word.to_uppercase());
            return Err(c.unsupported(what).with_hint("members of `admin` may do everything"));
        }
        if SAID.iter().any(|word| token.is_word(word)) {
            c.skip();
        } else if token.is_word("login") || token.is_word("nologin") {
            once(c, options.login.is_some())?;
            c.skip();
            options.login = Some(token.is_word("login"));
        } else if token.is_word("password") || token.is_word("encrypted") {
            once(c, options.password.is_some())?;
            options.password = Some(password(c)?);
        } else if c.takes_all(&["valid", "until"]) {
            once(c, options.valid_until.is_some())?;
            options.valid_until = Some(valid_until(c)?);
        } else if c.takes_all(&["connection", "limit"]) {
            once(c, options.connection_limit.is_some())?;
            options.connection_limit = Some(connection_limit(c)?);
        } else if c.takes_all(&["in", "role"]) || c.takes_all(&["in", "group"]) {
            options.member_of.extend(c.list(ROLE_USAGE, Cursor::name)?);
        } else if c.takes("tenant") {
            once(c, options.tenant.is_some())?;
            let none = c.takes("null");
            options.tenant = Some(if none { None } else { Some(c.name(ROLE_USAGE)?) });
        } else {
            return Err(c.expected(ROLE_USAGE));
        }
    }
    Ok(options)
}

fn once(c: &Cursor<'_>, is_set: bool) -> Result<()> {
    match is_set {
        true => Err(c.refusal(c.at(), SqlState::SyntaxError, "an option is there twice")),
        false => Ok(()),
    }
}

/// What follows PASSWORD is never repeated, whatever it is.
fn password(c: &mut Cursor<'_>) -> Result<Option<Password>> {
    c.takes("encrypted");
    let at = c.at();
    c.word("password", ROLE_USAGE)?;
    if c.takes("null") {
        return Ok(None);
    }
    let wrong = c
        .refusal(at, SqlState::SyntaxError, "what follows PASSWORD is no text in single quotes")
        .with_hint("write PASSWORD 'text' or PASSWORD NULL");
    let text = c.text("").map_err(|_| wrong)?;
    if text.starts_with("SCRAM-SHA-256$") {
        let verifier = Verifier::parse(&text).map_err(|error| c.refused(error))?;
        return Ok(Some(Password::Verifier(verifier)));
    }
    let is_md5 = text
        .strip_prefix("md5")
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_md5 {
        return Err(c
            .refusal(at, SqlState::InvalidParameterValue, "MD5 passwords are not kept")
            .with_hint("give the password, or its SCRAM-SHA-256 verifier"));
    }
    Ok(Some(Password::Plain(text)))
}

fn valid_until(c: &mut Cursor<'_>) -> Result<Option<i64>> {
    if c.takes("null") {
        return Ok(None);
    }
    let at = c.at();
    let text = c.text("VALID UNTIL 'time'")?;
    let wrong =
        |what| c.refusal(at, SqlState::InvalidParameterValue, format!("VALID UNTIL: {what}"));
    values::moment(&text).map_err(wrong)
}

fn connection_limit(c: &mut Cursor<'_>) -> Result<Option<u32>> {
    let usage = "CONNECTION LIMIT n, or -1 for none";
    if c.takes("null") {
        return Ok(None);
    }
    let minus = c.takes_symbol("-");
    let token = c.peek().filter(|token| token.kind == Kind::Number);
    let token = token.ok_or_else(|| c.expected(usage))?;
    c.skip();
    match (minus, token.text.parse::<u32>()) {
        (true, Ok(1)) => Ok(None),
        (false, Ok(limit)) => Ok(Some(limit)),
        _ => {
            let what = "a connection limit is a whole number, or -1 for none";
            Err(c.refusal(token.at, SqlState::InvalidParameterValue, what))
        }
    }
}

fn tenant(c: &mut Cursor<'_>, verb: &str) -> Result<AccessStatement> {
    let if_exists = verb == "drop" && c.takes_all(&["if", "exists"]);
    let name = c.name(TENANT_USAGE)?;
    if verb == "drop" {
        c.ends("DROP TENANT [IF EXISTS] name")?;
        return Ok(AccessStatement::DropTenant { name, if_exists });
    }
    let has_limits = c.takes("with") || c.peek().is_some_and(|token| token.is_symbol("("));
    let mut limits = Vec::new();
    if has_limits || verb == "alter" {
        c.symbol("(", TENANT_USAGE)?;
        limits = c.list(TENANT_USAGE, limit)?;
        c.symbol(")", TENANT_USAGE)?;
    }
    c.ends(TENANT_USAGE)?;
    Ok(match verb {
        "create" => AccessStatement::CreateTenant { name, limits },
        _ => AccessStatement::AlterTenant { name, limits },
    })
}

/// `weight 3`, `memory = '8GB'`, `slots NULL`.
fn limit(c: &mut Cursor<'_>, usage: &str) -> Result<Limit> {
    let name = c.named(usage)?;
    c.takes_symbol("=");
    let at = c.at();
    let text = if c.takes("null") {
        None
    } else {
        let number = c.peek().filter(|token| token.kind == Kind::Number);
        Some(match number {
            Some(token) => {
                c.skip();
                token.text.to_owned()
            }
            None => c.text(usage)?,
        })
    };
    let wrong = |what: String| {
        let what = format!("{}: {what}", name.name);
        c.refusal(at, SqlState::InvalidParameterValue, what)
    };
    let text = text.as_deref();
    let whole32 = || text.map(values::whole::<u32>).transpose().map_err(wrong);
    let whole64 = || text.map(values::whole::<u64>).transpose().map_err(wrong);
    let bytes = || text.map(values::bytes).transpose().map_err(wrong);
    Ok(match name.name.as_str() {
        "weight" => Limit::Weight(whole32()?.unwrap_or(1)),
        "slots" => Limit::Slots(whole32()?),
        "queue" => Limit::Queue(whole32()?),
        "memory" => Limit::Memory(bytes()?),
        "spool" => Limit::Spool(bytes()?),
        "scan_bytes_per_day" => Limit::ScanBytesPerDay(bytes()?),
        "compute_seconds_per_hour" => Limit::ComputeSecondsPerHour(whole64()?),
        "dollars_per_day" => {
            Limit::MicrodollarsPerDay(text.map(values::dollars).transpose().map_err(wrong)?)
        }
        "ingest_bytes_per_second" => Limit::IngestBytesPerSecond(bytes()?),
        other => {
            let what = format!("a tenant has no limit `{other}`");
            return Err(c.refusal(name.at, SqlState::InvalidParameterValue, what).with_hint(
                "weight, slots, queue, memory, spool, scan_bytes_per_day, compute_seconds_per_hour, \
                 dollars_per_day, ingest_bytes_per_second",
            ));
        }
    })
}

fn create_token(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    let is_named = !c.sees("for") || c.sees_all(&["for", "for"]);
    let name = if is_named { Some(c.name(TOKEN_USAGE)?) } else { None };
    let role = of_role(c, TOKEN_USAGE)?;
    let valid_until = if c.takes_all(&["valid", "until"]) { valid_until(c)? } else { None };
    c.ends(TOKEN_USAGE)?;
    Ok(AccessStatement::CreateToken { name, role, valid_until })
}

fn drop_token(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    let if_exists = c.takes_all(&["if", "exists"]);
    let name = c.name(DROP_TOKEN_USAGE)?;
    let role = of_role(c, DROP_TOKEN_USAGE)?;
    c.ends(DROP_TOKEN_USAGE)?;
    Ok(AccessStatement::DropToken { name, role, if_exists })
}

fn of_role(c: &mut Cursor<'_>, usage: &str) -> Result<RoleName> {
    c.word("for", usage)?;
    c.role(usage)
}
