"""Statements in parts: a coordinator and three workers, as processes on loopback.

Every answer of `uplake.elsewhere = always` is compared with that of `never`, which one process computes. Reports are in
test_report_nodes.py.
"""

import json
import random
import re
import signal
import socket
import subprocess
import threading
import time

import frames
import pytest
import support
from support import Server, binary, within

support.only_uplake("it is about its nodes")

USERS, EVENTS = 2000, 60_000
COUNTRIES = ["DE", "FR", "JP", "BR", ""]
# Takes seconds, in each part alike.
PAIRED = 12_000
SLOW = "SELECT count(*), max(e.n + x.x) FROM events e JOIN paired x ON (e.n * x.x) % 7 = 3"

STATEMENTS = [
    "SELECT count(*), sum(n), min(ts), max(kind), avg(n) FROM events",
    "SELECT country, count(*), sum(n), count(DISTINCT user_id) FROM events GROUP BY country",
    "SELECT user_id, count(*), sum(n) FROM events GROUP BY user_id",
    "SELECT user_id, count(*) c FROM events GROUP BY user_id ORDER BY c DESC, user_id LIMIT 10",
    "SELECT kind, n, ts FROM events ORDER BY n DESC, ts, kind LIMIT 20",
    "SELECT count(DISTINCT user_id) FROM events WHERE n > 500",
    "SELECT u.plan, count(*), count(DISTINCT e.user_id) FROM events e JOIN users u ON e.user_id = u.user_id GROUP BY u.plan",
    "SELECT u.plan, count(e.n) FROM users u LEFT JOIN events e ON e.user_id = u.user_id AND e.kind = 'buy' GROUP BY u.plan",
    "SELECT count(*) FROM users u WHERE EXISTS (SELECT 1 FROM events e WHERE e.user_id = u.user_id AND e.n > 990)",
    "SELECT max(r), sum(r) FROM (SELECT row_number() OVER (PARTITION BY user_id ORDER BY ts, n) r FROM events)",
    "SELECT kind, lag(n) OVER (PARTITION BY user_id ORDER BY ts, n, kind) FROM events WHERE user_id IN ('u5', 'u9')",
    "SELECT country, count(*) FROM events WHERE user_id = 'u17' GROUP BY country",
    "SELECT count(*), count(user_id), count(country), sum(n) FROM events WHERE user_id IS NULL",
    "SELECT country IS NULL, count(*) FROM events GROUP BY 1",
    "SELECT * FROM events WHERE n = 123",
    "SELECT kind, count(*) FROM nothing GROUP BY kind",
    "SELECT count(*), sum(n) FROM nothing",
    "SELECT kind, count(*), sum(amount) FROM plain GROUP BY kind",
    "SELECT p.kind, count(*) FROM plain p JOIN kinds k ON p.kind = k.kind GROUP BY p.kind",
    "SELECT kind, approx_distinct(user_id) > 0, bool_or(n > 990), stddev(n) > 0 FROM events GROUP BY kind",
    "SELECT date_trunc('day', ts) d, count(*) FROM events GROUP BY d ORDER BY d",
    "SELECT kind FROM events UNION SELECT plan FROM users",
    "SELECT DISTINCT country, kind FROM events",
    "WITH f AS (SELECT user_id, min(ts) t FROM events GROUP BY user_id) "
    "SELECT count(*) FROM f JOIN events e ON e.user_id = f.user_id AND e.ts >= f.t + interval '1 day'",
]
ERRORS = [
    "SELECT sum(1 / (n - n)) FROM events",
    "SELECT count(*) FROM events WHERE CAST(kind AS INT) > 0",
    "SELECT sum(CAST(country AS DOUBLE)) FROM events GROUP BY user_id",
]


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Worker(Server):
    """A node that computes; clients have ports, too, to look into it."""

    def __init__(self, folder, lake, port=0, *options, **more):
        super().__init__(folder, lake, "--roles", "work", "--node", f"127.0.0.1:{port}", *options, **more)
        line = self.process.stdout.readline().decode()
        self.node = re.match(r"node\s+(\S+)", line)[1]

    def parts(self):
        """The parts that run here."""
        return [one for one in self.running() if one["protocol"] == "node"]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def _metric(server, name):
    text = server.ask("GET", "/metrics")[2].decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is not in /metrics"
    return float(found[1])


