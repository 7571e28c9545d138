"""Reports from the command line against published and independently computed figures.

The golden values come from scipy, statsmodels, gbstats and tea-tasting (golden.json, made by
the scripts beside it). Without that file (tests/real_data.py) the small table below, copied from it, still holds.
"""

import csv
import json
import math
import os
import re
import subprocess

import pytest

import support
import real_data

GOLDEN = real_data.FOLDER / "golden"
# golden.json: mean_revenue_A_vs_B.reference, ratio_orders_per_session_A_vs_B.reference,
# proportion_converted_A_vs_B.reference_unpooled_n; acceptance_real_data.json: cookie_cats.
COOKIE_CATS = {
    ("gate_30", "FALSE", "FALSE"): 22840, ("gate_30", "FALSE", "TRUE"): 1826,
    ("gate_30", "TRUE", "FALSE"): 13358, ("gate_30", "TRUE", "TRUE"): 6676,
    ("gate_40", "FALSE", "FALSE"): 23597, ("gate_40", "FALSE", "TRUE"): 1773,
    ("gate_40", "TRUE", "FALSE"): 13613, ("gate_40", "TRUE", "TRUE"): 6506,
}
COOKIE_CATS_EXPECTED = {
    "retention_7": {
        "absolute": (-0.008201298315205913, 0.0025920140082940444, 0.0015563425267870468),
        "relative": (-0.043119034896460164, 0.013329603155584745, 0.0012175794283324493),
    },
    "retention_1": {
        "absolute": (-0.005905169787341458, 0.003309892280304391, 0.07441122266833311),
        "relative": (-0.01317565585974659, 0.007336075180673311, 0.0724964584333978),
    },
}
COOKIE_CATS_SRM = 0.008607987810836262


def _close(ours, theirs, relative, what):
    assert math.isclose(ours, theirs, rel_tol=relative, abs_tol=1e-300), f"{what}: {ours} != {theirs}"


def _check_effect(ours, expected, what):
    """Tolerances of the golden data: 1e-12 on estimates and errors, 1e-9 on intervals, 1e-8 on p."""
    _close(ours["value"], expected["expected"], 1e-12 if abs(expected["expected"]) > 0.01 else 1e-11, what)
    _close(ours["error"], expected["se"], 1e-12, what + " error")
    _close(ours["p"], expected["p"], 1e-8, what + " p")
    if "ci" in expected:
        _close(ours["low"], expected["ci"][0], 1e-9, what + " low")
        _close(ours["high"], expected["ci"][1], 1e-9, what + " high")


def _report(lake, definition, folder, *options):
    path = folder / "experiment.toml"
    path.write_text(definition)
    return json.loads(lake.run("report", path, "--format", "json", *options).out)


def a_view_is_not_the_table_of_a_report(lake, folder):
    lake.run("sql", "-c", "CREATE TABLE t (user_id TEXT, variant TEXT, ts TIMESTAMP, amount DOUBLE);"
             "CREATE VIEW v AS SELECT * FROM t")
    definition = """
        name = "e"
        start = "2026-11-01"
        end = "2026-11-08"
        exposures = { table = "EXPOSURES", user = "user_id", variant = "variant", time = "ts" }
        variant = [{ name = "a", share = 0.5, control = true }, { name = "b", share = 0.5 }]
        metric = [{ name = "revenue", type = "mean", table = "METRIC", value = "amount" }]
    """
    path = folder / "e.toml"
    for exposures, metric in (("v", "t"), ("t", "v")):
        path.write_text(definition.replace("EXPOSURES", exposures).replace("METRIC", metric))
        lake.refused("report", path, says=["`v` is a view, and reports read tables", "CREATE TABLE … AS SELECT * FROM v"])


def _metric(report, name):
    return next(m for m in report["metrics"] if m["name"] == name)


