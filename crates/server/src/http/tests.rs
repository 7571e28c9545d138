//! Over loopback, with requests that are written by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use uplake_engine::{Engine, SessionOptions};
use uplake_table::{AsOf, Lake};

use super::serve;
use crate::server::{ServerOptions, Shared};

struct Server {
    _folder: tempfile::TempDir,
    shared: Arc<Shared>,
    address: SocketAddr,
    drain: watch::Sender<bool>,
}

/// The whole of an answer, as it came.
struct Answer {
    status: u16,
    head: String,
    /// Without its chunks' lengths; `None` if it was cut.
    body: Option<Vec<u8>>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone().expect("a whole body")).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }
}

async fn server() -> Server {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let options = SessionOptions {
        memory_bytes: 256 << 20,
        threads: 2,
        as_of: AsOf::Latest,
        spill_folder: None,
        use_indexes: true,
        at_once: None,
        timeout: None,
        clock: Arc::new(|| 1_793_491_200_000),
    };
    let engine = Engine::new(lake, &options).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = ServerOptions {
        pg: None,
        http: Some(address),
        database: "lake".into(),
        connections: 100,
        limits: crate::limits::Limits::default(),
        spool_folder: folder.path().to_owned(),
        spool_bytes: 1 << 30,
        clock: Arc::new(|| 1_793_491_200_000),
        random: Arc::new(|bytes| bytes.fill(7)),
        dollars_per_core_hour: 0.0,
        history: false,
        audit: None,
        nodes: crate::node_options::NodeOptions::default(),
    };
    let shared = Shared::for_tests(engine, options);
    let (drain, drains) = watch::channel(false);
    tokio::spawn(serve(Arc::clone(&shared), listener, None, drains));
    Server { _folder: folder, shared, address, drain }
}