def _sorted(rows):
    return sorted(rows, key=repr)


class Asked:
    """A connection on which statements are asked; rows, notices and errors."""

    def __init__(self, server, elsewhere="always"):
        self.connection = server.raw(timeout=120)
        self.rows(f"SET uplake.elsewhere = {elsewhere}")

    def all(self, sql):
        messages = self.connection.ask(frames.query(sql))
        rows = [tuple(frames.values_of(body)) for kind, body in messages if kind == b"D"]
        told = {b"N": [], b"E": []}
        for kind, body in messages:
            if kind in told:
                told[kind].append(frames.fields_of(body))
        return rows, told[b"N"], told[b"E"]

    def rows(self, sql):
        rows, _, errors = self.all(sql)
        assert not errors, f"{sql}: {errors}"
        return rows

    def error(self, sql):
        _, _, errors = self.all(sql)
        assert errors, f"{sql} is answered"
        said = {name: errors[0].get(name) for name in "CMHP"}
        # Which of several wrong values is read first is nobody's business.
        said["M"] = re.sub(r"cannot read '\w*'", "cannot read '…'", said["M"])
        return said


def _made(folder):
    """A lake with two tables of users, one without ids, and empty ones."""
    rng, folder = random.Random(26), folder
    with open(folder / "events.csv", "w") as out:
        out.write("user_id,country,kind,n,ts\n")
        for n in range(EVENTS):
            user = "" if n % 997 == 0 else f"u{rng.randrange(USERS)}"
            country = rng.choice(COUNTRIES)
            kind = rng.choice(["view", "click", "buy"])
            out.write(f"{user},{country},{kind},{rng.randrange(1000)},2026-11-{rng.randrange(1, 21):02} 10:{n % 60:02}:00\n")
    with open(folder / "users.csv", "w") as out:
        out.write("user_id,plan\n")
        for user in range(0, USERS + 200, 2):
            out.write(f"u{user},{rng.choice(['free', 'paid'])}\n")
    with open(folder / "exposures.csv", "w") as out:
        out.write("user_id,variant,seen,country\n")
        for user in range(USERS):
            arm = rng.choice(["a", "b"])
            out.write(f"u{user},{arm},2026-11-{rng.randrange(1, 10):02} 08:00:00,{rng.choice(COUNTRIES)}\n")
    lake = folder / "lake"

    def run(*words):
        done = subprocess.run([binary(), *words], capture_output=True, text=True, timeout=120, cwd=folder)
        assert done.returncode == 0, done.stderr

    ids = ["--id-domain", "user_id=users", "--cluster-by"]
    run("load", "events", "events.csv", "--lake", str(lake), *ids, "user_id,ts", "--null", "")
    run("load", "users", "users.csv", "--lake", str(lake), *ids, "user_id")
    run("load", "exposures", "exposures.csv", "--lake", str(lake), *ids, "user_id", "--null", "")
    run("sql", "--lake", str(lake), "-c", """
        create table plain as select case when x %% 3 = 0 then 'a' when x %% 3 = 1 then 'b' end as kind, x * 1.5 as amount
          from generate_series(1, 20000) g(x);
        create table paired as select x from generate_series(1, %d) g(x);
        create table kinds as select * from (values ('a'), ('c')) k(kind);
        create table nothing (user_id text, kind text, n bigint) clustered by (user_id) id domains (user_id users);
    """ % PAIRED)
    return lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    return _made(tmp_path_factory.mktemp("nodes"))


class Nodes:
    """Three workers and a coordinator."""

    def __init__(self, folder, lake, workers=3):
        self.folder, self.lake, self.servers = folder, lake, []
        self.workers = [self.worker() for _ in range(workers)]
        if workers:
            self.coordinates([worker.node for worker in self.workers])

    def coordinates(self, members):
        self.coordinator = self.started(Server, "--roles", "coordinate", "--members", ",".join(members))

    def started(self, kind, *options):
        folder = self.folder / f"server-{len(self.servers)}"
        folder.mkdir()
        self.servers.append(kind(folder, self.lake, *options))
        return self.servers[-1]

    def worker(self, port=0, *options):
        return self.started(Worker, port, *options)

    def stop(self):
        for server in reversed(self.servers):
            server.stop()

    def usable(self, count, seconds=15):
        within(seconds, lambda: _metric(self.coordinator, "uplake_nodes") == count, f"{count} nodes can be used")

    def computed(self):
        return [_metric(worker, "uplake_parts_computed_total") for worker in self.workers]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, lake):
    """For tests that leave all nodes as they are."""
    all_nodes = Nodes(tmp_path_factory.mktemp("three"), lake)
    yield all_nodes
    for server in all_nodes.servers:
        server.free(20)
    all_nodes.stop()


