#!/usr/bin/env python3
"""Is one binary of uplake slower than another? Every question of XAB and SSB, the two in turns.

Unit: seconds a statement, hot, cold, and the ratio of medians, second to first. Floor: no ratio over 1.05.

    python bench/turns.py BEFORE AFTER DATA [--ssb FOLDER] [--rounds 7] [--only q1,q4] [--ranges 1,20]
    python bench/turns.py BEFORE AFTER DATA --whole [--rounds 3]

DATA is what `uplake generate` wrote; SSB is made in FOLDER if it is not there. Both are loaded once, by
BEFORE, into DATA/lake (or --lake) and FOLDER/data-SCALE/lake, and both binaries read them.

cold    a fresh process, from its start to the last row
hot     the median of a process that asks six times, without the first

A round is one process each way of each binary; which begins changes with the round. Answers are
compared; a difference ends the program with status 1. A cell over the floor is asked for again with
three times the rounds before it counts.

With --whole instead: a load of DATA, the reports of all its experiments in one command, and 400 statements of
`report.py` as a batch and one by one, each a fresh process. Reports are not compared: other versions tell more.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import experiments
import measure
import queries
import report
import ssb
import xab

FLOOR = 1.05
ASKED = 6
CAP_SECONDS = 600
STATEMENTS = 400


def main():
    args = arguments()
    binaries = [measure.uplake_binary(args.before), measure.uplake_binary(args.after)]
    facts = measure.circumstances(binaries[1])
    if args.whole:
        return whole(args, binaries, facts)
    cells = dict(statements(args, binaries[0]))
    print(f"# Two binaries in turns\n\n{args.rounds} rounds, {args.threads} threads. {measure.describe(facts)}\n")
    slow, different, rows = [], [], []
    for name, (lake, sql) in cells.items():
        ask = lambda rounds: in_turns(binaries, lake, sql, args.threads, rounds)
        times, same = ask(args.rounds)
        if max(ratios(times)) > FLOOR:
            times, same = ask(3 * args.rounds)
        found = ratios(times)
        if max(found) > FLOOR:
            slow.append(name)
        if not same:
            different.append(name)
        medians = [f"{statistics.median(of):.4f}" for kind in ("cold", "hot") for of in times[kind]]
        rows.append([name, *medians, *(f"{ratio:.2f}" for ratio in found)])
        measure.progress("  ".join(rows[-1]))
        raw = {**facts, "cell": name, **times}
        measure.append_raw(args.out / "turns.jsonl", raw)
    head = ["", "cold before", "after", "hot before", "after", "cold ratio", "hot ratio"]
    print(measure.table(head, rows))
    for at, kind in ((-2, "cold"), (-1, "hot")):
        print(f"{kind}: geometric mean of ratios {statistics.geometric_mean(float(row[at]) for row in rows):.3f}")
    print(f"over {FLOOR}: {', '.join(slow) or 'none'}")
    for name in different:
        print(f"WRONG ANSWER: {name}: the binaries differ")
    sys.exit(1 if different else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: text.split(",")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("data", type=Path, help="the folder that `uplake generate` wrote")
    parser.add_argument("--lake", type=Path, help="XAB's lake, loaded if it is not there (default: DATA/lake)")
    parser.add_argument("--ssb", type=Path, help="also ask the Star Schema Benchmark, of this folder")
    parser.add_argument("--ssb-scale", type=float, default=1)
    parser.add_argument("--whole", action="store_true", help="instead, a load, reports and a batch")
    parser.add_argument("--only", type=listed, help="these statements")
    parser.add_argument("--ranges", type=lambda text: [int(days) for days in text.split(",")], default=[1, 7, 20])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results"), help="where turns.jsonl grows")
    return parser.parse_args()


def statements(args, binary):
    """(name of the cell, (lake, SQL)) of all that is asked."""
    data = xab.DataSet(args.data)
    lake = args.lake or args.data / "lake"
    load(binary, lake, layout_of(data))
    ranges = queries.within(args.ranges, len(data.days))
    for query, days in queries.plan([name for name in xab.QUERIES if wanted(args, name)], ranges):
        yield f"{query} {days} d", (lake, data.statement(query, days, "uplake"))
    if args.ssb:
        data = ssb.Data(args.ssb.resolve(), args.ssb_scale)
        data.make()
        lake = data.folder / "lake"
        load(binary, lake, {table: (layout, data.file(table)) for table, layout in ssb.LAYOUT.items()})
        for flight in ssb.FLIGHTS:
            if wanted(args, f"ssb{flight}"):
                yield f"ssb{flight}", (lake, data.statement(flight))


def layout_of(data):
    return {table: (xab.LAYOUT[table], data.pattern(table)) for table in xab.TABLES}


def whole(args, binaries, facts):
    """What a load, reports and a batch take in turns."""
    data = xab.DataSet(args.data)
    lake = args.lake or args.data / "lake"
    load(binaries[0], lake, layout_of(data))
    asked = report.report(data, STATEMENTS)
    with tempfile.TemporaryDirectory(dir=lake.parent) as folder:
        folder = Path(folder)
        uplake = lambda binary: experiments.Uplake(binary, lake, CAP_SECONDS)
        paths = uplake(binaries[1]).definitions(folder)
        (folder / "asked.sql").write_text(";\n".join(asked), encoding="utf-8")
        threads = ["--threads", args.threads]

        def loaded(binary, turn):
            made = folder / f"lake-{turn}-{binaries.index(binary)}"
            commands = [
                [binary, "load", "--lake", made, *threads, "--quiet", *layout, table, *data.files(table)]
                for table, (layout, _) in layout_of(data).items()
            ]
            seconds = sum(measure.run(command, cap_seconds=queries.LOAD_CAP_SECONDS).seconds for command in commands)
            shutil.rmtree(made)
            return seconds, None

        def reported(binary, _):
            cost, _ = uplake(binary).report(paths, *threads)
            return cost.seconds, None

        def answered(how):
            def ask(binary, _):
                command = [binary, "sql", "--lake", lake, *threads, "--format", "csv", how, folder / "asked.sql"]
                cost = measure.run(command, cap_seconds=CAP_SECONDS)
                return cost.seconds, report.split(cost.out)

            return ask

        ways = {
            "load": loaded,
            f"{len(paths)} reports": reported,
            f"batch of {STATEMENTS}": answered("--batch"),
            f"{STATEMENTS} one by one": answered("--file"),
        }
        rows, wrong = [], []
        for name, way in ways.items():
            times, answers = ([], []), [None, None]
            for turn in range(args.rounds):
                for at in [0, 1] if turn % 2 == 0 else [1, 0]:
                    seconds, answers[at] = way(binaries[at], turn)
                    times[at].append(seconds)
            wrong += report.compare(asked, dict(zip(["before", "after"], answers))) if answers[0] else []
            before, after = map(statistics.median, times)
            rows.append([name, f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"])
            measure.progress("  ".join(rows[-1]))
            measure.append_raw(args.out / "turns.jsonl", {**facts, "cell": name, "seconds": times})
    print(measure.table(["s", "before", "after", "ratio"], rows))
    for difference in wrong[:20]:
        print(f"WRONG ANSWER: {difference}")
    sys.exit(1 if wrong else 0)


def load(binary, lake, tables):
    for table, (layout, files) in tables.items() if not lake.exists() else []:
        measure.progress(f"loading {table}")
        command = [binary, "load", "--lake", lake, "--quiet", *layout, table, files]
        measure.run(command, cap_seconds=queries.LOAD_CAP_SECONDS)


def wanted(args, name):
    return not args.only or name in args.only


def in_turns(binaries, lake, sql, threads, rounds):
    """Seconds by kind and binary, and whether both gave the same rows."""
    times = {"cold": ([], []), "hot": ([], [])}
    answers = [set(), set()]
    for turn in range(rounds):
        order = [0, 1] if turn % 2 == 0 else [1, 0]
        for at in order:
            cost = ask(binaries[at], lake, sql, threads, 1)
            times["cold"][at].append(cost.seconds)
            answers[at].add(rows_of(cost.out))
        for at in order:
            cost = ask(binaries[at], lake, sql, threads, ASKED)
            seconds = [float(line.split()[1]) for line in cost.err.splitlines() if line.startswith("time: ")]
            times["hot"][at].append(statistics.median(seconds[1:]))
    return times, answers[0] == answers[1]


def ask(binary, lake, sql, threads, count):
    command = [binary, "sql", "--lake", lake, "--threads", threads, "--timing", "--format", "json", "-f", "-"]
    return measure.run(command, cap_seconds=CAP_SECONDS, stdin=f"{sql};\n" * count)


def rows_of(out):
    """Rows in order, their doubles with ten digits: the order of additions is nobody's."""
    rounded = lambda value: float(f"{value:.10g}") if isinstance(value, float) else value
    rows = (json.loads(line) for line in out.splitlines())
    return tuple(sorted(json.dumps({key: rounded(value) for key, value in row.items()}) for row in rows))


def ratios(times):
    return [statistics.median(after) / statistics.median(before) for before, after in times.values()]


if __name__ == "__main__":
    main()
