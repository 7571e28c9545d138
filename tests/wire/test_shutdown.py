"""SIGTERM: what runs ends, nobody new comes in, the exit code is 0."""

import concurrent.futures
import http.client
import signal
import socket
import subprocess
import time

import frames
import pytest
import support

# A second or several, and rows all the while.
SOME_SECONDS = "select count(*) from generate_series(1, 3000000) a(x), generate_series(1, 100) b(y) where x + y = -1"


def _refuses(address):
    try:
        with frames.Connection(address, user=support.USER, timeout=3):
            return False
    except (OSError, frames.Closed):
        return True


def an_idle_server_ends_at_once(fresh):
    server = fresh()
    wires = [server.raw() for _ in range(10)]
    began = time.monotonic()
    server.terminate()
    assert server.ends() == 0
    assert time.monotonic() - began < support.FREE_S, "idle connections hold it"
    assert [[e["C"] for e in frames.errors([wire.next()])] for wire in wires] == [["57P01"]] * 10
    for wire in wires:
        wire.close()


def connections_that_say_nothing_do_not_hold_the_end(fresh):
    """In a transaction with a cursor, half a message, a login, a request."""
    server = fresh()
    half, cursor = server.raw(), server.raw()
    half.send(frames.query("select 1")[:7])
    cursor.rows("begin; declare c cursor for select id from numbers")
    assert len(cursor.rows("fetch 5 from c")) == 5
    silent = [socket.create_connection(address) for address in (server.pg, server.http) for _ in range(3)]
    silent[0].sendall(frames.startup()[:9])
    silent[5].sendall(b"GET /health HT")
    kept = http.client.HTTPConnection(*server.http)
    kept.request("GET", "/health")
    assert kept.getresponse().read() == b"ok\n"
    began = time.monotonic()
    server.terminate()
    assert server.ends() == 0
    assert time.monotonic() - began < support.FREE_S
    for one in (*silent, half, cursor, kept):
        one.close()


def statements_that_run_end_and_new_connections_are_refused(fresh):
    # A build that is not optimized takes longer than the usual 30 s.
    server = fresh("--drain", "2m")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wires = [server.raw(timeout=60) for _ in range(3)]
        asked = [pool.submit(wire.rows, SOME_SECONDS) for wire in wires]
        support.within(10, lambda: len(server.running()) == 3, "all run")
        server.terminate()
        support.within(5, lambda: _refuses(server.pg), "new connections are refused")
        assert [a.result(60) for a in asked] == [[["0"]]] * 3
    assert server.ends() == 0
    with pytest.raises(OSError):
        socket.create_connection(server.http, timeout=2)


def rows_on_their_way_arrive(fresh):
    server = fresh()
    with server.raw(timeout=60) as wire:
        wire.send(frames.query(support.WIDE))
        assert wire.next()[0] == b"T"
        server.terminate()
        found = wire.until_ready()
    rows = sum(kind == b"D" for kind, _ in found)
    assert rows == support.WIDE_ROWS, (rows, frames.errors(found))
    assert server.ends() == 0


def http_answers_on_their_way_arrive(fresh):
    server = fresh()
    call = http.client.HTTPConnection(*server.http, timeout=60)
    call.request("POST", "/sql?format=csv", support.WIDE.encode())
    answer = call.getresponse()
    server.terminate()
    assert answer.read().count(b"\n") == support.WIDE_ROWS + 1
    assert server.ends() == 0


def _codes_to_the_end(wire):
    """Codes of all errors until the server closes the connection."""
    codes = []
    try:
        while True:
            kind, body = wire.next()
            if kind == b"E":
                codes.append(frames.fields_of(body)["C"])
    except (frames.Closed, ConnectionError):
        return codes