@pytest.fixture
def own(tmp_path, lake):
    """For tests that end some."""
    all_nodes = Nodes(tmp_path, lake)
    yield all_nodes
    all_nodes.stop()


@pytest.mark.parametrize("sql", STATEMENTS)
def parts_answer_as_one_node_does(nodes, sql):
    always, never = Asked(nodes.coordinator), Asked(nodes.coordinator, "never")
    before = _metric(nodes.coordinator, 'uplake_parts_total{what="sent"}')
    rows, notices, errors = always.all(sql)
    assert not errors and not notices, (errors, notices)
    in_order = list if "ORDER BY" in sql.rpartition(")")[2] else _sorted
    assert in_order(rows) == in_order(never.rows(sql))
    if not sql.startswith(("SELECT kind, lag", "SELECT country, count(*) FROM events WHERE user_id =")):
        assert _metric(nodes.coordinator, 'uplake_parts_total{what="sent"}') > before, "no part was sent"


def all_workers_compute(nodes):
    before = nodes.computed()
    Asked(nodes.coordinator).rows(STATEMENTS[2])
    assert [after - was for after, was in zip(nodes.computed(), before)] == [1, 1, 1]


@pytest.mark.parametrize("sql", ERRORS)
def errors_are_those_of_one_node(nodes, sql):
    always, never = Asked(nodes.coordinator), Asked(nodes.coordinator, "never")
    assert always.error(sql) == never.error(sql)
    # And the connection goes on.
    assert always.rows("SELECT count(*) FROM events") == [(str(EVENTS).encode(),)]


def what_is_set_is_set_for_parts(nodes):
    sql = "SELECT ts::timestamptz::text, count(*) FROM events GROUP BY 1 ORDER BY 1 LIMIT 3"
    answers = []
    for elsewhere in "always", "never":
        asked = Asked(nodes.coordinator, elsewhere)
        asked.rows("SET time zone 'Asia/Tokyo'")
        answers.append(asked.rows(sql))
    assert answers[0] == answers[1] and len(answers[0]) == 3


def small_statements_stay_unless_they_are_told_to_go(nodes):
    asked = Asked(nodes.coordinator, "auto")
    before = _metric(nodes.coordinator, 'uplake_parts_total{what="sent"}')
    asked.rows(STATEMENTS[0])
    assert _metric(nodes.coordinator, 'uplake_parts_total{what="sent"}') == before
    plan = asked.rows(f"EXPLAIN {STATEMENTS[0]}")
    assert any(b"is divided from 4000000 on" in value for row in plan for value in row), plan


def much_is_divided_without_being_told_but_no_look_up(own):
    """Of 4.2 million rows."""
    asked, never = Asked(own.coordinator, "auto"), Asked(own.coordinator, "never")
    never.rows("CREATE TABLE big (user_id TEXT, n BIGINT) CLUSTERED BY (user_id) ID DOMAINS (user_id users)")
    try:
        never.rows("INSERT INTO big SELECT 'u' || (x % 2000), x % 1000 FROM generate_series(1, 4200000) g(x)")
        for sql, parts in [
            ("SELECT n % 10, count(*), count(DISTINCT user_id) FROM big GROUP BY 1", 3),
            ("SELECT sum(n), count(*) FROM big WHERE user_id = 'u7'", 0),
            ("SELECT sum(n) FROM big WHERE user_id IN ('u7', 'u9')", 0),
            ("SELECT n, user_id FROM big WHERE n % 999 = 5 AND user_id LIKE '%77'", 0),
        ]:
            before = _metric(own.coordinator, 'uplake_parts_total{what="sent"}')
            assert _sorted(asked.rows(sql)) == _sorted(never.rows(sql)), sql
            sent = _metric(own.coordinator, 'uplake_parts_total{what="sent"}') - before
            assert sent == parts, sql
    finally:
        never.rows("DROP TABLE big")


