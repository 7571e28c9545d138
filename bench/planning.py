#!/usr/bin/env python3
"""How long is a statement planned, asked first and asked again? XAB's statements, where little else is to be done.

    bench/planning.py                       the binary that UPLAKE names; JSON on standard output; seconds
    bench/planning.py BEFORE AFTER --rounds 4 --asked 100 --only q3

Each binary serves a lake of 60,000 events, 6 days, made for the run. Over one Postgres connection, after the statement was
asked ten times: as often as `--asked` each time with another WITH query that nothing names, so that no plan is kept for it
(first), and as often as it is (again). Both from `planned_s` of `system.queries`, medians in ms, binaries in turns, the median of rounds. Goals, of Q3:
10 ms first, 2 ms again. Ends with status 1 if the last binary does not meet them.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT / "bench")
import xab

# In place of this folder, whose `concurrent` would stand before Python's own.
sys.path[0] = str(ROOT / "tests/wire")
import frames
import support

BINARY = os.environ.get("UPLAKE", str(ROOT / "target/release/uplake"))
DATA = "--users 20000 --events-per-day 10000 --products 1000 --days 6".split()
GOALS_MS = {"first": 10, "again": 2}


def fill(binary, folder):
    """The data set, and its lake."""
    subprocess.run([binary, "generate", "xab", folder / "data", *DATA], check=True, capture_output=True)
    data = xab.DataSet(folder / "data")
    for table, layout in xab.LAYOUT.items():
        command = [binary, "load", table, *data.files(table), "--lake", folder / "lake", *layout, "--quiet"]
        subprocess.run(command, check=True, capture_output=True)
    return data


def asked(wire, sql):
    messages = wire.ask(frames.query(sql))
    assert not frames.errors(messages), (sql, frames.errors(messages))
    return [frames.values_of(body) for kind, body in messages if kind == b"D"]


def another(sql, n):
    """The same statement in a text that nobody asked."""
    return re.sub(r"^(WITH )?", lambda with_: f"WITH w{n} AS (SELECT {n})" + (", " if with_[1] else " "), sql)


def planned(turn, binary, folder, data, queries, times):
    """Milliseconds, {(query, "first" or "again"): [...]}."""
    os.environ["UPLAKE_BIN"] = str(binary)
    server, found = support.Server(folder, folder / "lake"), {}
    try:
        with server.raw() as wire:
            for query in queries:
                sql = data.statement(query, len(data.days), "uplake")
                for n in range(10):
                    asked(wire, another(sql, times + n))
                asked(wire, sql)
                for way in GOALS_MS:
                    asked(wire, f"SET uplake.labels = 'metric={turn} {query} {way}'")
                    for n in range(times):
                        asked(wire, another(sql, n) if way == "first" else sql)
                    asked(wire, "SET uplake.labels = ''")
            seconds = "SELECT planned_s FROM system.queries WHERE metric = '{} {} {}' AND text LIKE '%FROM%'"
            for query in queries:
                for way in GOALS_MS:
                    rows = asked(wire, seconds.format(turn, query, way))
                    assert len(rows) == times, f"{query} {way}: {len(rows)} rows of system.queries"
                    found[query, way] = [float(row[0]) * 1000 for row in rows]
    finally:
        server.stop()
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("binaries", nargs="*", type=pathlib.Path, default=[pathlib.Path(BINARY)])
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--asked", type=int, default=100)
    options.add_argument("--only", type=lambda text: text.split(","), default=xab.QUERIES)
    args = options.parse_args()
    binaries = [binary.resolve() for binary in args.binaries]
    medians = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data = fill(binaries[0], folder)
        for turn in range(args.rounds):
            for binary in binaries:
                named = f"{turn} {binaries.index(binary)}"
                for cell, times in planned(named, binary, folder, data, args.only, args.asked).items():
                    medians.setdefault((binary.name, *cell), []).append(statistics.median(times))
    found = {}
    for (binary, query, way), rounds in medians.items():
        found.setdefault(binary, {}).setdefault(query, {})[way] = round(statistics.median(rounds), 3)
    print(json.dumps(found, indent=1))
    missed = [way for way, goal in GOALS_MS.items() if found[binaries[-1].name].get("q3", {}).get(way, 0) > goal]
    if missed:
        sys.exit(f"goal of Q3 not met: {', '.join(missed)}")


if __name__ == "__main__":
    main()
