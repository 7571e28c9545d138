#!/usr/bin/env python3
"""What is each rule of the optimizer worth? XAB, the Star Schema Benchmark and TPC-H, with one rule left out and with all.

Unit: the ratio of medians, without the rule to with it: 1.20 says that the rule saves a sixth of the time without it.
A rule that saves less than 3 % in every cell is not worth its lines.

    python bench/rules.py UPLAKE DATA [--ssb FOLDER] [--tpch FOLDER] [--rules id_ranges,text_tests] [--only q1,ssb2.1]

DATA is what `uplake generate` wrote; the other two are made in their folders if they are not there (TPC-H by
DuckDB, see tpch.py). Each is loaded once, into its folder/lake.

first   asked for the first time by a process, by --timing: planning, reading, rows written
again   asked again by the process, which goes from all rules to all but one and back

Only cells whose plan the rule changes (the last row of EXPLAIN) are measured; those of rules that EXPLAIN does not show,
because they do something only for what is asked again, always are: what is asked first has figures of chance there. `one_scan` is of reports: `bench/experiments.py` asks those. Who begins changes with
the round. Answers are compared; a difference ends the program with status 1.

At the scale below it takes about a quarter of an hour on two cores:

    uplake generate DATA --users 100000 --events-per-day 100000 --products 200000
    python bench/rules.py UPLAKE DATA --ssb SSB --ssb-scale 0.2 --tpch TPCH --tpch-scale 0.1
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import measure
import tpch
import turns

WORTH = 1.03
# Rules that EXPLAIN does not show in a process that has asked nothing, and those that no statement of these asks for.
UNSEEN, ELSEWHERE = ["plan_cache", "index_files", "build_side_cache", "id_ranges"], ["one_scan"]
# Asked again so often in one stretch; the first one of it, which may plan again, does not count.
ASKED = 3


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    facts = measure.circumstances(binary)
    cells = dict(statements(args, binary))
    rules = args.rules or [rule for rule in all_rules(binary) if rule not in ELSEWHERE]
    print(f"# Each rule left out\n\n{args.rounds} rounds, {args.threads} threads. {measure.describe(facts)}\n")
    found, different = {}, []
    for name, (lake, sql) in cells.items():
        seen = changing(binary, lake, sql)
        changed = [rule for rule in rules if rule in UNSEEN or rule in seen]
        measure.progress(f"{name}: {', '.join(changed)}")
        first, again, same = in_turns(binary, lake, sql, args, changed)
        different += [f"{rule}: {name}" for rule in changed if not same[rule]]
        for rule in changed:
            ratio = lambda times: statistics.median(times[rule][1]) / statistics.median(times[rule][0])
            found[rule, name] = (ratio(first), ratio(again))
            raw = {**facts, "rule": rule, "cell": name, "first": first[rule], "again": again[rule]}
            measure.append_raw(args.out / "rules.jsonl", raw)
    print(summary(rules, cells, found))
    print(by_cell(rules, cells, found))
    for name in different:
        print(f"WRONG ANSWER: {name}")
    sys.exit(1 if different else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: text.split(",")
    parser.add_argument("uplake", type=Path)
    parser.add_argument("data", type=Path, help="the folder that `uplake generate` wrote")
    parser.add_argument("--lake", type=Path, help="XAB's lake, loaded if it is not there (default: DATA/lake)")
    parser.add_argument("--ssb", type=Path, help="also ask the Star Schema Benchmark, of this folder")
    parser.add_argument("--ssb-scale", type=float, default=1)
    parser.add_argument("--tpch", type=Path, help="also ask TPC-H, of this folder")
    parser.add_argument("--tpch-scale", type=float, default=1)
    parser.add_argument("--rules", type=listed, help="these rules (default: all that can be left out)")
    parser.add_argument("--only", type=listed, help="these statements")
    parser.add_argument("--ranges", type=lambda text: [int(days) for days in text.split(",")], default=[20])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results"), help="where rules.jsonl grows")
    return parser.parse_args()


def statements(args, binary):
    """(name of the cell, (lake, SQL)) of all that is asked."""
    yield from turns.statements(args, binary)
    if args.tpch:
        data = tpch.Data(args.tpch.resolve(), args.tpch_scale)
        data.make()
        lake = data.folder / "lake"
        turns.load(binary, lake, {table: ([], data.file(table)) for table in tpch.TABLES})
        for number in tpch.QUESTIONS:
            if turns.wanted(args, f"tpch{number}"):
                yield f"tpch{number}", (lake, data.statement(number))


def all_rules(binary):
    """The rules that an unknown one's error lists."""
    command = [binary, "sql", "-c", "SET uplake.disabled_rules = 'none'"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    return refused.stderr.strip().rsplit("those are ", 1)[1].split(", ")


def changing(binary, lake, sql):
    """Rules after which the statement's plan is another."""
    rows = ask(binary, lake, 2, f"EXPLAIN {sql}").out.splitlines()
    told = (json.loads(line) for line in rows)
    return next((row["plan"].split(", ") for row in told if row["plan_type"] == "rules"), [])


def in_turns(binary, lake, sql, args, rules):
    """Of each rule the seconds with it and without, first and again, and whether both gave the same rows."""
    first = {rule: ([], []) for rule in rules}
    again = {rule: ([], []) for rule in rules}
    same = {}
    left_out = lambda rule, without: f"SET uplake.disabled_rules = '{rule if without else ''}';\n"
    for turn in range(args.rounds):
        order = [False, True] if turn % 2 == 0 else [True, False]
        for rule in rules:
            answers = [None, None]
            for without in order:
                cost = ask(binary, lake, args.threads, f"{left_out(rule, without)}{sql};")
                first[rule][without].append(seconds(cost)[-1])
                answers[without] = turns.rows_of(cost.out)
            same[rule] = same.get(rule, True) and answers[0] == answers[1]
        # Columns are kept by what is asked first, so that each rule's stretches follow stretches of the same kind.
        stretch = lambda rule, without: left_out(rule, without) + f"{sql};\n" * ASKED
        text = f"{sql};\n" + "".join(stretch(rule, without) for rule in rules for without in order)
        told = iter(seconds(ask(binary, lake, args.threads, text))[1:])
        for rule in rules:
            for without in order:
                # One of SET before.
                times = [next(told) for _ in range(ASKED + 1)][2:]
                again[rule][without].append(statistics.median(times))
    return first, again, same


def ask(binary, lake, threads, text):
    command = [binary, "sql", "--lake", lake, "--threads", threads, "--timing", "--format", "json", "-f", "-"]
    return measure.run(command, cap_seconds=turns.CAP_SECONDS, stdin=text)


def seconds(cost):
    return [float(line.split()[1]) for line in cost.err.splitlines() if line.startswith("time: ")]


def summary(rules, cells, found):
    """Of each rule the means over the cells that it changes, and where it helps and hurts most."""
    rows = []
    for rule in rules:
        of = {name: found[rule, name] for name in cells if (rule, name) in found}
        if not of:
            rows.append([f"`{rule}`", 0, "", "", "none", "none"])
            continue
        means = [f"{statistics.geometric_mean(ratios[kind] for ratios in of.values()):.2f}" for kind in (0, 1)]
        named = lambda names, pick: ", ".join(f"{name} {pick(of[name]):.2f}" for name in names) or "none"
        helped = [name for name in sorted(of, key=lambda name: -max(of[name])) if max(of[name]) >= WORTH]
        hurt = [name for name in sorted(of, key=lambda name: min(of[name])) if min(of[name]) <= 1 / WORTH]
        rows.append([f"`{rule}`", len(of), *means, named(helped[:4], max), named(hurt[:2], min)])
    head = ["left out", "cells", "first", "again", "helps most", "hurts most"]
    return measure.table(head, rows)


def by_cell(rules, cells, found):
    """A row a cell, a column a rule: first, again."""
    shown = [rule for rule in rules if any((rule, name) in found for name in cells)]
    cell = lambda pair: f"{pair[0]:.2f}, {pair[1]:.2f}" if pair else ""
    rows = [[name, *(cell(found.get((rule, name))) for rule in shown)] for name in cells]
    return measure.table(["first, again", *(f"`{rule}`" for rule in shown)], rows)


if __name__ == "__main__":
    main()
