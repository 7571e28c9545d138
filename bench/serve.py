#!/usr/bin/env python3
"""What a connection costs: Uplake's server against Postgres on the same machine, in turns.

    bench/serve.py                     all figures, a few minutes; JSON on standard output
    bench/serve.py --quick             proves the program, gives no figure
    bench/serve.py --only cancel,rows  some of them

Figures, in the order in which they are measured, as medians of rounds in which each server is asked in turn:
    one         SELECT 1 over one connection: p50 and p99 in ms by bare frames (simple, and prepared with its
                values bound) and by psycopg with prepared statements, whose own cost is in it
    connect     a new connection, SELECT 1, its end: ms; no TLS and no password
    login       the same with a password (SCRAM-SHA-256), by libpq: the client's 4,096 rounds are in it
    mix         short statements over 1, 24, 100 and 1,000 connections at once: statements a second, p50 and p95
                in ms, errors. One client, one thread: its cost is in it, for both servers alike
    rows        a million rows of 8 mixed columns: rows and MB a second, as text, binary, COPY, and, of Uplake,
                Arrow and CSV by HTTP. What comes is counted and not looked at
    cancel      from the cancel's first byte to the error's last: p50 and p99 in ms
    closed      from a socket's close to the end of its statement, as the server tells: p50 and p99 in ms

Needs psycopg and the Postgres programs (apt-get install postgresql); without these Uplake stands alone.
UPLAKE names the binary.
"""

import argparse
import http.client
import json
import os
import pathlib
import resource
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# In place of this folder, whose `concurrent` would stand before Python's own.
sys.path[0] = str(ROOT / "tests/wire")
os.environ["UPLAKE_BIN"] = os.environ.get("UPLAKE", str(ROOT / "target/release/uplake"))

import frames
import psycopg
import support

FIGURES = ("one", "connect", "login", "mix", "rows", "cancel", "closed")
ROWS = """
create table mixed as select x as id, (x % 1000)::integer as part, x * 0.25::double precision as amount,
  (x % 100000)::decimal(18,4) as price, 'user-' || x as name, x % 3 = 0 as flag,
  date '2026-01-01' + (x % 365)::integer as day, timestamp '2026-01-01 00:00:00' + interval '1 second' * x as at
from generate_series(1, {rows}) g(x)
"""
# Uplake adds neither whole numbers to dates nor multiplies intervals.
ROWS_OF_UPLAKE = ROWS.replace("date '2026-01-01' + (x % 365)::integer", "(20454 + x % 365)::integer::date").replace(
    "timestamp '2026-01-01 00:00:00' + interval '1 second' * x", "to_timestamp_micros(1767225600000000 + x * 1000000)::timestamp"
)
LOGIN = {"user": "anna", "password": "correct horse battery staple"}
MIX = [
    "select 1 as a", "select count(*) from numbers where digit = 3", "select name from numbers where id = 4711",
    "select digit, count(*), min(id), max(id) from numbers group by digit order by digit",
    "select id, name from numbers where id < 50 order by id", "select avg(id) from numbers where digit in (1, 2)",
]
READY = b"Z\0\0\0\5I"


def ms(seconds):
    return round(seconds * 1000, 4)


