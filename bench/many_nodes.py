#!/usr/bin/env python3
"""What does planning cost with a hundred nodes and ten thousand files?

    bench/many_nodes.py LAKE TABLE --ids ID_COLUMN --by COLUMN [--nodes 100] [--rounds 21]

One process coordinates; the nodes are played: they say hello as a worker does, under names of their own, and are sent
nothing, because EXPLAIN plans, divides and places a statement and goes no further. Planning opens no file, so a table's rows
are whatever its files say; what counts is how many files and nodes there are. Printed: milliseconds of the first EXPLAIN
of the process, which reads the log, and of those after it (median, most), with the nodes and without; and the most memory
that the process had.

UPLAKE names the binary. pyarrow plays the nodes.
"""

import argparse
import json
import pathlib
import re
import statistics
import tempfile

import nodes as bench
from node_client import Capture, Client
from test_nodes import Worker


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lake", type=pathlib.Path)
    parser.add_argument("table")
    parser.add_argument("--ids", required=True, help="a column with ids")
    parser.add_argument("--by", required=True, help="a column to group by")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    sql = f"EXPLAIN SELECT {args.by}, count(*), count(DISTINCT {args.ids}) FROM {args.table} GROUP BY {args.by}"
    servers, played = [], []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)

        def started(kind, name, *options):
            (scratch / name).mkdir()
            servers.append(kind(scratch / name, args.lake, *options))
            return servers[-1]

        try:
            hello = Client(started(Worker, "worker", 0).node, b"").hello()
            for number in range(args.nodes):
                played.append(Capture(hello))
                played[-1].said = json.dumps(hello | {"name": f"played-{number:03}", "start": number + 1}).encode()
            members = ",".join(node.address for node in played)
            coordinator = started(bench.support.Server, "coordinator", "--roles", "coordinate", "--members", members)
            bench.support.within(60, lambda: bench.metric(coordinator, "uplake_nodes") == args.nodes, "all are used")
            for elsewhere, parts in [("always", args.nodes), ("never", 0)]:
                asked = bench.Asked(coordinator, f"SET uplake.elsewhere = {elsewhere}")
                times = []
                for _ in range(args.rounds + 1):
                    took, rows = asked.ask(sql)
                    times.append(took * 1e3)
                plan = b"\n".join(value for row in rows for value in row if value).decode()
                found = [int(number) for number in re.findall(r"PartsExec: parts=(\d+)", plan)]
                assert found == ([parts] if parts else []), plan
                print(
                    f"{elsewhere}: {parts} parts, first {times[0]:.1f} ms, then {statistics.median(times[1:]):.1f} "
                    f"(at most {max(times[1:]):.1f})"
                )
            status = pathlib.Path(f"/proc/{coordinator.process.pid}/status").read_text()
            most = int(re.search(r"VmHWM:\s+(\d+)", status)[1])
            print(f"at most {most / 1024:.0f} MiB")
        finally:
            for node in played:
                node.shutdown()
            for server in reversed(servers):
                server.stop()


if __name__ == "__main__":
    main()
