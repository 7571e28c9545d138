//! The service over a socket, asked by the library's own client.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Int64Type, Schema};
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandStatementIngest, SqlInfo, TableDefinitionOptions, TableExistsOption,
    TableNotExistOption,
};
use arrow_flight::{Action, CancelFlightInfoRequest, FlightInfo, IpcMessage};
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use uplake_engine::{Engine, SessionOptions};
use uplake_table::{AsOf, Lake};

use super::service;
use super::status::SQLSTATE;
use crate::server::{ServerOptions, Shared};

type Client = FlightSqlServiceClient<Channel>;

const DATA: &str =
    "CREATE TABLE visits AS SELECT value AS id, concat('u', CAST(value AS TEXT)) AS user_id
  FROM generate_series(1, 100) AS s(value)";
const ENDLESS: &str =
    "SELECT count(*) FROM generate_series(1, 1000000) a(v), generate_series(1, 1000000) b(w)
     WHERE a.v * b.w % 7 = 3";

struct Served {
    shared: Arc<Shared>,
    now: Arc<AtomicI64>,
    client: Client,
    _folders: (tempfile::TempDir, tempfile::TempDir),
}

async fn served() -> Served {
    let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let now = Arc::new(AtomicI64::new(1_793_491_200_000));
    let told = Arc::clone(&now);
    let clock: Arc<dyn Fn() -> i64 + Send + Sync> = Arc::new(move || told.load(Ordering::Relaxed));
    let options = SessionOptions {
        memory_bytes: 256 << 20,
        threads: 2,
        as_of: AsOf::Latest,
        spill_folder: None,
        use_indexes: true,
        at_once: None,
        timeout: None,
        clock: Arc::clone(&clock),
    };
    let lake = Lake::open(folders.0.path().to_str().unwrap()).unwrap();
    let engine = Engine::new(lake, &options).unwrap();
    let statement = uplake_engine::parse(DATA).unwrap().remove(0);
    drop(engine.session().run(&statement).await.unwrap());
    let next = AtomicU8::new(1);
    let random = move |bytes: &mut [u8]| bytes.fill(next.fetch_add(1, Ordering::Relaxed));
    let options = ServerOptions {
        pg: None,
        http: None,
        database: "lake".into(),
        connections: 10,
        limits: crate::limits::Limits::default(),
        spool_folder: folders.1.path().to_owned(),
        spool_bytes: 1 << 30,
        clock,
        random: Arc::new(random),
        dollars_per_core_hour: 0.0,
        history: false,
        audit: None,
        nodes: crate::node_options::NodeOptions::default(),
    };
    let shared = Shared::for_tests(engine, options);
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().add_service(service(Arc::clone(&shared)));
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let client = Client::new(channel.connect().await.unwrap());
    Served { shared, now, client, _folders: folders }
}