def rows_written_are_seen_by_parts_at_once(own):
    asked = Asked(own.coordinator)
    count = int(asked.rows("SELECT count(*) FROM nothing")[0][0])
    try:
        for n in range(3):
            asked.rows(f"INSERT INTO nothing VALUES ('u{n}', 'new', {n})")
            assert asked.rows("SELECT count(*), max(n) FROM nothing WHERE kind = 'new'") == [(b"%d" % (n + 1), b"%d" % n)]
        asked.rows("BEGIN")
        asked.rows("INSERT INTO nothing VALUES ('u9', 'new', 9)")
        # What nobody else can read is computed here.
        assert asked.rows("SELECT count(*) FROM nothing")[0][0] == b"%d" % (count + 4)
        asked.rows("ROLLBACK")
    finally:
        asked.all("ROLLBACK")
        asked.rows("DELETE FROM nothing WHERE kind = 'new'")


def explain_analyze_tells_of_parts_workers_and_bytes(nodes):
    asked = Asked(nodes.coordinator)
    text = b"\n".join(value for row in asked.rows(f"EXPLAIN ANALYZE {STATEMENTS[1]}") for value in row).decode()
    assert "PartsExec: parts=3" in text, text
    for worker in nodes.workers:
        found = re.search(rf"{re.escape(worker.node)}: (\d+) rows, (\d+) bytes, [\d.]+ ms", text)
        assert found and int(found[1]) > 0 and int(found[2]) > 0, text


def a_session_says_whose_nodes_compute(tmp_path, lake):
    own = Nodes(tmp_path, lake, workers=0)
    try:
        own.workers = [own.worker(), own.worker(0, "--warehouse", "reports"), own.worker(0, "--warehouse", "reports")]
        own.coordinates([worker.node for worker in own.workers])
        own.usable(1)
        asked, sql = Asked(own.coordinator), STATEMENTS[1]
        expected = _sorted(Asked(own.coordinator, "never").rows(sql))
        for name, computed in [("", [1, 0, 0]), ("reports", [0, 1, 1]), ("reports", [0, 1, 1])]:
            before = own.computed()
            asked.rows(f"SET uplake.warehouse = '{name}'")
            rows, notices, errors = asked.all(sql)
            assert (_sorted(rows), notices, errors) == (expected, [], [])
            assert [after - was for after, was in zip(own.computed(), before)] == computed, name
            assert asked.rows("SHOW uplake.warehouse")[0][-1] == name.encode()
        asked.rows("SET uplake.warehouse = 'nobody'")
        rows, notices, errors = asked.all(sql)
        assert _sorted(rows) == expected and not errors, errors
        assert "is of the warehouse nobody" in notices[0]["M"], notices
        assert asked.error("SET uplake.warehouse = 'a\nb'")["C"] == "22023"
    finally:
        own.stop()


def what_nodes_have_done_is_paid_by_the_statement(nodes):
    asked = Asked(nodes.coordinator)
    sql = "SELECT country, count(*), sum(n), 'paid' FROM events GROUP BY country"
    asked.rows(sql)
    found = asked.rows("SELECT nodes_s, compute_s FROM system.queries WHERE text LIKE '%, ''paid'' FROM events%' AND protocol = 'postgres' AND nodes_s > 0")
    assert len(found) == 1 and float(found[0][0]) > 0, found
    # Parts are told of where they were computed, with what each cost there.
    parts = [
        float(Asked(worker, "never").rows("SELECT sum(compute_s) FROM system.queries WHERE protocol = 'node'")[0][0] or 0)
        for worker in nodes.workers
    ]
    assert min(parts) > 0 and sum(parts) >= float(found[0][0]) * 0.9, (parts, found)
    Asked(nodes.coordinator, "never").rows(sql)
    assert len(asked.rows("SELECT 1 FROM system.queries WHERE text LIKE '%, ''paid'' FROM events%' AND protocol = 'postgres' AND nodes_s = 0")) >= 1


