"""The command line of the suites: files run at once, counts by verdict and rule, what to look at.

Not here: judging (`sqllogictest`).
"""

import argparse
import collections
import json
import os
import shutil
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

import sqllogictest as slt

SLOWEST = 10
BAD = ("wrong", "failed", "bug")


def arguments(doc):
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("checkout", help="a checkout of the project")
    options.add_argument("files", nargs="*", help="only these files of it")
    options.add_argument("--jobs", type=int, default=os.cpu_count(), help="files at once")
    options.add_argument("--show", default="wrong,failed,bug", help="verdicts to print in full")
    options.add_argument("--json", help="write every record that did not pass here, one a line")
    return options.parse_args()


def binary():
    found = shutil.which(os.environ.get("UPLAKE_BIN", "uplake"))
    if found is None:
        raise SystemExit("no uplake: set UPLAKE_BIN to the binary")
    return os.path.abspath(found)


def one(job):
    suite, path, command = job
    started = time.monotonic()
    try:
        return slt.run_file(suite, path, command), None, time.monotonic() - started
    except Exception:
        return [], f"{path}: {traceback.format_exc()}", 0.0


def run(suite, paths, asked):
    """Runs the files; returns the exit code."""
    jobs = [(suite, path, binary()) for path in paths]
    with ProcessPoolExecutor(asked.jobs) as pool:
        results = list(pool.map(one, jobs))
    for seconds, path in sorted(((r[2], j[1]) for r, j in zip(results, jobs)), reverse=True)[
        :SLOWEST
    ]:
        print(f"{seconds:7.1f} s  {path}")
    unread = [problem for _, problem, _ in results if problem]
    verdicts = [v for found, _, _ in results for v in found]
    print("\n".join(unread))
    return finish(suite.name, verdicts, asked) or (1 if unread else 0)


def finish(name, verdicts, asked):
    """Prints what was asked for and the summary; returns the exit code."""
    for verdict in verdicts:
        if verdict.kind in asked.show.split(","):
            print(text(verdict))
    if asked.json:
        write_json(asked.json, verdicts)
    print("\n".join(summary(name, verdicts)))
    return 1 if any(v.kind in BAD for v in verdicts) else 0


def text(verdict):
    record = verdict.record
    wanted = "\n".join(record.rows or []) or record.error or record.expects
    rule = f" ({verdict.rule})" if verdict.rule else ""
    return (
        f"--- {verdict.kind}{rule} {verdict.path}:{record.line}\n{record.sql}\n"
        f"expected:\n{wanted}\ngot:\n{verdict.got}\n"
    )


def write_json(path, verdicts):
    with open(path, "w") as out:
        for v in verdicts:
            if v.kind != "passed":
                out.write(
                    json.dumps(
                        {
                            "verdict": v.kind,
                            "rule": v.rule,
                            "file": v.path,
                            "line": v.record.line,
                            "sql": v.record.sql,
                            "expected": v.record.rows or v.record.error,
                            "expects": v.record.expects,
                            "got": v.got,
                        }
                    )
                    + "\n"
                )


def summary(name, verdicts):
    """Lines of Markdown: the suite's row, then what was refused and why."""
    kinds = collections.Counter(v.kind for v in verdicts)
    rules = collections.Counter(v.rule for v in verdicts if v.kind == "refused")
    judged = [kinds[k] for k in ("passed", "refused", "failed", "wrong", "bug")]
    lines = [
        "| suite | records | passed | refused | failed | wrong | bugs |",
        "|---|---|---|---|---|---|---|",
        f"| {name} | {len(verdicts)} | " + " | ".join(map(str, judged)) + " |",
        "",
    ]
    return lines + [f"| {count} | {rule} |" for rule, count in rules.most_common()]