def a_statement_without_end_is_told_when_the_drain_is_over(fresh):
    server = fresh("--drain", "2s")
    with server.raw(timeout=60) as wire, server.raw(receive_buffer=65536, timeout=60) as slow:
        # One computes, one has a client that does not read, one is behind another in its connection.
        slow.send(frames.query(support.WIDE))
        assert slow.next()[0] == b"T"
        wire.send(frames.query(support.LONG), frames.query("select 1 as a"))
        support.within(10, lambda: len(server.running()) == 2, "both run")
        began = time.monotonic()
        server.terminate()
        assert set(_codes_to_the_end(wire)) == {"57P01"}
        assert 1.5 < time.monotonic() - began < 2 + support.FREE_S
        assert server.ends(10) == 0
        assert _codes_to_the_end(slow)[-1:] in (["57P01"], [])
    assert "2 statements were stopped" in server.said() or "1 statements were stopped" in server.said()


def a_load_that_does_not_end_writes_nothing(fresh, tmp_path):
    server = fresh("--drain", "1s")
    with server.raw(timeout=60) as wire:
        wire.send(frames.query(f"create table late as {support.WIDE.replace('1000000', '1000000000')}"))
        server.runs()
        server.terminate()
        assert "57P01" in _codes_to_the_end(wire)
    assert server.ends(10) == 0
    left = [p for p in (tmp_path / "lake").rglob("*") if "late" in str(p) and p.is_file() and p.suffix != ".lock"]
    assert not left, left


def a_second_signal_does_not_wait(fresh):
    for first, second, code in ((signal.SIGTERM, signal.SIGTERM, 143), (signal.SIGINT, signal.SIGINT, 130)):
        server = fresh()
        with server.raw(timeout=60) as wire:
            wire.send(frames.query(support.LONG))
            server.runs()
            server.process.send_signal(first)
            support.within(10, lambda: "ending" in server.said(), "it drains")
            began = time.monotonic()
            server.process.send_signal(second)
            assert server.ends(10) == code
            assert time.monotonic() - began < support.FREE_S
        assert server.said().endswith("ended before statements did\n")
        assert not list(server.scratch.iterdir()), "files are left in the folder for spills"


def answers_under_load_are_whole_or_told(fresh):
    """SIGTERM while 24 clients ask without a pause: each gets its answer, or hears 57P01 in its place."""
    server = fresh("--drain", "10s")
    whole = []

    def ask(n):
        with server.raw(timeout=30) as wire:
            while True:
                try:
                    found = wire.ask(frames.query(f"select id, name from numbers where digit = {n % 10} order by id"))
                except (frames.Closed, ConnectionError):
                    return "closed without a word"
                codes = [e["C"] for e in frames.errors(found)]
                if codes:
                    return codes[-1] if frames.kinds(found) == "E" else "an answer is cut"
                assert frames.kinds(found) == "T" + 1000 * "D" + "CZ"
                whole.append(n)

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        asked = [pool.submit(ask, n) for n in range(24)]
        support.within(30, lambda: len(whole) > 24, "answers are whole while nobody ends it")
        began = time.monotonic()
        server.terminate()
        ends = [a.result(60) for a in asked]
    assert set(ends) == {"57P01"}, ends
    assert server.ends() == 0
    assert time.monotonic() - began < 10, "the drain waited for nobody"


def a_lake_that_is_not_there_is_told(tmp_path):
    support.only_uplake("it is about the command")
    command = [support.binary(), "serve", "--lake", str(tmp_path / "file/lake"), "--pg", "127.0.0.1:0"]
    (tmp_path / "file").write_text("not a folder")
    done = subprocess.run([*command, "--http", "127.0.0.1:0"], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and done.stderr.startswith("error: ")


def an_address_that_is_taken_is_told(fresh, tmp_path):
    server = fresh()
    taken = f"{server.pg[0]}:{server.pg[1]}"
    command = [support.binary(), "serve", "--lake", str(tmp_path / "lake"), "--pg", taken, "--http", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and str(server.pg[1]) in done.stderr, done


def other_addresses_than_loopback_need_users(tmp_path):
    support.only_uplake("it is about the command")
    lake = support.make_lake(tmp_path)
    command = [support.binary(), "serve", "--lake", str(lake), "--pg", "0.0.0.0:0", "--http", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and "user" in done.stderr, done