impl Server {
    async fn begin(&self, line: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\n{host}{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream
    }

    async fn ask(&self, line: &str, headers: &str, body: &str) -> Answer {
        let mut stream = self.begin(line, headers, body.as_bytes()).await;
        let mut bytes = Vec::new();
        // A connection that is ended roughly is an end, too.
        let _ = stream.read_to_end(&mut bytes).await;
        let at = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = bytes.split_off(at + 4);
        let chunked = head.contains("transfer-encoding: chunked");
        let body = if chunked { without_lengths(&body) } else { Some(body) };
        Answer { status, head, body }
    }

    async fn sql(&self, options: &str, sql: &str) -> Answer {
        self.ask(&format!("POST /sql{options}"), "", sql).await
    }

    async fn is_idle(&self) {
        let session = self.shared.engine.session();
        for _ in 0..400 {
            let usage = session.usage();
            if usage.running + usage.waiting == 0 && self.shared.statements.count() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("something runs on: {:?}", session.usage());
    }
}

/// A chunked body, if it has its last chunk.
fn without_lengths(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        rest = &rest[end + 2..];
        if length == 0 {
            return Some(all);
        }
        all.extend_from_slice(rest.get(..length)?);
        rest = rest.get(length + 2..)?;
    }
}

/// So many numbers, and an error in the last row if that is asked for.
fn numbers(many: u64, fails: bool) -> String {
    let divisor = if fails { format!("{many} - value") } else { "1".into() };
    format!("SELECT value, 100 / ({divisor}) AS x FROM generate_series(1, {many})")
}

const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 3000000) a, generate_series(1, 3000000) b \
     WHERE a.value * b.value = 7";

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn every_format_has_the_rows() {
    let server = server().await;
    let sql = "SELECT 9007199254740993 AS n, 'a,b' AS s, NULL AS z";
    let csv = server.sql("?format=csv", sql).await;
    assert_eq!(csv.text(), "n,s,z\n9007199254740993,\"a,b\",\n");
    assert!(csv.head.contains("x-uplake-query-id: "), "{}", csv.head);
    let lines = server.ask("POST /sql", "Accept: application/x-ndjson\r\n", sql).await;
    assert_eq!(lines.text(), "{\"n\":9007199254740993,\"s\":\"a,b\",\"z\":null}\n");
    let json = server.sql("", sql).await;
    assert!(json.text().contains("[9007199254740993,\"a,b\",null]"));
    assert_eq!(json.json()["complete"], true);
    let arrow = server.sql("?format=arrow", sql).await.body.unwrap();
    let mut read = arrow::ipc::reader::StreamReader::try_new(&arrow[..], None).unwrap();
    assert_eq!(read.next().unwrap().unwrap().num_rows(), 1);
    let parquet = server.sql("?format=parquet", sql).await.body.unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let cut = server.sql("?max_rows=2", &numbers(10, false)).await.json();
    assert_eq!((&cut["row_count"], &cut["truncated"]), (&2.into(), &true.into()));
    server.is_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn an_early_error_has_a_status_and_a_late_one_no_last_chunk() {
    let server = server().await;
    for (sql, status, code) in
        [("SELEC 1", 400, "42601"), ("SELECT * FROM not_there", 404, "42P01"), ("", 400, "42601")]
    {
        let answer = server.sql("", sql).await;
        assert_eq!(answer.status, status, "{sql}");
        assert_eq!(answer.json()["error"]["code"], code, "{sql}");
    }
    let few = server.sql("", &numbers(10, true)).await;
    assert_eq!((few.status, &few.json()["error"]["code"]), (400, &"22012".into()));
    for format in ["json", "jsonl", "csv", "arrow"] {
        let answer = server.sql(&format!("?format={format}"), &numbers(2_000_000, true)).await;
        assert!(answer.status != 200 || answer.body.is_none(), "{format} looks whole");
    }
    server.is_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn values_take_the_place_of_parameters() {
    let server = server().await;
    let body =
        r#"{"sql": "SELECT value FROM generate_series(1, 9) WHERE value = $1", "params": ["7"]}"#;
    let answer = server.ask("POST /sql", "Content-Type: application/json\r\n", body).await;
    assert_eq!(answer.json()["rows"], serde_json::json!([[7]]));
    let read = server.ask("GET /sql?query=SELECT%201&format=csv", "", "").await;
    assert!(read.text().ends_with("\n1\n"));
    let write = server.ask("GET /sql?query=CREATE%20TABLE%20t%20(a%20int)", "", "").await;
    assert_eq!(write.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn statements_are_stopped_by_name_and_by_a_closed_connection() {
    let server = server().await;
    let stream = server.begin("POST /sql", "", ENDLESS.as_bytes()).await;
    let running = async || loop {
        let list = server.ask("GET /queries", "", "").await.json();
        if let Some(id) = list["running"][0]["id"].as_u64() {
            return id;
        }
    };
    running().await;
    drop(stream);
    server.is_idle().await;
    let mut stream = server.begin("POST /sql", "", ENDLESS.as_bytes()).await;
    let id = running().await;
    assert_eq!(server.ask(&format!("DELETE /queries/{id}"), "", "").await.status, 200);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("57014"), "{answer}");
    server.is_idle().await;
    assert_eq!(server.ask(&format!("DELETE /queries/{id}"), "", "").await.status, 404);
    let one = server.ask(&format!("GET /queries/{id}"), "", "").await.json();
    assert_eq!(one["error"]["code"], "57014");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_label_is_loaded_once_and_half_a_body_never() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /load/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\na,b\n1,x\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(stream);
    server.is_idle().await;
    assert_eq!(server.sql("", "SELECT * FROM t").await.status, 404);
    for again in [false, true] {
        let answer = server.ask("POST /load/t?label=one", "", "a,b\n1,x\n2,y\n").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(answer["already_loaded"], again);
        assert_eq!(answer["rows"], if again { 0 } else { 2 });
    }
    let rows = server.sql("?format=csv", "SELECT count(*) AS n FROM t").await;
    assert_eq!(rows.text(), "n\n2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn pages_of_other_hosts_are_refused() {
    let server = server().await;
    for headers in [
        "Origin: http://example.com\r\n",
        "Origin: null\r\n",
        "Host: example.com\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    ] {
        assert_eq!(server.ask("POST /sql", headers, "SELECT 1").await.status, 403, "{headers}");
    }
    assert_eq!(
        server.ask("POST /sql", "Origin: http://localhost\r\n", "SELECT 1").await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_server_that_goes_down_says_so() {
    let server = server().await;
    assert_eq!(server.ask("GET /health", "", "").await.status, 200);
    assert_eq!(server.ask("GET /ready", "", "").await.status, 200);
    let metrics = server.ask("GET /metrics", "", "").await.text();
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    server.drain.send(true).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(TcpStream::connect(server.address).await.is_err());
}
