#!/usr/bin/env python3
"""Clients that connect, ask, cancel and vanish, for as long as it is told; then nothing may be left.

    tests/wire/soak.py --seconds 3600 [--clients 200] [--seed 1]

Each client draws what it does next from a seeded source and knows the answer. Every 5 s the server's memory and open
files are looked at, and 20 times all clients rest between two connections, so that what is allocated is what the server
keeps. Texts, their values and tables are drawn from some hundreds, so that what it keeps of plans, tables and columns is
there after a warm-up of a fifth of the time, as are its lists of the last 10,000 statements and, because 10,000 clients
come before all, of who came; it has so little memory that its cache of footers is full, too, and all clients begin at once
each second, so that it has the threads that they ever need at once. From then on resident memory
may not grow by more than 5 % and 16 MiB to the end, and what is kept, caches aside, by more than 2 % and 6 MiB from the
least of the first third to that of the last: until the rows of `system.queries` are put in order it goes up by 4. At the end
no statement, slot, spool byte, spilled file or socket may be left. Figures go to standard output as JSON. The server's
allocator gives back at once what was freed: what it keeps for later is no measure of what the server holds.

UPLAKE_BIN names the binary.
"""

import argparse
import concurrent.futures
import http.client
import itertools
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections import Counter

import frames
import support
from frames import bind, errors, execute, parse, query

LOOK_EVERY_S = 5
RESTS = 20
REST_WITHIN_S = 120
BURST_EVERY_S = 1
LOGINS = 10_000
# Footers of files take at most a 32nd of it.
MEMORY = ("--memory", "256M")
WARM_UP = 5
GIVES_BACK = {"_RJEM_MALLOC_CONF": "thp:never,dirty_decay_ms:0"}
# Each takes about 100 ms, or is stopped before.
WIDE_ROWS = 60_000
WIDE = f"select x, repeat('abcdefghij', 20) as filler from generate_series(1, {WIDE_ROWS}) g(x)"
ENDLESS = support.LONG


class Wrong(Exception):
    """An answer that is not the known one."""


class Rest:
    """Has all clients wait between two of their connections."""

    def __init__(self, clients):
        self.changed, self.clients, self.resting, self.is_wanted = threading.Condition(), clients, 0, False

    def take(self):
        with self.changed:
            if self.is_wanted:
                self.resting += 1
                self.changed.notify_all()
                self.changed.wait_for(lambda: not self.is_wanted)
                self.resting -= 1

    def leave(self):
        with self.changed:
            self.clients -= 1
            self.changed.notify_all()

    def begin(self):
        with self.changed:
            self.is_wanted = True
            if not self.changed.wait_for(lambda: self.resting == self.clients, REST_WITHIN_S):
                raise Wrong(f"{self.clients - self.resting} clients do not rest")

    def end(self):
        with self.changed:
            self.is_wanted = False
            self.changed.notify_all()


def _check(found, expected, what):
    if found != expected:
        raise Wrong(f"{what}: {found!r}, not {expected!r}")


# What a client does with its connection: small statements of which the answer is known.


def _counts(wire, source):
    digit = source.randrange(10)
    _check(wire.rows(f"select count(*) from numbers where digit = {digit}"), [["1000"]], "count")


def _finds(wire, source):
    number = 20 * source.randint(1, 500)
    found = wire.ask(parse("select name from numbers where id = $1", "", [20]), bind("", "", [b"%d" % number]), execute(), frames.SYNC)
    _check([frames.values_of(body) for kind, body in found if kind == b"D"], [[b"n%d" % number]], "find")


def _groups(wire, source):
    below = 100 * source.randint(1, 100)
    found = wire.rows(f"select digit, count(*) from numbers where id <= {below} group by digit order by digit")
    _check([int(count) for _, count in found], [len(range(digit or 10, below + 1, 10)) for digit in range(10)], "groups")


def _cursor(wire, source):
    wire.rows("begin; declare c cursor for select id from numbers order by id")
    for _ in range(source.randint(1, 4)):
        _check(len(wire.rows("fetch 100 from c")), 100, "fetch")
    wire.rows(source.choice(["commit", "rollback"]))


def _fails(wire, source):
    text, code = source.choice([("selct 1", "42601"), ("select 1 / (id - id) from numbers", "22012"), ("select * from nowhere", "42P01")])
    _check([e["C"] for e in errors(wire.ask(query(text)))], [code], text)


