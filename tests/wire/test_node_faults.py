"""Networks between nodes that fail: late, cut, cut one way, full; and statements that are dropped at moments of a seed.

Whatever fails, an answer is the right one or there is one error, and at the end nothing runs and nothing is held.
"""

import os
import random
import time

import frames
import pytest
import support
from proxy import FROM, TO, Proxy
from support import within
from test_node_tls import Believed, authority, folder, words
from test_nodes import EVENTS, SLOW, STATEMENTS, Asked, _in_background, _metric, _sorted, lake

support.only_uplake("it is about its nodes")

SOAK = int(os.environ.get("UPLAKE_SOAK", "1"))
DROPS, CUTS = (100, 4) if SOAK == 1 else (1000, 40)
RAW = "SELECT * FROM events"


class Behind(Believed):
    """Three workers, each behind a network of its own."""

    def __init__(self, folder, lake, words):
        super().__init__(folder, lake, words, workers=0)
        self.workers = [self.worker() for _ in range(3)]
        self.networks = [Proxy(worker.node) for worker in self.workers]
        self.coordinates([network.address for network in self.networks])
        self.usable(3)

    def stop(self):
        for network in self.networks:
            network.close()
        super().stop()

    def told(self, what):
        return _metric(self.coordinator, f'uplake_parts_total{{what="{what}"}}')

    def free(self, seconds=20):
        for server in self.servers:
            server.free(seconds)


@pytest.fixture(scope="module")
def behind(tmp_path_factory, lake, words):
    nodes = Behind(tmp_path_factory.mktemp("behind"), lake, words)
    yield nodes
    nodes.stop()


@pytest.fixture
def all_pass(behind):
    """All networks are well, before and after."""
    behind.usable(3, 90)
    yield behind
    for network in behind.networks:
        network.delay = 0.0
        network.mend()
    behind.free()


def _right(nodes, sql):
    return _sorted(Asked(nodes.coordinator, "never").rows(sql))


def a_slow_network_changes_no_answer(all_pass):
    for network in all_pass.networks:
        network.delay = 0.03
    for sql in STATEMENTS[:4]:
        rows, _, errors = Asked(all_pass.coordinator).all(sql)
        assert _sorted(rows) == _right(all_pass, sql) and not errors, errors


@pytest.mark.parametrize("ways", [(TO, FROM), (TO,), (FROM,)], ids=" and ".join)
def a_network_that_is_cut_without_a_word_is_found(all_pass, ways):
    nodes, expected = all_pass, _right(all_pass, SLOW)
    lost = nodes.told("lost") + nodes.told("late")
    answered = _in_background(Asked(nodes.coordinator), SLOW)
    within(20, lambda: all(worker.parts() for worker in nodes.workers), "all workers compute")
    nodes.networks[0].lose(*ways)
    rows, notices, errors = answered()
    assert (_sorted(rows), notices, errors) == (expected, [], [])
    # What is asked already may still arrive, where only what is sent to a worker is lost.
    assert FROM not in ways or nodes.told("lost") + nodes.told("late") > lost
    # Whoever computed it hears, too, that nobody asks any more: of a ping that is not answered.
    nodes.workers[0].free(30)
    within(20, lambda: _metric(nodes.coordinator, "uplake_nodes") == 2, "it is not used")
    # The next statement does not ask it.
    rows, _, errors = Asked(nodes.coordinator).all(STATEMENTS[1])
    assert _sorted(rows) == _right(nodes, STATEMENTS[1]) and not errors, errors
    nodes.networks[0].mend()
    nodes.usable(3, 90)


def connections_that_end_are_made_again_and_their_parts_are_computed_by_others(all_pass):
    nodes, expected = all_pass, _right(all_pass, SLOW)
    lost = nodes.told("lost")
    answered = _in_background(Asked(nodes.coordinator), SLOW)
    within(20, lambda: all(worker.parts() for worker in nodes.workers), "all workers compute")
    assert nodes.networks[1].cut() == 1
    rows, notices, errors = answered()
    assert (_sorted(rows), notices, errors) == (expected, [], [])
    assert nodes.told("lost") == lost + 1
    nodes.usable(3, 90)


