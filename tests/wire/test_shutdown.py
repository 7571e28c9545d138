"""SIGTERM: what runs ends, nobody new comes in, the exit code is 0."""

import concurrent.futures
import http.client
import socket
import subprocess
import time

import frames
import pytest
import support

# A second or several, and rows all the while.
SOME_SECONDS = "select count(*) from generate_series(1, 3000000) a(x), generate_series(1, 300) b(y) where x + y = -1"


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
    assert time.monotonic() - began < 5, "idle connections hold it"
    for wire in wires:
        wire.close()


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


def a_statement_without_end_is_told_when_the_drain_is_over(fresh):
    server = fresh()
    with server.raw(timeout=60) as wire:
        wire.send(frames.query(support.LONG))
        server.runs()
        server.terminate()
        try:
            found = wire.until_ready()
            assert frames.errors(found)[-1]["C"] in ("57P01", "57014")
        except frames.Closed:
            pytest.fail("the connection ends without a word")
    assert server.ends(60) == 0


def a_second_sigterm_does_not_wait(fresh):
    server = fresh()
    with server.raw(timeout=60) as wire:
        wire.send(frames.query(support.LONG))
        server.runs()
        server.terminate()
        time.sleep(0.3)
        server.terminate()
        assert server.ends(10) in (0, 143, -15)


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