def _in_background(asked, sql):
    """Asks in a thread; what gives the answer."""
    answer = []
    thread = threading.Thread(target=lambda: answer.append(asked.all(sql)))
    thread.start()

    def end(seconds=100):
        thread.join(seconds)
        assert answer, "it is not answered"
        return answer[0]

    return end


def a_worker_that_is_killed_is_not_missed(own):
    expected = Asked(own.coordinator, "never").rows(SLOW)
    answered = _in_background(Asked(own.coordinator), SLOW)
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    own.workers[1].kill()
    rows, notices, errors = answered()
    assert (rows, notices, errors) == (expected, [], [])
    assert _metric(own.coordinator, 'uplake_parts_total{what="lost"}') == 1
    assert _metric(own.coordinator, 'uplake_parts_total{what="again"}') >= 1
    # The next one does not ask it.
    before = _metric(own.coordinator, 'uplake_parts_total{what="again"}')
    assert Asked(own.coordinator).rows(STATEMENTS[0]) == Asked(own.coordinator, "never").rows(STATEMENTS[0])
    assert _metric(own.coordinator, 'uplake_parts_total{what="again"}') == before


def without_workers_a_statement_is_answered_with_a_warning(own):
    expected = Asked(own.coordinator, "never").rows(SLOW)
    asked = Asked(own.coordinator)
    answered = _in_background(asked, SLOW)
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    # All at once: one that lived a moment longer would begin a part of the others, and take it with it.
    for worker in own.workers:
        worker.process.kill()
    for worker in own.workers:
        worker.kill()
    rows, notices, errors = answered()
    assert rows == expected and not errors, errors
    assert any("computed by the node that was asked" in notice["M"] for notice in notices), notices
    rows, notices, errors = asked.all(STATEMENTS[1])
    assert _sorted(rows) == _sorted(Asked(own.coordinator, "never").rows(STATEMENTS[1])) and not errors
    assert any("computed by one node: 0 of 3 nodes can be used" in notice["M"] for notice in notices), notices
    # Small ones are not told of.
    assert Asked(own.coordinator, "auto").all(STATEMENTS[0])[1] == []


def a_part_that_takes_two_nodes_with_it_is_an_error(own):
    asked = Asked(own.coordinator)
    answered = _in_background(asked, SLOW)
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    own.workers[0].kill()
    # Its part goes on with one of the others; that one is lost, too.
    left = own.workers[1:]
    within(20, lambda: any(len(worker.parts()) > 1 for worker in left), "the part is computed again")
    second = next(worker for worker in left if len(worker.parts()) > 1)
    second.kill()
    _, _, errors = answered()
    assert errors and errors[0]["C"] == "58030", errors
    for worker in own.workers[0], second:
        assert worker.node in errors[0]["M"], errors
    own.coordinator.free(10)


def a_worker_that_joins_is_used(tmp_path, lake):
    ports = [_free_port() for _ in range(3)]
    own = Nodes(tmp_path, lake, workers=0)
    own.workers = [own.worker(port) for port in ports[:2]]
    own.coordinates([f"127.0.0.1:{port}" for port in ports])
    try:
        asked = Asked(own.coordinator)
        assert _metric(own.coordinator, "uplake_nodes") == 2
        asked.rows(STATEMENTS[1])
        assert own.computed() == [1, 1]
        own.workers.append(own.worker(ports[2]))
        own.usable(3)
        asked.rows(STATEMENTS[1])
        assert own.computed() == [2, 2, 1]
        # A node that begins anew is used as soon as it answers.
        own.workers[0].kill()
        own.usable(2)
        own.workers[0] = own.worker(ports[0])
        own.usable(3)
        asked.rows(STATEMENTS[1])
        assert own.computed() == [1, 3, 2]
    finally:
        own.stop()


def a_worker_that_ends_finishes_what_it_has_and_takes_nothing_more(own):
    expected = Asked(own.coordinator, "never").rows(SLOW)
    answered = _in_background(Asked(own.coordinator), SLOW)
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    own.workers[2].terminate()
    own.usable(2)
    others = Asked(own.coordinator)
    assert others.rows(STATEMENTS[1]) and own.workers[2].process.poll() is None
    rows, notices, errors = answered()
    assert (rows, notices, errors) == (expected, [], [])
    assert own.workers[2].ends() == 0
    assert _metric(own.coordinator, 'uplake_parts_total{what="lost"}') == 0
    # Nobody asks for it while it goes.
    for _ in range(20):
        rows, notices, errors = others.all(STATEMENTS[0])
        assert rows and not notices and not errors, (notices, errors)


