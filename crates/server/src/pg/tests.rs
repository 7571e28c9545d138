//! The wire as a client sees it, over loopback, with bytes of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use uplake_engine::{Engine, SessionOptions};
use uplake_table::{AsOf, Lake};

use crate::pg::serve;
use crate::server::{ServerOptions, Shared};

/// Milliseconds since 1970.
const NOW: i64 = 1_793_491_200_000;

/// A server in a folder of its own. Its threads end with the test.
struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    drain: watch::Sender<bool>,
    _compute: tokio::runtime::Runtime,
    network: Option<tokio::runtime::Runtime>,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        Self::with_clock(|| NOW)
    }

    fn with_clock(clock: impl Fn() -> i64 + Clone + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compute = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(8 << 20)
            .enable_all()
            .build()
            .unwrap();
        let options = SessionOptions {
            memory_bytes: 256 << 20,
            threads: 2,
            as_of: AsOf::Latest,
            spill_folder: None,
            use_indexes: true,
            at_once: None,
            timeout: None,
            clock: Arc::new(clock.clone()),
        };
        let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
        let engine = Engine::new(lake, &options).unwrap();
        let options = ServerOptions {
            pg: None,
            http: None,
            database: "lake".into(),
            connections: 50,
            limits: crate::limits::Limits::default(),
            spool_folder: folder.path().to_owned(),
            spool_bytes: 64 << 20,
            clock: Arc::new(clock),
            random: Arc::new(|bytes| bytes.fill(7)),
            dollars_per_core_hour: 0.0,
            history: false,
            audit: None,
            nodes: crate::node_options::NodeOptions::default(),
        };
        let shared = compute.block_on(async { Shared::for_tests(engine, options) });
        let network =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let network = network.unwrap();
        let (drain, drains) = watch::channel(false);
        let listener = network.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        network.spawn(serve(Arc::clone(&shared), listener, drains));
        Self { address, shared, drain, _compute: compute, network: Some(network), _folder: folder }
    }

    /// What a client does, to its end.
    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let limit = Duration::from_secs(60);
        let client = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        client.block_on(async { tokio::time::timeout(limit, work).await.expect("it hangs") })
    }

    async fn client(&self) -> Client {
        let mut client = Client(TcpStream::connect(self.address).await.unwrap());
        let mut packet = BytesMut::from(&b"\0\0\0\0\0\x03\0\0"[..]);
        packet.put_slice(b"user\0admin\0database\0lake\0options\0-c extra_float_digits=2\0\0");
        let length = packet.len() as u32;
        packet[..4].copy_from_slice(&length.to_be_bytes());
        client.0.write_all(&packet).await.unwrap();
        let hello = client.until_ready().await;
        assert_eq!(hello[0], (b'R', vec![0, 0, 0, 0]));
        client
    }

    async fn until_nothing_runs(&self) {
        let session = self.shared.engine.session();
        while session.usage().running > 0 || self.shared.statements.count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(network) = self.network.take() {
            network.shutdown_background();
        }
    }
}

type Message = (u8, Vec<u8>);

struct Client(TcpStream);

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend(((body.len() + 4) as u32).to_be_bytes());
    frame.extend(body);
    frame
}

fn parse(name: &str, text: &str, oids: &[u32]) -> Vec<u8> {
    let mut body = format!("{name}\0{text}\0").into_bytes();
    body.extend((oids.len() as u16).to_be_bytes());
    oids.iter().for_each(|oid| body.extend(oid.to_be_bytes()));
    frame(b'P', &body)
}

/// All values in one format, and so the rows.
fn bind(portal: &str, name: &str, format: u16, values: &[Option<&[u8]>], rows: u16) -> Vec<u8> {
    let mut body = format!("{portal}\0{name}\0").into_bytes();
    body.put_u16(1);
    body.put_u16(format);
    body.put_u16(values.len() as u16);
    for value in values {
        body.put_i32(value.map_or(-1, |value| value.len() as i32));
        body.put_slice(value.unwrap_or_default());
    }
    body.put_u16(1);
    body.put_u16(rows);
    frame(b'B', &body)
}

fn execute(portal: &str, rows: u32) -> Vec<u8> {
    let mut body = format!("{portal}\0").into_bytes();
    body.put_u32(rows);
    frame(b'E', &body)
}

fn sync() -> Vec<u8> {
    frame(b'S', &[])
}

