//! What is kept of all tables of a lake, so that a look at the catalog asks nobody.
//!
//! # Invariants
//! - A listing never changes; a look keeps the one that it began with.
//! - A table whose log has not moved is not read again, and one that cannot be read stays as it was.
//!
//! # Not here
//! When a listing is made: whoever has a clock calls `Catalog::refresh`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use futures::StreamExt;
use uplake_engine::ViewDescription;
use uplake_table::{AsOf, Lake, SeenVersion, Snapshot, TableError, table_called};

use super::oids::oids;

/// Tables that are looked at at once; in a bucket each is a round trip or two.
const AT_ONCE: usize = 16;

/// Listings without what is hidden that are kept of one listing: one for each of these.
const KEPT_PARTS: usize = 64;

/// What of a listing does not exist for a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Hidden {
    /// Tables that it may do nothing with.
    pub tables: BTreeSet<String>,
    /// Names of columns by the table's.
    pub columns: BTreeMap<String, BTreeSet<String>>,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedTable {
    pub name: String,
    pub columns: Vec<ListedColumn>,
    pub rows: Option<u64>,
    pub bytes: u64,
    /// The columns of its primary key.
    pub key: Vec<String>,
    pub indexes: Vec<ListedIndex>,
    /// What makes it, if it is a view.
    pub view: Option<ListedView>,
    /// What COMMENT says of it.
    pub comment: Option<String>,
}

/// What a view is beside its columns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedView {
    pub query: String,
    /// The tables that it reads.
    pub tables: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedColumn {
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    pub comment: Option<String>,
}

/// An index of the data files, which Postgres would call an index of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedIndex {
    pub name: String,
    pub columns: Vec<String>,
    /// Is it the primary key?
    pub is_key: bool,
}

impl ListedTable {
    fn of(snapshot: &Snapshot) -> Self {
        let name = snapshot.table().to_owned();
        let column = |field: &Arc<arrow::datatypes::Field>| ListedColumn {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            nullable: field.is_nullable(),
            comment: snapshot.comments().get(field.name()).cloned(),
        };
        let key = snapshot.primary_key().to_vec();
        let of_key = (!key.is_empty()).then(|| ListedIndex {
            name: format!("{name}_pkey"),
            columns: key.clone(),
            is_key: true,
        });
        let own = snapshot.indexes().iter().map(|index| ListedIndex {
            name: format!("{name}_{}_{}", index.column, index.kind.name()),
            columns: vec![index.column.clone()],
            is_key: false,
        });
        Self {
            columns: snapshot.schema().fields().iter().map(column).collect(),
            rows: snapshot.rows(),
            bytes: snapshot.size_bytes(),
            comment: snapshot.comment().map(str::to_owned),
            indexes: of_key.into_iter().chain(own).collect(),
            key,
            name,
            view: None,
        }
    }

    /// A view, which has neither rows nor bytes of its own.
    pub fn of_view(view: ViewDescription) -> Self {
        let column = |field: &Arc<arrow::datatypes::Field>| ListedColumn {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            nullable: true,
            comment: None,
        };
        Self {
            name: view.name,
            columns: view.schema.fields().iter().map(column).collect(),
            rows: None,
            bytes: 0,
            key: Vec::new(),
            indexes: Vec::new(),
            view: Some(ListedView { query: view.query, tables: view.tables }),
            comment: None,
        }
    }

    /// The table without columns, and what is made of them.
    fn without(&self, hidden: &BTreeSet<String>) -> Self {
        let is_seen = |column: &String| !hidden.contains(&column.to_lowercase());
        let mut table = self.clone();
        table.columns.retain(|column| is_seen(&column.name));
        table.indexes.retain(|index| index.columns.iter().all(is_seen));
        if !table.key.iter().all(is_seen) {
            table.key.clear();
        }
        table
    }

