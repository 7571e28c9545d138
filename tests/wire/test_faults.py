"""What goes wrong between a client and the server: after each, no slot is held and others are served."""

import concurrent.futures
import contextlib
import http.client
import json
import random
import socket
import struct
import subprocess
import time

import frames
import pytest
import support
from frames import bind, errors, execute, kinds, parse, query


def _serves(server):
    with server.raw() as other:
        assert other.rows("select count(*) from people") == [["4"]]


@pytest.mark.parametrize("how", ["simple", "extended", "reset"])
def a_closed_socket_frees_the_slot(server, how):
    support.only_uplake("Postgres looks at its sockets only if told")
    wire = server.raw()
    if how == "extended":
        wire.send(parse(support.LONG), bind(), execute(), frames.SYNC)
    else:
        wire.send(query(support.LONG))
    server.runs()
    if how == "reset":
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()
    assert server.free() < support.FREE_S
    _serves(server)


def a_client_that_shuts_its_side_frees_the_slot(server):
    support.only_uplake("Postgres looks at its sockets only if told")
    with server.raw() as wire:
        wire.send(query(support.LONG))
        server.runs()
        wire.socket.shutdown(socket.SHUT_WR)
        server.free()


def frames_that_wait_behind_a_statement_do_not_hide_a_closed_socket(server):
    support.only_uplake("Postgres looks at its sockets only if told")
    wire = server.raw()
    wire.send(query(support.LONG), query("select 1"), query("select 2"))
    server.runs()
    time.sleep(0.2)
    wire.close()
    server.free()


def a_socket_closed_while_rows_are_sent(server):
    wire = server.raw(receive_buffer=65536)
    wire.send(query(support.WIDE))
    assert wire.next()[0] == b"T" and wire.next()[0] == b"D"
    wire.close()
    server.free(5)


def cancel_frees_the_slot(server):
    with server.raw() as wire:
        for _ in range(5):
            wire.send(query(support.LONG))
            server.runs()
            wire.cancel()
            assert [e["C"] for e in errors(wire.until_ready())] == ["57014"]
            server.free()
        assert wire.rows("select 1 as a") == [["1"]]


def cancel_by_a_wrong_key_does_nothing(server):
    with server.raw() as wire:
        wire.send(query(support.LONG))
        server.runs()
        wire.cancel(wire.key[:4] + bytes(b ^ 0xFF for b in wire.key[4:]))
        wire.cancel(b"\0" * 8)
        time.sleep(0.2)
        assert server.running()
        wire.cancel()
        assert [e["C"] for e in errors(wire.until_ready())] == ["57014"]


def cancel_while_rows_are_sent(server):
    with server.raw(receive_buffer=65536) as wire:
        wire.send(query(support.WIDE))
        assert wire.next()[0] == b"T"
        wire.cancel()
        found = wire.until_ready()
        # The rows that were on their way come first, or all of them.
        assert kinds(found[-2:]) in ("EZ", "CZ")
        assert wire.rows("select 1 as a") == [["1"]]


def a_reader_that_reads_nothing_holds_no_slot_and_gets_all_rows(server):
    support.only_uplake("Postgres computes as its client reads")
    with server.raw(receive_buffer=65536, timeout=120) as wire:
        began = time.monotonic()
        wire.send(query(support.WIDE))
        held = ("uplake_queries_running", 'uplake_memory_bytes{kind="queries"}')

        def free():
            left = server.residue()
            # Its rows wait in the spool, and in nothing else.
            return left.get("uplake_spool_bytes") and not any(left.get(name) for name in held)

        # A second beyond the time that the rows take to be made.
        support.within(30, free, "the slot is free though nobody reads")
        print(f"the slot was free after {time.monotonic() - began:.2f} s")
        _serves(server)
        rows = total = 0
        last = 0
        while True:
            kind, body = wire.next()
            if kind == b"D":
                number, filler = frames.values_of(body)
                rows, total = rows + 1, total + len(filler)
                assert int(number) == last + 1
                last = int(number)
            elif kind == b"Z":
                break
            else:
                assert kind in b"TC", frames.fields_of(body)
        assert (rows, total) == (support.WIDE_ROWS, 200 * support.WIDE_ROWS)
    server.free(5)


