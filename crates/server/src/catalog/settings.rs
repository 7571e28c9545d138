//! Settings as Postgres names them, for `current_setting` and `pg_settings`.
//!
//! # Not here
//! What SET and SHOW do: `pg`. It tells of a setting by a fact of the session, `setting.` and its name in lower
//! case ([`SETTING`]).

use uplake_engine::SessionFacts;

use super::state::{SERVER_VERSION, SERVER_VERSION_NUMBER, SETTING};

/// What a setting is where a session says nothing.
const DEFAULTS: [(&str, &str); 34] = [
    ("application_name", ""),
    ("array_nulls", "on"),
    ("bytea_output", "hex"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_table_access_method", "heap"),
    ("default_tablespace", ""),
    ("default_transaction_isolation", "repeatable read"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("idle_in_transaction_session_timeout", "0"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("is_superuser", "off"),
    ("jit", "off"),
    ("lc_collate", "C.UTF-8"),
    ("lc_ctype", "C.UTF-8"),
    ("lc_messages", "C.UTF-8"),
    ("lock_timeout", "0"),
    ("max_connections", "2000"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("port", "5433"),
    ("search_path", "\"$user\", public"),
    ("server_encoding", "UTF8"),
    ("server_version", SERVER_VERSION),
    ("server_version_num", SERVER_VERSION_NUMBER),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("timezone", "UTC"),
    ("transaction_isolation", "repeatable read"),
    ("transaction_read_only", "off"),
];

/// A setting's value; `None` if there is no such one.
pub(super) fn setting(facts: &SessionFacts, name: &str) -> Option<String> {
    let name = name.to_lowercase();
    let of_session = facts.get(&format!("{SETTING}{name}"));
    let default = || DEFAULTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    of_session.or_else(default).map(str::to_owned)
}

/// All settings.
pub(super) fn rows(facts: &SessionFacts) -> impl Iterator<Item = (String, String)> {
    let of_session = facts.all().filter_map(|(name, _)| name.strip_prefix(SETTING));
    let mut names: Vec<&str> = DEFAULTS.iter().map(|(name, _)| *name).chain(of_session).collect();
    names.sort_unstable();
    names.dedup();
    let rows: Vec<(String, String)> = names
        .into_iter()
        .map(|name| (name.to_owned(), setting(facts, name).unwrap_or_default()))
        .collect();
    rows.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_in_any_case() {
        let facts = SessionFacts::default();
        assert_eq!(setting(&facts, "TimeZone").as_deref(), Some("UTC"));
        assert_eq!(setting(&facts, "nothing"), None);
        assert_eq!(rows(&facts).count(), DEFAULTS.len());
    }
}