    /// The number of a column, from 1.
    pub fn number_of(&self, column: &str) -> Option<i64> {
        let place = self.columns.iter().position(|known| known.name == column)?;
        i64::try_from(place + 1).ok()
    }
}

/// All tables at one moment.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// By name.
    pub tables: BTreeMap<String, ListedTable>,
    /// Numbers of tables, indexes and constraints, by [`Object::key`].
    oids: HashMap<String, i64>,
    /// Those by number.
    objects: HashMap<i64, Object>,
    /// Rows of catalog tables that are the same for all sessions, once somebody has asked for them, as of an access
    /// document.
    made: Mutex<(u32, HashMap<String, RecordBatch>)>,
    /// Tables that are not in it because who asks does not see them.
    unseen: BTreeSet<String>,
    /// This listing without what some do not see.
    parts: Mutex<HashMap<Hidden, Arc<Listing>>>,
}

/// What has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Table(String),
    /// Of a table, by its name and the place among the table's.
    Index(String, usize),
    /// The primary key of a table.
    Key(String),
}

impl Object {
    fn key(&self, tables: &BTreeMap<String, ListedTable>) -> String {
        match self {
            Self::Table(name) => format!("table {name}"),
            Self::Index(table, place) => {
                let index = tables.get(table).and_then(|table| table.indexes.get(*place));
                format!("index {table} {}", index.map_or("", |index| &index.name))
            }
            Self::Key(table) => format!("key {table}"),
        }
    }
}

impl Listing {
    pub fn new(tables: impl IntoIterator<Item = ListedTable>) -> Self {
        let tables: BTreeMap<String, ListedTable> =
            tables.into_iter().map(|table| (table.name.clone(), table)).collect();
        let mut all = Vec::new();
        for (name, table) in &tables {
            all.push(Object::Table(name.clone()));
            all.extend((0..table.indexes.len()).map(|place| Object::Index(name.clone(), place)));
            all.extend((!table.key.is_empty()).then(|| Object::Key(name.clone())));
        }
        let oids = oids(all.iter().map(|object| object.key(&tables)));
        let objects =
            all.into_iter().filter_map(|object| Some((*oids.get(&object.key(&tables))?, object)));
        let objects = objects.collect();
        Self { objects, tables, oids, ..Self::default() }
    }