def _copies(wire, _):
    found = wire.ask(query("copy (select id from numbers where digit = 7) to stdout"))
    lines = b"".join(body for kind, body in found if kind == b"d").count(b"\n")
    _check(lines, 1000, "copy")


def _times_out(wire, source):
    wire.rows(f"set statement_timeout = {source.randint(1, 50)}")
    found = wire.ask(query(ENDLESS))
    wire.rows("reset statement_timeout")
    _check([e["C"] for e in errors(found)], ["57014"], "time-out")


def _cancels(wire, source):
    wire.send(query(ENDLESS))
    time.sleep(source.random() / 10)
    codes = []
    # A cancel that is there before its statement stops nothing, as in Postgres.
    while not codes:
        wire.cancel()
        wire.socket.settimeout(1)
        try:
            codes = [e["C"] for e in errors(wire.until_ready())]
        except TimeoutError:
            continue
    wire.socket.settimeout(60)
    _check(codes, ["57014"], "cancel")


def _writes(wire, source):
    # Its thread's, as which it writes alone: few enough to have been there before the looks that count.
    name, rows = f"soak_{threading.current_thread().name.rpartition('_')[2]}", 100 * source.randint(1, 10)
    wire.rows(f"create table {name} as select x from generate_series(1, {rows}) g(x)")
    _check(wire.rows(f"select count(*), sum(x) from {name}"), [[str(rows), str(rows * (rows + 1) // 2)]], "written")
    wire.rows(f"drop table {name}")


# And what ends its connection.


def _reads_slowly(server, source):
    with server.raw(receive_buffer=65536, timeout=60) as wire:
        wire.send(query(WIDE))
        wire.next()
        time.sleep(source.random() * 2)
        rows = sum(kind == b"D" for kind, _ in wire.until_ready())
        _check(rows, WIDE_ROWS, "slow reader")


def _vanishes(server, source):
    wire = server.raw(receive_buffer=65536, timeout=60)
    wire.send(*source.choice([[query(ENDLESS)], [query(WIDE)], [parse(ENDLESS), bind(), execute(), frames.SYNC], [query("select 1")[:7]]]))
    time.sleep(source.random() / 5)
    if source.randrange(2):
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


def _asks_by_http(server, source):
    call = http.client.HTTPConnection(*server.http, timeout=60)
    call.request("POST", "/sql?format=csv", WIDE.encode())
    answer = call.getresponse()
    if source.randrange(3) == 0:
        answer.read(1000)
        call.close()
        return
    rows = answer.read().count(b"\n") - 1
    call.close()
    _check(rows, WIDE_ROWS, "csv")


ASKS = [(_counts, 30), (_finds, 30), (_groups, 15), (_cursor, 8), (_fails, 5), (_copies, 5), (_times_out, 2), (_cancels, 4), (_writes, 1)]
ENDS = [(_vanishes, 6), (_reads_slowly, 1), (_asks_by_http, 3)]


def _drawn(source, choices):
    return source.choices([what for what, _ in choices], [weight for _, weight in choices])[0]


def _client(server, seed, until, done, rest):
    try:
        _connects(server, seed, until, done, rest)
    finally:
        rest.leave()


def _connects(server, seed, until, done, rest):
    source = random.Random(seed)
    while time.monotonic() < until:
        rest.take()
        try:
            if source.randrange(10) == 0:
                what = _drawn(source, ENDS)
                what(server, source)
                done[what.__name__[1:]] += 1
                continue
            with server.raw(timeout=60) as wire:
                for _ in range(source.randint(1, 20)):
                    what = _drawn(source, ASKS)
                    what(wire, source)
                    done[what.__name__[1:]] += 1
                if source.randrange(2):
                    wire.send(frames.TERMINATE)
        except (frames.Closed, ConnectionError, TimeoutError, RuntimeError) as error:
            raise Wrong(f"{what.__name__}: {error!r}") from error
        time.sleep(source.random() / 20)


def held_by(server):
    """(bytes of memory, open files) of the server's process."""
    process = pathlib.Path(f"/proc/{server.process.pid}")
    status = (process / "status").read_text().splitlines()
    resident = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))
    return resident, len(os.listdir(process / "fd"))


def kept_by(server):
    """Bytes that the server has in use though nothing runs, beside its caches in memory, which have a limit; and those."""
    server.free(30)
    values = dict(line.rsplit(" ", 1) for line in server.ask("GET", "/metrics")[2].decode().splitlines())
    cached = {name: int(value) for name, value in values.items() if name.startswith("uplake_cached_bytes{")}
    cached.pop('uplake_cached_bytes{tier="disk"}', None)
    assert 'uplake_cached_bytes{tier="footers"}' in cached, cached
    return int(values["process_allocated_memory_bytes"]) - sum(cached.values()), cached


def log_in(server):
    """So many clients come and go that the server's list of who came is full."""

    def comes(_):
        with server.raw() as wire:
            wire.send(frames.TERMINATE)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(comes, range(LOGINS)))


def slope(points):
    """The median of the slopes of all pairs (Theil and Sen), for which a look beside a compaction counts little."""
    pairs = itertools.combinations(points, 2)
    return statistics.median([(later - y) / (at - x) for (x, y), (at, later) in pairs if at > x] or [0])


def run(server, seconds, clients, seed):
    """The figures; Wrong if an answer was wrong, AssertionError if something is left."""
    with server.raw() as first:
        first.rows("select count(*) from numbers")
    _, files_before = held_by(server)
    began, looks, kept, done = time.monotonic(), [], [], Counter()
    until = began + seconds
    stop, rest = threading.Event(), Rest(clients)

    def look():
        while not stop.wait(min(LOOK_EVERY_S, seconds / 10)):
            looks.append((time.monotonic() - began, *held_by(server)))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            counts = [Counter() for _ in range(clients)]
            asked = [pool.submit(_client, server, f"{seed} {n}", until, counts[n], rest) for n in range(clients)]
            try:
                for number in range(1, RESTS):
                    at = began + seconds * number / RESTS
                    while number <= RESTS // WARM_UP and time.monotonic() < at - 2 * BURST_EVERY_S:
                        rest.begin()
                        rest.end()
                        time.sleep(BURST_EVERY_S)
                    time.sleep(max(0, at - time.monotonic()))
                    rest.begin()
                    kept.append((time.monotonic() - began, *kept_by(server)))
                    rest.end()
            finally:
                rest.end()
            for one in concurrent.futures.as_completed(asked):
                one.result()
    finally:
        stop.set()
        watcher.join()
    for count in counts:
        done += count
    freed_s = server.free(30)
    _, files = held_by(server)
    warm = [look for look in looks if look[0] > seconds / WARM_UP]
    kept.append((time.monotonic() - began, *kept_by(server)))
    mib = 1 << 20
    grows = slope([(at, resident / mib) for at, resident, _ in warm])
    warm_kept = [(at, bytes_ / mib) for at, bytes_, _ in kept if at > seconds / WARM_UP]
    third, rest_of_it = len(warm_kept) // 3 or 1, seconds * (1 - 1 / WARM_UP)
    least = [min(bytes_ for _, bytes_ in part) for part in (warm_kept[:third], warm_kept[-third:])]
    return {
        "seconds": round(time.monotonic() - began), "clients": clients, "seed": seed, "statements": sum(done.values()),
        "done": dict(sorted(done.items())), "resident_mib_warm": warm[0][1] >> 20, "resident_mib_end": warm[-1][1] >> 20,
        "resident_mib_per_hour": round(grows * 3600, 1), "grown_mib": round(grows * rest_of_it, 1),
        "kept_mib": [round(bytes_ / mib, 1) for _, bytes_, _ in kept],
        "cached_mib": {name[len('uplake_cached_bytes{tier="') : -2]: [round(cached[name] / mib, 1) for _, _, cached in kept] for name in kept[0][2]},
        "kept_grown_mib": round(least[1] - least[0], 1),
        "open_files": {"before": files_before, "most": max(look[2] for look in looks), "after": files}, "freed_s": round(freed_s, 3),
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=3600)
    arguments.add_argument("--clients", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    asked = arguments.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="uplake-soak-"))
    server = support.Server(folder, support.make_lake(folder), *MEMORY, env={"UPLAKE_CACHE": str(folder / "cache"), **GIVES_BACK})
    log_in(server)
    figures = run(server, asked.seconds, asked.clients, asked.seed)
    print(json.dumps(figures, indent=1))
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)
    most = 16 + figures["resident_mib_warm"] / 20
    assert figures["grown_mib"] < most, f"memory grows: {figures['grown_mib']} MiB, more than {most:.0f}"
    most = 6 + figures["kept_mib"][RESTS // WARM_UP] / 50
    assert figures["kept_grown_mib"] < most, f"what is kept grows: {figures['kept_grown_mib']} MiB, more than {most:.0f}"
    assert figures["open_files"]["after"] <= figures["open_files"]["before"] + 2, "open files are left"


if __name__ == "__main__":
    sys.exit(main())
