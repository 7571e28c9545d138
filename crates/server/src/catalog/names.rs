//! Numbers of objects by their names, names by their numbers, and what defines them.

use uplake_engine::{EngineError, Result, SqlState};

use super::listing::{Listing, Object};
use super::tables::{CATALOG, INFORMATION, PUBLIC, SystemTables};
use super::words::{index_definition, parts, quoted};

/// Where names are looked up.
pub(super) struct Names<'a> {
    pub listing: &'a Listing,
    pub tables: &'a SystemTables,
}

impl Names<'_> {
    /// The number of a table or index, as SQL names it.
    pub fn relation(&self, written: &str) -> Option<i64> {
        if let Ok(number) = written.trim().parse() {
            return Some(number);
        }
        let parts = parts(written);
        let (name, before) = parts.split_last()?;
        let of_catalog = |schema: &str| self.tables.get(schema, name).map(|table| table.oid);
        match before.last().map(String::as_str) {
            None => self.listing.table_oid(name).or_else(|| of_catalog(CATALOG)),
            Some(PUBLIC) => self.listing.table_oid(name),
            Some(schema) => of_catalog(schema),
        }
    }

    /// The same.
    ///
    /// # Errors
    /// That there is no such one.
    pub fn known_relation(&self, written: &str) -> Result<i64> {
        self.relation(written).ok_or_else(|| {
            let message = format!("relation \"{written}\" does not exist");
            EngineError::execution(SqlState::UndefinedTable, message)
        })
    }

    /// A relation as it is shown; its number if it has no name.
    pub fn shown(&self, oid: i64) -> String {
        if oid == 0 {
            return "-".into();
        }
        match self.listing.object(oid) {
            Some(Object::Table(name)) => return quoted(name),
            Some(Object::Index(..)) => {
                if let Some((_, index)) = self.listing.index(oid) {
                    return quoted(&index.name);
                }
            }
            _ => {}
        }
        match self.tables.by_oid(oid) {
            Some(table) if table.schema == INFORMATION => format!("{INFORMATION}.{}", table.name),
            Some(table) => table.name.clone(),
            None => oid.to_string(),
        }
    }

    /// Can it be named without its schema?
    pub fn is_visible(&self, oid: i64) -> Option<bool> {
        match self.listing.object(oid) {
            Some(Object::Table(_) | Object::Index(..)) => Some(true),
            _ => self.tables.by_oid(oid).map(|table| table.schema == CATALOG),
        }
    }

    /// `PRIMARY KEY (a, b)`
    pub fn constraint(&self, oid: i64) -> Option<String> {
        let Some(Object::Key(table)) = self.listing.object(oid) else { return None };
        let key: Vec<String> =
            self.listing.tables.get(table)?.key.iter().map(|key| quoted(key)).collect();
        Some(format!("PRIMARY KEY ({})", key.join(", ")))
    }

    /// The query of a view.
    pub fn view(&self, oid: i64) -> Option<String> {
        let Object::Table(name) = self.listing.object(oid)? else { return None };
        Some(self.listing.tables.get(name)?.view.as_ref()?.query.clone())
    }

    /// What COMMENT says of a table, or of one of its columns, from 1.
    pub fn comment(&self, oid: i64, column: i64) -> Option<String> {
        let Some(Object::Table(table)) = self.listing.object(oid) else { return None };
        let table = self.listing.tables.get(table)?;
        match usize::try_from(column).ok()? {
            0 => table.comment.clone(),
            column => table.columns.get(column - 1)?.comment.clone(),
        }
    }

    /// An index, or one of its columns, from 1.
    pub fn index(&self, oid: i64, column: i64) -> Option<String> {
        let (table, index) = self.listing.index(oid)?;
        match usize::try_from(column) {
            Ok(0) | Err(_) => Some(index_definition(table, index)),
            Ok(column) => {
                Some(index.columns.get(column - 1).map_or_else(String::new, |name| quoted(name)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::listing::tests::example;

    #[test]
    fn relations_are_found_and_shown() {
        let (listing, tables) = (example(), SystemTables::new());
        let names = Names { listing: &listing, tables: &tables };
        let users = names.relation("users").unwrap();
        for written in ["public.users", "\"users\"", " USERS ", &users.to_string()] {
            assert_eq!(names.relation(written), Some(users), "{written}");
        }
        assert_eq!(names.relation("pg_catalog.pg_class"), Some(1259));
        assert_eq!(names.relation("pg_class"), Some(1259));
        assert_eq!(names.relation("other.users"), None);
        assert!(names.known_relation("nothing").is_err());
        assert_eq!(names.shown(users), "users");
        assert_eq!(names.shown(names.relation("\"Mixed\"").unwrap()), "\"Mixed\"");
        assert_eq!(names.shown(1259), "pg_class");
        assert_eq!(names.shown(0), "-");
        assert_eq!(names.is_visible(users), Some(true));
        assert_eq!(names.is_visible(99), None);
    }

    #[test]
    fn comments_are_of_tables_and_columns() {
        let (listing, tables) = (example(), SystemTables::new());
        let names = Names { listing: &listing, tables: &tables };
        let (events, users) = (names.relation("events").unwrap(), names.relation("users").unwrap());
        assert_eq!(names.comment(events, 0).as_deref(), Some("what happened"));
        assert_eq!(names.comment(events, 1).as_deref(), Some("in euros"));
        for (oid, column) in [(events, 2), (events, -1), (users, 0), (users, 1), (1259, 0)] {
            assert_eq!(names.comment(oid, column), None, "{column}");
        }
    }

    #[test]
    fn keys_and_indexes_are_told() {
        let (listing, tables) = (example(), SystemTables::new());
        let names = Names { listing: &listing, tables: &tables };
        let key = listing.oid(&Object::Key("users".into()));
        assert_eq!(names.constraint(key).as_deref(), Some("PRIMARY KEY (id)"));
        let index = names.relation("users_pkey").unwrap();
        let whole = "CREATE UNIQUE INDEX users_pkey ON public.users USING btree (id)";
        assert_eq!(names.index(index, 0).as_deref(), Some(whole));
        assert_eq!(names.index(index, 1).as_deref(), Some("id"));
        assert_eq!(names.index(index, 2).as_deref(), Some(""));
        assert_eq!(names.index(7, 0), None);
    }
}