@pytest.mark.parametrize("how", ["cancel", "timeout", "closed"])
def a_statement_that_is_stopped_runs_on_no_worker(nodes, how):
    asked = Asked(nodes.coordinator)
    if how == "timeout":
        asked.rows("SET statement_timeout = 1000")
    asked.connection.send(frames.query(SLOW))
    within(20, lambda: all(worker.parts() for worker in nodes.workers), "all workers compute")
    if how == "cancel":
        asked.connection.cancel()
    if how == "closed":
        asked.connection.close()
    else:
        errors = frames.errors(asked.connection.until_ready())
        assert errors and errors[0]["C"] == "57014", errors
    for worker in nodes.workers:
        worker.free()
    nodes.coordinator.free()


def a_coordinator_that_is_killed_leaves_nothing_on_workers(own):
    asked = Asked(own.coordinator)
    asked.connection.send(frames.query(SLOW))
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    own.coordinator.process.kill()
    own.coordinator.process.wait()
    for worker in own.workers:
        worker.free()
    own.servers.remove(own.coordinator)


def a_worker_that_stops_without_a_word_is_not_waited_for(own):
    expected = Asked(own.coordinator, "never").rows(STATEMENTS[2])
    worker = own.workers[0]
    worker.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        rows, _, errors = Asked(own.coordinator).all(STATEMENTS[2])
        assert _sorted(rows) == _sorted(expected) and not errors, errors
        assert time.monotonic() - began < 15
    finally:
        worker.process.send_signal(signal.SIGCONT)


def a_part_that_is_late_is_begun_again_elsewhere(own):
    expected = Asked(own.coordinator, "never").rows(SLOW)
    answered = _in_background(Asked(own.coordinator), SLOW)
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    worker = own.workers[0]
    worker.process.send_signal(signal.SIGSTOP)
    try:
        assert answered()[0] == expected
        told = {what: _metric(own.coordinator, f'uplake_parts_total{{what="{what}"}}') for what in ("late", "lost")}
        # A node that answers no ping for five seconds is lost, if the others take as long.
        assert told["late"] + told["lost"] >= 1, told
    finally:
        worker.process.send_signal(signal.SIGCONT)
    own.usable(3)
    own.workers[0].free(20)


def members_of_other_lakes_and_warehouses_are_not_used(tmp_path, lake):
    own = Nodes(tmp_path, lake, workers=0)
    other = support.make_lake(tmp_path)
    (tmp_path / "other").mkdir()
    stranger = Worker(tmp_path / "other", other)
    right, elsewhere = own.worker(), own.worker(0, "--warehouse", "reports")
    own.workers = [stranger, elsewhere, right]
    own.servers.append(stranger)
    own.coordinates([worker.node for worker in own.workers])
    try:
        assert _metric(own.coordinator, "uplake_nodes") == 1
        asked = Asked(own.coordinator)
        assert _sorted(asked.rows(STATEMENTS[1])) == _sorted(Asked(own.coordinator, "never").rows(STATEMENTS[1]))
        assert own.computed() == [0, 0, 1]
        right.stop()
        own.usable(0)
        _, notices, errors = asked.all(STATEMENTS[1])
        assert not errors and f"{stranger.node} serves another lake" in notices[0]["M"], notices
    finally:
        own.stop()


def a_node_may_be_both(tmp_path, lake):
    ports = [_free_port() for _ in range(2)]
    members = ",".join(f"127.0.0.1:{port}" for port in ports)
    servers = []
    try:
        for port in ports:
            folder = tmp_path / str(port)
            folder.mkdir()
            servers.append(
                Server(folder, lake, "--roles", "work,coordinate", "--node", f"127.0.0.1:{port}", "--members", members)
            )
        for server in servers:
            within(15, lambda: _metric(server, "uplake_nodes") == 2, "both can be used")
        # Each has statements of its own and parts of the other's, more than it has slots for.
        asked = [Asked(server) for server in servers for _ in range(8)]
        expected = _sorted(Asked(servers[0], "never").rows(STATEMENTS[1]))
        answers = [_in_background(one, STATEMENTS[1]) for one in asked for _ in range(1)]
        for answered in answers:
            rows, _, errors = answered()
            assert _sorted(rows) == expected and not errors, errors
        assert all(_metric(server, "uplake_parts_computed_total") >= 8 for server in servers)
    finally:
        for server in servers:
            server.stop()