COOKIE_DEFINITION = """
name = "cookie_cats"
lift = "delta"  # as the published figures are
[exposures]
table = "players"
user = "userid"
variant = "version"
[[variant]]
name = "gate_30"
share = 0.5
control = true
[[variant]]
name = "gate_40"
share = 0.5
[[metric]]
name = "retention_1"
type = "proportion"
table = "players"
user = "userid"
where = "retention_1"
[[metric]]
name = "retention_7"
type = "proportion"
table = "players"
user = "userid"
value = "retention_7"
"""


def cookie_cats_gives_the_published_retention(lake, folder):
    path = folder / "players.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["userid", "version", "retention_1", "retention_7"])
        number = 0
        for (version, first, seventh), users in COOKIE_CATS.items():
            for _ in range(users):
                number += 1
                writer.writerow([number, version, first, seventh])
    lake.load("players", path, "--cluster-by", "userid")
    report = _report(lake, COOKIE_DEFINITION, folder)
    assert [arm["users"] for arm in report["arms"]] == [44_700, 45_489]
    _close(report["health"]["sample_ratio"]["p"], COOKIE_CATS_SRM, 1e-8, "SRM")
    assert not report["health"]["sample_ratio"]["alarm"]
    for name, scales in COOKIE_CATS_EXPECTED.items():
        comparison = _metric(report, name)["comparisons"][0]
        for scale, (value, error, p) in scales.items():
            _close(comparison[scale]["value"], value, 1e-11, f"{name} {scale}")
            _close(comparison[scale]["error"], error, 1e-12, f"{name} {scale} error")
            _close(comparison[scale]["p"], p, 1e-8, f"{name} {scale} p")


GOLDEN_DEFINITION = """
name = "golden"
lift = "delta"  # as gbstats has it
correction = "none"
[exposures]
table = "users"
user = "user_id"
variant = "variant"
[[variant]]
name = "A"
share = 0.4
control = true
[[variant]]
name = "B"
share = 0.4
[[variant]]
name = "C"
share = 0.2
[[dimension]]
name = "country"
[[metric]]
name = "revenue"
type = "mean"
table = "users"
value = "revenue"
[[metric]]
name = "converted"
type = "proportion"
table = "users"
value = "converted"
[[metric]]
name = "orders_per_session"
type = "ratio"
table = "users"
numerator = { value = "orders" }
denominator = { value = "sessions" }
"""


def the_golden_users_give_the_golden_figures(lake, folder):
    if not GOLDEN.exists():
        pytest.skip(real_data.reason("golden/golden.json") + "; only Cookie Cats was checked")
    golden = json.loads((GOLDEN / "golden.json").read_text())
    lake.load("users", GOLDEN / "inputs/users.csv", "--cluster-by", "user_id")
    report = _report(lake, GOLDEN_DEFINITION, folder, "--dimension", "country")
    assert [arm["users"] for arm in report["arms"]] == golden["srm"]["counts"]
    _close(report["health"]["sample_ratio"]["p"], golden["srm"]["scipy_chisquare"], 1e-8, "SRM")
    for metric, section, reference in [
        ("revenue", "mean_revenue_A_vs_B", "reference"),
        ("converted", "proportion_converted_A_vs_B", "reference_unpooled_n"),
        ("orders_per_session", "ratio_orders_per_session_A_vs_B", "reference"),
    ]:
        comparison = _metric(report, metric)["comparisons"][0]
        expected = golden[section][reference]
        _check_effect(comparison["absolute"], expected["absolute"], f"{metric} absolute")
        _check_effect(comparison["relative"], expected["relative_delta"], f"{metric} relative")
    by_country = golden["breakdown_revenue_by_country_A_vs_B"]
    rows = {row["value"]: row for row in report["breakdowns"][0]["rows"]}
    for country, expected in by_country.items():
        revenue = next(m for m in rows[country]["metrics"] if m["name"] == "revenue")
        _check_effect(revenue["comparisons"][0]["relative"], expected, f"revenue in {country}")


