#!/usr/bin/env python3
"""What do 1,000 connections cost beside 24 statements at once in one process? XAB's Q1 to Q9 over a day.

    bench/connections.py DATA                  DATA has XAB and its lake (`bench/turns.py` loads it); minutes; JSON
    bench/connections.py DATA --connections 100 --statements 300 --rounds 1

In process: `uplake bench-concurrent`, 24 at once. Over the wire: so many connections to a server of the same lake, each of
which asks its next statement when it has the last one's answer; one Python thread reads them all, whose cost is in the figure.
The same statements, round and round, as many in all; each process has what the statements keep in memory once it has been
asked each of them once, which does not count over the wire (bench-concurrent cannot, so its first answers count).
Rounds in turns, medians: statements a second, seconds a statement from its first byte to ReadyForQuery (mean, p50, p95),
peak memory of the process in MiB. Goals: 0.95 of the statements a second, no error, p95 at most 2.5 times the mean, 64 MiB
more. Ends with status 1 if one of them is not met.

UPLAKE names the binary.
"""

import argparse
import json
import os
import pathlib
import selectors
import statistics
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
sys.path[0] = str(BENCH.parent / "tests/wire")
BINARY = os.environ["UPLAKE_BIN"] = os.environ.get("UPLAKE", str(BENCH.parent / "target/release/uplake"))

import frames
import support

# Behind the tests' own, because a file here is called as a package of Python's.
sys.path.append(str(BENCH))
import measure
import xab

QUERIES = ["q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9"]
IN_PROCESS = 24
CAP_S = 3600
READY = b"Z\0\0\0\5I"


def in_process(lake, statements, count):
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
        file.write("".join(f"{sql};\n" for sql in statements))
        file.flush()
        command = [BINARY, "bench-concurrent", "--lake", lake, "--queries", file.name, "--at-once", str(IN_PROCESS)]
        cost = measure.run([*command, "--statements", count, "--seconds", CAP_S], cap_seconds=CAP_S)
    told = json.loads(cost.out)
    return {
        "statements_per_s": told["statements"] / told["seconds"], "errors": told["errors"],
        "peak_mib": cost.peak_bytes // measure.MIB,
        **{f"{name}_s": told[name] for name in ("mean", "p50", "p95")}, "cpu_s": told["cpu_seconds"],
    }


def peak_mib(process):
    lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def over_the_wire(lake, statements, count, connections):
    with tempfile.TemporaryDirectory(prefix="uplake-connections-") as folder:
        server = support.Server(folder, lake)
        try:
            with server.raw(timeout=600) as wire:
                for sql in statements:
                    wire.rows(sql)
            return {**asked(server, statements, count, connections), "peak_mib": peak_mib(server.process.pid)}
        finally:
            server.stop()


def asked(server, statements, count, connections):
    wires = [server.raw(timeout=600) for _ in range(connections)]
    chooser = selectors.DefaultSelector()
    for wire in wires:
        wire.socket.setblocking(False)
        chooser.register(wire.socket, selectors.EVENT_READ, [wire, 0.0, b""])
    sent, errors, times = 0, 0, []

    def send(held):
        nonlocal sent
        if sent < count:
            held[1:] = time.perf_counter(), b""
            held[0].socket.send(frames.query(statements[sent % len(statements)]))
            sent += 1

    began, cpu = time.perf_counter(), server.cpu_seconds()
    for key in list(chooser.get_map().values()):
        send(key.data)
    while len(times) < sent:
        for key, _ in chooser.select():
            held = key.data
            part = held[0].socket.recv(1 << 16)
            assert part, f"the server closed a connection: {server.said()}"
            held[2] += part
            if held[2].endswith(READY):
                errors += held[2][:1] == b"E"
                times.append(time.perf_counter() - held[1])
                send(held)
    took = time.perf_counter() - began
    cpu = server.cpu_seconds() - cpu
    for wire in wires:
        wire.close()
    times.sort()
    return {
        "statements_per_s": len(times) / took, "errors": errors, "mean_s": statistics.mean(times),
        "p50_s": times[len(times) // 2], "p95_s": times[len(times) * 95 // 100], "cpu_s": cpu,
    }


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=pathlib.Path)
    options.add_argument("--lake", type=pathlib.Path, help="DATA/lake unless named")
    options.add_argument("--connections", type=int, default=1000)
    options.add_argument("--statements", type=int, default=3000)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    data = xab.DataSet(args.data)
    statements = [data.statement(query, 1, "uplake") for query in QUERIES]
    lake = args.lake or args.data / "lake"
    ways = {
        "in_process": lambda: in_process(lake, statements, args.statements),
        "connections": lambda: over_the_wire(lake, statements, args.statements, args.connections),
    }
    rounds = {way: [] for way in ways}
    for turn in range(args.rounds):
        for way in sorted(ways, reverse=turn % 2 == 0):
            rounds[way].append(ways[way]())
            print(f"round {turn + 1}, {way}: {rounds[way][-1]}", file=sys.stderr)
    found = {way: {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]} for way, runs in rounds.items()}
    ours = found["connections"]
    ratios = {
        "statements_per_s": round(ours["statements_per_s"] / found["in_process"]["statements_per_s"], 3),
        "p95_to_mean": round(ours["p95_s"] / ours["mean_s"], 2),
        "more_mib": ours["peak_mib"] - found["in_process"]["peak_mib"],
        "errors": max(run["errors"] for runs in rounds.values() for run in runs),
    }
    print(json.dumps({"data": data.summary(), "load": os.getloadavg()[0], **found, "ratios": ratios}, indent=1))
    unmet = [
        goal for goal, is_met in {
            "0.95 of the statements a second": ratios["statements_per_s"] >= 0.95,
            "p95 at most 2.5 times the mean": ratios["p95_to_mean"] <= 2.5,
            "at most 64 MiB more": ratios["more_mib"] <= 64,
            "no error": not ratios["errors"],
        }.items() if not is_met
    ]
    for goal in unmet:
        print(f"floor not met: {goal}", file=sys.stderr)
    sys.exit(1 if unmet else 0)


if __name__ == "__main__":
    main()
