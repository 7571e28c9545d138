"""Rows that change nodes: what tables are not divided by is computed step by step, and is the same as in one process.

Workers keep rows for each other in their spools; at the end nothing of them is left.
"""

import random
import re
import time

import frames
import pytest
import support
from node_client import Client
from test_nodes import STATEMENTS, Asked, Nodes, _in_background, _metric, _sorted, lake
from support import within

support.only_uplake("it is about its nodes")

SHUFFLED = [
    (1, "SELECT kind, median(n), count(*) FROM events GROUP BY kind"),
    (1, "SELECT country, kind, median(n), array_agg(n ORDER BY n, ts) FROM events WHERE n < 40 GROUP BY 1, 2"),
    (1, "SELECT country, count(DISTINCT kind), count(*) FROM events GROUP BY country"),
    (1, "SELECT kind, n, row_number() OVER (PARTITION BY kind, n ORDER BY ts, country, user_id) FROM events WHERE n < 99"),
    (1, "SELECT max(r), sum(r) FROM (SELECT row_number() OVER (PARTITION BY kind ORDER BY n) r FROM events)"),
    (1, "SELECT m, count(*) FROM (SELECT kind, n, median(n) m FROM events GROUP BY kind, n) GROUP BY m ORDER BY m LIMIT 9"),
    (1, "SELECT k.kind, p.m FROM (SELECT kind, median(amount) m FROM plain GROUP BY kind) p JOIN kinds k ON k.kind = p.kind"),
    (2, "SELECT count(*), sum(a.n), count(b.n) FROM far a LEFT JOIN far b ON a.n = b.m AND b.m % 3 = 0"),
    (2, "SELECT a.k, count(*), sum(b.n) FROM far a JOIN far b ON a.n = b.m GROUP BY a.k"),
    (2, "SELECT a.n, b.m FROM far a JOIN far b ON a.n = b.m WHERE a.n % 40000 = 7 ORDER BY 1"),
    (2, "SELECT count(*) FROM far a WHERE NOT EXISTS (SELECT 1 FROM far b WHERE b.m = a.n)"),
    (3, "SELECT count(*), sum(c.k) FROM far a JOIN far b ON a.n = b.m JOIN far c ON c.m = b.m"),
    (1, "SELECT c, count(*) FROM (SELECT m, count(*) c FROM far GROUP BY m) GROUP BY c"),
]
# Takes seconds: before rows are kept, and after.
PAIRS = "events e JOIN paired x ON (e.n * x.x) % 7 = 3 AND x.x < 600"
FIRST = f"SELECT e.kind, median(e.n + x.x) FROM {PAIRS} GROUP BY e.kind"
LAST = (
    "SELECT count(*), max(e.m + x.x) FROM (SELECT kind, n, median(n) m FROM events GROUP BY kind, n) e "
    "JOIN paired x ON (e.n * x.x) % 7 = 3"
)
RAW = "SELECT n, kind, count(*) OVER (PARTITION BY kind, n) FROM events"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, lake):
    all_nodes = Nodes(tmp_path_factory.mktemp("shuffles"), lake)
    # More rows than every part reads whole.
    Asked(all_nodes.coordinator, "never").rows(
        "CREATE TABLE IF NOT EXISTS far AS SELECT x AS n, x * 7 % 1300000 AS m, x % 5 AS k FROM generate_series(1, 1200000) g(x)"
    )
    yield all_nodes
    _nothing_is_left(all_nodes)
    all_nodes.stop()


@pytest.fixture
def own(tmp_path, lake):
    all_nodes = Nodes(tmp_path, lake)
    yield all_nodes
    all_nodes.stop()


def _nothing_is_left(nodes, seconds=20):
    for server in nodes.servers:
        if server.process.poll() is None:
            server.free(seconds)
            within(seconds, lambda: _metric(server, "uplake_spool_bytes") == 0, "rows are given back")


@pytest.mark.parametrize("shuffles, sql", SHUFFLED)
def what_was_shuffled_is_answered_as_by_one_node(nodes, shuffles, sql):
    always, never = Asked(nodes.coordinator), Asked(nodes.coordinator, "never")
    before = nodes.computed()
    rows, notices, errors = always.all(sql)
    assert not errors and not notices, (errors, notices)
    assert _sorted(rows) == _sorted(never.rows(sql))
    assert [after - was for after, was in zip(nodes.computed(), before)] == [shuffles + 1] * 3
    plan = b"\n".join(value for row in always.rows(f"EXPLAIN {sql}") for value in row).decode()
    assert re.search(rf"PartsExec: parts=3, fragment=\d+ bytes, shuffles={shuffles},", plan), plan


def explain_analyze_tells_what_was_shuffled(nodes):
    text = b"\n".join(value for row in Asked(nodes.coordinator).rows(f"EXPLAIN ANALYZE {SHUFFLED[0][1]}") for value in row).decode()
    for worker in nodes.workers:
        found = re.search(rf"shuffle 1 at {re.escape(worker.node)}: (\d+) rows, (\d+) bytes, [\d.]+ ms", text)
        assert found and int(found[1]) > 0 and int(found[2]) > 0, text


