"""What `system` tells of statements: what they cost, whose they were, what was done; over a restart, too."""

import json
import re
import subprocess

import pytest
import support


@pytest.fixture(autouse=True)
def _uplake_alone():
    support.only_uplake("Postgres has no such tables")


def _one(server, text):
    return server.sql(text)[0]


def _of_statement(server, text):
    """The row of the last statement that was `text`."""
    shown = text.replace("'", "''")
    return server.sql(f"select * from system.queries where text = '{shown}' order by number desc limit 1")[0]


def _counted(server):
    """{name and labels: value} of /metrics."""
    text = server.ask("GET", "/metrics")[2].decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}


def a_statement_tells_what_it_took(server):
    text = "select digit, count(*) as n, min(name) as first from numbers group by digit"
    server.sql(text)
    row = _of_statement(server, text)
    assert row["rows_read"] == 10000 and row["rows_out"] == 10 and row["files"] >= 1
    # Its columns may be in memory from a statement before.
    assert row["bytes_store"] >= 0 and row["requests"] >= row["gets"]
    assert 0 < row["compute_s"] and 0 < row["dollars"] < 0.001
    parts = row["queued_s"] + row["planned_s"] + row["ran_s"] + row["sent_s"]
    assert abs(parts - row["seconds"]) < 1e-6 and row["planned_s"] > 0
    assert row["role"] == "admin" and row["protocol"] == "http" and row["sqlstate"] is None


def a_statement_that_fails_tells_why(server):
    server.ask("POST", "/sql", b"select nothing from numbers")
    row = _of_statement(server, "select nothing from numbers")
    assert row["sqlstate"] == "42703" and "nothing" in row["error"]


@pytest.mark.parametrize("door", ["http", "postgres"])
def labels_come_from_where_they_are_said(server, door):
    commented = f"/*experiment='c',metric='m {door}'*/ select 1"
    growthbook = f"-- Fact Table: Orders {door}\nselect count(*) as n from people where name <> 'a' -- experiment_id = 'g'"
    plain = f"select 'plain {door}'"
    if door == "http":
        for text in (commented, growthbook, plain):
            status, _, body = server.ask("POST", "/sql", text.encode(), {"X-Uplake-Labels": "experiment=set, team=a"})
            assert status == 200, body
    else:
        with server.raw() as client:
            client.rows("set uplake.labels = 'experiment=set,team=a'")
            for text in (commented, growthbook, plain):
                client.rows(text)
    row = _of_statement(server, commented)
    assert (row["experiment"], row["metric"], row["labels"]) == ("c", f"m {door}", f"experiment=c,metric=m {door},team=a")
    assert _of_statement(server, growthbook)["labels"] == f"experiment=set,fact_table=Orders {door},team=a"
    assert _of_statement(server, plain)["experiment"] == "set"


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def what_a_statement_is_a_part_of_is_no_label(server):
    """And nothing of it is refused but what a setting says."""
    texts = [f"/*traceparent='{TRACE}',metric='m'*/ select 'traced 1'", f"select 'traced 2' /*traceparent='{TRACE}'*/"]
    for text in texts:
        for trace in (TRACE, "nonsense"):
            status, _, body = server.ask("POST", "/sql", text.encode(), {"traceparent": trace})
            assert status == 200, body
    with server.raw() as client:
        client.rows(f"set uplake.traceparent = '{TRACE}'")
        client.rows("select 'traced 3'")
        assert client.rows("show uplake.traceparent")[0][-1] == TRACE
        with pytest.raises(RuntimeError, match="22023"):
            client.rows("set uplake.traceparent = 'nonsense'")
        client.rows("reset uplake.traceparent")
    assert _of_statement(server, texts[0])["labels"] == "metric=m"
    assert _of_statement(server, texts[1])["labels"] is None
    assert _of_statement(server, "select 'traced 3'")["labels"] is None


def each_statement_of_a_text_has_its_own_labels(server):
    with server.raw() as client:
        client.rows("/*experiment='one'*/ select 'first of two'; -- and;\n/*experiment='two'*/ select 'second of two';")
    found = server.sql("select experiment from system.queries where text like '% of two''' order by number")
    assert [row["experiment"] for row in found] == ["one", "two"]


def labels_that_are_none_are_refused(server):
    status, _, body = server.ask("POST", "/sql", b"select 1", {"X-Uplake-Labels": "nothing"})
    assert status == 400 and json.loads(body)["error"]["code"] == "22023"


