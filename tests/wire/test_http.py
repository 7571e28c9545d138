"""HTTP: formats, errors before and after the first row, loads with labels, cancel, foreign pages."""

import concurrent.futures
import csv
import http.client
import io
import json
import subprocess
import threading
import urllib.error
import urllib.request

import frames
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import support

PEOPLE = "select id, name, score from people order by id"
ROWS = [(1, "Ada", 1.5), (2, "naïve ☃ 😀", -0.25), (3, "", 0.0), (4, None, None)]
# The last of very many rows cannot be divided: rows are on their way by then.
LATE = "select x, 1000000000 / (3000000 - x) as y, repeat('x', 100) as z from generate_series(1, 3000000) g(x)"


@pytest.fixture(autouse=True)
def _uplake_alone():
    support.only_uplake("it has no HTTP")


def _urllib(server, path, body=None, method=None, **headers):
    address = f"http://{server.http[0]}:{server.http[1]}{path}"
    asked = urllib.request.Request(address, data=body, headers=headers, method=method)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read()


def _refused(server, path, body=None, method=None, **headers):
    """(status, error) of a request that must fail."""
    with pytest.raises(urllib.error.HTTPError) as failed:
        _urllib(server, path, body, method, **headers)
    return failed.value.code, json.loads(failed.value.read())["error"]


def rows_as_csv(server):
    text = _urllib(server, "/sql?format=csv", PEOPLE.encode()).decode()
    assert list(csv.reader(io.StringIO(text))) == [
        ["id", "name", "score"], ["1", "Ada", "1.5"], ["2", "naïve ☃ 😀", "-0.25"], ["3", "", "0.0"], ["4", "", ""],
    ]


def rows_as_json_lines(server):
    lines = _urllib(server, "/sql?format=jsonl", PEOPLE.encode()).splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == ROWS


def rows_as_one_json_object_that_says_that_it_is_whole(server):
    found = json.loads(_urllib(server, "/sql", PEOPLE.encode()))
    assert list(found)[-1] == "complete" and found["complete"] is True


def rows_as_arrow_and_parquet(server):
    arrow = pa.ipc.open_stream(_urllib(server, "/sql?format=arrow", PEOPLE.encode())).read_all()
    parquet = pq.read_table(pa.BufferReader(_urllib(server, "/sql?format=parquet", PEOPLE.encode())))
    for table in (arrow, parquet):
        assert table.column_names == ["id", "name", "score"]
        assert list(zip(*(c.to_pylist() for c in table.columns))) == ROWS


@pytest.mark.parametrize(
    "accept, kind",
    [
        ("text/csv", "text/csv"), ("application/x-ndjson", "application/x-ndjson"),
        ("application/json", "application/json"), ("*/*", "application/json"),
        ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
    ],
)
def accept_chooses_the_format(server, accept, kind):
    status, headers, _ = server.ask("POST", "/sql", PEOPLE.encode(), {"Accept": accept})
    assert status == 200 and headers["Content-Type"].split(";")[0] == kind
    assert headers["X-Uplake-Query-Id"].isdigit()


def a_format_that_is_not_there_is_refused(server):
    assert _refused(server, "/sql?format=xlsx", b"select 1")[0] == 400
    assert _refused(server, "/sql?no_such_option=1", b"select 1")[0] == 400


def an_empty_answer_has_its_columns(server):
    text = _urllib(server, "/sql?format=csv", b"select id, name from people where id < 0").decode()
    assert text.strip() == "id,name"


def get_reads_and_never_writes(server):
    path = "/sql?format=csv&query=select%20count(*)%20as%20n%20from%20people"
    assert _urllib(server, path).decode().split() == ["n", "4"]
    status, error = _refused(server, "/sql?query=drop%20table%20people")
    assert error["code"] == "25006" and status in (400, 403, 405)
    assert _urllib(server, path).decode().split() == ["n", "4"]


def parameters_and_settings_of_a_json_body(server):
    asked = {"sql": "select name from people where id = $1 and score > $2", "params": [1, 0.5]}
    body = json.dumps(asked).encode()
    out = _urllib(server, "/sql?format=csv", body, **{"Content-Type": "application/json"})
    assert out.decode().split() == ["name", "Ada"]
    asked = {"sql": support.LONG, "settings": {"uplake.timeout": "200ms"}}
    body = json.dumps(asked).encode()
    status, error = _refused(server, "/sql", body, **{"Content-Type": "application/json"})
    assert (status, error["code"]) == (504, "57014")


