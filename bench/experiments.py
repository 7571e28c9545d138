#!/usr/bin/env python3
"""What do reports cost: of one experiment and of all, in one command, one by one, and by SQL alone?

Unit: seconds and CPU seconds of a fresh process, MiB at its peak. Floor: 10 s for all twelve experiments
of XAB over 20 days, with four metrics, three dimensions and every day.

    python experiments.py STORES [--rounds 3]     STORES: what `queries.py --stores STORES` loaded

The ways take turns. Reports are compared as JSON, byte for byte but for the command that made them;
a difference ends the program with status 1.
"""

import argparse
import csv
import io
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import measure

METRICS = """
[[metric]]
name = "gmv"
type = "mean"
table = "events"
value = "value"
where = "event = 'pay'"
[[metric]]
name = "payers"
type = "proportion"
table = "events"
where = "event = 'pay'"
[[metric]]
name = "clicks"
type = "count"
table = "events"
where = "event = 'click'"
[[metric]]
name = "duration"
type = "mean"
table = "events"
value = "duration_ms"
"""
DIMENSIONS = ["os", "city", "app_version"]


def definition(experiment, arms, start, end):
    """A definition of an XAB experiment as `uplake report` reads it."""
    text = f"""name = "x{experiment}"
start = "{start}"
end = "{end}"
[exposures]
table = "exposures"
where = "exp_id = {experiment}"
user = "user_id"
variant = "variant"
time = "ts"
"""
    for arm in arms:
        control = "control = true\n" if arm == arms[0] else ""
        text += f'[[variant]]\nname = "v{arm}"\nvalue = "{arm}"\nshare = {1 / len(arms)!r}\n{control}'
    return text + METRICS + "".join(f'[[dimension]]\nname = "{name}"\n' for name in DIMENSIONS)


class Uplake:
    def __init__(self, binary, lake, cap):
        self.binary, self.lake, self.cap = binary, lake, cap

    def rows(self, sql):
        command = [self.binary, "sql", "--lake", self.lake, "--format", "csv", "-c", sql]
        return list(csv.reader(io.StringIO(measure.run(command, cap_seconds=self.cap).out)))[1:]

    def report(self, paths, *options, while_running=None):
        """The cost of one command, and its reports without what says how they were made."""
        command = [self.binary, "report", "--lake", self.lake, "--format", "json", *paths, *options]
        command += ["--dimension", ",".join(DIMENSIONS)]
        cost = measure.run(command, cap_seconds=self.cap, while_running=while_running)
        made = json.loads(cost.out)
        made = made if isinstance(made, list) else [made]
        for report in made:
            del report["reproduce"]
        return cost, made

    def definitions(self, folder):
        """Files in `folder` that define all experiments of the lake, over all its days."""
        arms = {}
        for experiment, arm in self.rows("SELECT DISTINCT exp_id, variant FROM exposures ORDER BY 1, 2"):
            arms.setdefault(experiment, []).append(arm)
        [[start, end]] = self.rows("SELECT min(dt), max(dt) + INTERVAL '1 day' FROM events")
        paths = []
        for experiment, names in arms.items():
            paths.append(Path(folder) / f"x{experiment}.toml")
            paths[-1].write_text(definition(experiment, names, start[:10], end[:10]), encoding="utf-8")
        return paths

    def one_by_one(self, paths):
        costs, reports = zip(*(self.report([path]) for path in paths))
        whole = measure.Cost(
            sum(c.seconds for c in costs), sum(c.cpu_seconds for c in costs), max(c.peak_bytes for c in costs), "", ""
        )
        return whole, [report for made in reports for report in made]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cap", type=float, default=600, help="seconds a command may need")
    parser.add_argument("--skip-sql", action="store_true", help="leave out the slow way")
    args = parser.parse_args()
    uplake = Uplake(os.environ.get("UPLAKE", "target/release/uplake"), args.stores / "lake", args.cap)
    with tempfile.TemporaryDirectory() as folder:
        paths = uplake.definitions(folder)
        ways = {
            "first experiment": lambda: uplake.report(paths[:1]),
            f"all {len(paths)}": lambda: uplake.report(paths),
            f"all {len(paths)}, one by one": lambda: uplake.one_by_one(paths),
            "first experiment, SQL": lambda: uplake.report(paths[:1], "--no-index"),
        }
        if args.skip_sql:
            del ways["first experiment, SQL"]
        costs, made = {way: [] for way in ways}, {}
        for _ in range(args.rounds):
            for way, ask in ways.items():
                cost, made[way] = ask()
                costs[way].append(cost)
    print("| | s, best | s, median | CPU s, median | peak MiB |\n|---|---:|---:|---:|---:|")
    for way, runs in costs.items():
        seconds = [run.seconds for run in runs]
        cpu = statistics.median(run.cpu_seconds for run in runs)
        peak = max(run.peak_bytes for run in runs) / measure.MIB
        print(f"| {way} | {min(seconds):.2f} | {statistics.median(seconds):.2f} | {cpu:.1f} | {peak:.0f} |")
    every = made[f"all {len(paths)}"]
    for way, reports in made.items():
        if reports != every[: len(reports)]:
            sys.exit(f"the reports of `{way}` are not those of one command for all")
    print(f"\nreports are equal; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