    /// The listing without these tables and columns; of columns whatever the case of their tables' names.
    pub fn without(self: Arc<Self>, hidden: Hidden) -> Arc<Self> {
        if hidden == Hidden::default() {
            return self;
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = parts.get(&hidden) {
            return Arc::clone(known);
        }
        let mut of_table: HashMap<String, BTreeSet<String>> = HashMap::new();
        for (table, columns) in &hidden.columns {
            let all = of_table.entry(table.to_lowercase()).or_default();
            all.extend(columns.iter().map(|column| column.to_lowercase()));
        }
        let seen = self.tables.values().filter(|table| !hidden.tables.contains(&table.name));
        let seen = seen.map(|table| match of_table.get(&table.name.to_lowercase()) {
            Some(hidden) => table.without(hidden),
            None => table.clone(),
        });
        let part = Arc::new(Self { unseen: hidden.tables.clone(), ..Self::new(seen) });
        if parts.len() >= KEPT_PARTS {
            parts.clear();
        }
        parts.insert(hidden, Arc::clone(&part));
        part
    }

    /// Tables and views that do not exist for who does not see `hidden` of tables: a view, as far as it is listed, is
    /// planned by somebody who sees all.
    pub fn hidden_with_views(&self, mut hidden: Hidden) -> Hidden {
        let hides = |table: &String| {
            let lower = table.to_lowercase();
            hidden.tables.contains(table)
                || hidden
                    .columns
                    .iter()
                    .any(|(of, columns)| of.to_lowercase() == lower && !columns.is_empty())
        };
        let is_hidden = |listed: &&ListedTable| {
            listed.view.as_ref().is_some_and(|view| view.tables.iter().any(hides))
        };
        let views: Vec<String> =
            self.tables.values().filter(is_hidden).map(|view| view.name.clone()).collect();
        hidden.tables.extend(views);
        hidden
    }

    /// Is a table not in it because who asks does not see it? Of whatever case, as policies are for tables.
    pub fn hides(&self, table: &str) -> bool {
        let lower = table.to_lowercase();
        let is_it = |unseen: &String| unseen.to_lowercase() == lower;
        !self.tables.contains_key(table) && self.unseen.iter().any(is_it)
    }

    /// The number of an object; 0 if there is no such one.
    pub fn oid(&self, object: &Object) -> i64 {
        self.oids.get(&object.key(&self.tables)).copied().unwrap_or_default()
    }

    pub fn object(&self, oid: i64) -> Option<&Object> {
        self.objects.get(&oid)
    }

    /// The table and index of a number.
    pub fn index(&self, oid: i64) -> Option<(&ListedTable, &ListedIndex)> {
        let Object::Index(table, place) = self.object(oid)? else { return None };
        let table = self.tables.get(table)?;
        Some((table, table.indexes.get(*place)?))
    }

    /// The table, index or key of that name, as SQL names it: the exact one, or the only one in another case.
    pub fn table_oid(&self, name: &str) -> Option<i64> {
        if let Some(called) = table_called(name, self.tables.keys().map(String::as_str)) {
            return Some(self.oid(&Object::Table(called.to_owned())));
        }
        let mut indexes = self.tables.values().flat_map(|table| {
            table.indexes.iter().enumerate().map(move |(place, index)| (table, place, index))
        });
        let (table, place, _) = indexes.find(|(_, _, index)| index.name == name)?;
        Some(self.oid(&Object::Index(table.name.clone(), place)))
    }

    /// The rows of a catalog table, made once for each access document.
    pub fn made<E>(
        &self,
        access: u32,
        name: &str,
        make: impl FnOnce() -> Result<RecordBatch, E>,
    ) -> Result<RecordBatch, E> {
        let kept = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut kept = kept();
            if kept.0 != access {
                *kept = (access, HashMap::new());
            }
            if let Some(rows) = kept.1.get(name) {
                return Ok(rows.clone());
            }
        }
        let rows = make()?;
        let mut kept = kept();
        if kept.0 == access {
            kept.1.insert(name.to_owned(), rows.clone());
        }
        Ok(rows)
    }
}

/// Tables as they were last read, and what says whether a log has moved: snapshots have a line for each file.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<String, Seen>);

#[derive(Debug)]
struct Seen {
    version: SeenVersion,
    table: ListedTable,
}

impl Known {
    /// Reads what has changed since; says what there is now.
    ///
    /// # Errors
    /// Those of a lake that cannot be listed. A table that cannot be read is as it was, or not there.
    pub async fn read(
        self,
        lake: &Lake,
        views: Vec<ListedTable>,
    ) -> Result<(Self, Listing), (Self, TableError)> {
        let names = match lake.table_names().await {
            Ok(names) => names,
            Err(error) => return Err((self, error)),
        };
        let mut before = self.0;
        let looks = names.into_iter().map(|name| {
            let known = before.remove(&name);
            async move { Some((name.clone(), newest(lake, name, known).await?)) }
        });
        let looks: Vec<_> = looks.collect();
        let found: Vec<Option<(String, Seen)>> =
            futures::stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        let known: HashMap<String, Seen> = found.into_iter().flatten().collect();
        // A name is a table before it is a view.
        let views = views.into_iter().filter(|view| !known.contains_key(&view.name));
        let tables = known.values().map(|seen| seen.table.clone());
        let listing = Listing::new(tables.chain(views));
        Ok((Self(known), listing))
    }
}

