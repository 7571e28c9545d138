//! What a statement did, in the words that drivers read counts from.

/// The tag of a statement of the engine: its command, and the rows that it wrote or gave.
pub(crate) fn tag(command: &str, rows: Option<u64>) -> String {
    let rows_or_none = rows.unwrap_or(0);
    match command {
        "SELECT" => format!("SELECT {rows_or_none}"),
        "INSERT" => format!("INSERT 0 {rows_or_none}"),
        "COPY" if rows.is_some() => format!("COPY {rows_or_none}"),
        "DELETE" | "UPDATE" | "MERGE" => format!("{command} {rows_or_none}"),
        // CREATE TABLE AS.
        "CREATE TABLE" if rows.is_some() => format!("SELECT {rows_or_none}"),
        "OTHER" => "OK".to_owned(),
        command => command.to_owned(),
    }
}

/// Does a statement of this command take effect at once in a transaction, too?
pub(crate) fn changes_tables(command: &str) -> bool {
    matches!(
        command,
        "CREATE TABLE"
            | "DROP TABLE"
            | "CREATE VIEW"
            | "DROP VIEW"
            | "COMMENT"
            | "CREATE ID SET"
            | "DROP ID SET"
            | "CREATE ROLE"
            | "ALTER ROLE"
            | "DROP ROLE"
            | "GRANT"
            | "GRANT ROLE"
            | "REVOKE"
            | "REVOKE ROLE"
            | "CREATE POLICY"
            | "ALTER POLICY"
            | "DROP POLICY"
            | "ALTER TABLE"
            | "CREATE TENANT"
            | "ALTER TENANT"
            | "DROP TENANT"
            | "DROP TOKEN"
            | "OTHER"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_postgres() {
        for (command, rows, expected) in [
            ("SELECT", Some(3), "SELECT 3"),
            ("INSERT", Some(2), "INSERT 0 2"),
            ("DELETE", Some(0), "DELETE 0"),
            ("COPY", Some(4), "COPY 4"),
            ("UPDATE", Some(3), "UPDATE 3"),
            ("MERGE", Some(2), "MERGE 2"),
            ("CREATE TABLE", None, "CREATE TABLE"),
            ("CREATE TABLE", Some(9), "SELECT 9"),
            ("DROP TABLE", None, "DROP TABLE"),
            ("SET", None, "SET"),
        ] {
            assert_eq!(tag(command, rows), expected);
        }
    }
}