def the_same_snapshot_gives_the_same_bytes(lake, folder):
    path = folder / "users.csv"
    lines = ["user_id,variant,revenue"]
    lines += [f"u{i},{'AB'[i % 2]},{(i * 7919 % 1000) / 7}" for i in range(5000)]
    path.write_text("\n".join(lines))
    lake.load("users", path)
    definition = GOLDEN_DEFINITION.split("[[variant]]\nname = \"C\"")[0].replace("0.4", "0.5")
    definition += '[[metric]]\nname = "revenue"\ntype = "mean"\ntable = "users"\nvalue = "revenue"\n'
    (folder / "e.toml").write_text(definition)
    for format in ["text", "json", "html"]:
        runs = {
            lake.run("report", folder / "e.toml", "--format", format, "--threads", threads).out
            for threads in (1, 2, 2, 5)
        }
        assert len(runs) == 1, format


def a_report_that_cannot_be_made_says_why(lake, folder):
    lake.run("sql", "-c", "create table users as select 'u' as user_id, 'A' as variant, 1.0 as revenue")
    path = folder / "e.toml"
    for change, says in [
        (('type = "mean"', 'type = "median"'), ["e.toml", "median", "mean"]),
        (('table = "users"\nuser', 'table = "nobody"\nuser'), ["nobody"]),
        (('value = "revenue"', 'value = "revenu"'), ["revenu"]),
        (("share = 0.2", "share = 0.9"), ["share"]),
        (("name = \"golden\"", "nam = \"golden\""), ["nam", "name"]),
    ]:
        text = GOLDEN_DEFINITION.replace(*change, 1)
        assert text != GOLDEN_DEFINITION, change
        path.write_text(text)
        lake.refused("report", path, says=says)
    lake.refused("report", "nothing_of_that_name", says=["nothing_of_that_name"])