async fn fetch(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>, FlightError> {
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    client.do_get(ticket).await?.try_collect().await
}

async fn ask(client: &mut Client, text: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(text.into(), None).await?;
    fetch(client, info).await
}

fn number(batches: &[RecordBatch]) -> i64 {
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

fn refused<T>(answer: Result<T, FlightError>) -> (Code, String, String) {
    match answer {
        Err(FlightError::Tonic(status)) => {
            let state = status.metadata().get(SQLSTATE).map(|state| state.to_str().unwrap());
            (status.code(), state.unwrap_or_default().into(), status.message().into())
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// Waits until no statement runs.
async fn is_still(shared: &Shared) -> bool {
    for _ in 0..500 {
        if shared.statements.count() == 0 && shared.engine.session().usage().running == 0 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn statements_have_columns_then_rows() {
    let Served { shared, mut client, now, _folders, .. } = served().await;
    let text = "SELECT user_id, count(*) AS n FROM visits GROUP BY user_id";
    let info = client.execute(text.into(), None).await.unwrap();
    let schema = info.clone().try_decode_schema().unwrap();
    assert_eq!(schema.field(0).data_type(), &DataType::Utf8);
    // Nothing runs before the rows are fetched.
    assert!(shared.statements.over().is_empty());
    let batches = fetch(&mut client, info.clone()).await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 100);
    assert_eq!(batches[0].schema().as_ref(), &schema);
    // A query may be fetched again, until the ticket is over.
    assert!(fetch(&mut client, info.clone()).await.is_ok());
    now.fetch_add(super::tickets::LIFE_MILLIS + 1, Ordering::Relaxed);
    assert_eq!(refused(fetch(&mut client, info).await).1, "26000");
    assert!(is_still(&shared).await);
    assert!(shared.statements.over()[0].cost.rows_out == 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn changes_are_counted_and_tickets_for_them_run_once() {
    let Served { mut client, _folders, .. } = served().await;
    let insert = "INSERT INTO visits VALUES (101, 'u101'), (102, 'u102')";
    assert_eq!(client.execute_update(insert.into(), None).await.unwrap(), 2);
    let info = client.execute(insert.into(), None).await.unwrap();
    assert_eq!(info.clone().try_decode_schema().unwrap(), Schema::empty());
    assert!(fetch(&mut client, info.clone()).await.unwrap().is_empty());
    assert_eq!(refused(fetch(&mut client, info).await).1, "26000");
    assert_eq!(number(&ask(&mut client, "SELECT count(*) FROM visits").await.unwrap()), 104);
    let id = client.begin_transaction().await.unwrap();
    let wrote = client.execute_update(insert.into(), Some(id.clone())).await;
    assert_eq!(refused(wrote).0, Code::Unimplemented);
    let read = client.execute("SELECT 1".into(), Some(id)).await.unwrap();
    assert!(fetch(&mut client, read).await.is_ok());
    let info = client.execute("SHOW TABLES".into(), None).await.unwrap();
    assert!(!info.try_decode_schema().unwrap().fields().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn prepared_statements_take_values() {
    let Served { mut client, _folders, .. } = served().await;
    let text = "SELECT count(*) FROM visits WHERE id <= $1 AND user_id <> $2";
    let mut prepared = client.prepare(text.into(), None).await.unwrap();
    let parameters = prepared.parameter_schema().unwrap();
    assert_eq!(parameters.field(0).data_type(), &DataType::Int64);
    assert_eq!(parameters.field(1).data_type(), &DataType::Utf8);
    for (most, expected) in [(10_i64, 9), (50, 49)] {
        let columns: [(&str, ArrayRef); 2] = [
            ("1", Arc::new(Int64Array::from(vec![most]))),
            ("2", Arc::new(StringArray::from(vec!["u3"]))),
        ];
        prepared.set_parameters(RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(number(&fetch(&mut client, info).await.unwrap()), expected);
    }
    let two: [(&str, ArrayRef); 2] = [
        ("1", Arc::new(Int64Array::from(vec![1, 2]))),
        ("2", Arc::new(StringArray::from(vec!["u3", "u4"]))),
    ];
    prepared.set_parameters(RecordBatch::try_from_iter(two).unwrap()).unwrap();
    let info = prepared.execute().await.unwrap();
    assert_eq!(refused(fetch(&mut client, info.clone()).await).0, Code::Unimplemented);
    prepared.close().await.unwrap();
    assert_eq!(refused(fetch(&mut client, info).await).1, "26000");
    let insert = "INSERT INTO visits VALUES (?, ?)";
    let mut prepared = client.prepare(insert.into(), None).await.unwrap();
    assert_eq!(prepared.parameter_schema().unwrap().field(0).data_type(), &DataType::Int64);
    let rows: [(&str, ArrayRef); 2] = [
        ("1", Arc::new(Int64Array::from(vec![101, 102]))),
        ("2", Arc::new(StringArray::from(vec!["u101", "u102"]))),
    ];
    prepared.set_parameters(RecordBatch::try_from_iter(rows).unwrap()).unwrap();
    assert_eq!(prepared.execute_update().await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn names_and_abilities_are_told() {
    let Served { mut client, _folders, .. } = served().await;
    let made = "CREATE TABLE other (a INT)";
    client.execute_update(made.into(), None).await.unwrap();
    let asked = CommandGetTables {
        table_name_filter_pattern: Some("vis%".into()),
        include_schema: true,
        ..Default::default()
    };
    let info = client.get_tables(asked).await.unwrap();
    let tables = fetch(&mut client, info).await.unwrap();
    assert_eq!(tables[0].num_rows(), 1);
    assert_eq!(tables[0].column(2).as_string::<i32>().value(0), "visits");
    let schema = tables[0].column(4).as_binary::<i32>().value(0).to_vec();
    let schema = Schema::try_from(IpcMessage(schema.into())).unwrap();
    assert_eq!(schema.field(0).name(), "id");
    let info = client.get_tables(CommandGetTables::default()).await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 2);
    let made = "CREATE VIEW vis_users AS SELECT user_id AS who FROM visits";
    client.execute_update(made.into(), None).await.unwrap();
    for (table_types, include_schema, expected) in [
        (vec![], false, vec!["other TABLE", "vis_users VIEW", "visits TABLE"]),
        (vec!["VIEW".to_owned()], true, vec!["vis_users VIEW"]),
        (vec!["TABLE".to_owned()], true, vec!["other TABLE", "visits TABLE"]),
    ] {
        let asked = CommandGetTables { table_types, include_schema, ..Default::default() };
        let info = client.get_tables(asked).await.unwrap();
        let found = &fetch(&mut client, info).await.unwrap()[0];
        let text = |row: usize, column: usize| found.column(column).as_string::<i32>().value(row);
        let told = (0..found.num_rows()).map(|row| format!("{} {}", text(row, 2), text(row, 3)));
        let mut told: Vec<String> = told.collect();
        told.sort();
        assert_eq!(told, expected);
        if expected == ["vis_users VIEW"] {
            let schema = found.column(4).as_binary::<i32>().value(0).to_vec();
            let schema = Schema::try_from(IpcMessage(schema.into())).unwrap();
            assert_eq!(schema.fields().len(), 1);
            assert_eq!(schema.field(0).name(), "who");
        }
    }
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 1);
    let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 1);
    let info = client.get_table_types().await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 2);
    let info = client.get_sql_info(vec![SqlInfo::FlightSqlServerName]).await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 1);
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo::default()).await.unwrap();
    assert!(fetch(&mut client, info).await.unwrap()[0].num_rows() > 5);
    let table = |name: &str| CommandGetPrimaryKeys { table: name.into(), ..Default::default() };
    let info = client.get_primary_keys(table("visits")).await.unwrap();
    let keys = fetch(&mut client, info).await.unwrap();
    assert_eq!(keys.iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
    let info = client.get_primary_keys(table("nothing")).await.unwrap();
    assert_eq!(refused(fetch(&mut client, info).await).0, Code::NotFound);
}

fn ingested(
    if_missing: TableNotExistOption,
    if_there: TableExistsOption,
    label: Option<&str>,
) -> CommandStatementIngest {
    let options = label.map(|label| ("label".to_owned(), label.to_owned()));
    CommandStatementIngest {
        table: "sent".into(),
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: if_missing as i32,
            if_exists: if_there as i32,
        }),
        options: options.into_iter().collect(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn rows_are_ingested_in_one_commit_and_once() {
    use TableExistsOption::{Append, Fail, Replace};
    use TableNotExistOption::{Create, Fail as Missing};
    let Served { mut client, shared, _folders, .. } = served().await;
    let batch = |from: i64| {
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from_iter_values(from..from + 1000))),
            ("name", Arc::new(StringArray::from_iter_values((0..1000).map(|n| n.to_string())))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let rows = || stream::iter([Ok(batch(0)), Ok(batch(1000))]);
    let missing = client.execute_ingest(ingested(Missing, Append, None), rows()).await;
    assert_eq!(refused(missing).0, Code::NotFound);
    for (label, expected) in [(None, 2000), (Some("a"), 2000), (Some("a"), 0)] {
        let command = ingested(Create, Append, label);
        assert_eq!(client.execute_ingest(command, rows()).await.unwrap(), expected);
    }
    let again = client.execute_ingest(ingested(Create, Fail, None), rows()).await;
    assert_eq!(refused(again).0, Code::AlreadyExists);
    let replaced = client.execute_ingest(ingested(Create, Replace, None), rows()).await;
    assert_eq!(refused(replaced).0, Code::Unimplemented);
    // A call that breaks off commits nothing.
    let broken = stream::iter([Ok(batch(0))]).chain(stream::pending());
    let broken = client.execute_ingest(ingested(Create, Append, None), broken);
    assert!(tokio::time::timeout(Duration::from_millis(300), broken).await.is_err());
    assert!(is_still(&shared).await);
    assert_eq!(number(&ask(&mut client, "SELECT count(*) FROM sent").await.unwrap()), 4000);
    let left = std::fs::read_dir(&shared.options.spool_folder).unwrap().count();
    assert_eq!(left, 0, "files are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_statement_is_cancelled_by_its_flight() {
    let Served { mut client, shared, _folders, .. } = served().await;
    let info = client.execute(ENDLESS.into(), None).await.unwrap();
    let mut other = client.clone();
    let asked = info.clone();
    let fetched = tokio::spawn(async move { refused(fetch(&mut other, asked).await) });
    while shared.engine.session().usage().running == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let body = CancelFlightInfoRequest::new(info.clone()).encode_to_vec();
    let answer = client.do_action(Action::new("CancelFlightInfo", body)).await.unwrap();
    assert_eq!(answer.try_collect::<Vec<_>>().await.unwrap()[0].body.as_ref(), [8, 1]);
    let (code, state, _) = fetched.await.unwrap();
    assert_eq!((code, state.as_str()), (Code::Cancelled, "57014"));
    assert!(is_still(&shared).await);
    assert_eq!(refused(fetch(&mut client, info).await).1, "26000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_call_that_is_dropped_frees_its_slot() {
    let Served { mut client, shared, _folders, .. } = served().await;
    // While it computes.
    let ran = tokio::time::timeout(Duration::from_millis(300), ask(&mut client, ENDLESS)).await;
    assert!(ran.is_err());
    assert!(is_still(&shared).await);
    // While rows come.
    let rows = "SELECT a.v, repeat('x', 1000) AS t
      FROM generate_series(1, 1000) a(v), generate_series(1, 1000000) b(w)";
    let info = client.execute(rows.into(), None).await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let mut rows = client.do_get(ticket).await.unwrap();
    assert!(rows.next().await.unwrap().unwrap().num_rows() > 0);
    assert_eq!(shared.statements.count(), 1);
    drop(rows);
    assert!(is_still(&shared).await);
    assert_eq!(shared.spools.used(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn errors_have_codes() {
    let Served { mut client, _folders, .. } = served().await;
    let mut code = async |text: &str| {
        let (code, state, message) = refused(ask(&mut client, text).await);
        assert!(!message.is_empty());
        (code, state)
    };
    assert_eq!(code("SELEC 1").await, (Code::InvalidArgument, "42601".into()));
    assert_eq!(code("SELECT 1; SELECT 2").await, (Code::InvalidArgument, "42601".into()));
    assert_eq!(code("SELECT * FROM nothing").await, (Code::NotFound, "42P01".into()));
    assert_eq!(code("SELECT nothing FROM visits").await, (Code::InvalidArgument, "42703".into()));
    assert_eq!(code("CREATE TABLE visits (a INT)").await, (Code::AlreadyExists, "42P07".into()));
    assert_eq!(code("SELECT 1 / (id - 7) FROM visits").await.1, "22012");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_session_lasts_while_it_is_used() {
    let Served { mut client, now, _folders, .. } = served().await;
    client.handshake("admin", "").await.unwrap();
    assert!(client.token().is_some());
    client.execute_update("SET uplake.timeout = '7s'".into(), None).await.unwrap();
    let shown = ask(&mut client, "SHOW uplake.timeout").await.unwrap();
    assert!(format!("{shown:?}").contains('7'), "{shown:?}");
    for _ in 0..3 {
        now.fetch_add(super::auth::IDLE_MILLIS, Ordering::Relaxed);
        assert!(ask(&mut client, "SELECT 1").await.is_ok());
    }
    now.fetch_add(super::auth::IDLE_MILLIS + 1, Ordering::Relaxed);
    let (code, state, _) = refused(ask(&mut client, "SELECT 1").await);
    assert_eq!((code, state.as_str()), (Code::Unauthenticated, "28000"));
    client.set_token("uplake_session_guessed".into());
    assert_eq!(refused(ask(&mut client, "SELECT 1").await).0, Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn texts_are_views_only_for_who_asks() {
    let Served { mut client, _folders, .. } = served().await;
    let text = "SELECT user_id FROM visits ORDER BY id LIMIT 1";
    let plain = ask(&mut client, text).await.unwrap();
    assert_eq!(plain[0].column(0).as_string::<i32>().value(0), "u1");
    client.set_header("x-uplake-views", "1");
    assert!(ask(&mut client, text).await.is_ok());
}
