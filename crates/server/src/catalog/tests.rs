//! The catalog in an engine: its tables, what clients ask of it, and who sees what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use uplake_engine::{Engine, Session, SessionOptions, SharedMemory};
use uplake_table::{AsOf, Lake};

use super::tables::{CATALOG, INFORMATION, SystemTables};
use super::{Catalog, Hidden, PID, SETTING, ServerState, USER, rewrite};

const MEMORY_BYTES: usize = 256 << 20;

/// A server's parts, without a server.
struct Parts {
    catalog: Arc<Catalog>,
    lake: Lake,
    engine: Arc<Engine>,
}

impl Parts {
    fn over(folder: &std::path::Path) -> Self {
        let catalog = Arc::new(Catalog::new(ServerState::default()));
        let options = SessionOptions {
            memory_bytes: MEMORY_BYTES,
            threads: 2,
            as_of: AsOf::Latest,
            spill_folder: None,
            use_indexes: true,
            at_once: None,
            timeout: None,
            clock: Arc::new(|| 1_793_491_200_000),
        };
        let lake = Lake::open(folder.to_str().unwrap()).unwrap();
        let memory = SharedMemory::new(MEMORY_BYTES);
        let additions = catalog.additions();
        let engine = Engine::with_additions(lake.clone(), &options, &memory, additions).unwrap();
        Self { catalog, lake, engine }
    }

    fn refresh(&self) {
        block_on(self.catalog.refresh(&self.lake)).unwrap();
    }
}

const TABLES: &str = "
    CREATE TABLE users (id BIGINT NOT NULL, name TEXT, seen TIMESTAMP, PRIMARY KEY (id));
    CREATE TABLE events (user_id TEXT, n INT, price DECIMAL(10, 2)) CLUSTERED BY (user_id);
    CREATE TABLE \"Mixed\" AS SELECT DATE '2026-11-01' AS \"Day\", true AS ok;
    INSERT INTO users VALUES (1, 'a', TIMESTAMP '2026-11-01 10:00:00'), (2, 'b', NULL)";

/// A lake of three tables that the catalog has looked at.
fn example(folder: &std::path::Path) -> Parts {
    let parts = Parts::over(folder);
    block_on(parts.engine.session().query(TABLES)).unwrap();
    parts.refresh();
    parts
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}

