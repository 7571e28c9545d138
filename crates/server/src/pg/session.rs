//! What a connection has SET.
//!
//! Settings that mean something here act; those of Postgres that mean nothing here are remembered, so that a driver
//! finds what it has set. `uplake.…` are the engine's.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::failure::Failure;
use crate::pg::encode::{Options, Zone};

/// What drivers think they speak with.
pub(crate) const SERVER_VERSION: &str = concat!("16.0 (Uplake ", env!("CARGO_PKG_VERSION"), ")");
/// Bytes of a value.
const VALUE_BYTES: usize = 16 << 10;

/// May a client change it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It is told of changes.
    Reported,
    Free,
    Fixed,
}

use Use::{Fixed, Free, Reported};

/// Names in lower case, as they are spelled, and what they are at first.
const KNOWN: &[(&str, &str, &str, Use)] = &[
    ("application_name", "application_name", "", Reported),
    ("backslash_quote", "backslash_quote", "safe_encoding", Free),
    ("bytea_output", "bytea_output", "hex", Free),
    ("check_function_bodies", "check_function_bodies", "on", Free),
    ("client_encoding", "client_encoding", "UTF8", Reported),
    ("client_min_messages", "client_min_messages", "notice", Free),
    ("cursor_tuple_fraction", "cursor_tuple_fraction", "0.1", Free),
    ("datestyle", "DateStyle", "ISO, MDY", Reported),
    ("default_transaction_deferrable", "default_transaction_deferrable", "off", Free),
    ("default_transaction_isolation", "default_transaction_isolation", "repeatable read", Free),
    ("default_transaction_read_only", "default_transaction_read_only", "off", Reported),
    ("enable_seqscan", "enable_seqscan", "on", Free),
    ("escape_string_warning", "escape_string_warning", "on", Free),
    ("extra_float_digits", "extra_float_digits", "1", Free),
    ("geqo", "geqo", "on", Free),
    ("idle_in_transaction_session_timeout", "idle_in_transaction_session_timeout", "0", Free),
    ("idle_session_timeout", "idle_session_timeout", "0", Free),
    ("in_hot_standby", "in_hot_standby", "off", Fixed),
    ("integer_datetimes", "integer_datetimes", "on", Fixed),
    ("intervalstyle", "IntervalStyle", "postgres", Reported),
    ("is_superuser", "is_superuser", "off", Fixed),
    ("jit", "jit", "off", Free),
    ("lc_collate", "lc_collate", "C", Fixed),
    ("lc_ctype", "lc_ctype", "C", Fixed),
    ("lc_messages", "lc_messages", "C", Free),
    ("lc_monetary", "lc_monetary", "C", Free),
    ("lc_numeric", "lc_numeric", "C", Free),
    ("lc_time", "lc_time", "C", Free),
    ("lock_timeout", "lock_timeout", "0", Free),
    ("max_identifier_length", "max_identifier_length", "63", Fixed),
    ("max_index_keys", "max_index_keys", "32", Fixed),
    ("password_encryption", "password_encryption", "scram-sha-256", Fixed),
    ("plan_cache_mode", "plan_cache_mode", "auto", Free),
    ("role", "role", "none", Free),
    ("row_security", "row_security", "on", Free),
    ("scram_iterations", "scram_iterations", "4096", Fixed),
    ("search_path", "search_path", "\"$user\", public", Reported),
    ("server_encoding", "server_encoding", "UTF8", Fixed),
    ("server_version", "server_version", SERVER_VERSION, Fixed),
    ("server_version_num", "server_version_num", "160000", Fixed),
    ("session_authorization", "session_authorization", "", Fixed),
    ("standard_conforming_strings", "standard_conforming_strings", "on", Reported),
    ("statement_timeout", "statement_timeout", "0", Free),
    ("synchronous_commit", "synchronous_commit", "on", Free),
    ("synchronize_seqscans", "synchronize_seqscans", "on", Free),
    ("tcp_keepalives_idle", "tcp_keepalives_idle", "0", Free),
    ("timezone", "TimeZone", "UTC", Reported),
    ("transaction_isolation", "transaction_isolation", "repeatable read", Free),
    ("transaction_read_only", "transaction_read_only", "off", Free),
    ("work_mem", "work_mem", "4MB", Free),
    ("xmloption", "xmloption", "content", Free),
];

