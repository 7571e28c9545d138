"""`uplake power` on the command line: plans are those of the formulas in docs/statistics/planning.md."""

import json
import math
import re
import subprocess
from statistics import NormalDist

import support


def _power(*args, code=0):
    done = subprocess.run([support.BINARY, "power", *args], capture_output=True, text=True, timeout=support.TIMEOUT_SECONDS)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def _users(*args):
    """Of all arms."""
    return int(re.search(r"([\d,]+) in [\w]+ arms", _power(*args))[1].replace(",", ""))


EXAMPLE = ["--share", "0.1", "--lift", "0.05"]


def a_plan_is_for_the_test_that_will_be_used():
    plain = _users(*EXAMPLE)
    assert plain == 115_522
    said = _power(*EXAMPLE, "--per-day", "20000", "--users", "20000")
    assert "57,761 users per arm" in said and "6 days at 20,000" in said and "38 %" in said
    looks = [_users(*EXAMPLE, "--looks", n) for n in ("1", "4", "28")]
    assert abs(looks[0] - plain) <= 4 and plain < looks[1] < looks[2] < 1.12 * plain
    assert 1.5 * plain < _users(*EXAMPLE, "--anytime") < 2.5 * plain
    uneven = _users(*EXAMPLE, "--control-share", "0.9")
    assert abs(uneven / plain - 0.25 / 0.09) < 1e-3
    assert "users in the control and" in _power(*EXAMPLE, "--control-share", "0.9")
    four = _power(*EXAMPLE, "--treatments", "3")
    assert "in 4 arms" in four and "divided by 3 comparisons" in four
    shops = _power(*EXAMPLE, "--cluster-size", "20", "--icc", "0.05")
    assert abs(_users(*EXAMPLE, "--cluster-size", "20", "--icc", "0.05") / plain - 1.95) < 1e-3
    assert " clusters" in shops


def falls_and_metrics_below_zero_can_be_planned():
    fall = _power("--share", "0.1", "--lift", "-0.05")
    assert "a lift of -5.00 %" in fall
    below = _users("--mean", "-25", "--deviation", "80", "--lift", "-0.05")
    assert below == _users("--mean", "25", "--deviation", "80", "--lift", "0.05")


def what_cannot_be_planned_is_said():
    for args in (["--looks", "0"], ["--looks", "101"], ["--looks", "4", "--anytime"], ["--cluster-size", "20"],
                 ["--users", "10", "--looks", "2"]):
        assert "error" in _power(*EXAMPLE, *args, code=2)
    for args in (["--treatments", "0"], ["--control-share", "1.5"], ["--cluster-size", "0", "--icc", "0.1"],
                 ["--cluster-size", "5", "--icc", "2"]):
        assert "cannot be planned" in _power(*EXAMPLE, *args, code=1)


HISTORY = """
CREATE TABLE visits (user_id bigint, ts timestamp, amount double);
INSERT INTO visits SELECT value, to_timestamp_seconds(1790812800 + 86400 * (value % 10)),
  10 + (value * 7919 % 101) / 10.0 FROM range(0, 4000);
INSERT INTO visits SELECT value, TIMESTAMP '2026-09-25', 10 + (value * 7919 % 101) / 10.0 + value % 3 FROM range(0, 4000);
"""
DEFINITION = """
name = "plan"
start = "2026-10-01"
end = "2026-10-11"
[exposures]
table = "visits"
user = "user_id"
variant = "CASE WHEN gb_bucket('plan', user_id, 2) < 0.5 THEN 'control' ELSE 'free' END"
time = "ts"
[[variant]]
name = "control"
share = 0.5
[[variant]]
name = "free"
share = 0.5
[[metric]]
name = "amount"
type = "mean"
table = "visits"
value = "amount"
[[metric]]
name = "adjusted"
type = "mean"
table = "visits"
value = "amount"
cuped = { pre = "20 days" }
"""


def a_definition_is_planned_from_the_lakes_history(tmp_path):
    lake, path = tmp_path / "lake", tmp_path / "plan.toml"
    path.write_text(DEFINITION)
    run = [support.BINARY, "sql", "--lake", lake, "-c", HISTORY]
    subprocess.run(run, check=True, capture_output=True, timeout=support.TIMEOUT_SECONDS)
    said = _power("--lake", str(lake), "--like", str(path), "--lift", "0.01")
    made = subprocess.run([support.BINARY, "report", "--lake", lake, path, "--format", "json"], check=True,
                          capture_output=True, text=True, timeout=support.TIMEOUT_SECONDS)
    report = json.loads(made.stdout)
    units = [arm["units"] for arm in report["arms"]]
    assert sum(units) == 4000 and "4,000 users of 10 days" in said
    needed = {}
    for metric in report["metrics"]:
        [comparison] = metric["comparisons"]
        variance = comparison["absolute"]["error"] ** 2 / (1 / units[0] + 1 / units[1])
        # Two goals share the error; the normal approximation is right to a few users.
        z = NormalDist().inv_cdf(1 - 0.025 / 2) + NormalDist().inv_cdf(0.8)
        effect = 0.01 * metric["values"][0]["value"]
        users = 4 * z * z * variance / effect ** 2
        line = next(line for line in said.splitlines() if line.startswith(metric["name"]))
        found, days = re.search(r"([\d,]+) +(\d+) +[\d.]+ %", line).groups()
        needed[metric["name"]] = int(found.replace(",", ""))
        assert abs(needed[metric["name"]] - users) < 8, line
        # 400 users a day.
        assert int(days) == math.ceil(needed[metric["name"]] / 400), line
    assert needed["adjusted"] < 0.5 * needed["amount"]
    assert "divided by 2 comparisons" in said
    assert "there is no experiment `no`" in _power("--lake", str(lake), "--like", "no", "--lift", "0.01", code=1)
    assert "cannot be planned" in _power("--lake", str(lake), "--like", str(path), "--lift", "0", code=1)
    assert "error" in _power("--like", str(path), "--lift", "0.01", "--share", "0.1", code=2)