/// A table as it is now, or as it is known if it cannot be read.
async fn newest(lake: &Lake, name: String, known: Option<Seen>) -> Option<Seen> {
    if let Some(seen) = &known
        && lake.is_newest(&seen.version).await.unwrap_or(false)
    {
        return known;
    }
    match lake.snapshot(&name, &AsOf::Latest).await {
        Ok(snapshot) => Some(Seen { version: snapshot.seen(), table: ListedTable::of(&snapshot) }),
        // Dropped since it was listed.
        Err(TableError::NoSuchTable { .. }) => None,
        Err(_) => known,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// `users` with a key of its `id`, `events` and `Mixed`.
    pub(in crate::catalog) fn example() -> Listing {
        let column = |name: &str, data_type: DataType, nullable: bool| ListedColumn {
            name: name.into(),
            data_type,
            nullable,
            comment: (name == "price").then(|| "in euros".into()),
        };
        let table = |name: &str, columns: Vec<ListedColumn>| ListedTable {
            name: name.into(),
            columns,
            rows: Some(3),
            bytes: 20_000,
            key: Vec::new(),
            indexes: Vec::new(),
            view: None,
            comment: (name == "events").then(|| "what happened".into()),
        };
        let users = table(
            "users",
            vec![column("id", DataType::Int64, false), column("name", DataType::Utf8, true)],
        );
        let of_key =
            ListedIndex { name: "users_pkey".into(), columns: vec!["id".into()], is_key: true };
        Listing::new([
            ListedTable { key: vec!["id".into()], indexes: vec![of_key], ..users },
            table("events", vec![column("price", DataType::Decimal128(10, 2), true)]),
            table("Mixed", vec![column("Day", DataType::Date32, true)]),
        ])
    }

    #[test]
    fn hidden_columns_are_gone_with_what_is_made_of_them() {
        let listing = Arc::new(example());
        let hidden = |table: &str, column: &str| {
            let columns = [(table.to_owned(), BTreeSet::from([column.to_owned()]))].into();
            Hidden { columns, ..Hidden::default() }
        };
        let part = Arc::clone(&listing).without(hidden("users", "id"));
        let users = part.tables.get("users").unwrap();
        assert_eq!(users.columns.len(), 1);
        assert!(users.key.is_empty() && users.indexes.is_empty());
        assert_eq!(part.table_oid("users"), listing.table_oid("users"));
        assert!(
            part.table_oid("users_pkey").is_none() && listing.table_oid("users_pkey").is_some()
        );
        assert!(Arc::ptr_eq(&part, &Arc::clone(&listing).without(hidden("users", "id"))));
        let mixed = Arc::clone(&listing).without(hidden("mixed", "day"));
        assert!(mixed.tables.get("Mixed").unwrap().columns.is_empty());
        assert!(Arc::ptr_eq(&listing, &Arc::clone(&listing).without(Hidden::default())));
        let tables = BTreeSet::from(["users".to_owned()]);
        let others = Arc::clone(&listing).without(Hidden { tables, ..Hidden::default() });
        assert_eq!(others.tables.keys().collect::<Vec<_>>(), ["Mixed", "events"]);
        assert!(others.table_oid("users").is_none() && others.table_oid("users_pkey").is_none());
        assert!(others.hides("Users") && !others.hides("events") && !others.hides("gone"));
    }

    #[test]
    fn objects_have_numbers_and_are_found_by_them() {
        let listing = example();
        let users = listing.table_oid("users").unwrap();
        assert_eq!(listing.object(users), Some(&Object::Table("users".into())));
        assert_eq!(listing.table_oid("mixed"), listing.table_oid("Mixed"));
        assert_eq!(listing.table_oid("nothing"), None);
        let key = listing.table_oid("users_pkey").unwrap();
        assert_eq!(listing.index(key).unwrap().1.columns, ["id"]);
        assert_ne!(key, listing.oid(&Object::Key("users".into())));
        // As after a restart.
        assert_eq!(example().table_oid("users"), Some(users));
    }
}