impl Client {
    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    async fn next(&mut self) -> Message {
        let kind = self.0.read_u8().await.unwrap();
        let length = self.0.read_u32().await.unwrap();
        let mut body = vec![0; length as usize - 4];
        self.0.read_exact(&mut body).await.unwrap();
        (kind, body)
    }

    /// All messages to the next ReadyForQuery, which is the last.
    async fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.next().await);
            if messages.last().is_some_and(|message| message.0 == b'Z') {
                return messages;
            }
        }
    }

    async fn query(&mut self, text: &str) -> Vec<Message> {
        self.send(&frame(b'Q', format!("{text}\0").as_bytes())).await;
        self.until_ready().await
    }
}

fn kinds(messages: &[Message]) -> String {
    messages.iter().map(|message| char::from(message.0)).collect()
}

/// The values of DataRows, and the tags.
fn texts(messages: &[Message]) -> Vec<String> {
    let mut texts = Vec::new();
    for (kind, body) in messages {
        if *kind == b'C' {
            texts.push(String::from_utf8_lossy(&body[..body.len() - 1]).into_owned());
        }
        if *kind != b'D' {
            continue;
        }
        let mut rest = &body[2..];
        while !rest.is_empty() {
            let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
            let length = usize::try_from(length).unwrap_or(0);
            texts.push(String::from_utf8_lossy(&rest[4..4 + length]).into_owned());
            rest = &rest[4 + length..];
        }
    }
    texts
}

fn field(messages: &[Message], kind: u8, field: u8) -> Option<String> {
    let (_, body) = messages.iter().find(|message| message.0 == kind)?;
    let mut fields = body.split(|byte| *byte == 0);
    let found = fields.find(|found| found.first() == Some(&field))?;
    Some(String::from_utf8_lossy(&found[1..]).into_owned())
}

fn status(messages: &[Message]) -> char {
    char::from(messages.last().unwrap().1[0])
}

/// Rows without end, as far as a test is concerned.
const LONG: &str = "SELECT count(*) FROM generate_series(1, 1000000) AS a(x), \
     generate_series(1, 1000000) AS b(y) WHERE x % 7 = y % 5";

#[test]
fn statements_of_a_text_are_answered_one_by_one() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        let answer = client.query("SELECT 1 AS a; SELECT 'x' AS b, NULL AS c").await;
        assert_eq!(kinds(&answer), "TDCTDCZ");
        assert_eq!(texts(&answer), ["1", "SELECT 1", "x", "", "SELECT 1"]);
        let answer = client
            .query("CREATE TABLE t (n BIGINT); INSERT INTO t VALUES (1), (2); DELETE FROM t WHERE n = 1; DROP TABLE t")
            .await;
        assert_eq!(texts(&answer), ["CREATE TABLE", "INSERT 0 2", "DELETE 1", "DROP TABLE"]);
        assert_eq!(kinds(&client.query(" -- nothing").await), "IZ");
        let answer = client.query("SHOW extra_float_digits; SET extra_float_digits = 3").await;
        assert_eq!(texts(&answer), ["2", "SHOW", "SET"]);
        let answer = client.query("SET application_name = 'me'").await;
        assert_eq!(kinds(&answer), "SCZ");
    });
}

#[test]
fn what_pools_ask_again_and_again_is_answered_the_same_and_counted() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        let text = "SELECT 1, 1, 'x' AS s, NULL";
        let first = client.query(text).await;
        assert_eq!(texts(&first), ["1", "1", "x", "", "SELECT 1"]);
        assert!(server.shared.probes.find(text).is_some());
        for _ in 0..3 {
            assert_eq!(client.query(text).await, first);
        }
        // Binary, by a portal that is looked at first.
        for _ in 0..3 {
            let asked = [parse("", text, &[]), bind("", "", 0, &[], 1), execute("", 0), sync()];
            client.send(&asked.concat()).await;
            let answer = client.until_ready().await;
            assert_eq!(kinds(&answer), "12DCZ");
            assert_eq!(answer[2].1[..10], [0, 4, 0, 0, 0, 8, 0, 0, 0, 0]);
        }
        // A failed transaction answers nothing; with other settings there is another plan.
        client.query("BEGIN; SELECT nothing").await;
        assert_eq!(kinds(&client.query(text).await), "EZ");
        client.query("ROLLBACK").await;
        client.query("SET uplake.disabled_rules = 'plan_cache'").await;
        assert_eq!(client.query(text).await, first);
        server.until_nothing_runs().await;
        let over = server.shared.statements.over();
        let asked: Vec<_> = over.iter().filter(|listed| &*listed.text == text).collect();
        assert_eq!(asked.len(), 8);
        let rows: Vec<u64> = asked.iter().map(|listed| listed.cost.rows_out).collect();
        assert_eq!(rows, [1; 8]);
        for text in ["SELECT random()", "SELECT now()"] {
            client.query(text).await;
            assert!(server.shared.probes.find(text).is_none());
        }
    });
}