def rights_are_those_of_who_asks(tmp_path):
    psycopg = support.module("psycopg", "psycopg")
    lake = _made(tmp_path)
    for name, roles in [("boss", ["--role", "admin"]), ("ann", ["--role", "reader"])]:
        done = subprocess.run(
            [binary(), "user", "add", name, *roles, "--password-file", "-", "--lake", str(lake)],
            input=f"secret of {name}\n", capture_output=True, text=True, timeout=60,
        )
        assert done.returncode == 0, done.stderr
    own = Nodes(tmp_path, lake)

    def asked(name, *statements, at=None):
        host, port = (at or own.coordinator).pg
        words = {"host": host, "port": port, "dbname": "lake"}
        with psycopg.connect(**words, user=name, password=f"secret of {name}", autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    try:
        with_policy = "CREATE POLICY germans ON events FOR SELECT TO ann USING (country = 'DE')"
        asked("boss", with_policy, "SELECT 1")
        for sql in STATEMENTS[1], STATEMENTS[5], STATEMENTS[6]:
            answers = [
                sorted(asked(name, f"SET uplake.elsewhere = {elsewhere}", sql), key=repr)
                for name in ("ann", "boss") for elsewhere in ("always", "never")
            ]
            assert answers[0] == answers[1] and answers[2] == answers[3] and answers[0] != answers[2], sql
        for worker in own.workers:
            parts = asked("boss", "SELECT count(*), min(application) FROM system.queries WHERE protocol = 'node'", at=worker)
            assert parts[0][0] >= 6 and parts[0][1] == ":".join(map(str, own.coordinator.pg)), parts
    finally:
        own.stop()


@pytest.mark.parametrize("options, says", [
    (["--roles", "work"], "--node"),
    (["--node", "127.0.0.1:0"], "--roles work"),
    (["--roles", "coordinate"], "--members"),
    (["--members", "127.0.0.1:1"], "--roles coordinate"),
    (["--roles", "work", "--node", "0.0.0.0:0"], "not encrypted"),
    (["--roles", "coordinate", "--members", "10.1.2.3:1"], "not encrypted"),
    (["--roles", "coordinate", "--members", "127.0.0.1"], "no port"),
    (["--roles", "cook"], "work"),
    (["--warehouse", "reports"], "--roles"),
    (["--roles", "work", "--node", "127.0.0.1:0", "--warehouse", "a b"], "letters"),
])
def options_that_mean_nothing_are_refused(tmp_path, lake, options, says):
    done = subprocess.run(
        [binary(), "serve", "--lake", str(lake), "--pg", "127.0.0.1:0", "--http", "127.0.0.1:0", *options],
        capture_output=True, text=True, timeout=30, cwd=tmp_path,
    )
    assert done.returncode != 0 and says in done.stderr, done.stderr


def the_port_of_nodes_is_for_nodes(nodes):
    support.module("pyarrow", "pyarrow")
    import pyarrow.flight as flight

    client = flight.FlightClient(f"grpc://{nodes.workers[0].node}")
    for call in [
        lambda: list(client.list_flights()),
        lambda: client.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT 1")),
        lambda: client.do_get(flight.Ticket(b"SELECT * FROM events")).read_all(),
        lambda: client.do_get(flight.Ticket(b"\0\0\0\x02{}rest")).read_all(),
        lambda: list(client.do_action(flight.Action("drop", b""))),
    ]:
        with pytest.raises(Exception) as failed:
            call()
        assert "nodes of a warehouse" in str(failed.value) or "no ticket of a part" in str(failed.value)
    hello = json.loads(next(client.do_action(flight.Action("hello", b""))).body.to_pybytes())
    assert hello["name"] == nodes.workers[0].node and hello["works"] and not hello["draining"]
