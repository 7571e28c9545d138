"""`uplake power` on the command line: plans are those of the formulas in docs/statistics/planning.md."""

import re
import subprocess

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
