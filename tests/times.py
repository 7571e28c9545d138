#!/usr/bin/env python3
"""How long each step took, and the slowest tests of all kinds.

    tests/times.py FOLDER       what tests/step has written there

Reads the logs as people do: lines of libtest with `--report-time`, of pytest's `--durations`, and
of node's test runner. A log whose lines look different adds nothing; the steps are always there.
"""
import pathlib
import re
import sys

SLOWEST = 40
PROGRAM = re.compile(r"^\s+Running (?:unittests )?(\S+) \(.*?([a-z0-9_]+)-[0-9a-f]{16}\)")
LIBTEST = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. \w+ <([0-9.]+)s>")
PYTEST = re.compile(r"^([0-9.]+)s (?:call|setup|teardown)\s+(\S.*)$")
NODE = re.compile(r"^\s*✔ (.*) \(([0-9.]+)ms\)$")


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


def main(folder):
    steps = [line.split("\t") for line in (folder / "steps.tsv").read_text().splitlines()]
    tests = [test for log in sorted(folder.glob("*.log")) for test in tests_of(log.read_text())]
    print(f"The {min(SLOWEST, len(tests))} slowest of the tests that tell their time:")
    for seconds, name in sorted(tests, reverse=True)[:SLOWEST]:
        print(f"{seconds:8.1f} s  {name}")
    print("Steps:")
    for seconds, code, name in steps:
        print(f"{float(seconds):8.1f} s  {name}{'' if code == '0' else f'  FAILED ({code})'}")
    print(f"{sum(float(seconds) for seconds, *_ in steps) / 60:8.1f} min in all")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
