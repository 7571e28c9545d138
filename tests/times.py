#!/usr/bin/env python3
"""How long each step took, the slowest tests of all kinds, and what was skipped and why.

    tests/times.py FOLDER       what tests/step has written there

Reads the logs as people do: lines of libtest with `--report-time`, of pytest's `--durations`, and
of node's test runner. A log whose lines look different adds nothing; the steps are always there.
"""
import collections
import pathlib
import re
import sys

SLOWEST = 40
PROGRAM = re.compile(r"^\s+Running (?:unittests )?(\S+) \(.*?([a-z0-9_]+)-[0-9a-f]{16}\)")
LIBTEST = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. \w+ <([0-9.]+)s>")
PYTEST = re.compile(r"^([0-9.]+)s (?:call|setup|teardown)\s+(\S.*)$")
NODE = re.compile(r"^\s*✔ (.*) \(([0-9.]+)ms\)$")
# Of pytest's -rs, and of steps that are not run: how often, where, why.
SKIPPED = re.compile(r"^SKIPPED(?: \[(\d+)\])?:? (?:(\S+?\.py)(?::\d+)?: )?(.*)$")


def tests_of(log):
    """(seconds, name) of each test that a log tells the time of."""
    program = ""
    for line in log.splitlines():
        if found := PROGRAM.match(line):
            program = f"{found[2]} {found[1]} "
        elif found := LIBTEST.match(line):
            yield float(found[2]), program + found[1]
        elif found := PYTEST.match(line):
            yield float(found[1]), found[2]
        elif found := NODE.match(line):
            yield float(found[2]) / 1000, found[1]


def skipped_in(logs):
    """(why, where, how often) of what was skipped, the same reason once."""
    found = collections.Counter()
    for log in logs:
        for line in log.splitlines():
            if told := SKIPPED.match(line):
                found[told[3], told[2] or ""] += int(told[1] or 1)
    return [(why, where, times) for (why, where), times in sorted(found.items())]


def main(folder):
    steps = [line.split("\t") for line in (folder / "steps.tsv").read_text().splitlines()]
    tests = [test for log in sorted(folder.glob("*.log")) for test in tests_of(log.read_text())]
    print(f"The {min(SLOWEST, len(tests))} slowest of the tests that tell their time:")
    for seconds, name in sorted(tests, reverse=True)[:SLOWEST]:
        print(f"{seconds:8.1f} s  {name}")
    skipped = skipped_in(log.read_text() for log in sorted(folder.glob("*.log")))
    print("Nothing was skipped." if not skipped else f"{sum(times for *_, times in skipped)} tests were skipped; each says how to have it:")
    for why, where, times in skipped:
        print(f"{times:6}  {where}  {why}")
    print("Steps:")
    for seconds, code, name in steps:
        print(f"{float(seconds):8.1f} s  {name}{'' if code == '0' else f'  FAILED ({code})'}")
    print(f"{sum(float(seconds) for seconds, *_ in steps) / 60:8.1f} min in all")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