@pytest.mark.parametrize(
    "sql, status, code",
    [
        ("select * from nowhere", 404, "42P01"), ("select nope from people", 400, "42703"),
        ("select 1 fromm people", 400, "42601"), ("select 1 / (id - id) as v from people", 400, "22012"),
        ("", 400, "42601"),
    ],
)
def an_early_error_has_a_status_and_a_code(server, sql, status, code):
    found, error = _refused(server, "/sql", sql.encode())
    if not sql:
        return
    assert (found, error["code"]) == (status, code)
    assert error["message"]


def an_error_says_its_place(server):
    _, error = _refused(server, "/sql", b"select id,\n  nope from people")
    assert (error["line"], error["column"]) == (2, 3)


def text_that_is_not_utf8_is_refused(server):
    assert _refused(server, "/sql", b"select '\xff'")[1]["code"] == "22021"


@pytest.mark.parametrize("form", ["csv", "jsonl", "json", "arrow"])
def a_late_error_is_never_taken_for_an_end(server, form):
    with pytest.raises((http.client.IncompleteRead, ConnectionError)) as cut:
        _urllib(server, f"/sql?format={form}&max_rows=9000000", LATE.encode())
    if isinstance(cut.value, http.client.IncompleteRead):
        assert cut.value.partial, "rows were on their way"
    server.free(5)


def max_rows_and_timeout_of_the_address(server):
    assert len(_urllib(server, "/sql?format=jsonl&max_rows=7", b"select id from numbers").splitlines()) == 7
    status, error = _refused(server, "/sql?timeout=200ms", support.LONG.encode())
    assert (status, error["code"]) == (504, "57014")
    server.free()


def several_statements_answer_with_the_last(server):
    text = b"create table by_http (id bigint); insert into by_http values (1), (2); select count(*) as n from by_http"
    try:
        assert _urllib(server, "/sql?format=csv", text).decode().split() == ["n", "2"]
    finally:
        _urllib(server, "/sql", b"drop table by_http")


def a_statement_is_listed_and_cancelled(server):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.ask, "POST", "/sql", support.LONG.encode())
        server.runs()
        (listed,) = server.running()
        assert listed["protocol"] == "http" and listed["text"] == support.LONG
        assert server.ask("GET", f"/queries/{listed['id']}")[0] == 200
        assert server.ask("DELETE", f"/queries/{listed['id']}")[0] == 200
        status, _, body = asked.result(10)
    assert json.loads(body)["error"]["code"] == "57014" and status == 504
    server.free()
    assert server.ask("DELETE", "/queries/999999999")[0] == 404
    over = json.loads(server.ask("GET", f"/queries/{listed['id']}")[2])
    assert over["error"]["code"] == "57014"


def a_statement_of_postgres_is_cancelled_by_http(server):
    with server.raw() as wire:
        wire.send(frames.query(support.LONG))
        server.runs()
        server.ask("DELETE", f"/queries/{server.running()[0]['id']}")
        assert [e["C"] for e in frames.errors(wire.until_ready())] == ["57014"]
        assert wire.rows("select 1 as a") == [["1"]]


def a_client_that_goes_frees_the_slot(server):
    call = http.client.HTTPConnection(*server.http)
    call.request("POST", "/sql", support.LONG.encode())
    server.runs()
    call.sock.close()
    server.free()


def a_load_with_a_label_happens_once(server):
    data = "id,name\n" + "".join(f"{n},n{n}\n" for n in range(1000))
    try:
        first = json.loads(_urllib(server, "/load/labelled?label=one", data.encode()))
        assert (first["rows"], first["bad_rows"], first["already_loaded"]) == (1000, 0, False)
        again = json.loads(_urllib(server, "/load/labelled?label=one", data.encode()))
        assert again["already_loaded"] is True
        assert server.sql("select count(*) as n from labelled") == [{"n": 1000}]
        _urllib(server, "/load/labelled?label=two", data.encode())
        assert server.sql("select count(*) as n from labelled") == [{"n": 2000}]
    finally:
        server.ask("POST", "/sql", b"drop table labelled")