def half_a_frame_waits_and_its_rest_is_understood(server):
    whole = query("select 1 as a")
    for cut in (1, 3, 5, len(whole) - 1):
        with server.raw() as wire:
            wire.send(whole[:cut])
            time.sleep(0.05)
            wire.send(whole[cut:])
            assert kinds(wire.until_ready()) == "TDCZ"
    _serves(server)


def half_a_frame_and_then_nothing_holds_nothing(server):
    for part in (query("select 1 as a")[:7], b"Q", parse("select 1")[:9], frames.frame(b"d", b"x")[:6]):
        wire = server.raw()
        wire.send(part)
        wire.close()
    _serves(server)


@pytest.mark.parametrize(
    "bytes_of",
    [
        lambda r: b"GET / HTTP/1.1\r\n\r\n", lambda r: b"\0\0\0\0", lambda r: b"\xff\xff\xff\xff" * 4,
        lambda r: b"\x7f\xff\xff\xff\0\3\0\0", lambda r: struct.pack("!ii", 8, 196_608),
        lambda r: struct.pack("!ii", 12, 196_608) + b"user", lambda r: r.randbytes(64),
        lambda r: struct.pack("!ii", 16, frames.CANCEL) + b"12345678", lambda r: struct.pack("!ii", 8, frames.CANCEL),
        lambda r: struct.pack("!ii", 10_004, 196_608) + b"x" * 9_996,
        lambda r: struct.pack("!ii", 9, 131_072) + b"\0",
    ],
    ids=["http", "zeros", "ones", "2 GiB", "no words", "half a word", "random", "a cancel of nobody",
         "a short cancel", "too long", "version 2"],
)
def garbage_before_login_is_closed(server, bytes_of):
    with server.raw(login=False) as wire:
        wire.send(bytes_of(random.Random(1)))
        # An error, or a close without a word: never an answer, never a wait.
        wire.socket.settimeout(15)
        try:
            while wire.socket.recv(65536):
                pass
        except ConnectionError:
            pass
    _serves(server)


@pytest.mark.parametrize(
    "part",
    [
        b"\0\0\0\0\0", b"Q\0\0\0\0", b"Q\0\0\0\3", b"Q\x7f\xff\xff\xff", b"?\0\0\0\4", b"Q\0\0\0\5x",
        b"P\0\0\0\6a\0", b"B\0\0\0\4", b"B\0\0\0\x0a\0\0\xff\xff\0\0", b"E\0\0\0\5x", b"D\0\0\0\6?\0",
        b"C\0\0\0\6?\0", b"B\0\0\0\x0c\0\0\0\0\x7f\xff\0\0",
    ],
)
def garbage_after_login_is_refused(server, part):
    """Answered by 08P01 and a close, or skipped to Sync: what follows is never taken for something else."""
    with server.raw(timeout=5) as wire:
        try:
            wire.send(part, frames.SYNC)
            found = []
            while not found or found[-1][0] not in (b"Z",):
                found.append(wire.next())
            assert errors(found), kinds(found)
        except (frames.Closed, ConnectionError, TimeoutError):
            pass
    _serves(server)


def two_hundred_connect_at_once(server):
    def ask(n):
        with server.raw() as wire:
            return wire.rows(f"select count(*) from numbers where digit = {n % 10}")[0][0]

    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        assert list(pool.map(ask, range(200))) == ["1000"] * 200


def connections_that_never_log_in_do_not_keep_others_out(server):
    silent = [socket.create_connection(server.pg) for _ in range(150)]
    began = time.monotonic()
    _serves(server)
    assert time.monotonic() - began < 5
    for connection in silent:
        connection.close()


def more_statements_than_slots_wait_their_turn_and_go_with_their_sockets(server):
    support.only_uplake("Postgres has no slots")
    wires = [server.raw() for _ in range(24)]
    for wire in wires:
        wire.send(query(support.LONG))
    support.within(10, lambda: len(server.running()) == 24, "all are listed")
    for wire in wires:
        wire.close()
    server.free(3)
    _serves(server)


