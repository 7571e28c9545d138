"""Random reports against a plain model, for so many reports or so long.

    python run.py --reports 10000
    python run.py --seconds 120 --seed 7 --uplake target/release/uplake

Prints each failure as a script to paste, then what was compared; the exit code is 1 if anything
failed. Without --seed the seed is the clock's, and is printed.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

# A report's matrices are small: threads of the linear algebra only get into each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if not __package__:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from reports import command  # noqa: E402
from reports.tester import Tester  # noqa: E402


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--reports", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, help="number of the first world")
    parser.add_argument("--world", type=int, help="this world alone")
    parser.add_argument("--uplake", default=command.binary(), help="the command to test")
    asked = parser.parse_args(arguments)
    seed = asked.seed if asked.seed is not None else int(time.time()) * 1000
    with tempfile.TemporaryDirectory(prefix="uplake-reports-") as folder:
        tester = Tester(asked.uplake, pathlib.Path(folder))
        if asked.world is not None:
            tester.world(asked.world)
        else:
            print(f"first world: {seed}", flush=True)
            tester.run(seed, asked.reports, asked.seconds or (None if asked.reports else 60))
    print(summary(tester.tally))
    return 1 if tester.tally.failures else 0


def summary(tally):
    lines = [failure.text for failure in tally.failures[:20]]
    lines += ["", f"reports compared with the model: {tally.reports}, "
                  f"{len(tally.failures)} failed; {tally.numbers} values, "
                  f"{tally.unsure} groups of values left out as ill-conditioned",
              f"the same asked another way: {tally.other_ways}; "
              f"against their own SQL: {tally.by_sql}",
              "seconds: " + ", ".join(f"{k} {v:.0f}" for k, v in tally.seconds.items())]
    for failure in tally.failures:
        lines.append(f"failed: world {failure.world} batch {failure.batch} {failure.name}: "
                     f"{failure.kind}")
    lines += [f"{name}: {count}" for name, count in sorted(tally.options.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