/// Those that a client hears of when it has logged in.
const TOLD: [&str; 15] = [
    "server_version",
    "server_encoding",
    "client_encoding",
    "datestyle",
    "timezone",
    "integer_datetimes",
    "standard_conforming_strings",
    "intervalstyle",
    "is_superuser",
    "session_authorization",
    "application_name",
    "in_hot_standby",
    "default_transaction_read_only",
    "search_path",
    "scram_iterations",
];

/// What a connection has set.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What the login said, to which RESET goes back.
    begun: BTreeMap<String, String>,
    changed: BTreeMap<String, String>,
    /// What SET LOCAL has covered, until the transaction ends.
    covered: BTreeMap<String, Option<String>>,
    timeout: Option<Duration>,
    zone: Zone,
}

/// A setting that has another value now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub name: &'static str,
    pub value: String,
    /// Does the client hear of it?
    pub is_reported: bool,
}

fn known(name: &str) -> Option<&'static (&'static str, &'static str, &'static str, Use)> {
    let name = name.to_lowercase();
    KNOWN.iter().find(|known| known.0 == name)
}

fn unknown(name: &str) -> Failure {
    Failure::new("42704", format!("unrecognized configuration parameter \"{name}\""))
}

impl Settings {
    /// Those of a role.
    pub fn new(role: &str, is_admin: bool) -> Self {
        let is_superuser = if is_admin { "on" } else { "off" };
        let begun = [("session_authorization", role), ("is_superuser", is_superuser)];
        Self {
            begun: begun.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            changed: BTreeMap::new(),
            covered: BTreeMap::new(),
            timeout: None,
            zone: Zone::UTC,
        }
    }

    /// Is it one that the engine does not know?
    pub fn knows(name: &str) -> bool {
        known(name).is_some()
    }

    /// A name as Postgres spells it.
    pub fn spelled(name: &str) -> &str {
        known(name).map_or(name, |known| known.1)
    }

    /// What is set now becomes what RESET goes back to.
    pub fn begin(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        self.begun.extend(changed);
    }

    /// What the login said, by names in lower case.
    pub fn of_login(&self) -> impl Iterator<Item = (&str, &str)> {
        self.begun.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What the client is told after its login.
    pub fn told(&self) -> impl Iterator<Item = Changed> {
        TOLD.iter().filter_map(|name| {
            let name = known(name)?.1;
            Some(Changed { name, value: self.get(name)?, is_reported: true })
        })
    }

    /// The value of a setting of Postgres.
    pub fn get(&self, name: &str) -> Option<String> {
        let (key, _, first, _) = known(name)?;
        let set = self.changed.get(*key).or_else(|| self.begun.get(*key));
        Some(set.cloned().unwrap_or_else(|| (*first).to_owned()))
    }

    /// Names as they are spelled, and values.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        KNOWN.iter().filter_map(|known| Some((known.1, self.get(known.0)?))).collect()
    }

