"""Nodes that are restarted one by one, come and go, and are replaced by another version, while clients ask: none fails.

Processes on loopback, as in test_nodes.py; a restart is what an operator's or Kubernetes' is, SIGTERM and a new process
at the address. UPLAKE_OLDER_BIN names a binary of an earlier version, for the upgrade. What is not here: nodes that are
killed (test_nodes.py).
"""

import contextlib
import os
import threading

import frames
import pytest
import support
from support import Server, within
from test_nodes import PAIRED, STATEMENTS, Asked, Nodes, _free_port, _in_background, _made, _metric, _sorted

support.only_uplake("it is about its nodes")

CLIENTS = 3
# A second or so in each part: whoever is told to end has some.
LONG = f"SELECT count(*), max(e.n + x.x) FROM events e JOIN paired x ON (e.n * x.x) % 7 = 3 AND x.x < {PAIRED // 8}"
ASKED = [LONG, STATEMENTS[1], STATEMENTS[3], STATEMENTS[6], STATEMENTS[9], STATEMENTS[-1]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    return _made(tmp_path_factory.mktemp("rolling"))


class Load:
    """Clients that ask without a pause until they are told to stop; what they were told wrongly is kept."""

    def __init__(self, server, expected, may_warn=False):
        self.answered, self.wrong, self.over = [0] * CLIENTS, [], threading.Event()
        self.may_warn = may_warn
        self.threads = [threading.Thread(target=self.client, args=(server, expected, n)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def client(self, server, expected, number):
        try:
            asked = Asked(server)
            while not self.over.is_set():
                # Each begins elsewhere in the list.
                sql = ASKED[(self.answered[number] + number) % len(ASKED)]
                rows, notices, errors = asked.all(sql)
                warned = notices and not (self.may_warn and all("computed by" in one["M"] for one in notices))
                if errors or warned or _sorted(rows) != expected[sql]:
                    self.wrong.append((sql, errors, notices, rows[:3]))
                self.answered[number] += 1
        except Exception as error:
            self.wrong.append(repr(error))

    def goes_on(self, statements=len(ASKED)):
        """Waits until each client has had so many more answers."""
        wanted = [count + statements for count in self.answered]
        within(120, lambda: self.wrong or all(map(int.__ge__, self.answered, wanted)), "clients are answered")
        assert not self.wrong, self.wrong[:3]

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self.threads), "a client is not answered"
        assert not self.wrong, self.wrong[:3]
        return sum(self.answered)


@pytest.fixture
def four(tmp_path, lake):
    """Three workers, a coordinator that knows of a fourth, and what it answers alone."""
    ports = [_free_port() for _ in range(4)]
    own = Nodes(tmp_path, lake, workers=0)
    own.workers = [own.worker(port) for port in ports[:3]]
    own.coordinates([f"127.0.0.1:{port}" for port in ports])
    own.usable(3)
    alone = Asked(own.coordinator, "never")
    own.ports, own.expected = ports, {sql: _sorted(alone.rows(sql)) for sql in ASKED}
    yield own
    own.stop()


def workers_are_restarted_one_by_one_and_no_statement_fails(four):
    load = Load(four.coordinator, four.expected)
    try:
        load.goes_on()
        for number, port in enumerate(four.ports[:3]):
            old = four.workers[number]
            within(60, lambda: old.parts() or load.wrong, "it computes")
            old.terminate()
            load.goes_on(2)
            assert old.ends() == 0, old.said()
            # It may have ended before the coordinator knew it, or while a part was on its way: that one went to others.
            four.usable(2)
            load.goes_on()
            four.workers[number] = new = four.worker(port)
            four.usable(3)
            load.goes_on()
            assert _metric(new, "uplake_parts_computed_total") > 0
    finally:
        answered = load.end()
    lost = {what: _metric(four.coordinator, f'uplake_parts_total{{what="{what}"}}') for what in ("again", "here", "lost")}
    print(f"{answered} statements, parts {lost}")
    assert lost["here"] == 0 and lost["lost"] == 0, lost
    four.coordinator.free(20)


def a_worker_comes_and_goes_and_no_statement_fails(four):
    load = Load(four.coordinator, four.expected)
    try:
        load.goes_on()
        # Out.
        fourth = four.worker(four.ports[3])
        four.usable(4)
        load.goes_on()
        within(60, lambda: fourth.parts() or load.wrong, "the fourth computes")
        # And in.
        fourth.terminate()
        load.goes_on(2)
        assert fourth.ends() == 0, fourth.said()
        four.usable(3)
        load.goes_on()
    finally:
        answered = load.end()
    print(f"{answered} statements")
    assert _metric(four.coordinator, 'uplake_parts_total{what="lost"}') == 0
    four.coordinator.free(20)


def a_coordinator_is_restarted_and_what_it_was_asked_is_answered(four):
    members = ",".join(worker.node for worker in four.workers)
    other = four.started(Server, "--roles", "coordinate", "--members", members)
    within(15, lambda: _metric(other, "uplake_nodes") == 3, "the other coordinator knows all")
    idle = Asked(four.coordinator)
    answered = [_in_background(Asked(four.coordinator), LONG) for _ in range(CLIENTS)]
    within(60, lambda: len(four.coordinator.running()) >= CLIENTS, "they are asked")
    four.coordinator.terminate()
    for answer in answered:
        rows, _, errors = answer()
        assert _sorted(rows) == four.expected[LONG] and not errors, errors
    # Who did not ask is told, and is served next door.
    told = frames.errors(idle.connection.until_ready())
    assert [error["C"] for error in told] == ["57P01"], told
    assert four.coordinator.ends() == 0
    assert _sorted(Asked(other).rows(LONG)) == four.expected[LONG]
    four.servers.remove(four.coordinator)


@contextlib.contextmanager
def _older():
    """What is started within is of the earlier version."""
    now = os.environ.get("UPLAKE_BIN")
    os.environ["UPLAKE_BIN"] = os.environ["UPLAKE_OLDER_BIN"]
    yield
    os.environ.pop("UPLAKE_BIN")
    if now is not None:
        os.environ["UPLAKE_BIN"] = now


def nodes_of_an_earlier_version_are_replaced_one_by_one_and_no_statement_fails(tmp_path, lake):
    """A coordinator of each version; each uses the workers of its own, or computes alone with a warning."""
    if "UPLAKE_OLDER_BIN" not in os.environ:
        support.missing("a binary of an earlier version", "build one, and say UPLAKE_OLDER_BIN=PATH")
    ports = [_free_port() for _ in range(3)]
    members = ",".join(f"127.0.0.1:{port}" for port in ports)
    own = Nodes(tmp_path, lake, workers=0)
    loads = []
    try:
        with _older():
            own.workers = [own.worker(port) for port in ports]
            before = own.started(Server, "--roles", "coordinate", "--members", members)
        own.coordinates([f"127.0.0.1:{port}" for port in ports])
        alone = Asked(own.coordinator, "never")
        expected = {sql: _sorted(alone.rows(sql)) for sql in ASKED}
        loads = [Load(server, expected, may_warn=True) for server in (before, own.coordinator)]
        for replaced in range(3):
            within(20, lambda: _metric(before, "uplake_nodes") == 3 - replaced, "the earlier version uses its own")
            own.usable(replaced)
            for load in loads:
                load.goes_on()
            own.workers[replaced].terminate()
            assert own.workers[replaced].ends() == 0, own.workers[replaced].said()
            own.workers[replaced] = own.worker(ports[replaced])
        own.usable(3)
        within(20, lambda: _metric(before, "uplake_nodes") == 0, "the earlier version uses none of the new one")
        for load in loads:
            load.goes_on()
        assert all(count > 0 for count in own.computed())
    finally:
        print(sum(load.end() for load in loads), "statements")
        own.stop()