def a_load_with_a_bad_row_loads_nothing_unless_told(server):
    data = "id,name\n1,a\n2,b\n".encode()
    try:
        _urllib(server, "/load/bad", data)
        _, error = _refused(server, "/load/bad", b"id,name\n3,c\nfour,d\n")
        assert error["code"] == "22P04", error
        assert server.sql("select count(*) as n from bad") == [{"n": 2}]
        found = json.loads(_urllib(server, "/load/bad?on_error=skip", b"id,name\n3,c\nfour,d\n"))
        assert (found["rows"], found["bad_rows"]) == (1, 1) and "four" in found["rejects"]
        assert server.sql("select count(*) as n from bad") == [{"n": 3}]
    finally:
        server.ask("POST", "/sql", b"drop table bad")


def a_load_streams_json_lines_and_parquet(server):
    table = pa.table({"id": [1, 2], "name": ["a", None]})
    out = io.BytesIO()
    pq.write_table(table, out)
    try:
        _urllib(server, "/load/kinds?format=parquet", out.getvalue())
        _urllib(server, "/load/kinds?format=jsonl", b'{"id": 3, "name": "c"}\n')
        found = server.sql("select id, name from kinds order by id")
        assert [tuple(r.values()) for r in found] == [(1, "a"), (2, None), (3, "c")]
    finally:
        server.ask("POST", "/sql", b"drop table kinds")


def a_load_that_is_cut_loads_nothing(server):
    call = http.client.HTTPConnection(*server.http)
    call.putrequest("POST", "/load/cut")
    call.putheader("Transfer-Encoding", "chunked")
    call.endheaders()
    call.send(b"8\r\nid,name\n\r\n4\r\n1,a\n\r\n")
    server.runs()
    call.sock.close()
    server.free()
    assert _refused(server, "/sql", b"select * from cut")[1]["code"] == "42P01"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil.example"])
def pages_of_others_are_refused(server, origin):
    for method, path in (("POST", "/sql"), ("DELETE", "/queries/1"), ("POST", "/load/evil"), ("GET", "/queries")):
        status, _, body = server.ask(method, path, b"select 1 as a", {"Origin": origin})
        assert status == 403, (method, path, status, body)
    # A name that another's page resolves to this address.
    assert server.ask("POST", "/sql", b"select 1 as a", {"Host": "evil.example", "Origin": "http://evil.example"})[0] == 403


def health_ready_and_metrics(server):
    assert server.ask("GET", "/health")[0] == 200
    assert server.ask("GET", "/ready")[0] == 200
    assert server.ask("POST", "/sql", b"select 1 as a")[0] == 200
    status, headers, body = server.ask("GET", "/metrics")
    assert status == 200 and "version=" in headers["Content-Type"]
    assert 'uplake_queries_total{protocol="http",result="ok"}' in body.decode()
    assert server.ask("GET", "/nowhere")[0] == 404
    assert server.ask("PUT", "/sql", b"select 1")[0] == 405


def _health(*words):
    done = subprocess.run([support.binary(), "health", *words], capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout, done.stderr


def the_health_command_asks_without_curl(server, fresh):
    at = ":".join(map(str, server.http))
    assert _health(at) == (0, "ok\n", "")
    assert _health(at, "--ready") == (0, "ready\n", "")
    code, out, error = _health(":".join(map(str, server.pg)))
    assert code == 1 and not out and "does not speak HTTP" in error, error
    ended = fresh()
    at = ":".join(map(str, ended.http))
    ended.stop()
    code, out, error = _health(at)
    assert code == 1 and not out and f"nobody answers at {at}" in error, error


def the_same_connection_asks_a_hundred_times(server):
    call = http.client.HTTPConnection(*server.http, timeout=20)
    for n in range(100):
        call.request("POST", "/sql?format=csv", f"select {n} as n".encode())
        assert call.getresponse().read().decode().split() == ["n", str(n)]
    call.close()


def fifty_ask_at_once(server):
    barrier = threading.Barrier(50)

    def ask(n):
        barrier.wait()
        return _urllib(server, "/sql?format=csv", f"select count(*) as n from numbers where digit = {n % 10}".encode())

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert set(pool.map(ask, range(50))) == {b"n\n1000\n"}


def a_request_that_is_too_large_is_refused(server):
    body = b"select 1 -- " + b"x" * (17 << 20)
    try:
        assert server.ask("POST", "/sql", body)[0] == 413
    except ConnectionError:
        pass  # it closed while the body was being sent
    assert server.ask("GET", "/health")[0] == 200
    call = http.client.HTTPConnection(*server.http, timeout=20)
    call.request("GET", "/health", headers={"X-Long": "x" * (200 << 10)})
    assert call.getresponse().status in (400, 431)
