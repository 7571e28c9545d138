"""Bytes that no client would send, at any point of a conversation, and clients that only connect.

A few seconds of it; UPLAKE_SOAK=1 sends ten million mutated frames.
"""

import concurrent.futures
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import time

import frames
import pytest
import support
from frames import bind, execute, parse, query

SOAK = bool(os.environ.get("UPLAKE_SOAK"))
FUZZ_SECONDS = 3
FUZZ_FRAMES = 10_000_000
SEED = 20261126
# What may be kept of a client that has not logged in.
BEFORE_LOGIN = 64 << 10
IN_LOGIN = 200

MESSAGES = [
    query("select 1 as a"), query("select id, name from people order by id"), query("begin"), query("rollback"),
    parse("select id from people where id = $1", "s", [20]), bind("s", "p", [b"1"], [0], [0]), bind("s", "", [None], [1], [1]),
    frames.describe(b"S", "s"), frames.describe(b"P", "p"), execute("p", 1), execute("", 0), frames.close(b"P", "p"),
    frames.close(b"S", "s"), query("copy people to stdout"), frames.frame(b"d", b"1\tx\n"), frames.frame(b"c"),
    frames.frame(b"f", b"no\0"), frames.FLUSH, frames.frame(b"p", b"SCRAM-SHA-256\0\0\0\0\2n,"), frames.frame(b"F", bytes(8)),
]
COPY_IN = query("copy fuzzed from stdin")
FIRSTS = [
    frames.startup(), struct.pack("!ii", 8, frames.SSL), struct.pack("!ii", 8, 80_877_104),
    struct.pack("!iii", 16, frames.CANCEL, 1) + b"abcd", b"\x16\3\1\2\0\1\0\1\xfc\3\3" + bytes(64),
]

# Connects ten thousand times a second, says nothing, and keeps no connection for long.
FLOOD = """
import socket, sys, time
began, made, kept = time.monotonic(), 0, []
address, seconds = (sys.argv[1], int(sys.argv[2])), float(sys.argv[3])
while (now := time.monotonic() - began) < seconds:
    if made > 10_000 * now:
        time.sleep(0.001)
        continue
    one = socket.socket()
    one.setblocking(False)
    try:
        one.connect_ex(address)
        made += 1
        kept.append(one)
    except OSError:
        pass
    if len(kept) > 400:
        kept.pop(0).close()
print(made)
"""


@pytest.fixture(autouse=True)
def _uplake_alone():
    support.only_uplake("its own limits are looked at")


def _mutated(source, message, is_first=False):
    """The message with some bytes changed, its length right for the most part: what is behind it is looked at then."""
    changed = bytearray(message)
    for _ in range(source.randint(0, 3)):
        at, how = source.randrange(len(changed)), source.randrange(4)
        if how == 0:
            changed[at] = source.randrange(256)
        elif how == 1:
            changed[at] ^= 1 << source.randrange(8)
        elif how == 2:
            del changed[max(at, 1):]
        else:
            changed[at:at] = source.randbytes(source.randint(1, 4))
    at = 0 if is_first else 1
    if source.randrange(16) and len(changed) >= at + 4:
        struct.pack_into("!i", changed, at, len(changed) - at)
    return bytes(changed)


def _speak(address, source):
    """One connection of mutated frames; how many these were."""
    count, sent = 1, []
    if source.randrange(8) == 0:
        sent.append(_mutated(source, source.choice(FIRSTS), is_first=True))
    else:
        sent.append(frames.startup())
        if source.randrange(4) == 0:
            sent.append(COPY_IN)
        for _ in range(source.randint(1, 60)):
            sent += [_mutated(source, source.choice(MESSAGES)), frames.SYNC]
            count += 1
    with socket.socket() as one:
        one.settimeout(10)
        try:
            one.connect(address)
            one.sendall(b"".join(sent))
            if source.randrange(2):
                one.shutdown(socket.SHUT_WR)
                while one.recv(1 << 16):
                    pass
        except TimeoutError:
            raise AssertionError(f"neither answered nor closed: {sent}") from None
        except OSError:
            pass
    return count


def mutated_frames_at_any_point_neither_stop_nor_hold_the_server(fresh):
    server = fresh()
    with server.raw() as wire:
        wire.rows("create table fuzzed (id bigint, name text)")
    files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    until, total = time.monotonic() + FUZZ_SECONDS, 0

    def go_on(seed):
        source, count = random.Random(seed), 0
        while total + 4 * count < FUZZ_FRAMES if SOAK else time.monotonic() < until:
            count += _speak(server.pg, source)
        return count

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(go_on, range(SEED, SEED + 4)))
    print(f"{total} mutated frames")
    server.free(30)
    with server.raw() as wire:
        assert wire.rows("select count(*) from people") == [["4"]]
    said = server.said()
    assert "panicked" not in said, said
    assert len(said) < 2000, f"it fills its log: {said}"
    support.within(10, lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) <= files + 2, "no file or socket is left")


def clients_that_do_not_log_in_hold_little_and_not_many(fresh):
    server = fresh()
    server.raw().close()

    def held():
        with open(f"/proc/{server.process.pid}/status") as status:
            return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) << 10

    before, silent = held(), []
    for _ in range(IN_LOGIN + 60):
        one = socket.create_connection(server.pg)
        one.settimeout(2)
        try:
            # As much of a first message as it may have, but for its end.
            one.sendall(struct.pack("!ii", 10_000, 196_608) + b"x" * 9_900)
        except OSError:
            pass
        silent.append(one)

    def is_closed(one):
        one.setblocking(False)
        try:
            return one.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    support.within(20, lambda: sum(map(is_closed, silent)) >= 60, "there is no room for more of them")
    # What they hold has time to grow.
    time.sleep(0.5)
    grown = held() - before
    assert grown < IN_LOGIN * BEFORE_LOGIN, f"{grown} bytes for {IN_LOGIN} clients"
    closed = sum(map(is_closed, silent))
    assert 60 <= closed < 100, f"{closed} of {len(silent)} were refused"
    for one in silent:
        one.close()

    def serves():
        try:
            with server.raw() as wire:
                return wire.rows("select 1 as a") == [["1"]]
        except (frames.Closed, ConnectionError):
            return False

    support.within(5, serves, "there is room again")


def _milliseconds(wire, seconds):
    """The 50th and the 99th of 100 of what SELECT 1 takes."""
    took, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        assert wire.rows("select 1 as a") == [["1"]]
        took.append(1000 * (time.monotonic() - began))
    cut = statistics.quantiles(took, n=100)
    return cut[49], cut[98]


def a_flood_of_connections_does_not_reach_who_is_served(fresh):
    server = fresh()
    seconds = 20 if SOAK else 2
    with server.raw(timeout=60) as wire:
        _milliseconds(wire, 0.5)
        alone = _milliseconds(wire, seconds)
        words = [sys.executable, "-c", FLOOD, server.pg[0], str(server.pg[1]), str(seconds + 1)]
        flood = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        under = _milliseconds(wire, seconds)
        made = int(flood.communicate(timeout=60)[0])
        print(f"{made / (seconds + 1):.0f} connects a second; p50 and p99 in ms: alone {alone}, meanwhile {under}")
        # The flood and this client share the machine with the server, so the promise is looked at where there is room.
        assert under[1] < (2 * alone[1] + 2 if SOAK and os.cpu_count() >= 4 else 500)
    assert len(server.said()) < 2000, "it fills its log"
    support.within(20, lambda: server.ask("GET", "/health")[0] == 200, "it answers")
