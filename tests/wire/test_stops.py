"""Who stops what: cancels by key, by number and by name, while a statement waits, is planned, computes or sends."""

import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import time

import frames
import pytest
import support
from frames import bind, errors, execute, kinds, parse, query

# Planned for some seconds; nobody waits for its rows.
SLOW_PLAN = " union all ".join(f"select id, digit + {n} as d, name || '{n}' from numbers where id > {n} and name like '%{n}%'" for n in range(1500))
# A client that asks and is then stopped as a whole, as one on a laptop that was closed.
FROZEN = """
import sys; sys.path.insert(0, {folder!r})
import frames, time
wire = frames.Connection(({host!r}, {port}), user="admin", database="lake", receive_buffer=65536)
wire.send(frames.query({sql!r}))
print(wire.next()[0].decode(), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _uplake_alone():
    support.only_uplake("slots, lists and residue are ours")


def _codes(messages):
    return [e["C"] for e in errors(messages)]


def _rests(server):
    """Soon the server computes nothing any more, listed or not: over half a second it takes hardly any time of the
    processor, where planning takes all of it."""

    def rests():
        before = server.cpu_seconds()
        time.sleep(0.5)
        return server.cpu_seconds() - before < 0.1

    support.within(support.FREE_S + 0.5, rests, "it rests")


@pytest.mark.parametrize("how", ["simple", "parse", "declare"])
def a_statement_that_is_planned_is_listed_and_cancelled(server, how):
    with server.raw() as wire:
        if how == "declare":
            wire.rows("begin")
        sent = {"simple": [query(SLOW_PLAN)], "parse": [parse(SLOW_PLAN), frames.SYNC],
                "declare": [query(f"declare c cursor for {SLOW_PLAN}")]}[how]
        wire.send(*sent)
        server.runs()
        state = server.running()[0]["state"]
        assert state == ("computing" if how == "simple" else "planning")
        began = time.monotonic()
        wire.cancel()
        assert _codes(wire.until_ready()) == ["57014"]
        took = time.monotonic() - began
        assert took < support.FREE_S, f"{took:.2f} s"
        _rests(server)
        wire.rows("rollback")
        assert wire.rows("select 1 as a") == [["1"]]


@pytest.mark.parametrize("how", ["simple", "parse"])
def a_socket_closed_while_its_statement_is_planned_takes_it_along(server, how):
    wire = server.raw()
    wire.send(*([query(SLOW_PLAN)] if how == "simple" else [parse(SLOW_PLAN), frames.SYNC]))
    server.runs()
    wire.close()
    support.within(support.FREE_S, lambda: not server.running(), "it is listed no more")
    _rests(server)


def a_statement_whose_time_is_over_is_planned_no_further(server):
    with server.raw() as wire:
        wire.rows("set statement_timeout = '300ms'")
        began = time.monotonic()
        assert _codes(wire.ask(query(SLOW_PLAN))) == ["57014"]
        took = time.monotonic() - began
        assert took < 0.3 + support.FREE_S, f"{took:.2f} s"
        _rests(server)
        wire.rows("reset statement_timeout")


def plans_that_succeed_are_told_of_once(server):
    marker = "select 4711 as planned_once"
    with server.raw() as wire:
        wire.ask(parse(marker), bind(), execute(), frames.SYNC)
        found = wire.rows(f"select text from system.queries where text = '{marker}'")
        assert found == [[marker]]


def cancel_of_a_statement_that_is_over_stops_nothing(server):
    with server.raw() as wire, server.raw() as other:
        assert wire.rows("select 1 as a") == [["1"]]
        for _ in range(20):
            wire.cancel()
        assert wire.rows("select 2 as a") == [["2"]]
        # Nor what another connection runs.
        other.send(query(support.LONG))
        server.runs()
        wire.cancel()
        time.sleep(0.1)
        assert server.running()
        other.cancel()
        assert _codes(other.until_ready()) == ["57014"]


def hundreds_of_cancels_at_once_stop_theirs_and_no_other(server):
    wires = [server.raw(timeout=60) for _ in range(300)]
    spared = wires.pop()
    for wire in [spared, *wires]:
        wire.send(query(support.LONG))
    support.within(20, lambda: len(server.running()) == 300, "all are listed")
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        list(pool.map(lambda wire: wire.cancel(), wires))
        found = list(pool.map(lambda wire: _codes(wire.until_ready()), wires))
    print(f"300 cancels took {time.monotonic() - began:.2f} s")
    assert found == [["57014"]] * len(wires)
    assert len(server.running()) == 1
    spared.cancel()
    assert _codes(spared.until_ready()) == ["57014"]
    for wire in [spared, *wires]:
        wire.close()


def functions_of_postgres_stop_a_statement_or_its_connection(server):
    with server.raw() as wire, server.raw() as other:
        pid = int(wire.rows("select pg_backend_pid()")[0][0])
        wire.send(query(support.LONG))
        server.runs()
        # What a statement does is done when it runs, not when it is prepared.
        other.ask(parse(f"select pg_cancel_backend({pid})", "later"), frames.SYNC)
        time.sleep(0.1)
        assert server.running()
        assert other.rows(f"select pg_cancel_backend({pid}) as it") == [["t"]]
        assert _codes(wire.until_ready()) == ["57014"]
        assert wire.rows("select 1 as a") == [["1"]]
        assert other.rows("select pg_cancel_backend(2147483647) as it") == [["f"]]
        wire.send(query(support.LONG))
        server.runs()
        assert other.rows(f"select pg_terminate_backend({pid}) as it") == [["t"]]
        found = wire.until_ready()
        if _codes(found[-1:]) != ["57P01"]:
            found += wire.until_ready()
        assert set(_codes(found)) == {"57P01"}
        assert wire.is_closed()
        # One that does not ask hears of it, too.
        third = server.raw()
        pid = int(third.rows("select pg_backend_pid()")[0][0])
        assert other.rows(f"select pg_terminate_backend({pid}, 100) as it") == [["t"]]
        assert _codes([third.next()]) == ["57P01"] and third.is_closed()
        third.close()


def _copy_data(rows):
    """Rows in messages, each of whole lines and below a MiB."""
    lines = rows.splitlines(keepends=True)
    return b"".join(frames.frame(b"d", b"".join(lines[at : at + 20_000])) for at in range(0, len(lines), 20_000))


@pytest.mark.parametrize("sends", ["nothing more", "all the time", "the end at once"])
@pytest.mark.parametrize("how", ["time-out", "cancel"])
def a_copy_that_is_stopped_writes_nothing(server, how, sends):
    """Whether the server waits for the client, for its own work or for the commit."""
    source = random.Random(f"{how} {sends}")
    rows = _copy_data(b"".join(b"%d\tname %d\n" % (n, source.getrandbits(64)) for n in range(200_000)))
    some = _copy_data(b"1\tone\n")
    whole = 0
    with server.raw() as wire, server.raw() as other:
        other.rows("create table stopped_copy (id bigint, name text)")
        for _ in range(4):
            seconds = source.uniform(0.01, 0.4)
            if how == "time-out":
                wire.rows(f"set statement_timeout = '{int(seconds * 1000)}ms'")
            began = time.monotonic()
            wire.send(query("copy stopped_copy from stdin"))
            assert wire.next()[0] == b"G"
            wire.send(some if sends == "nothing more" else rows)
            if sends == "the end at once":
                wire.send(frames.frame(b"c"))
            if how == "cancel":
                time.sleep(seconds)
                wire.cancel()
            elif sends == "all the time":
                while time.monotonic() - began < seconds + 0.1:
                    wire.send(some * 1000)
            found = wire.until_ready()
            took = time.monotonic() - began
            is_whole, is_unknown = kinds(found) == "CZ", _codes(found) == ["40003"]
            whole += is_whole
            assert is_whole or is_unknown or _codes(found) == ["57014"], found
            # Whose end has come may be done before it is stopped, or its commit sent.
            assert not (is_whole or is_unknown) or sends == "the end at once"
            assert took < seconds + support.FREE_S + 1, f"{took:.2f} s"
            # What was sent before the client heard of it is nobody's.
            wire.send(some, frames.frame(b"c"))
            wire.rows("reset statement_timeout")
            if is_unknown:
                # A look says so, once what was sent is over.
                server.free()
                whole += wire.rows("select count(*) from stopped_copy") == [[str(200_000 * (whole + 1))]]
            assert wire.rows("select count(*) from stopped_copy") == [[str(200_000 * whole)]]
        other.rows("drop table stopped_copy")


def a_copy_that_is_stopped_ends_its_transaction(server):
    with server.raw() as wire:
        wire.rows("create table stopped_copy (id bigint)")
        wire.rows("begin")
        wire.rows("insert into stopped_copy values (1)")
        wire.rows("set statement_timeout = '100ms'")
        wire.send(query("copy stopped_copy from stdin"))
        assert _codes(wire.until_ready()) == ["57014"]
        assert _codes(wire.ask(query("select 1"))) == ["25P02"]
        wire.rows("rollback")
        wire.rows("reset statement_timeout")
        # By the extended protocol, too.
        wire.rows("set statement_timeout = '100ms'")
        wire.send(parse("copy stopped_copy from stdin"), bind(), execute(), frames.FLUSH)
        found = [wire.next()]
        while found[-1][0] != b"E":
            found.append(wire.next())
        assert _codes(found) == ["57014"]
        assert kinds(wire.ask(frames.SYNC)) == "Z"
        wire.rows("reset statement_timeout")
        assert wire.rows("select count(*) from stopped_copy") == [["0"]]
        wire.rows("drop table stopped_copy")


def a_socket_closed_during_a_copy_takes_it_along(server):
    source = random.Random(20261126)
    rows = _copy_data(b"".join(b"%d\n" % n for n in range(500_000)))
    with server.raw() as other:
        other.rows("create table closed_copy (id bigint)")
        for _ in range(4):
            wire = server.raw()
            wire.send(query("copy closed_copy from stdin"))
            assert wire.next()[0] == b"G"
            wire.send(rows)
            time.sleep(source.uniform(0, 0.1))
            wire.close()
            support.within(support.FREE_S + 1, lambda: not server.running(), "it is listed no more")
        assert other.rows("select count(*) from closed_copy") == [["0"]]
        other.rows("drop table closed_copy")


def kill_query_stops_a_statement_by_its_number(server):
    with server.raw() as wire, server.raw() as other:
        wire.send(query(support.LONG))
        server.runs()
        number = other.rows("select id from system.running where state = 'computing' order by started limit 1")[0][0]
        found = other.ask(query(f"kill query {number}"))
        assert kinds(found) == "CZ"
        assert _codes(wire.until_ready()) == ["57014"]
        assert _codes(other.ask(query(f"kill query {number}"))) == ["42704"]
        assert _codes(other.ask(query("kill query all"))) == ["42601"]


def others_statements_are_stopped_by_admins_alone(fresh, tmp_path):
    passwords = {}
    lake = tmp_path / "lake"
    for name, role in (("boss", "admin"), ("ann", "reader"), ("bob", "reader")):
        made = [support.binary(), "user", "add", name, "--role", role, "--generate", "--lake", str(lake)]
        passwords[name] = subprocess.run(made, capture_output=True, text=True, check=True).stdout.strip()
    psycopg = support.module("psycopg", "psycopg")
    server = fresh()

    def connect(name):
        words = server.words | {"user": name, "password": passwords[name], "dbname": "lake", "autocommit": True}
        return psycopg.connect(**words)

    with connect("ann") as ann, connect("bob") as bob, connect("boss") as boss, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        pid = ann.execute("select pg_backend_pid()").fetchone()[0]
        asked = pool.submit(ann.execute, "select count(*) from numbers a, numbers b, numbers c where a.id + b.id + c.id = -1")
        look = "select id from system.running where role = 'ann' and state = 'computing'"
        support.within(10, lambda: boss.execute(look).fetchall(), "it runs")
        number = boss.execute(look).fetchone()[0]
        for statement in (f"select pg_cancel_backend({pid})", f"select pg_terminate_backend({pid})"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                bob.execute(statement)
        with pytest.raises(psycopg.errors.UndefinedObject):
            bob.execute(f"kill query {number}")
        assert not asked.done()
        assert boss.execute(f"select pg_cancel_backend({pid})").fetchone() == (True,)
        with pytest.raises(psycopg.errors.QueryCanceled):
            asked.result(20)


def a_client_that_is_frozen_holds_no_slot_and_no_memory(server):
    words = {"folder": os.path.dirname(frames.__file__), "host": server.pg[0], "port": server.pg[1], "sql": support.WIDE}
    client = subprocess.Popen([sys.executable, "-B", "-c", FROZEN.format(**words)], stdout=subprocess.PIPE, text=True)
    try:
        assert client.stdout.readline() == "T\n"
        client.send_signal(signal.SIGSTOP)
        held = ("uplake_queries_running", 'uplake_memory_bytes{kind="queries"}', "uplake_storage_reads")
        support.within(30, lambda: not any(server.residue().get(name) for name in held), "its slot is free")
        assert json.loads(server.ask("GET", "/queries")[2])["running"][0]["state"] == "sending"
        with server.raw() as other:
            assert other.rows("select count(*) from people") == [["4"]]
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    # The kernel tells of the end of a process, and the rest goes with it.
    server.free(5)