/// Rows of a client's text, a line for each with `|` between values.
fn rows(session: &Session, text: &str) -> Vec<String> {
    let text = rewrite(text);
    let batches = block_on(session.query(&text)).unwrap_or_else(|e| panic!("{e}\nof\n{text}"));
    batches.iter().flat_map(lines).collect()
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let line = |row: usize| {
        let values =
            batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(line).collect()
}

fn statements(users: &str) -> Vec<(String, String)> {
    let all = include_str!("tests_data/statements.sql").split("\n;\n").skip(1);
    let with_title = all.filter_map(|text| text.split_once('\n'));
    with_title.map(|(title, text)| (title.to_owned(), text.replace("{users}", users))).collect()
}

#[test]
fn every_statement_that_clients_send_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let parts = example(folder.path());
    let session = parts.engine.session();
    let users = rows(&session, "SELECT 'users'::regclass::oid").remove(0);
    let all = statements(&users);
    assert!(all.len() > 50, "{} statements", all.len());
    let mut failed = Vec::new();
    for (title, text) in all {
        let made = rewrite(&text).into_owned();
        if let Err(error) = block_on(session.query(&made)) {
            failed.push(format!("{title}\n{error}\n{made}\n"));
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// The answers to statements whose title is `title` and which contain `part`.
fn answer(session: &Session, title: &str, part: &str) -> Vec<String> {
    let users = rows(session, "SELECT 'users'::regclass::oid").remove(0);
    let all = statements(&users);
    let found = all.iter().find(|(known, text)| known == title && text.contains(part));
    rows(session, &found.unwrap_or_else(|| panic!("no statement {title}, {part}")).1)
}

#[test]
fn psql_describes_tables() {
    let folder = tempfile::tempdir().unwrap();
    let parts = example(folder.path());
    let session = parts.engine.session();
    let tables =
        ["public|Mixed|table|admin", "public|events|table|admin", "public|users|table|admin"];
    assert_eq!(answer(&session, "-- psql 15 \\d", "pg_get_userbyid"), tables);
    let users = answer(&session, "-- psql 15 \\d users", "SELECT c.oid,");
    assert_eq!(users.len(), 1);
    assert!(users[0].ends_with("|public|users"), "{users:?}");
    let columns = answer(&session, "-- psql 15 \\d users", "a.attnotnull");
    let columns: Vec<String> =
        columns.iter().map(|line| line.split('|').take(4).collect::<Vec<_>>().join("|")).collect();
    assert_eq!(
        columns,
        ["id|bigint||true", "name|text||false", "seen|timestamp without time zone||false"]
    );
    let indexes = answer(&session, "-- psql 15 \\d users", "pg_get_constraintdef");
    assert!(
        indexes[0].starts_with("users_pkey|true|true|false|true|CREATE UNIQUE INDEX"),
        "{indexes:?}"
    );
    assert!(indexes[0].contains("|PRIMARY KEY (id)|p|"), "{indexes:?}");
    assert_eq!(answer(&session, "-- psql 15 \\dn", "nspname"), ["public|admin"]);
    let databases = answer(&session, "-- psql 15 \\l", "pg_database");
    assert!(databases[0].starts_with("lake|admin|UTF8|"), "{databases:?}");
    assert!(answer(&session, "-- psql 15 \\du", "rolname")[0].starts_with("admin|true|"));
    assert_eq!(answer(&session, "-- psql 15 \\df", "pg_proc"), Vec::<String>::new());
}

#[test]
fn drivers_find_tables_columns_and_keys() {
    let folder = tempfile::tempdir().unwrap();
    let parts = example(folder.path());
    let session = parts.engine.session();
    let tables = answer(&session, "-- pgJDBC 42.7", "c.relkind = 'r' AND n.nspname !~");
    assert_eq!(tables.len(), 3, "{tables:?}");
    assert!(tables[2].starts_with("lake|public|users|TABLE|"), "{tables:?}");
    let key = answer(&session, "-- pgJDBC 42.7", "AS \"PK_NAME\"");
    assert_eq!(key, ["lake|public|users|id|1|users_pkey"]);
    let columns = answer(&session, "-- pgJDBC 42.7", "AS adsrc");
    assert_eq!(columns.len(), 3, "{columns:?}");
    let key = answer(&session, "-- SQLAlchemy 2.1", "array_agg(CAST(attr.attname");
    assert!(key[0].contains("|[id]|users_pkey|"), "{key:?}");
}

#[test]
fn every_table_is_selected_with_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let parts = example(folder.path());
    let session = parts.engine.session();
    for table in SystemTables::new().all() {
        let text = format!("SELECT * FROM {}.{}", table.schema, table.name);
        let batches = block_on(session.query(&text)).unwrap_or_else(|e| panic!("{e} of {text}"));
        let Some(batch) = batches.first() else { continue };
        let names: Vec<&String> = batch.schema_ref().fields().iter().map(|f| f.name()).collect();
        let expected: Vec<&String> =
            table.columns.schema.fields().iter().map(|f| f.name()).collect();
        assert_eq!(names, expected, "{text}");
    }
    for name in ["pg_class", "pg_type", "pg_namespace"] {
        let bare = rows(&session, &format!("SELECT count(*) FROM {name}"));
        assert_eq!(bare, rows(&session, &format!("SELECT count(*) FROM {CATALOG}.{name}")));
        assert_ne!(bare, ["0"], "{name}");
    }
    let columns = format!(
        "SELECT table_name, column_name, is_nullable, data_type, numeric_precision, numeric_scale \
         FROM {INFORMATION}.columns ORDER BY table_name, ordinal_position"
    );
    assert_eq!(
        rows(&session, &columns),
        [
            "Mixed|Day|YES|date||",
            "Mixed|ok|YES|boolean||",
            "events|user_id|YES|text||",
            "events|n|YES|integer|32|0",
            "events|price|YES|numeric|10|2",
            "users|id|NO|bigint|64|0",
            "users|name|YES|text||",
            "users|seen|YES|timestamp without time zone||",
        ]
    );
    let keys = format!("SELECT constraint_name, column_name FROM {INFORMATION}.key_column_usage");
    assert_eq!(rows(&session, &keys), ["users_pkey|id"]);
    // DataFusion's own statements read them.
    assert_eq!(rows(&session, "SHOW TABLES").len(), 3);
    assert!(!rows(&session, "SHOW datafusion.execution.batch_size").is_empty());
}

#[test]
fn a_lakes_table_is_before_a_catalogs_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let parts = example(folder.path());
    let session = parts.engine.session();
    assert_eq!(rows(&session, "CREATE TABLE pg_am AS SELECT 7 AS k; SELECT * FROM pg_am"), ["7"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM pg_catalog.pg_am"), ["2"]);
}

#[test]
fn functions_know_who_asks_and_two_users_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let parts = example(folder.path());
    let (anna, ben) = (parts.engine.session(), parts.engine.session());
    anna.set_fact(USER, Some("anna"));
    anna.set_fact(PID, Some("41"));
    ben.set_fact(USER, Some("ben"));
    ben.set_fact(&format!("{SETTING}timezone"), Some("Europe/Berlin"));
    let text = "SELECT current_user, session_user, pg_backend_pid(), current_setting('TimeZone'), \
                (SELECT count(*) FROM users WHERE name <> current_user)";
    for _ in 0..2 {
        assert_eq!(rows(&anna, text), ["anna|anna|41|UTC|2"]);
        assert_eq!(rows(&ben, text), ["ben|ben|0|Europe/Berlin|2"]);
    }
    ben.set_fact(USER, None);
    assert_eq!(rows(&ben, "SELECT current_user"), ["admin"]);
}

#[test]
fn what_a_role_sees_is_worked_out_once_for_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let parts = example(folder.path());
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    parts.catalog.hide(move |_, _| {
        counts.fetch_add(1, Ordering::Relaxed);
        Hidden::default()
    });
    let session = parts.engine.session();
    session.set_fact(USER, Some("ann"));
    let found = rows(&session, "SELECT count(*) FROM pg_class WHERE pg_table_is_visible(oid)");
    let visible: usize = found[0].parse().unwrap();
    let asked = asked.load(Ordering::Relaxed);
    // For the rows of the table, and in the call, of which planning may make another.
    assert!(visible > 20 && asked < 6, "asked {asked} times for {visible} rows");
}

#[test]
fn functions_answer_as_postgres_does() {
    let folder = tempfile::tempdir().unwrap();
    let parts = example(folder.path());
    let session = parts.engine.session();
    let check = |sql: &str, expected: &str| assert_eq!(rows(&session, sql), [expected], "{sql}");
    check(
        "SELECT pg_catalog.current_schema(), current_schemas(true), current_schema",
        "public|[pg_catalog, public]|public",
    );
    check("SELECT current_database(), current_catalog", "lake|lake");
    check(
        "SELECT format_type(1700, 655366), format_type(20, NULL), format_type(1009, -1)",
        "numeric(10,2)|bigint|text[]",
    );
    check("SELECT pg_table_is_visible('users'::regclass), pg_get_userbyid(10)", "true|admin");
    check("SELECT to_regclass('nothing') IS NULL, to_regtype('int4')", "true|23");
    check(
        "SELECT 'users'::regclass::text, 1259::regclass, 'pg_catalog.int4'::regtype::oid",
        "users|pg_class|23",
    );
    check(
        "SELECT has_table_privilege('users', 'SELECT'), quote_ident('A b'), quote_literal('it''s')",
        "true|\"A b\"|'it''s'",
    );
    check("SELECT pg_get_constraintdef(oid) FROM pg_constraint", "PRIMARY KEY (id)");
    check("SELECT 'public' = ANY (current_schemas(true))", "true");
    check(
        "SELECT count(*) FROM pg_class WHERE relname OPERATOR(pg_catalog.~) '^(users)$' COLLATE pg_catalog.default",
        "1",
    );
    check(
        "SELECT parse_ident('Public.\"A b\"'), array_upper(current_schemas(true), 1)",
        "[public, A b]|2",
    );
    let unknown = block_on(session.query(&rewrite("SELECT 'nothing'::regclass"))).unwrap_err();
    assert_eq!(unknown.code(), uplake_engine::SqlState::UndefinedTable);
    let unknown = block_on(session.query("SELECT current_setting('nothing')")).unwrap_err();
    assert_eq!(unknown.code(), uplake_engine::SqlState::UndefinedObject);
}

#[test]
fn numbers_stay_when_the_server_starts_again_and_tables_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let text = "SELECT oid, relname FROM pg_class WHERE relnamespace = 2200 ORDER BY relname";
    let before = {
        let parts = example(folder.path());
        rows(&parts.engine.session(), text)
    };
    let again = Parts::over(folder.path());
    assert_eq!(rows(&again.engine.session(), text), Vec::<String>::new(), "nobody has looked yet");
    again.refresh();
    let session = again.engine.session();
    assert_eq!(rows(&session, text), before);
    rows(&session, "CREATE TABLE aaa AS SELECT 1 AS k; DROP TABLE events");
    assert_eq!(rows(&session, text), before, "seen with the next look");
    again.refresh();
    let after = rows(&session, text);
    let users = |lines: &[String]| lines.iter().find(|line| line.ends_with("|users")).cloned();
    assert_eq!(users(&after), users(&before));
    assert!(after.iter().any(|line| line.ends_with("|aaa")));
    assert!(!after.iter().any(|line| line.ends_with("|events")));
}