@pytest.mark.parametrize("sql", [RAW, STATEMENTS[2]], ids=["rows as they are read", "groups"])
def a_network_that_takes_nothing_more_is_not_waited_for(all_pass, sql):
    nodes, expected = all_pass, _right(all_pass, sql)
    nodes.networks[2].hold(FROM)
    rows, _, errors = Asked(nodes.coordinator).all(sql)
    # Rows that are out already cannot be taken back.
    if errors:
        assert sql == RAW and errors[0]["C"] == "58030", errors
    else:
        assert _sorted(rows) == expected
    nodes.networks[2].mend()
    nodes.usable(3, 90)


def without_any_network_a_statement_is_answered_with_a_warning(all_pass):
    nodes, expected = all_pass, _right(all_pass, STATEMENTS[1])
    for network in nodes.networks:
        network.lose(TO, FROM)
    within(20, lambda: _metric(nodes.coordinator, "uplake_nodes") == 0, "no node can be used")
    rows, notices, errors = Asked(nodes.coordinator).all(STATEMENTS[1])
    assert _sorted(rows) == expected and not errors, errors
    assert "computed by one node: 0 of 3 nodes can be used" in notices[0]["M"], notices
    for network in nodes.networks:
        network.mend()
    nodes.usable(3, 90)


def statements_that_are_dropped_leave_nothing_on_any_node(all_pass):
    """At moments of a seed, 1,000 of them in a soak: before parts are sent, while they compute, while rows come, after the last."""
    nodes = all_pass
    expected = {sql: _right(nodes, sql) for sql in STATEMENTS[:3]}
    ended = dict.fromkeys(("closed", "cancel", "timeout", "answered"), 0)
    for seed in range(DROPS):
        rng = random.Random(seed)
        sql = rng.choice([SLOW, SLOW, RAW, *STATEMENTS[:3]])
        how, moment = rng.choice(["closed", "cancel", "timeout"]), rng.choice([0.01, 0.1, 0.4]) * rng.random()
        asked = Asked(nodes.coordinator)
        if how == "timeout":
            asked.rows(f"SET statement_timeout = {max(1, round(moment * 1000))}")
        asked.connection.send(frames.query(sql))
        if how != "timeout":
            time.sleep(moment)
        if how == "cancel":
            asked.connection.cancel()
        if how == "closed":
            asked.connection.close()
            ended[how] += 1
        else:
            errors = frames.errors(asked.connection.until_ready())
            assert not errors or errors[0]["C"] == "57014", (seed, how, sql, errors)
            ended[how if errors else "answered"] += 1
            asked.connection.close()
        try:
            nodes.free()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {how} after {moment} s: {sql}") from error
        if seed % 20 == 0:
            for sql, rows in expected.items():
                assert _sorted(Asked(nodes.coordinator).rows(sql)) == rows, (seed, sql)
    print(ended)
    assert min(ended[how] for how in ("closed", "cancel", "timeout")) > DROPS // 10, ended


def networks_that_end_connections_at_any_moment_change_no_answer(all_pass):
    nodes = all_pass
    expected = {sql: _right(nodes, sql) for sql in (SLOW, RAW, *STATEMENTS[:3])}
    for seed in range(CUTS):
        rng = random.Random(1000 + seed)
        sql = rng.choice([SLOW, SLOW, RAW, *STATEMENTS[:3]])
        answered = _in_background(Asked(nodes.coordinator), sql)
        time.sleep(rng.random() * 0.3)
        rng.choice(nodes.networks).cut()
        rows, _, errors = answered()
        if errors:
            assert sql == RAW and errors[0]["C"] == "58030", (seed, sql, errors)
        else:
            assert _sorted(rows) == expected[sql], (seed, sql)
        nodes.free()
    assert Asked(nodes.coordinator).rows("SELECT count(*) FROM events") == [(str(EVENTS).encode(),)]