def the_demo_finds_what_was_planted(tmp_path):
    """Planted: conversion +6 %, order value -2 %, load time unchanged; 4 % of exposures lost in new_checkout."""
    out = tmp_path / "demo"
    done = subprocess.run(
        [support.BINARY, "demo", str(out)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Sample ratio mismatch" in done.stdout and "Do not trust these results" in done.stdout
    report = json.loads((out / "report.json").read_text())
    found = {m["name"]: m["comparisons"][0]["relative"] for m in report["metrics"]}
    for name, planted in [("conversion", 0.06), ("average_order_value", -0.02), ("page_load_ms", 0.0)]:
        effect = found[name]
        assert effect["low"] < planted < effect["high"], f"{name}: {effect}"
    assert found["conversion"]["p"] < 0.01 and found["average_order_value"]["p"] < 0.01
    assert found["revenue_per_user"]["p"] < 0.01 and found["revenue_per_user"]["value"] > 0
    assert found["page_load_ms"]["p"] > 0.01
    assert report["health"]["users_in_many_variants"] == 37
    html = (out / "report.html").read_text()
    assert html.startswith("<!doctype html>") or html.startswith("<!DOCTYPE html>")
    again = subprocess.run([support.BINARY, "demo", str(out)], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    other = tmp_path / "mine"
    other.mkdir()
    (other / "precious").write_text("x")
    refused = subprocess.run([support.BINARY, "demo", str(other)], capture_output=True, text=True)
    assert refused.returncode == 1 and "not a demo" in refused.stderr
    assert (other / "precious").read_text() == "x"


REMEMBERED = """
name = "remembered"
start = "2026-11-01"
end = "2026-12-01"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
[[variant]]
name = "a"
share = 0.5
control = true
[[variant]]
name = "b"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
where = "event = 'buy'"
cuped = { pre = "7 days" }
[[metric]]
name = "buys"
type = "count"
table = "events"
where = "event = 'buy'"
"""


def what_is_remembered_changes_nothing_but_the_files_that_are_read(lake, folder, tmp_path):
    """Day after day, with late rows, a deletion and a compaction, against the same without remembering."""
    random = support.seeded("remembered")
    environment = {**os.environ, "UPLAKE_CACHE": str(tmp_path / "cache")}

    def day(number, users):
        start = f"2026-11-{number:02}T"
        moment = lambda: start + f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}Z"
        rows = [
            {"user_id": f"u{random.randrange(users)}", "ts": moment(), "event": random.choice(["view", "buy"]),
             "amount": round(random.random() * 30, 2)}
            for _ in range(600)
        ]
        path = folder / f"events{number}-{random.random()}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        lake.load("events", path, "--id-domain", "user_id=users", "--cluster-by", "user_id,ts")
        exposed = [
            {"user_id": f"u{user}", "ts": moment(), "variant": "ab"[user % 2]}
            for user in random.sample(range(users), users // 5)
        ]
        path = folder / f"exposures{number}-{random.random()}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in exposed))
        lake.load("exposures", path, "--id-domain", "user_id=users")

    definition = folder / "remembered.toml"
    definition.write_text(REMEMBERED)

    def check(what):
        plain = lake.run("report", definition, "--format", "json", env=environment).out
        asked = lake.run("report", definition, "--format", "json", "--remember", env=environment)
        assert asked.out == plain, what
        by_sql = lake.run("report", definition, "--format", "json", "--no-index", env=environment).out
        assert asked.out == by_sql, what
        used, made = re.search(r"remembered: (\d+) data files before, (\d+) now", asked.err).groups()
        return int(used), int(made)

    for number in range(3, 7):
        day(number, 200)
    assert check("first") == (0, 4)
    assert check("again") == (4, 0)
    day(7, 220)
    assert check("the next day") == (4, 1)
    # Late: users are exposed before rows that were added up as one.
    day(5, 220)
    used, made = check("a late day")
    assert used + made == 6 and made >= 1, (used, made)
    assert check("and again") == (6, 0)
    lake.run("table", "compact", "events")
    assert check("after a compaction") == (0, 1)
    lake.run("sql", "-c", "DELETE FROM events WHERE amount > 29")
    assert check("after a deletion") == (0, 1)
    assert check("in the end") == (1, 0)


def what_is_remembered_is_of_the_table_and_the_sets_that_there_are(lake, folder, tmp_path):
    random = support.seeded("remembered names")
    environment = {**os.environ, "UPLAKE_CACHE": str(tmp_path / "cache")}
    schema = "user_id text, ts timestamptz, event text, item decimal(18,0), amount double"
    for day in range(3, 7):
        rows = [
            {"user_id": f"u{random.randrange(50)}", "ts": f"2026-11-{day:02}T12:00:00Z", "event": "buy",
             "item": str(random.randrange(3)), "amount": random.randrange(30)}
            for _ in range(200)
        ]
        path = folder / f"events{day}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        lake.load("Ünal_Events", path, "--schema", schema, "--id-domain", "user_id=users", "--cluster-by", "user_id,ts")
    exposed = [{"user_id": f"u{user}", "ts": "2026-11-01T00:00:00Z", "variant": "ab"[user % 2]} for user in range(50)]
    path = folder / "exposures.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in exposed))
    lake.load("exposures", path, "--id-domain", "user_id=users")
    definition = folder / "remembered.toml"

    def reports(where):
        text = REMEMBERED.replace('"events"', '"Ünal_Events"').replace("event = 'buy'", where)
        definition.write_text(text)
        plain = lake.run("report", definition, "--format", "json", "--no-index", env=environment).out
        for _ in range(2):
            asked = lake.run("report", definition, "--format", "json", "--remember", env=environment)
            assert asked.out == plain, where
        return plain

    reports("event = 'buy'")
    found = []
    for item in range(3):
        lake.run("sql", "-c", f"create or replace id set promo as select cast({item} as bigint)")
        found.append(reports("item in id set promo"))
    assert len(set(found)) == 3
