#!/usr/bin/env python3
"""What does a connection add to a look-up? XAB's Q9, all rows of one user on one day, prepared and in process.

    bench/over_the_wire.py LAKE                 LAKE has XAB's events (`bench/queries.py` loads them); a minute
    bench/over_the_wire.py LAKE --day 2026-03-05 --users 200 --rounds 5

In process: the library alone (`crates/engine/examples/bound.rs`, which is built first). By the command: `uplake sql`, PREPARE
once and EXECUTE for each user, its own times. Over the wire: one connection, from the first byte sent to ReadyForQuery. Each
is a process of its own in each round, prepares the statement once and binds day and user: the same users in the same order,
`--times` times, of which the last counts, since a process takes half a second to get warm; rounds in turns; medians in ms.
Goal: 0.2 ms more over the wire than in process. Ends with status 1 if it is not met, or if rows differ in number.

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
READY = b"Z\0\0\0\5I"
ANSWER_BYTES = 1 << 16


def in_process(lake, day, users, times):
    """Seconds of each statement when it is asked last, and all rows."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    asked = "".join(f"{day}\t{user}\n" for user in users)
    command = [target / "release/examples/bound", lake, SQL.format(day="$1", user="$2"), str(times)]
    *took, rows = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    return [float(milliseconds) / 1000 for milliseconds in took], int(rows.split()[0])


def by_the_command(lake, day, users, times):
    """The same of statements of `uplake sql`."""
    literal = lambda text: "'" + text.replace("'", "''") + "'"
    prepare = f"PREPARE q9 (DATE, VARCHAR) AS {SQL.format(day='$1', user='$2')};\n"
    statements = [f"EXECUTE q9(DATE '{day}', {literal(user)});\n" for user in users]
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
        file.writelines([prepare, *statements * times])
        file.flush()
        command = [BINARY, "sql", "--lake", lake, "--timing", "--format", "json", "-f", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    took = [float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("time: ")]
    assert len(took) >= times * len(users), done.stderr[-1000:]
    return took[-len(users) :], len(done.stdout.splitlines()) // times


def over_the_wire(lake, day, users, times):
    """The same of a prepared statement."""
    took, rows = [], 0
    with tempfile.TemporaryDirectory() as folder:
        server = support.Server(folder, lake)
        try:
            with server.raw() as wire:
                wire.ask(frames.parse(SQL.format(day="$1", user="$2"), "q9", [DATE, VARCHAR]), frames.SYNC)
                for user in users * times:
                    asked = frames.bind("q9", values=[day.encode(), user.encode()]) + frames.execute() + frames.SYNC
                    began = time.perf_counter()
                    wire.send(asked)
                    answer = wire.socket.recv(ANSWER_BYTES)
                    while not answer.endswith(READY):
                        answer += wire.socket.recv(ANSWER_BYTES)
                    took.append(time.perf_counter() - began)
                    # Taken apart afterwards: a client that is not Python's does so in no time.
                    wire.buffer, wire.at = answer, 0
                    found = wire.until_ready()
                    assert not frames.errors(found), frames.errors(found)
                    rows += frames.kinds(found).count("D")
        finally:
            server.stop()
    return took[-len(users) :], rows // times


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("lake")
    options.add_argument("--day", default="2026-03-05")
    options.add_argument("--users", type=int, default=200)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--times", type=int, default=10)
    args = options.parse_args()
    some = f"SELECT DISTINCT user_id FROM events WHERE dt = DATE '{args.day}' ORDER BY user_id LIMIT {args.users}"
    command = [BINARY, "sql", "--lake", args.lake, "--format", "json", "-c", some]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    users = [json.loads(line)["user_id"] for line in listed.splitlines()]
    build = ["cargo", "build", "--release", "--quiet", "-p", "uplake-engine", "--example", "bound"]
    subprocess.run(build, cwd=ROOT, check=True)
    ways = {"in process": in_process, "over the wire": over_the_wire, "by the command": by_the_command}
    medians, counts = {way: [] for way in ways}, set()
    for _ in range(args.rounds):
        for way, ask in ways.items():
            took, rows = ask(args.lake, args.day, users, args.times)
            medians[way].append(statistics.median(took) * 1000)
            counts.add(rows)
    found = {name: round(statistics.median(times), 3) for name, times in medians.items()}
    more = found["over the wire"] - found["in process"]
    print(json.dumps({"users": len(users), "rows": sorted(counts), **found, "more": round(more, 3)}, indent=1))
    if len(counts) > 1 or more > GOAL_MS:
        sys.exit(f"goal not met: at most {GOAL_MS} ms more, the same rows")


if __name__ == "__main__":
    main()