@pytest.mark.parametrize("sql", [
    "SELECT kind, median(1 / (n - n)) FROM events GROUP BY kind",
    "SELECT kind, count(*) OVER (PARTITION BY kind) / (n - 5) FROM events WHERE n < 9",
    "SELECT kind, median(CAST(kind AS INT)) FROM events GROUP BY kind",
])
def errors_of_steps_are_those_of_one_node(nodes, sql):
    always, never = Asked(nodes.coordinator), Asked(nodes.coordinator, "never")
    assert always.error(sql) == never.error(sql)
    _nothing_is_left(nodes)


@pytest.mark.parametrize("sql", [FIRST, LAST], ids=["first", "last"])
def a_statement_is_begun_anew_without_a_node_that_is_killed(own, sql):
    expected = _sorted(Asked(own.coordinator, "never").rows(sql))
    answered = _in_background(Asked(own.coordinator), sql)
    said = " of shuffle 1 " if sql == FIRST else " of statement "
    within(30, lambda: all(any(said in one["text"] for one in worker.parts()) for worker in own.workers), "all compute")
    own.workers[1].kill()
    rows, notices, errors = answered()
    assert (_sorted(rows), notices, errors) == (expected, [], [])
    assert _metric(own.coordinator, 'uplake_parts_total{what="again"}') >= 2
    _nothing_is_left(own)


def a_node_that_ends_hands_out_what_it_has(own):
    expected = _sorted(Asked(own.coordinator, "never").rows(LAST))
    answered = _in_background(Asked(own.coordinator), LAST)
    within(30, lambda: all(any(" of statement " in one["text"] and "shuffle" not in one["text"] for one in worker.parts()) for worker in own.workers), "all compute")
    own.workers[1].process.terminate()
    rows, notices, errors = answered()
    assert (_sorted(rows), notices, errors) == (expected, [], [])
    assert own.workers[1].process.wait(30) == 0


def a_statement_that_was_stopped_on_a_node_is_stopped(nodes):
    answered = _in_background(Asked(nodes.coordinator), LAST)
    worker = nodes.workers[2]
    within(30, lambda: any("shuffle 1" in one["text"] and one for one in worker.parts()), "rows are kept")
    part = next(one for one in worker.parts() if "shuffle 1" in one["text"])
    Asked(worker, "never").rows(f"KILL QUERY {part['id']}")
    rows, _, errors = answered()
    assert not rows and errors[0]["C"] == "57014", errors
    _nothing_is_left(nodes)


def without_nodes_one_process_computes_it_in_one_piece(own):
    sql = SHUFFLED[1][1]
    expected = _sorted(Asked(own.coordinator, "never").rows(sql))
    for worker in own.workers:
        worker.kill()
    rows, notices, errors = Asked(own.coordinator).all(sql)
    assert _sorted(rows) == expected and not errors, errors
    assert "computed by" in notices[0]["M"], notices


def rows_that_find_no_room_are_an_error_that_says_so(tmp_path, lake):
    small = Nodes(tmp_path, lake, workers=0)
    try:
        small.workers = [small.worker(0, "--spool", "64KB") for _ in range(2)]
        small.coordinates([worker.node for worker in small.workers])
        small.usable(2)
        _, _, errors = Asked(small.coordinator).all("SELECT kind, n, median(n), array_agg(ts ORDER BY ts) FROM events GROUP BY kind, n")
        assert errors[0]["C"] == "53100" and "--spool" in errors[0]["H"], errors
        _nothing_is_left(small)
    finally:
        small.stop()


def rows_as_they_are_read_come_from_nodes_too(nodes):
    assert _sorted(Asked(nodes.coordinator).rows(RAW)) == _sorted(Asked(nodes.coordinator, "never").rows(RAW))


def dropped_statements_leave_no_rows_on_any_node(nodes):
    for seed in range(40):
        rng = random.Random(seed)
        sql, how = rng.choice([FIRST, LAST, RAW, SHUFFLED[0][1]]), rng.choice(["closed", "cancel"])
        asked = Asked(nodes.coordinator)
        asked.connection.send(frames.query(sql))
        time.sleep(rng.choice([0.02, 0.2, 1]) * rng.random())
        if how == "closed":
            asked.connection.close()
        else:
            asked.connection.cancel()
            errors = frames.errors(asked.connection.until_ready())
            assert not errors or errors[0]["C"] == "57014", (seed, sql, errors)
            asked.connection.close()
        try:
            _nothing_is_left(nodes)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {how}: {sql}") from error
    assert _sorted(Asked(nodes.coordinator).rows(STATEMENTS[1])) == _sorted(Asked(nodes.coordinator, "never").rows(STATEMENTS[1]))
