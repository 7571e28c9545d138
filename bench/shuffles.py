#!/usr/bin/env python3
"""What do shuffles give? TPC-H over three nodes that have little memory each, and over one such node.

    bench/shuffles.py FOLDER --scale 10 --memory 1GiB        FOLDER gets the data and the lake; DuckDB writes the data
    bench/shuffles.py FOLDER --scale 1 --only 3,9,18,21

Each of three workers, a coordinator and a plain `uplake serve` has so much memory and half a core (control groups, which
need root; --cores 0 is without). Statements are asked in turns, once without being counted, then --rounds times; medians.
Beside them: the most that a process had (its resident set, reset before each statement) and the bytes that nodes kept for
each other. 53200 in place of a time: the statement was ended for want of memory. Answers of both are compared with each other, fractions
to nine digits; ends with status 1 if one differs.

UPLAKE names the binary.
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

import nodes as bench
import tpch
from test_nodes import Worker

WORKERS = 3
LIMIT = "10min"


def peak_mib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def forget_peak(server):
    pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


class Side:
    """The one node, or all of them."""

    def __init__(self, asked, servers, limited):
        self.asked, self.servers, self.limited = asked, servers, limited

    def ask(self, sql):
        """Seconds or the error, rows, and the most that any of those with a limit had."""
        for server in self.servers:
            forget_peak(server)
        wire = self.asked.wire
        began = bench.time.perf_counter()
        messages = wire.ask(bench.frames.query(sql))
        took = bench.time.perf_counter() - began
        rows = [tuple(bench.frames.values_of(body)) for kind, body in messages if kind == b"D"]
        errors = bench.frames.errors(messages)
        peak = max(peak_mib(server) for server in self.limited)
        return (errors[0]["C"] if errors else took), rows, peak


def shuffled_bytes(side, sql):
    """Bytes that nodes kept for each other, and how many shuffles these were."""
    _, rows = side.asked.ask(f"EXPLAIN ANALYZE {sql}")
    text = b"\n".join(value for row in rows for value in row if value).decode()
    kept = [int(number) for number in re.findall(r"shuffle \d+ at [^ ]+ \d+ rows, (\d+) bytes", text)]
    return sum(kept), sum(int(number) for number in re.findall(r"shuffles=(\d+)", text))


def lake_of(data):
    lake = data.folder.parent / f"lake-{data.scale:g}"
    if not lake.exists():
        partial = lake.with_suffix(".partial")
        for table in tpch.TABLES:
            bench.measure.progress(f"loading {table}")
            words = [bench.BINARY, "load", table, str(data.file(table)), "--lake", str(partial)]
            subprocess.run(words, check=True, capture_output=True)
        partial.rename(lake)
    return lake


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--memory", default="1GiB", help="of each process")
    parser.add_argument("--cores", type=float, default=0.5, help="of each process; 0: no limit")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", type=lambda text: [int(number) for number in text.split(",")], default=list(tpch.QUESTIONS))
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    data = tpch.Data(args.folder, args.scale)
    data.make()
    lake, shares, servers = lake_of(data), bench.Shares(), []
    wrong, told = False, []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)

        def started(kind, name, *options):
            folder = scratch / name
            folder.mkdir()
            server = kind(folder, lake, *options, "--memory", args.memory, "--threads", "1")
            servers.append(server)
            if args.cores:
                shares.put(server.process.pid, args.cores)
            return server

        try:
            one = started(bench.support.Server, "one")
            workers = [started(Worker, f"worker-{number}", 0) for number in range(WORKERS)]
            members = ",".join(worker.node for worker in workers)
            coordinator = started(bench.support.Server, "coordinator", "--roles", "coordinate", "--members", members)
            bench.support.within(20, lambda: bench.metric(coordinator, "uplake_nodes") == WORKERS, "workers are used")
            timeout = f"SET uplake.timeout = '{LIMIT}'"
            alone = Side(bench.Asked(one, timeout), [one], [one])
            always = "SET uplake.elsewhere = always"
            three = Side(bench.Asked(coordinator, timeout, always), [*workers, coordinator], [*workers, coordinator])
            print("| | one, s | three, s | ratio | peak of one, MiB | of the fullest of three | shuffles | MiB kept |")
            print("|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
            for number in args.only:
                sql = data.statement(number)
                runs = {alone: [], three: []}
                for turn in range(args.rounds + 1):
                    answers = []
                    for side, of_side in runs.items():
                        # Whoever has failed is not asked again.
                        if of_side and isinstance(of_side[-1][0], str):
                            continue
                        took, rows, peak = side.ask(sql)
                        if turn or isinstance(took, str):
                            of_side.append((took, peak))
                        if not isinstance(took, str):
                            answers.append(rows)
                    if len(answers) == 2 and not bench.same(*answers):
                        wrong = True
                        print(f"Q{number} differs", file=sys.stderr)
                failed = {side: next((t for t, _ in of_side if isinstance(t, str)), None) for side, of_side in runs.items()}
                time = {side: failed[side] or (statistics.median(t for t, _ in r) if r else None) for side, r in runs.items()}
                peak = {side: max((p for _, p in r), default=0) for side, r in runs.items()}
                kept, shuffles = shuffled_bytes(three, sql) if not failed[three] else (0, 0)
                ratio = "" if any(map(failed.get, runs)) or None in time.values() else f"{time[alone] / time[three]:.2f}"
                shown = {side: t if isinstance(t, str) or t is None else f"{t:.2f}" for side, t in time.items()}
                print(
                    f"| Q{number} | {shown[alone]} | {shown[three]} | {ratio} | {peak[alone]:.0f} | {peak[three]:.0f} "
                    f"| {shuffles} | {kept / 2**20:.1f} |",
                    flush=True,
                )
                told.append({"q": number, "one": shown[alone], "three": shown[three], "peaks": list(peak.values()), "kept": kept})
        finally:
            for server in reversed(servers):
                server.stop()
            shares.remove()
    if args.json:
        args.json.write_text(json.dumps(told))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