    /// SET; `None` is the value of the login.
    ///
    /// # Errors
    /// 42704 for a name that there is not, 55P02 for one that cannot be changed, 22023 for a value it cannot have.
    pub fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
    ) -> Result<Option<Changed>, Failure> {
        let (key, spelled, _, used) = known(name).ok_or_else(|| unknown(name))?;
        if *used == Fixed && *key != "session_authorization" {
            let message = format!("parameter \"{spelled}\" cannot be changed");
            return Err(Failure::new("55P02", message));
        }
        let before = self.changed.get(*key).cloned();
        let new = match value {
            Some(value) => Some(self.checked(key, spelled, value)?),
            None => None,
        };
        if local {
            self.covered.entry((*key).to_owned()).or_insert(before);
        }
        Ok(self.put(key, new))
    }

    fn put(&mut self, key: &str, value: Option<String>) -> Option<Changed> {
        let before = self.get(key)?;
        match value {
            Some(value) => self.changed.insert(key.to_owned(), value),
            None => self.changed.remove(key),
        };
        let after = self.get(key)?;
        match key {
            "statement_timeout" => self.timeout = duration(&after).ok().flatten(),
            "timezone" => self.zone = zone(&after).unwrap_or_default(),
            _ => {}
        }
        let (_, name, _, used) = known(key)?;
        let is_reported = *used == Reported;
        (before != after).then_some(Changed { name, value: after, is_reported })
    }

    fn checked(&self, key: &str, spelled: &str, value: &str) -> Result<String, Failure> {
        let value = value.trim();
        let wrong = |hint: &str| {
            let message = format!("invalid value for parameter \"{spelled}\": \"{value}\"");
            Failure::new("22023", message).with_hint(hint)
        };
        if value.len() > VALUE_BYTES || value.contains('\0') {
            return Err(Failure::new("22023", format!("the value of \"{spelled}\" is too long")));
        }
        Ok(match key {
            "statement_timeout" => {
                duration(value).map_err(|()| wrong("a number of milliseconds, or 5s, 2min, 1h"))?;
                value.to_owned()
            }
            "timezone" => {
                zone(value).ok_or_else(|| wrong("UTC, a name such as Europe/Berlin, or +02:00"))?;
                value.to_owned()
            }
            "client_encoding" => {
                // Of an encoding's name Postgres, too, reads letters and digits alone: asyncpg sends quotes.
                let letters = value.chars().filter(char::is_ascii_alphanumeric);
                match letters.collect::<String>().to_lowercase().as_str() {
                    "utf8" | "unicode" => "UTF8".to_owned(),
                    _ => return Err(wrong("everything is UTF8 here")),
                }
            }
            "datestyle" => {
                let value = value.to_uppercase();
                let mut parts = value.split(',').map(str::trim);
                if parts.clone().any(|part| part != "ISO" && !ORDERS.contains(&part)) {
                    return Err(wrong("dates are written as ISO has them"));
                }
                let order = parts.find(|part| ORDERS.contains(part)).map(|order| match order {
                    "YMD" | "DMY" => order,
                    _ => "MDY",
                });
                let now = self.get("datestyle").unwrap_or_default();
                let now = now.split(", ").nth(1).unwrap_or("MDY");
                format!("ISO, {}", order.unwrap_or(now))
            }
            "intervalstyle" if value != "postgres" => {
                return Err(wrong("intervals are written in the style postgres"));
            }
            "bytea_output" if value != "hex" => return Err(wrong("bytes are written as hex")),
            "standard_conforming_strings" if !matches!(value, "on" | "true" | "1") => {
                return Err(wrong("a backslash is a character as any other"));
            }
            "extra_float_digits" => {
                let digits = value.parse::<i32>().ok().filter(|digits| (-15..=3).contains(digits));
                digits.ok_or_else(|| wrong("-15 to 3"))?.to_string()
            }
            "role" | "session_authorization" => {
                let own = self.begun.get("session_authorization").map(String::as_str);
                if !matches!(value, "none" | "default") && Some(value) != own {
                    let message = format!("permission denied to set role \"{value}\"");
                    return Err(Failure::new("42501", message));
                }
                value.to_owned()
            }
            _ => value.to_owned(),
        })
    }

    /// RESET ALL: all are again as they were after the login.
    pub fn reset_all(&mut self) -> Vec<Changed> {
        let keys: Vec<String> = self.changed.keys().cloned().collect();
        self.covered.clear();
        keys.iter().filter_map(|key| self.put(key, None)).collect()
    }

    /// The transaction has ended: SET LOCAL ends with it.
    pub fn end_transaction(&mut self) -> Vec<Changed> {
        let covered = std::mem::take(&mut self.covered);
        covered.into_iter().filter_map(|(key, value)| self.put(&key, value)).collect()
    }

    /// What a statement may take.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// How rows are written.
    pub fn encoding(&self) -> Options {
        Options { time_zone: self.zone }
    }

    /// The zone of moments that name none, as ISO has it.
    pub fn zone_name(&self) -> String {
        let set = self.get("timezone").unwrap_or_default();
        zone_name(&set).unwrap_or_else(|| "UTC".to_owned())
    }

    /// What the client calls itself.
    pub fn application(&self) -> String {
        self.get("application_name").unwrap_or_default()
    }
}