#[test]
fn an_error_has_a_place_in_the_whole_text_and_ends_it() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        let text = "SELECT 'ä';\nSELECT nothing_such; SELECT 3";
        let answer = client.query(text).await;
        assert_eq!(kinds(&answer), "TDCEZ");
        assert_eq!(field(&answer, b'E', b'C').unwrap(), "42703");
        let at = text.chars().take_while(|c| *c != 'n').count() + 1;
        assert_eq!(field(&answer, b'E', b'P').unwrap(), at.to_string());
        client.send(&frame(b'Q', b"SELECT '\xff'\0")).await;
        let answer = client.until_ready().await;
        assert_eq!(field(&answer, b'E', b'C').unwrap(), "22021");
        assert_eq!(texts(&client.query("SELECT 1").await), ["1", "SELECT 1"]);
    });
}

#[test]
fn parameters_come_as_text_and_as_bytes() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        let made = "CREATE TABLE t (k TEXT, n BIGINT); INSERT INTO t VALUES ('a', 1), ('b', 2)";
        client.query(made).await;
        let text = "SELECT n, k FROM t WHERE k = $1 AND n < $2";
        client.send(&[parse("s", text, &[]), frame(b'D', b"Ss\0"), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!(kinds(&answer), "1tTZ");
        assert_eq!(
            answer[1].1,
            [&[0, 2][..], &25_u32.to_be_bytes(), &20_u32.to_be_bytes()].concat()
        );
        let values: [Option<&[u8]>; 2] = [Some(b"b"), Some(b"7")];
        let run = [bind("", "s", 0, &values, 0), execute("", 0), sync()].concat();
        client.send(&run).await;
        let answer = client.until_ready().await;
        assert_eq!(kinds(&answer), "2DCZ");
        assert_eq!(texts(&answer), ["2", "b", "SELECT 1"]);
        let seven = 7_i64.to_be_bytes();
        let values: [Option<&[u8]>; 2] = [Some(b"b"), Some(&seven)];
        client.send(&[bind("", "s", 1, &values, 1), execute("", 0), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!(answer[1].1[2..14], [&[0, 0, 0, 8][..], &2_i64.to_be_bytes()].concat());
        let insert = parse("", "INSERT INTO t VALUES ($1, $2)", &[0, 23]);
        let values: [Option<&[u8]>; 2] = [Some(b"c"), Some(b"3")];
        client.send(&[insert, bind("", "", 0, &values, 0), execute("", 0), sync()].concat()).await;
        assert_eq!(texts(&client.until_ready().await), ["INSERT 0 1"]);
        let answer = client.query("SELECT sum(n) FROM t").await;
        assert_eq!(texts(&answer), ["6", "SELECT 1"]);
    });
}

#[test]
fn a_portal_goes_on_where_it_was_and_errors_skip_to_sync() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        let text = "SELECT value FROM generate_series(1, 5) AS s(value)";
        let begin = [parse("", "BEGIN", &[]), bind("", "", 0, &[], 0), execute("", 0)].concat();
        let open = [parse("", text, &[]), bind("p", "", 0, &[], 0), execute("p", 2)].concat();
        client.send(&[begin, open, sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!((kinds(&answer).as_str(), status(&answer)), ("12C12DDsZ", 'T'));
        client.send(&[execute("p", 2), execute("p", 0), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!(texts(&answer), ["3", "4", "5", "SELECT 1"]);
        let wrong = [parse("", "SELECT no_such", &[]), bind("", "", 0, &[], 0), sync()].concat();
        client
            .send(&[wrong, frame(b'Q', b"ROLLBACK\0"), frame(b'Q', b"SELECT 1\0")].concat())
            .await;
        let answer = client.until_ready().await;
        assert_eq!((kinds(&answer).as_str(), status(&answer)), ("EZ", 'E'));
        assert_eq!(texts(&client.until_ready().await), ["ROLLBACK"]);
        assert_eq!(texts(&client.until_ready().await), ["1", "SELECT 1"]);
    });
}

#[test]
fn after_an_error_a_transaction_only_ends() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        client.query("CREATE TABLE t AS SELECT 1 AS n").await;
        assert_eq!(status(&client.query("BEGIN").await), 'T');
        assert_eq!(texts(&client.query("SELECT count(*) FROM t").await)[0], "1");
        let mut other = server.client().await;
        other.query("INSERT INTO t VALUES (2)").await;
        // As it was when it was first read.
        assert_eq!(texts(&client.query("SELECT count(*) FROM t").await)[0], "1");
        assert_eq!(status(&client.query("SELECT no_such FROM t").await), 'E');
        let answer = client.query("SELECT 1").await;
        assert_eq!(field(&answer, b'E', b'C').unwrap(), "25P02");
        assert_eq!(texts(&client.query("COMMIT").await), ["ROLLBACK"]);
        assert_eq!(texts(&client.query("SELECT count(*) FROM t").await)[0], "2");
    });
}