def quantiles(times):
    times = sorted(times)
    return {"p50_ms": ms(times[len(times) // 2]), "p99_ms": ms(times[min(len(times) - 1, len(times) * 99 // 100)])}


def timed(work, count, warm=20):
    for _ in range(warm):
        work()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times


def one(server, quick):
    count = 200 if quick else 5000
    found = {}
    with server.raw() as wire:
        found["simple"] = quantiles(timed(lambda: wire.ask(frames.query("select 1 as a")), count))
        wire.ask(frames.parse("select 1 as a", "s"), frames.SYNC)
        asked = frames.bind("s", results=[1]) + frames.execute() + frames.SYNC
        found["prepared"] = quantiles(timed(lambda: wire.ask(asked), count))
        wire.ask(frames.parse("select name from numbers where id = $1", "t", [20]), frames.SYNC)
        asked = frames.bind("t", values=[b"4711"]) + frames.execute() + frames.SYNC
        found["one row by its id, prepared"] = quantiles(timed(lambda: wire.ask(asked), count // 10))
    with psycopg.connect(**server.words, dbname=support.DATABASE, autocommit=True) as connection:
        work = lambda: connection.execute("select 1 as a", prepare=True).fetchone()
        found["psycopg"] = quantiles(timed(work, count))
    return found


def connect(server, quick):
    def work():
        with server.raw() as wire:
            wire.rows("select 1 as a")
            wire.send(frames.TERMINATE)

    return quantiles(timed(work, 50 if quick else 500))


def login(server, quick):
    if isinstance(server, support.Postgres):
        with server.raw() as wire:
            wire.rows(f"drop role if exists {LOGIN['user']}")
            wire.rows(f"create role {LOGIN['user']} login password '{LOGIN['password']}'")
            rules = server.folder / "data/pg_hba.conf"
            rules.write_text(f"host all {LOGIN['user']} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
            wire.rows("select pg_reload_conf()")
        return logins(server, quick)
    # Who has no users has no passwords: another server, of a lake with one.
    with tempfile.TemporaryDirectory(dir=server.folder) as folder:
        command = [support.binary(), "user", "add", LOGIN["user"], "--role", "admin", "--password-file", "-"]
        lake = pathlib.Path(folder, "lake")
        lake.mkdir()
        said = LOGIN["password"] + "\n"
        subprocess.run([*command, "--lake", lake], input=said, text=True, check=True, capture_output=True)
        asks = support.Server(folder, lake)
        try:
            return logins(asks, quick)
        finally:
            asks.stop()


def logins(server, quick):
    words = server.words | LOGIN | {"dbname": support.DATABASE, "sslmode": "disable", "gssencmode": "disable"}

    def refuses():
        try:
            psycopg.connect(**words | {"password": "another"}).close()
            return False
        except psycopg.OperationalError:
            return True

    # Postgres reads its rules anew when it comes to it.
    support.within(10, refuses, "a wrong password is refused")

    def work():
        with psycopg.connect(**words, autocommit=True) as wire:
            wire.execute("select 1 as a").fetchall()

    return quantiles(timed(work, 20 if quick else 300))


def mix_of(server, connections, seconds):
    """Every connection asks its next statement as soon as it has its answer."""
    wires, errors = [], 0
    for _ in range(connections):
        try:
            wires.append(server.raw())
        except (OSError, frames.Closed):
            errors += 1
    chooser = selectors.DefaultSelector()
    state = {}
    for n, wire in enumerate(wires):
        wire.socket.setblocking(False)
        chooser.register(wire.socket, selectors.EVENT_READ, wire)
        state[wire] = [n, time.perf_counter(), b""]
        wire.socket.send(frames.query(MIX[n % len(MIX)]))
    times, began = [], time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        for key, _ in chooser.select(0.5):
            wire = key.data
            part = wire.socket.recv(1 << 16)
            held = state[wire]
            if not part:
                errors += 1
                chooser.unregister(wire.socket)
                continue
            held[2] += part
            if held[2].endswith(READY):
                now = time.perf_counter()
                # The first message of an error is E: its statement has no rows.
                errors += held[2][:1] == b"E"
                times.append(now - held[1])
                held[0], held[1], held[2] = held[0] + 1, now, b""
                wire.socket.send(frames.query(MIX[held[0] % len(MIX)]))
    took = time.perf_counter() - began
    for wire in wires:
        wire.close()
    support.within(60, lambda: not server.running(), "the mix ends")
    if not times:
        return {"errors": errors}
    times.sort()
    return {
        "statements_per_s": round(len(times) / took, 1), "p50_ms": ms(times[len(times) // 2]),
        "p95_ms": ms(times[len(times) * 95 // 100]), "mean_ms": ms(statistics.mean(times)), "errors": errors,
    }


def mix(server, quick):
    sizes = (1, 24, 100) if quick else (1, 24, 100, 1000)
    return {f"{n} connections": mix_of(server, n, 1 if quick else 10) for n in sizes}


def drained(wire):
    """Bytes up to ReadyForQuery, in a buffer that is used again and again."""
    buffer = memoryview(bytearray(1 << 20))
    total, tail = 0, b""
    while not tail.endswith(READY):
        got = wire.socket.recv_into(buffer)
        if not got:
            raise frames.Closed
        total += got
        tail = (tail + bytes(buffer[max(0, got - 6) : got]))[-6:]
    return total


def speed(rows, seconds, total):
    return {"rows_per_s": round(rows / seconds), "mb_per_s": round(total / seconds / 1e6, 1), "bytes": total}


def rows(server, quick):
    count = rows_of(quick)
    found = {}
    sql = "select * from mixed"
    with server.raw(timeout=300) as wire:
        for name, asked in {
            "text": frames.query(sql),
            "binary": frames.parse(sql) + frames.bind(results=[1]) + frames.execute() + frames.SYNC,
            "copy": frames.query("copy (select * from mixed) to stdout"),
        }.items():
            began = time.perf_counter()
            wire.send(asked)
            total = drained(wire)
            found[name] = speed(count, time.perf_counter() - began, total)
    for form in ("arrow", "csv") if server.http else ():
        began = time.perf_counter()
        call = http.client.HTTPConnection(*server.http, timeout=300)
        call.request("POST", f"/sql?format={form}", sql)
        answer = call.getresponse()
        buffer, total = bytearray(1 << 20), 0
        while got := answer.readinto(buffer):
            total += got
        if answer.status != 200:
            raise RuntimeError(bytes(buffer[:1000]))
        found[f"{form} by http"] = speed(count, time.perf_counter() - began, total)
        call.close()
    return found


def cancel(server, quick):
    times = []
    with server.raw() as wire:
        for _ in range(5 if quick else 100):
            wire.send(frames.query(support.LONG))
            server.runs()
            time.sleep(0.02)
            began = time.perf_counter()
            wire.cancel()
            wire.until_ready()
            times.append(time.perf_counter() - began)
    return quantiles(times)


def closed(server, quick):
    times = []
    for _ in range(5 if quick else 100):
        wire = server.raw()
        wire.send(frames.query(support.LONG))
        server.runs()
        time.sleep(0.02)
        began = time.perf_counter()
        wire.close()
        while server.running():
            time.sleep(0.001)
        times.append(time.perf_counter() - began)
    return quantiles(times)


def rows_of(quick):
    return 50_000 if quick else 1_000_000


def middle(rounds):
    """Medians of the numbers of rounds that have one shape."""
    if isinstance(rounds[0], dict):
        return {key: middle([r[key] for r in rounds if key in r]) for key in rounds[0]}
    return statistics.median(rounds)


def servers(folder, quick):
    lake = support.make_lake(folder / "uplake", support.TABLES + ROWS_OF_UPLAKE.format(rows=rows_of(quick)))
    yield "uplake", support.Server(folder / "uplake", lake)
    if support.postgres_programs() is None:
        print("Postgres is not asked: apt-get install postgresql", file=sys.stderr)
        return
    (folder / "postgres").mkdir()
    settings = ["-c", "client_connection_check_interval=100ms", "-c", "shared_buffers=1GB"]
    peer = support.Postgres(folder / "postgres", settings)
    with peer.raw(timeout=300) as first:
        first.rows(support.TABLES + ROWS.format(rows=rows_of(quick)))
        first.rows("analyze")
    yield "postgres", peer


def main():
    options = argparse.ArgumentParser(description="What a connection costs, against Postgres.")
    options.add_argument("--quick", action="store_true", help="proves the program, gives no figure")
    options.add_argument("--only", default=",".join(FIGURES), help=f"some of {', '.join(FIGURES)}")
    options.add_argument("--rounds", type=int, default=0, help="default: 3, quick 1")
    asked = options.parse_args()
    wanted = [name for name in FIGURES if name in asked.only.split(",")]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="uplake-serve-"))
    (folder / "uplake").mkdir()
    all_of_them = {}
    try:
        for name, server in servers(folder, asked.quick):
            all_of_them[name] = server
        found = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "figures": {}}
        version = [support.binary(), "--version"]
        found["uplake"] = subprocess.run(version, capture_output=True, text=True).stdout.strip()
        for figure in wanted:
            measured = {name: [] for name in all_of_them}
            for turn in range(asked.rounds or (1 if asked.quick else 3)):
                names = list(all_of_them)
                for name in names if turn % 2 == 0 else reversed(names):
                    print(f"{figure}, round {turn + 1}: {name}", file=sys.stderr, flush=True)
                    try:
                        measured[name].append(globals()[figure](all_of_them[name], asked.quick))
                    except Exception as error:  # one figure that fails leaves the others
                        print(f"  {type(error).__name__}: {error}", file=sys.stderr)
            found["figures"][figure] = {name: middle(r) if r else "failed" for name, r in measured.items()}
        print(json.dumps(found, indent=2))
    finally:
        for server in all_of_them.values():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
