#!/usr/bin/env python3
"""What is each rule of the optimizer worth? Every question of XAB, with one rule left out and with all, in turns.

Unit: the ratio of medians, without the rule to with it: 1.20 says that the rule saves a fifth. A rule that
saves less than 3 % in every cell is not worth its lines.

    python bench/rules.py UPLAKE DATA [--rules id_ranges,text_tests] [--rounds 3] [--only q1,q4] [--ranges 1,20]

cold    a fresh process, from its start to the last row
hot     the median of a process that asks six times, without the first

Answers are compared; a difference ends the program with status 1.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import measure
import turns

WORTH = 1.03


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    facts = measure.circumstances(binary)
    cells = dict(turns.statements(args, binary))
    rules = args.rules or all_rules(binary)
    print(f"# Each rule left out\n\n{args.rounds} rounds, {args.threads} threads. {measure.describe(facts)}\n")
    rows, different = [], []
    for rule in rules:
        found = {}
        for name, (lake, sql) in cells.items():
            times, same = in_turns(binary, lake, sql, args, rule)
            found[name] = turns.ratios(times)
            if not same:
                different.append(f"{rule}: {name}")
            measure.append_raw(args.out / "rules.jsonl", {**facts, "rule": rule, "cell": name, **times})
        means = [statistics.geometric_mean(ratios[kind] for ratios in found.values()) for kind in (0, 1)]
        best = sorted(found, key=lambda name: -max(found[name]))[:4]
        gains = ", ".join(f"{name} {max(found[name]):.2f}" for name in best if max(found[name]) >= WORTH)
        rows.append([f"`{rule}`", *(f"{mean:.3f}" for mean in means), gains or "none"])
        measure.progress("  ".join(rows[-1]))
    print(measure.table(["left out", "cold", "hot", "cells that it helps most"], rows))
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
    parser.add_argument("--rules", type=listed, help="these rules (default: all that can be left out)")
    parser.add_argument("--only", type=listed, help="these statements")
    parser.add_argument("--ranges", type=lambda text: [int(days) for days in text.split(",")], default=[1, 20])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results"), help="where rules.jsonl grows")
    return parser.parse_args()


def all_rules(binary):
    """The rules that an unknown one's error lists."""
    command = [binary, "sql", "-c", "SET uplake.disabled_rules = 'none'"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    return refused.stderr.strip().rsplit("those are ", 1)[1].split(", ")


def in_turns(binary, lake, sql, args, rule):
    """Seconds by kind, with the rule and without, and whether both gave the same rows."""
    first = ["", f"SET uplake.disabled_rules = '{rule}';\n"]
    times = {"cold": ([], []), "hot": ([], [])}
    answers = [set(), set()]
    for turn in range(args.rounds):
        order = [0, 1] if turn % 2 == 0 else [1, 0]
        for at in order:
            cost = ask(binary, lake, sql, args.threads, first[at], 1)
            times["cold"][at].append(cost.seconds)
            answers[at].add(turns.rows_of(cost.out))
        for at in order:
            cost = ask(binary, lake, sql, args.threads, first[at], turns.ASKED)
            seconds = [float(line.split()[1]) for line in cost.err.splitlines() if line.startswith("time: ")]
            times["hot"][at].append(statistics.median(seconds[-turns.ASKED + 1:]))
    return times, answers[0] == answers[1]


def ask(binary, lake, sql, threads, first, count):
    command = [binary, "sql", "--lake", lake, "--threads", threads, "--timing", "--format", "json", "-f", "-"]
    return measure.run(command, cap_seconds=turns.CAP_SECONDS, stdin=first + f"{sql};\n" * count)


if __name__ == "__main__":
    main()