#[test]
fn what_a_transaction_writes_is_seen_after_its_commit() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        let mut other = server.client().await;
        client.query("CREATE TABLE t (n BIGINT)").await;
        let written = "BEGIN; INSERT INTO t VALUES (1); SAVEPOINT a; INSERT INTO t VALUES (2)";
        client.query(written).await;
        client.query("ROLLBACK TO a; INSERT INTO t VALUES (3)").await;
        assert_eq!(
            texts(&client.query("SELECT n FROM t ORDER BY n").await),
            ["1", "3", "SELECT 2"]
        );
        assert_eq!(texts(&other.query("SELECT n FROM t").await), ["SELECT 0"]);
        assert_eq!(status(&client.query("/* x */ SET uplake.timeout = '1h'").await), 'T');
        assert_eq!(texts(&client.query("COMMIT").await), ["COMMIT"]);
        assert_eq!(texts(&other.query("SELECT n FROM t ORDER BY n").await), ["1", "3", "SELECT 2"]);
        // One that has failed is given up by COMMIT, too.
        client.query("BEGIN; INSERT INTO t VALUES (4); SELECT no_such").await;
        assert_eq!(texts(&client.query("COMMIT").await), ["ROLLBACK"]);
        client.query("PREPARE p AS INSERT INTO t VALUES ($1); BEGIN; EXECUTE p(5); ROLLBACK").await;
        assert_eq!(texts(&other.query("SELECT count(*) FROM t").await)[0], "2");
        server.until_nothing_runs().await;
    });
}

#[test]
fn cursors_give_rows_piece_by_piece() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        let declare = "DECLARE c CURSOR FOR SELECT value FROM generate_series(1, 5) AS s(value)";
        let answer = client.query(declare).await;
        assert_eq!(field(&answer, b'E', b'C').unwrap(), "25P01");
        let answer = client.query(&format!("BEGIN; {declare}; FETCH 2 FROM c")).await;
        assert_eq!(texts(&answer), ["BEGIN", "DECLARE CURSOR", "1", "2", "FETCH 2"]);
        let answer = client.query("MOVE c; FETCH ALL FROM c; FETCH c; CLOSE c; COMMIT").await;
        let expected = ["MOVE 1", "4", "5", "FETCH 2", "FETCH 0", "CLOSE CURSOR", "COMMIT"];
        assert_eq!(texts(&answer), expected);
        let answer = client.query("FETCH c").await;
        assert_eq!(field(&answer, b'E', b'C').unwrap(), "34000");
    });
}

#[test]
fn a_statement_is_cancelled_by_its_key() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        client.send(&frame(b'Q', format!("{LONG}\0").as_bytes())).await;
        while server.shared.statements.count() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for key in [[8_u8; 4], [7; 4]] {
            let mut cancel = TcpStream::connect(server.address).await.unwrap();
            let process = 1_i32.to_be_bytes();
            let packet = [&[0, 0, 0, 16, 4, 210, 22, 46][..], &process, &key].concat();
            cancel.write_all(&packet).await.unwrap();
            assert_eq!(cancel.read(&mut [0; 8]).await.unwrap_or(0), 0);
            // The wrong key does nothing.
            assert!(key == [7; 4] || server.shared.statements.count() > 0);
        }
        let answer = client.until_ready().await;
        assert_eq!(field(&answer, b'E', b'C').unwrap(), "57014");
        assert_eq!(texts(&client.query("SELECT 1").await), ["1", "SELECT 1"]);
    });
}

