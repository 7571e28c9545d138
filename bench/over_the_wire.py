#!/usr/bin/env python3
"""What does a connection add to a look-up? XAB's Q9, all rows of one user on one day, prepared and in process.

    bench/over_the_wire.py LAKE                 LAKE has XAB's events (`bench/queries.py` loads them); a minute
    bench/over_the_wire.py LAKE --day 2026-03-05 --users 200 --rounds 5

In process: the library alone (`crates/engine/examples/bound.rs`, which is built first). By the command: `uplake sql`, PREPARE
once and EXECUTE for each user, its own times. Over the wire: one connection, from the first byte sent to ReadyForQuery. Each
prepares the statement once and binds day and user; the same users in the same order, all once before they count; rounds in
turns; medians in ms. Goal: 0.2 ms more over the wire than in process. Ends with status 1 if it is not met, or if rows
differ in number.

UPLAKE names the binary.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# In place of this folder, whose `concurrent` would stand before Python's own.
sys.path[0] = str(ROOT / "tests/wire")
BINARY = os.environ["UPLAKE_BIN"] = os.environ.get("UPLAKE", str(ROOT / "target/release/uplake"))

import frames
import support

SQL = (
    "SELECT dt, ts, event, page, item_id, value FROM events "
    "WHERE dt BETWEEN {day} AND {day} AND user_id = {user} ORDER BY ts, event, page"
)
GOAL_MS = 0.2
VARCHAR, DATE = 1043, 1082


def in_process(lake, day, users):
    """Seconds of each statement when it is asked again, and all rows."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    asked = "".join(f"{day}\t{user}\n" for user in users)
    command = [target / "release/examples/bound", lake, SQL.format(day="$1", user="$2")]
    *times, rows = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    return [float(milliseconds) / 1000 for milliseconds in times], int(rows.split()[0])


def by_the_command(lake, day, users):
    """The same of statements of `uplake sql`."""
    literal = lambda text: "'" + text.replace("'", "''") + "'"
    prepare = f"PREPARE q9 (DATE, VARCHAR) AS {SQL.format(day='$1', user='$2')};\n"
    statements = [f"EXECUTE q9(DATE '{day}', {literal(user)});\n" for user in users]
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
        file.writelines([prepare, *statements, *statements])
        file.flush()
        command = [BINARY, "sql", "--lake", lake, "--timing", "--format", "json", "-f", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    times = [float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("time: ")]
    assert len(times) >= 2 * len(users), done.stderr[-1000:]
    return times[-len(users) :], len(done.stdout.splitlines()) // 2


def over_the_wire(server, day, users):
    """The same of a prepared statement."""
    with server.raw() as wire:
        wire.ask(frames.parse(SQL.format(day="$1", user="$2"), "q9", [DATE, VARCHAR]), frames.SYNC)
        times, rows = [], 0
        for user in users * 2:
            asked = frames.bind("q9", values=[day.encode(), user.encode()]) + frames.execute() + frames.SYNC
            began = time.perf_counter()
            found = wire.ask(asked)
            times.append(time.perf_counter() - began)
            assert not frames.errors(found), frames.errors(found)
            rows += frames.kinds(found).count("D")
    return times[len(users) :], rows // 2


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("lake")
    options.add_argument("--day", default="2026-03-05")
    options.add_argument("--users", type=int, default=200)
    options.add_argument("--rounds", type=int, default=5)
    args = options.parse_args()
    some = f"SELECT DISTINCT user_id FROM events WHERE dt = DATE '{args.day}' ORDER BY user_id LIMIT {args.users}"
    command = [BINARY, "sql", "--lake", args.lake, "--format", "json", "-c", some]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    users = [json.loads(line)["user_id"] for line in listed.splitlines()]
    build = ["cargo", "build", "--release", "--quiet", "-p", "uplake-engine", "--example", "bound"]
    subprocess.run(build, cwd=ROOT, check=True)
    medians, counts = {"in process": [], "over the wire": [], "by the command": []}, set()
    with tempfile.TemporaryDirectory() as folder:
        server = support.Server(folder, args.lake)
        try:
            for _ in range(args.rounds):
                for name, ask in (
                    ("in process", lambda: in_process(args.lake, args.day, users)),
                    ("over the wire", lambda: over_the_wire(server, args.day, users)),
                    ("by the command", lambda: by_the_command(args.lake, args.day, users)),
                ):
                    times, rows = ask()
                    medians[name].append(statistics.median(times) * 1000)
                    counts.add(rows)
        finally:
            server.stop()
    found = {name: round(statistics.median(times), 3) for name, times in medians.items()}
    more = found["over the wire"] - found["in process"]
    print(json.dumps({"users": len(users), "rows": sorted(counts), **found, "more": round(more, 3)}, indent=1))
    if len(counts) > 1 or more > GOAL_MS:
        sys.exit(f"goal not met: at most {GOAL_MS} ms more, the same rows")


if __name__ == "__main__":
    main()