def copy_in_that_is_cut_writes_nothing(server):
    with server.raw() as wire:
        wire.rows("create table cut_copy (id bigint)")
        other = server.raw()
        other.send(query("copy cut_copy from stdin"))
        assert other.next()[0] == b"G"
        other.send(frames.frame(b"d", b"1\n2\n"))
        time.sleep(0.1)
        other.close()
        server.free(5)
        assert wire.rows("select count(*) from cut_copy") == [["0"]]
        wire.rows("drop table cut_copy")


ROWS = 100_000


def _count(server, table):
    return server.sql(f"select count(*) as n from {table}")[0]["n"]


def _kill(server, seconds=0):
    """Kills the server after so long, whatever it is at."""
    time.sleep(seconds)
    server.process.kill()
    server.process.wait()


def _files(lake, table):
    return sum(1 for _ in (lake / table).rglob("*.parquet"))


@pytest.mark.parametrize("how", ["copy", "copy in a transaction", "load"])
def a_server_killed_while_rows_come_has_all_of_them_or_none(fresh, tmp_path, how):
    """And what it left is garbage that a vacuum removes."""
    support.only_uplake("it is about what is left on the disk")
    source = random.Random(20261126)
    rows = "".join(f"{n}\t{source.random()}\n" for n in range(ROWS)).encode()
    csv = b"id,x\n" + rows.replace(b"\t", b",")
    server = fresh()
    server.ask("POST", "/sql", b"create table killed (id bigint, x double precision)")
    ends = {0: 0, ROWS: 0}

    def write(attempt):
        if how == "load":
            return server.ask("POST", f"/load/killed?label=l{attempt}", csv)
        with server.raw() as wire:
            if how != "copy":
                wire.rows("begin")
            wire.send(query("copy killed from stdin"))
            wire.next()
            for at in range(0, len(rows), 1 << 16):
                wire.send(frames.frame(b"d", rows[at : at + (1 << 16)]))
            wire.send(frames.frame(b"c"))
            wire.until_ready()
            if how != "copy":
                wire.rows("commit")

    # Before the rows, among them, about when they are committed, and after the answer.
    for attempt, seconds in enumerate([0.0, 0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, None]):
        before = _count(server, "killed")
        if seconds is None:
            write(attempt)
            _kill(server)
        else:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                killed = pool.submit(_kill, server, seconds)
                with contextlib.suppress(OSError, http.client.HTTPException, frames.Closed):
                    write(attempt)
                killed.result()
        server = fresh()
        came = _count(server, "killed") - before
        ends[came] += 1
        assert came == ROWS or seconds is not None, "it had answered"
        if how == "load":
            # Who sends it again has it once.
            again = json.loads(server.ask("POST", f"/load/killed?label=l{attempt}", csv)[2])
            assert again["already_loaded"] is (came == ROWS)
            assert _count(server, "killed") - before == ROWS
    print(f"none of the rows, and all: {ends}")
    total = _count(server, "killed")
    lake = tmp_path / "lake"
    command = [support.binary(), "table", "vacuum", "killed", "--lake", lake, "--retain", "0m"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert _count(server, "killed") == total
    files = {found["table_name"]: found["files"] for found in server.sql("show tables")}
    assert _files(lake, "killed") == files["killed"]


def a_transaction_that_is_lost_leaves_no_files(server):
    support.only_uplake("it is about what is left on the disk")
    lake = server.folder / "lake"
    with server.raw() as wire:
        wire.rows("create table lost_files (id bigint)")
        other = server.raw()
        other.rows("begin")
        other.rows("insert into lost_files select x from generate_series(1, 100000) g(x)")
        assert other.rows("select count(*) from lost_files") == [["100000"]]
        assert _files(lake, "lost_files") > 0
        other.close()
        support.within(10, lambda: _files(lake, "lost_files") == 0, "its files are gone")
        assert wire.rows("select count(*) from lost_files") == [["0"]]
        wire.rows("drop table lost_files")