#[test]
fn a_closed_socket_frees_the_slot() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        client.send(&frame(b'Q', format!("{LONG}\0").as_bytes())).await;
        while server.shared.engine.session().usage().running == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(client);
        server.until_nothing_runs().await;
        // While rows are sent, too.
        let mut client = server.client().await;
        let rows =
            "SELECT value, repeat('x', 1000) FROM generate_series(1, 10000000) AS s(value)\0";
        client.send(&frame(b'Q', rows.as_bytes())).await;
        assert_eq!(client.next().await.0, b'T');
        drop(client);
        server.until_nothing_runs().await;
    });
}

#[test]
fn a_clock_that_jumps_ends_no_statement_and_moves_no_time_out() {
    let now = Arc::new(AtomicI64::new(NOW));
    let clock = Arc::clone(&now);
    let server = Server::with_clock(move || clock.load(Ordering::Relaxed));
    server.run(async {
        let mut client = server.client().await;
        client.send(&frame(b'Q', format!("{LONG}\0").as_bytes())).await;
        while server.shared.engine.session().usage().running == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut other = server.client().await;
        other.query("SET statement_timeout = 100").await;
        let year = 365 * 86_400_000;
        for jump in [year, -3 * year] {
            now.fetch_add(jump, Ordering::Relaxed);
            let answer = other.query(LONG).await;
            assert_eq!(field(&answer, b'E', b'C').unwrap(), "57014");
            assert_eq!(server.shared.statements.count(), 1, "the first goes on");
        }
        drop(client);
        server.until_nothing_runs().await;
    });
}

#[test]
fn rows_are_copied_both_ways() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        client.query("CREATE TABLE t (n BIGINT, s TEXT)").await;
        client.send(&frame(b'Q', b"COPY t FROM STDIN\0")).await;
        assert_eq!(client.next().await.0, b'G');
        let data = [frame(b'd', b"1\ta\\tb\n2"), frame(b'd', b"\t\\N\n3\tx\n"), frame(b'c', b"")];
        client.send(&data.concat()).await;
        assert_eq!(texts(&client.until_ready().await), ["COPY 3"]);
        let answer = client.query("COPY (SELECT * FROM t ORDER BY n) TO STDOUT").await;
        assert_eq!(kinds(&answer), "HdddcCZ");
        let rows: Vec<u8> = answer[1..4].iter().flat_map(|(_, row)| row.clone()).collect();
        assert_eq!(rows, b"1\ta\\tb\n2\t\\N\n3\tx\n");
        assert_eq!(texts(&answer), ["COPY 3"]);
        // What is wrong is said, and what the client has sent since is passed over.
        client.send(&frame(b'Q', b"COPY t FROM STDIN\0")).await;
        assert_eq!(client.next().await.0, b'G');
        let data = [frame(b'd', b"7\ta\n"), frame(b'd', b"x\tb\n"), frame(b'd', b"8\tc\n")];
        client.send(&[data.concat(), frame(b'c', b"")].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!(field(&answer, b'E', b'C').unwrap(), "22P02");
        assert_eq!(field(&answer, b'E', b'W').unwrap(), "COPY t, line 2, column n: \"x\"");
        client.send(&frame(b'Q', b"COPY t (n) FROM STDIN CSV\0")).await;
        assert_eq!(client.next().await.0, b'G');
        client.send(&[frame(b'd', b"9\n"), frame(b'f', b"no\0")].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!(field(&answer, b'E', b'C').unwrap(), "57014");
        assert_eq!(texts(&client.query("SELECT count(*) FROM t").await)[0], "3");
    });
}

#[test]
fn hostile_and_wrong_clients_are_told_and_closed() {
    let server = Server::start();
    server.run(async {
        for first in [&b"\0\0\xff\xff"[..], b"GET / HTTP/1.1\r\n\r\n"] {
            let mut client = Client(TcpStream::connect(server.address).await.unwrap());
            client.send(first).await;
            assert_eq!(client.next().await.0, b'E');
            assert!(client.0.read_u8().await.is_err());
        }
        let mut client = server.client().await;
        client.send(b"Q\x7f\xff\xff\xff").await;
        let (kind, body) = client.next().await;
        assert_eq!(kind, b'E');
        assert!(String::from_utf8_lossy(&body).contains("08P01"));
        assert!(client.0.read_u8().await.is_err());
    });
}

#[test]
fn idle_clients_hear_of_a_shutdown() {
    let server = Server::start();
    server.run(async {
        let mut client = server.client().await;
        server.drain.send(true).unwrap();
        let (kind, body) = client.next().await;
        assert_eq!(kind, b'E');
        assert!(String::from_utf8_lossy(&body).contains("57P01"));
        assert!(client.0.read_u8().await.is_err());
    });
}