const ORDERS: [&str; 6] = ["MDY", "DMY", "YMD", "US", "EUROPEAN", "NONEUROPEAN"];

/// A number of milliseconds, or one with a unit, as Postgres has them; `None` for 0.
fn duration(text: &str) -> Result<Option<Duration>, ()> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let factor = match text[digits..].trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1000.0,
        "min" | "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return Err(()),
    };
    let millis = text[..digits].parse::<f64>().map_err(|_| ())? * factor;
    let duration = Duration::try_from_secs_f64(millis / 1000.0).map_err(|_| ())?;
    Ok((!duration.is_zero()).then_some(duration))
}

fn zone(text: &str) -> Option<Zone> {
    Zone::parse(&zone_name(text)?).ok()
}

/// The zone as ISO has it. `+02` and the like are those of POSIX, west of Greenwich; `+02:00` and names are as
/// everywhere.
fn zone_name(text: &str) -> Option<String> {
    let is_posix = text.starts_with(['+', '-']) && !text.contains(':');
    if !is_posix && Zone::parse(text).is_ok() {
        return Some(text.to_owned());
    }
    let hours: i32 = text.parse().ok().filter(|hours: &i32| hours.abs() <= 15)?;
    let sign = if hours < 0 { '-' } else { '+' };
    Some(format!("{sign}{:02}:00", hours.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new("ann", false)
    }

    #[test]
    fn what_is_set_is_shown_and_told_of() {
        let mut settings = settings();
        assert_eq!(settings.told().count(), TOLD.len());
        assert_eq!(settings.get("Session_Authorization").unwrap(), "ann");
        let told = settings.set("TimeZone", Some("Europe/Berlin"), false).unwrap().unwrap();
        let reported = |name, value: &str| Changed { name, value: value.into(), is_reported: true };
        assert_eq!(told, reported("TimeZone", "Europe/Berlin"));
        assert_eq!(settings.set("timezone", Some("Europe/Berlin"), false).unwrap(), None);
        let digits = settings.set("extra_float_digits", Some("3"), false).unwrap().unwrap();
        assert!(!digits.is_reported, "{digits:?}");
        assert_eq!(settings.get("extra_float_digits").unwrap(), "3");
        settings.set("datestyle", Some("iso"), false).unwrap();
        assert_eq!(settings.get("datestyle").unwrap(), "ISO, MDY");
        settings.set("statement_timeout", Some("1500"), false).unwrap();
        assert_eq!(settings.timeout(), Some(Duration::from_millis(1500)));
        settings.set("statement_timeout", Some("2min"), false).unwrap();
        assert_eq!(settings.timeout(), Some(Duration::from_secs(120)));
        let changed = settings.reset_all();
        assert!(changed.contains(&reported("TimeZone", "UTC")), "{changed:?}");
        assert_eq!(changed.iter().filter(|changed| changed.is_reported).count(), 1);
        assert_eq!(settings.timeout(), None);
        assert_eq!(settings.get("session_authorization").unwrap(), "ann");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut settings = settings();
        for (name, value, code) in [
            ("nothing", "1", "42704"),
            ("server_version", "1", "55P02"),
            ("timezone", "Nowhere", "22023"),
            ("client_encoding", "latin1", "22023"),
            ("client_encoding", "", "22023"),
            ("datestyle", "German", "22023"),
            ("statement_timeout", "soon", "22023"),
            ("extra_float_digits", "9", "22023"),
            ("role", "bob", "42501"),
        ] {
            assert_eq!(settings.set(name, Some(value), false).unwrap_err().code, code, "{name}");
        }
    }

    #[test]
    fn a_local_setting_ends_with_its_transaction() {
        let mut settings = settings();
        settings.set("application_name", Some("a"), false).unwrap();
        settings.set("application_name", Some("b"), true).unwrap();
        settings.set("application_name", Some("c"), true).unwrap();
        let told = settings.end_transaction();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].name, told[0].value.as_str()), ("application_name", "a"));
        // What the login said is what RESET goes back to.
        settings.begin();
        settings.set("application_name", Some("d"), false).unwrap();
        settings.reset_all();
        assert_eq!(settings.application(), "a");
    }
}
