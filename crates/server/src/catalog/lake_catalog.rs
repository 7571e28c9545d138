//! The catalog of a lake, as a server holds it.
//!
//! # Invariants
//! - A look is answered from what is kept, and asks neither the store nor the disk.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use uplake_engine::{
    AddedFunction, AddedRows, AddedSchema, Additions, EngineError, Result, Session, SessionFacts,
    SqlState,
};
use uplake_table::{Lake, TableError};

use super::listing::{Hidden, Known, ListedTable, Listing};
use super::shared::Shared;
use super::state::{ServerState, Stops};
use super::tables::{CATALOG, INFORMATION, SystemTables, View, rows_of};
use super::{functions, known, rewrite as forms, tableoid, types};

/// Seconds between two listings: what others do to the lake is seen so late.
pub(crate) const REFRESH_SECONDS: u64 = 30;
/// The catalog of a lake.
pub(crate) struct Catalog {
    shared: Arc<Shared>,
    functions: Vec<AddedFunction>,
    /// Taken while a listing is read.
    known: tokio::sync::Mutex<Known>,
    /// The views as they were last looked at.
    views: Mutex<Vec<ListedTable>>,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("listing", &self.shared.listing()).finish_non_exhaustive()
    }
}

impl Catalog {
    /// A catalog that knows no table yet.
    pub fn new(server: ServerState) -> Self {
        let shared = Arc::new(Shared {
            tables: SystemTables::new(),
            listing: RwLock::default(),
            server: RwLock::default(),
            transactions: AtomicI64::new(1),
            stops: OnceLock::new(),
            hidden: OnceLock::new(),
        });
        let functions = functions::all(&shared);
        let catalog = Self {
            shared,
            functions,
            known: tokio::sync::Mutex::default(),
            views: Mutex::default(),
        };
        catalog.set_server(server);
        catalog
    }

    /// Leaves out, of what a session is told, what `hidden` says does not exist of the lake's tables for its user's
    /// role. The first call counts.
    pub fn hide(&self, hidden: impl Fn(&str, &[&str]) -> Hidden + Send + Sync + 'static) {
        self.shared.hidden.get_or_init(|| Box::new(hidden));
    }

    /// What the catalog says of the server from now on.
    pub fn set_server(&self, mut server: ServerState) {
        let of = |function: &AddedFunction| {
            let arguments = function.takes.iter().map(Vec::len).max().unwrap_or_default();
            (function.name, arguments, types::column_type(&function.gives).oid())
        };
        server.functions = self.functions.iter().map(of).collect();
        server.functions.sort_unstable();
        // Rows that were made of what was said before go with their listing.
        let mut listing = self.shared.listing.write().unwrap_or_else(PoisonError::into_inner);
        *self.shared.server.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(server);
        *listing = Arc::new(Listing::new(listing.tables.values().cloned()));
    }

    /// Whom `pg_cancel_backend` and `pg_terminate_backend` ask from now on; the first counts.
    pub fn set_stops(&self, stops: Box<Stops>) {
        // A process has one listener of Postgres' wire.
        let _ = self.shared.stops.set(stops);
    }

    /// Schemas and functions for the engine.
    pub fn additions(&self) -> Additions {
        let schema = |name: &'static str| -> Arc<dyn AddedSchema> {
            Arc::new(Schema { name, shared: Arc::clone(&self.shared) })
        };
        Additions {
            schemas: vec![schema(CATALOG), schema(INFORMATION)],
            functions: self.functions.clone(),
            statements: None,
        }
    }

    /// [`Self::refresh`], once the views are planned anew by a session that may read all. If they cannot be listed, they
    /// are as they were.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub async fn refresh_with_views(&self, session: &Session) -> Result<(), TableError> {
        if let Ok(views) = session.views().await {
            let views = views.into_iter().map(ListedTable::of_view).collect();
            *self.views.lock().unwrap_or_else(PoisonError::into_inner) = views;
        }
        self.refresh(session.lake()).await
    }

    /// Looks at the lake: one listing, and the logs that have moved since the last look. One look is done at a
    /// time; who comes meanwhile waits, and then looks again.
    ///
    /// Dropping the future leaves what was known, and the next look reads every table.
    ///
    /// # Errors
    /// Those of a lake that cannot be listed; the catalog stays as it was.
    pub async fn refresh(&self, lake: &Lake) -> Result<(), TableError> {
        let mut known = self.known.lock().await;
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match std::mem::take(&mut *known).read(lake, views).await {
            Ok((now, listing)) => {
                *known = now;
                let mut kept = self.shared.listing.write().unwrap_or_else(PoisonError::into_inner);
                // Rows that were made stay where nothing has changed.
                if kept.tables != listing.tables {
                    *kept = Arc::new(listing);
                }
                Ok(())
            }
            Err((before, error)) => {
                *known = before;
                Err(error)
            }
        }
    }
}

/// A client's statement as the engine takes it: see `tableoid`, `known` and `rewrite`. Most are handed back as they are.
pub(crate) fn rewrite(text: &str) -> Cow<'_, str> {
    let steps: [fn(&str) -> Cow<'_, str>; 3] = [tableoid::resolve, known::plain, forms::rewrite];
    let mut made = Cow::Borrowed(text);
    for step in steps {
        let next = match step(&made) {
            Cow::Owned(next) => next,
            Cow::Borrowed(_) => continue,
        };
        made = Cow::Owned(next);
    }
    made
}

/// One of the schemas.
struct Schema {
    name: &'static str,
    shared: Arc<Shared>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[async_trait]
impl AddedSchema for Schema {
    fn name(&self) -> &str {
        self.name
    }

    fn is_searched(&self) -> bool {
        self.name == CATALOG
    }

    fn tables(&self) -> Vec<String> {
        let tables = self.shared.tables.all().filter(|table| table.schema == self.name);
        tables.map(|table| table.name.clone()).collect()
    }

    fn columns(&self, table: &str) -> Option<SchemaRef> {
        Some(Arc::clone(&self.shared.tables.get(self.name, table)?.columns.schema))
    }

    async fn rows(&self, table: &str, facts: &SessionFacts) -> Result<AddedRows> {
        let unmade = |what: String| EngineError::execution(SqlState::InternalError, what);
        let (listing, server) = (self.shared.listing_for(facts), self.shared.server());
        let found = self.shared.tables.get(self.name, table);
        let found = found.ok_or_else(|| unmade(format!("there is no {}.{table}", self.name)))?;
        let view = View { tables: &self.shared.tables, listing: &listing, server: &server, facts };
        let made = rows_of(&view, found);
        let made = made.map_err(|error| unmade(format!("{}.{table}: {error}", self.name)))?;
        Ok(AddedRows { made, stored: None })
    }
}