def what_statements_cost_adds_up_to_what_the_process_counted(fresh):
    """Over both doors, in pieces, with errors and writes: nothing is nobody's, and nothing counts twice."""
    server = fresh("--no-history")
    before = _counted(server)
    with server.raw() as client:
        client.rows("create table made as select x as k, x % 7 as g, repeat('x', 20) || x as s from generate_series(1, 100000) t(x)")
        client.rows("select g, count(*), min(s) from made group by g")
        client.rows("insert into made select k, g, s from made where g = 1")
        for end in ("commit", "rollback"):
            client.rows("begin")
            client.rows("insert into made select k, g, s from made where g = 2")
            client.rows(end)
        # It pays for what the rollback took away.
        client.rows("select count(*) from made")
    for text in (
        "select a.k from made a join made b on a.k = b.k where a.g = 3 order by a.s limit 10",
        "select count(distinct s) from made", "select * from made", "select sum(score) from people",
    ):
        server.ask("POST", "/sql?format=csv", text.encode())
    server.ask("POST", "/sql", b"select nothing from made")
    server.ask("POST", "/load/loaded?label=a", b"a,b\n1,2\n3,4\n")
    server.free(10)
    after = _counted(server)
    sums = _one(server, "select sum(gets) as gets, sum(puts) as puts, sum(lists) as lists, sum(deletes) as deletes,"
                       " sum(bytes_asked) as asked, sum(bytes_store) as read, sum(bytes_written) as written,"
                       " sum(compute_s) as compute from system.queries")
    for name, total in [
        ("gets", 'uplake_storage_requests_total{kind="get",for="statements"}'),
        ("puts", 'uplake_storage_requests_total{kind="put",for="statements"}'),
        ("lists", 'uplake_storage_requests_total{kind="list",for="statements"}'),
        ("deletes", 'uplake_storage_requests_total{kind="delete",for="statements"}'),
        ("asked", 'uplake_storage_bytes_total{kind="asked",for="statements"}'),
        ("read", 'uplake_storage_bytes_total{kind="read",for="statements"}'),
        ("written", 'uplake_storage_bytes_total{kind="written",for="statements"}'),
    ]:
        grew = after[total] - before[total]
        assert abs(sums[name] - grew) <= 0.01 * grew, f"{name}: statements {sums[name]}, the process {grew}"
    cpu = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
    # A machine that is busy with others makes threads wait for cores.
    assert 0.2 * cpu < sums["compute"], f"statements {sums['compute']} s, the process {cpu} s"
    loads = server.sql('select "table", label, rows, role from system.loads')
    assert loads == [{"table": "loaded", "label": "a", "rows": 2, "role": "admin"}]


def history_outlives_the_server(fresh):
    server = fresh()
    server.sql("select 'before the end'")
    count = _one(server, "select count(*) as n from system.queries")["n"]
    server.stop()
    again = fresh()
    assert _one(again, "select count(*) as n from system.queries where text = 'select ''before the end'''")["n"] == 1
    # The count itself, and the statement before this one.
    assert _one(again, "select count(*) as n from system.queries")["n"] == count + 2
    assert _one(again, "select count(distinct node) as n from system.queries")["n"] == 2
    days = again.sql("select experiment, statements from system.costs")
    assert sum(day["statements"] for day in days) >= count
    # Any reader of Delta Lake finds them.
    assert [t["name"] for t in again.sql("select name from system.tables order by name")] == [
        "every_type", "filled", "numbers", "people"]


def a_server_without_history_tells_of_itself(fresh):
    server = fresh("--no-history")
    server.sql("select 1")
    server.stop()
    again = fresh("--no-history")
    assert _one(again, "select count(*) as n from system.queries")["n"] == 0


def what_was_done_is_in_the_audit_log(fresh, tmp_path):
    log = tmp_path / "audit.jsonl"
    server = fresh("--audit-log", str(log))
    lake = tmp_path / "lake"
    server.sql("create table noted (a bigint)")
    server.sql("insert into noted values (1)")
    server.ask("POST", "/load/noted", b"a\n2\n")
    server.ask("POST", "/sql", b"drop table nothing_there")
    server.ask("POST", "/sql", b"alter user mallory password 'hunter2'")
    server.ask("POST", "/sql", b"select 1; insert into noted values (3); drop table not_there; drop table noted")
    noted = server.sql("select action, what, sqlstate from system.audit order by number")
    shown = [(row["action"], row["what"], row["sqlstate"]) for row in noted]
    assert ("ddl", "create table noted (a bigint)", None) in shown
    assert ("write", "insert into noted values (1)", None) in shown
    assert ("load", "LOAD noted", None) in shown
    assert any(action == "ddl" and what == "drop table nothing_there" and code for action, what, code in shown)
    # Of a text of several each that was begun.
    assert shown[-2:] == [("write", "insert into noted values (3)", None), ("ddl", "drop table not_there", "42P01")]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["action"], line["what"]) for line in lines] == [row[:2] for row in shown]
    assert "hunter2" not in log.read_text() and "hunter2" not in json.dumps(server.sql("select * from system.queries"))
    made = subprocess.run(
        [support.binary(), "user", "add", "ann", "--lake", str(lake), "--password-file", "-"],
        input="pw\n", capture_output=True, text=True,
    )
    assert made.returncode == 0, made.stderr
    support.within(15, lambda: b'"action":"access"' in log.read_bytes(), "a change of access is noted")
    status, _, _ = server.ask("GET", "/queries", headers={"Authorization": "Basic YW5uOndyb25n"})
    assert status == 401
    last = json.loads(log.read_text().splitlines()[-1])
    # 28000 until the server has heard that there are users.
    assert (last["action"], last["role"]) == ("login", "ann") and last["sqlstate"] in ("28P01", "28000")


def connections_and_settings_are_listed(server):
    with server.raw(application_name="seen") as client:
        rows = server.sql("select role, protocol from system.connections where application = 'seen'")
        assert rows == [{"role": "admin", "protocol": "postgres"}]
        client.rows("select 1")
    support.within(5, lambda: not server.sql("select id from system.connections where application = 'seen'"), "it left")
    settings = {row["name"]: row["value"] for row in server.sql("select * from system.settings")}
    assert settings["database"] == support.DATABASE


def files_are_those_of_tables(server):
    files = server.sql('select "table", sum(rows) as n from system.files group by "table"')
    tables = server.sql("select name, rows from system.tables where files > 0")
    assert {(f["table"], f["n"]) for f in files} == {(t["name"], t["rows"]) for t in tables}
