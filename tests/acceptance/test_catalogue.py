"""The catalogue of metrics, `uplake experiments` and saved results.

Oracles: the same definition with its metrics written out, the files that are in the lake, and SciPy."""

import copy
import json
import random
import shutil

import numpy as np
import pyarrow as pa
import pytest
from scipy import optimize

import support
from support import Lake, write_parquet
from test_buckets import bucket, server  # noqa: F401  (fixtures)

REVENUE = '''# What a user pays.
[[metric]]
name = "revenue"
type = "mean"
table = "orders"
value = "amount"
cap = "99 %"  # whales
minimum_effect = 0.5
owner = "growth"
tags = ["money", "core"]
description = "All that is paid"
'''
BUYING = '''[[metric]]
name = "buying"
type = "proportion"
table = "orders"
guardrail = true
tags = ["core"]
'''
HEAD = '''name = "NAME"
start = "2026-11-01"
end = "2026-11-15"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
where = "experiment = 'NAME'"
[[variant]]
name = "control"
share = 0.5
[[variant]]
name = "treatment"
share = 0.5
'''
USED = '[[metric]]\nuse = "revenue"\n[[metric]]\nuse = "buying"\n'


def _shop(lake, folder, lifts, skewed=()):
    """Per experiment 300 users an arm, one order of most of them; of the skewed 150 in the treatment."""
    rng = random.Random(22)
    exposures, orders = [], []
    for experiment, lift in lifts.items():
        for number in range(600):
            treated = number % 2
            if treated and experiment in skewed and number % 4 == 1:
                continue
            user = f"{experiment}-{number}"
            exposures.append((user, experiment, ["control", "treatment"][treated]))
            if rng.random() < 0.8:
                orders.append((user, rng.lognormvariate(3, 0.6) * (1 + lift * treated)))
    at = np.datetime64("2026-11-02T10:00:00", "us")
    users, names, variants = zip(*exposures)
    table = pa.table({"user_id": users, "experiment": names, "variant": variants, "ts": [at] * len(users)})
    lake.load("exposures", write_parquet(folder / "exposures.parquet", table))
    users, amounts = zip(*orders)
    later = [at + np.timedelta64(1, "h")] * len(users)
    table = pa.table({"user_id": users, "amount": amounts, "ts": later})
    lake.load("orders", write_parquet(folder / "orders.parquet", table))


def _file(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def _definition(folder, name, metrics):
    return _file(folder, f"{name}.toml", HEAD.replace("NAME", name) + metrics)


def _report(lake, name, *options):
    return json.loads(lake.run("report", name, "--format", "json", *options).out)


def _figures(report):
    """A report's metrics, without where they come from."""
    metrics = copy.deepcopy(report["metrics"])
    for metric in metrics:
        metric.pop("catalogue", None)
    return metrics


def _stored(lake, under="metrics"):
    root = lake.path / "_uplake" / under
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def every_change_is_a_version_that_stays(lake, folder):
    both = _file(folder, "m.toml", f"{REVENUE}\n{BUYING}")
    assert lake.run("metric", "set", both).out == "set revenue, version 1\nset buying, version 1\n"
    first = _stored(lake)
    assert set(first) == {"revenue/00000001.toml", "buying/00000001.toml"}
    said = lake.run("metric", "set", both).out
    assert said == "revenue is as it was in version 1\nbuying is as it was in version 1\n"
    changed = REVENUE.replace('"growth"', '"checkout"').replace("whales", "very rich")
    said = lake.run("metric", "set", _file(folder, "m2.toml", f"{BUYING}\n{changed}")).out
    assert said == "buying is as it was in version 1\nset revenue, version 2\n"
    now = _stored(lake)
    assert {path: now[path] for path in first} == first and set(now) - set(first) == {"revenue/00000002.toml"}

    shown = lake.run("metric", "show", "revenue").out
    assert shown.startswith("# revenue, version 2, set 20") and shown.endswith(f"\n\n{changed}")
    assert lake.run("metric", "show", "revenue@1").out.endswith(f"\n\n{REVENUE}")
    # What is shown can be set again.
    assert "is as it was" in lake.run("metric", "set", _file(folder, "again.toml", shown)).out
    history = lake.run("metric", "history", "revenue").out.splitlines()
    assert [line.split()[0] for line in history] == ["2", "1"]
    assert [line.split()[-1] for line in history] == ["checkout", "growth"]

    text = lake.run("metric", "list").out.splitlines()
    assert [line.split()[:4] for line in text] == [
        ["buying", "1", "proportion", "guardrail"], ["revenue", "2", "mean", "goal"]]
    listed = json.loads(lake.run("metric", "list", "--format", "json").out)
    revenue = listed[1]
    assert revenue.pop("set_at").endswith("Z")
    assert revenue == {
        "name": "revenue", "version": 2, "type": "mean", "role": "goal", "direction": "increase",
        "minimum_effect": 0.5, "owner": "checkout", "tags": ["money", "core"], "description": "All that is paid"}
    tagged = json.loads(lake.run("metric", "list", "--tag", "money", "--format", "json").out)
    assert [metric["name"] for metric in tagged] == ["revenue"]


def an_empty_catalogue_says_how_it_is_filled(lake, folder):
    assert "no metrics" in lake.run("metric", "list").out
    assert lake.run("metric", "list", "--format", "json").out == "[]\n"
    lake.refused("metric", "show", "x", says=["no metric `x`", "uplake metric set"])
    path = _definition(folder, "e", '[[metric]]\nuse = "revenue"\n')
    lake.refused("report", path, says=["e.toml:17", "`revenue`", "uplake metric set"])
    assert not (lake.path / "_uplake").exists(), "reading makes nothing"


def a_report_by_name_is_the_report_of_the_metrics_written_out(lake, folder):
    _shop(lake, folder, {"e": 0.1})
    lake.run("metric", "set", _file(folder, "m.toml", f"{REVENUE}\n{BUYING}"))
    used = _report(lake, _definition(folder, "e", USED))
    written = _report(lake, _definition(folder, "e", f"{REVENUE}\n{BUYING}"))
    assert _figures(used) == _figures(written)
    assert used["metrics"][0]["comparisons"][0]["relative"]["value"] != 0
    assert [metric["catalogue"] for metric in used["metrics"]] == [
        {"name": "revenue", "version": 1, "overrides": []}, {"name": "buying", "version": 1, "overrides": []}]
    assert "catalogue" not in written["metrics"][0]
    assert "Metrics of the catalogue: revenue version 1; buying version 1." in used["method"]
    overridden = '[[metric]]\nuse = "revenue"\ncap = 30\nwindow = "7 days"\n'
    own = _report(lake, _definition(folder, "e", overridden))
    plain = REVENUE.replace('cap = "99 %"  # whales', 'cap = 30\nwindow = "7 days"')
    assert _figures(own) == _figures(_report(lake, _definition(folder, "e", plain)))
    assert own["metrics"][0]["catalogue"]["overrides"] == ["cap", "window"]
    assert own["metrics"][0]["comparisons"] != used["metrics"][0]["comparisons"]


def a_report_is_made_again_after_the_catalogue_has_changed(lake, folder):
    _shop(lake, folder, {"e": 0.1})
    lake.run("metric", "set", _file(folder, "m.toml", f"{REVENUE}\n{BUYING}"))
    lake.run("experiments", "set", _definition(folder, "e", USED))
    before = _report(lake, "e")
    lake.run("metric", "set", _file(folder, "m2.toml", REVENUE.replace('"amount"', '"amount * amount"')))
    after = _report(lake, "e")
    assert after["metrics"][0]["catalogue"]["version"] == 2
    assert after["metrics"][0]["comparisons"] != before["metrics"][0]["comparisons"]
    pinned = before["reproduce"]["definition"]
    assert pinned == HEAD.replace("NAME", "e") + USED.replace('"revenue"', '"revenue@1"').replace(
        '"buying"', '"buying@1"')
    again = _report(lake, _file(folder, "again.toml", pinned))
    for report in (before, again):
        report["reproduce"].pop("command")
    assert again == before
    # The page and the text say the version, too.
    assert "revenue version 2; buying version 1" in " ".join(lake.run("report", "e").out.split())
    assert "revenue version 2; buying version 1" in lake.run("report", "e", "--format", "html").out


def effects_that_cannot_matter_are_noted(lake, folder):
    _shop(lake, folder, {"e": 0.0})
    lake.run("metric", "set", _file(folder, "m.toml", REVENUE))
    path = _definition(folder, "e", '[[metric]]\nuse = "revenue"\n')
    report = _report(lake, path)
    lift = report["metrics"][0]["comparisons"][0]["relative"]
    assert -0.5 < lift["low"] < lift["high"] < 0.5
    note = "smaller than 50 %, which is the least that matters (95 % interval)"
    assert any(note in said for said in report["metrics"][0]["notes"])
    assert note in " ".join(lake.run("report", path).out.split())
    least = max(abs(lift["low"]), abs(lift["high"]))
    for minimum, noted in [(least * 1.001, True), (least * 0.999, False)]:
        path = _definition(folder, "e", f'[[metric]]\nuse = "revenue"\nminimum_effect = {minimum!r}\n')
        assert bool(_report(lake, path)["metrics"][0]["notes"]) == noted


BAD_METRICS = [
    ('name = "revenue"', 'name = "a/b"', ["`a/b`", "letters, digits"]),
    ('name = "revenue"', 'name = ".."', ["`..`"]),
    ('name = "revenue"', 'name = "a\\u001b[2Jb"', ["letters, digits"]),
    ('name = "revenue"', 'name = "a\\nb"', ["letters, digits"]),
    ('name = "revenue"', 'name = "_x"', ["kept for uplake"]),
    ('name = "revenue"', f'name = "{"a" * 200}"', ["longer than"]),
    ('name = "revenue"', 'name = ""', ["m.toml:3", "is empty"]),
    ('owner = "growth"', 'owner = 7', ["m.toml:9", "text in quotes"]),
    ('owner = ', 'ownr = ', ["m.toml:9", "did you mean `owner`"]),
    ('["money", "core"]', '"money"', ["m.toml:10", "a list of texts"]),
    ('0.5', '"50 %"', ["m.toml:8", "a number"]),
    ('type = "mean"', 'type = "mean"\nuse = "buying"', ["m.toml:5", "defined in full"]),
    ('[[metric]]', '[metric]', ["two brackets"]),
    ('[[metric]]', '[[metrics]]', ["did you mean `metric`"]),
    ('[[metric]]', '[[metric', ["m.toml:2"]),
]


@pytest.mark.parametrize("old,new,says", BAD_METRICS)
def what_is_no_metric_is_refused_and_nothing_is_written(lake, folder, old, new, says):
    bad = _file(folder, "m.toml", REVENUE.replace(old, new))
    good = _file(folder, "good.toml", BUYING)
    refused = lake.refused("metric", "set", good, bad, says=says)
    assert "\x1b" not in refused.err
    assert not (lake.path / "_uplake").exists()


def metrics_twice_or_not_there_are_refused(lake, folder):
    one, two = _file(folder, "a.toml", REVENUE), _file(folder, "b.toml", REVENUE.replace("99", "98"))
    lake.refused("metric", "set", one, two, says=["b.toml", "`revenue`", "another of these files"])
    lake.refused("metric", "set", folder / "none.toml", says=["none.toml"])
    _file(folder, "bytes.toml", "").write_bytes(b"\xff\xfe")
    lake.refused("metric", "set", folder / "bytes.toml", says=["bytes.toml"])
    lake.run("metric", "set", one)
    lake.refused("metric", "show", "revenu", says=["it has revenue"])
    lake.refused("metric", "show", "revenue@2", says=["versions 1 to 1"])
    lake.refused("metric", "show", "revenue@x", says=["NAME@VERSION"])
    lake.refused("metric", "history", "../experiments", says=["no metric"])
    for use, says in [('"revenu"', "did you mean `revenue`?"), ('"revenue@2"', "not there yet"),
                      ('"../x"', "no metric of the catalogue"), ("1", "text in quotes")]:
        path = _definition(folder, "e", f"[[metric]]\nuse = {use}\n")
        lake.refused("report", path, says=["e.toml:17", says])
        lake.refused("experiments", "set", path, says=["e.toml:17", says])
    assert not (lake.path / "_uplake" / "experiments").exists()


def of_writers_at_once_each_has_a_version_or_is_told(lake, folder):
    lake.run("metric", "set", _file(folder, "m.toml", REVENUE))
    contents = [REVENUE.replace("growth", f"team {writer}") for writer in range(12)]
    started = [lake.start("metric", "set", _file(folder, f"w{n}.toml", text)) for n, text in enumerate(contents)]
    won, told = [], 0
    for text, process in zip(contents, started):
        out, err = process.communicate(timeout=support.TIMEOUT_SECONDS)
        if process.returncode == 0:
            won.append((int(out.decode().split()[-1]), text))
        else:
            assert process.returncode == 1 and b"another writer set version" in err, err
            told += 1
    assert won and len(won) + told == 12
    stored = _stored(lake)
    assert len(stored) == 1 + len(won)
    assert sorted(version for version, _ in won) == list(range(2, 2 + len(won)))
    for version, text in won:
        assert stored[f"revenue/{version:08}.toml"].decode().endswith(f"\n\n{text}")
    assert "the lake is sound" in lake.run("lake", "check").out


def damaged_and_lost_versions_are_named(lake, folder):
    _shop(lake, folder, {"e": 0.1})
    lake.run("metric", "set", _file(folder, "m.toml", f"{REVENUE}\n{BUYING}"))
    lake.run("metric", "set", _file(folder, "m.toml", REVENUE.replace("99", "98")))
    lake.run("experiments", "set", _definition(folder, "e", USED))
    lake.run("report", "e", "--save")
    said = lake.run("lake", "check").out
    assert "metric revenue is sound" in said and "saved results of e is sound" in said
    assert "1 definitions, 2 metrics, 1 saved results" in said
    revenue = lake.path / "_uplake/metrics/revenue"
    (revenue / "00000001.toml").unlink()
    buying = lake.path / "_uplake/metrics/buying/00000001.toml"
    buying.write_text(buying.read_text().replace("proportion", "proportoin"))
    result = lake.path / "_uplake/results/e/00000001.json"
    result.write_bytes(result.read_bytes()[:1000])
    done = lake.run("lake", "check", code=1)
    for part in ["revenue lacks version 1", "buying/00000001.toml:5", "definition e", "e/00000001.json"]:
        assert part in done.out, done
    assert "4 parts of" in done.err
    # What is sound is still shown.
    listed = lake.run("metric", "list")
    assert "revenue" in listed.out and "warning: metric buying" in listed.err
    listed = lake.run("experiments")
    assert "unreadable" in listed.out and "00000001.json" in listed.err
    # A damaged newest version is followed by a sound one.
    assert "set buying, version 2" in lake.run("metric", "set", _file(folder, "b.toml", BUYING)).out
    assert _report(lake, "e")["metrics"][1]["catalogue"]["version"] == 2


def backups_have_every_version(lake, folder):
    _shop(lake, folder, {"e": 0.1})
    metrics = _file(folder, "m.toml", f"{REVENUE}\n{BUYING}")
    lake.run("metric", "set", metrics)
    lake.run("experiments", "set", _definition(folder, "e", USED))
    lake.run("report", "e", "--save")
    backup = Lake(folder / "backup", lake.cwd)
    lake.run("lake", "backup", backup.path)
    lake.run("metric", "set", _file(folder, "m2.toml", REVENUE.replace("99", "98")))
    lake.run("report", "e", "--save")
    lake.run("lake", "backup", backup.path)
    assert "copied 0 objects" in lake.run("lake", "backup", backup.path).out
    for under in ["metrics", "results", "experiments"]:
        assert _stored(backup, under) == _stored(lake, under) != {}
    # Neither dropping tables nor a vacuum takes anything.
    before = {under: _stored(lake, under) for under in ["metrics", "results", "experiments"]}
    lake.run("table", "vacuum", "orders", "--retain", "0s")
    lake.run("sql", "-c", "drop table orders")
    assert {under: _stored(lake, under) for under in before} == before
    # A damaged version is mended.
    path = lake.path / "_uplake/metrics/revenue/00000001.toml"
    path.write_bytes(path.read_bytes().replace(b"growth", b"grow!!"))
    lake.run("lake", "restore", backup.path)
    assert _stored(lake) == before["metrics"]
    assert _report(lake, "e")["metrics"][0]["catalogue"]["version"] == 2

    # Another history of the same metric is not written over.
    other = Lake(folder / "other", lake.cwd)
    other.run("metric", "set", _file(folder, "m3.toml", REVENUE.replace("growth", "others")))
    held = _stored(backup)
    other.refused("lake", "backup", backup.path, says=["revenue/00000001.toml", "another one"])
    assert _stored(backup) == held


def experiments_are_listed_with_state_and_decision(lake, folder):
    assert "no experiments" in lake.run("experiments").out
    assert lake.run("experiments", "--format", "json").out == "[]\n"
    _shop(lake, folder, {"win": 0.8, "even": 0.0})
    lake.run("metric", "set", _file(folder, "m.toml", f"{REVENUE}\n{BUYING}"))
    files = [_definition(folder, name, USED) for name in ["win", "even"]]
    zone = HEAD.replace("NAME", "far away").replace("[exp", 'time_zone = "Pacific/Auckland"\n[exp', 1) + USED
    files.append(_file(folder, "far.toml", zone))
    lasting = HEAD.replace("NAME", "always").replace('start = "2026-11-01"\nend = "2026-11-15"\n', "") + USED
    files.append(_file(folder, "always.toml", lasting))
    assert lake.run("experiments", "set", *files).out == "set win\nset even\nset far away\nset always\n"

    def states(now):
        listed = json.loads(lake.run("experiments", "--now", now, "--format", "json").out)
        return {line["name"]: line["state"] for line in listed}

    def all_at(state, far):
        return {"always": None, "even": state, "far away": far, "win": state}

    # In Auckland it is 13 hours later.
    assert states("2026-10-31 10:59:59") == all_at("not_started", "not_started")
    assert states("2026-10-31 11:00:00") == all_at("not_started", "running")
    assert states("2026-11-01") == all_at("running", "running")
    assert states("2026-11-14 10:59:59") == all_at("running", "running")
    assert states("2026-11-14 11:00:00") == all_at("running", "over")
    assert states("2026-11-15") == all_at("over", "over")
    lake.refused("experiments", "--now", "12", says=["--now is a time"])
    lake.refused("experiments", "--now", "soon", says=["`soon`"])

    reports = {name: _report(lake, name) for name in ["win", "even"]}
    assert reports["win"]["verdict"]["decision"] == "ship"
    assert reports["even"]["verdict"]["decision"] == "keep_running"
    said = lake.run("report", "win", "even", "--save", "--format", "csv")
    assert "saved win as result 1" in said.err and "saved even as result 1" in said.err
    lines = {line["name"]: line for line in json.loads(lake.run("experiments", "--format", "json").out)}
    for name, report in reports.items():
        line = lines[name]
        assert (line["decision"], line["sentence"]) == tuple(report["verdict"][k] for k in ["decision", "sentence"])
        assert line["result"] == 1 and line["saved_at"].endswith("Z") and line["error"] is None
    assert lines["always"]["decision"] is None
    text = lake.run("experiments", "--now", "2026-11-05").out.splitlines()
    assert [line.split("  ")[0] for line in text] == ["always", "even", "far away", "win"]
    assert "running" in text[3] and "ship" in text[3] and "no period" in text[0]

    # A saved result is the report, and every one stays.
    saved = json.loads(_stored(lake, "results")["win/00000001.json"])
    assert {key: saved[key] for key in ["metrics", "verdict", "arms", "health"]} == {
        key: reports["win"][key] for key in ["metrics", "verdict", "arms", "health"]}
    first = _stored(lake, "results")
    lake.run("sql", "-c", "insert into orders select * from orders")
    assert "saved win as result 2" in lake.run("report", "win", "--save").err
    assert {path: content for path, content in _stored(lake, "results").items() if path in first} == first
    listed = json.loads(lake.run("experiments", "--format", "json").out)
    assert [line["result"] for line in listed] == [None, 1, None, 2]
    lake.run("report", "win", "--save", "--metric", "revenue", code=2)


def definitions_are_put_into_the_lake_and_shown(lake, folder):
    lake.run("metric", "set", _file(folder, "m.toml", f"{REVENUE}\n{BUYING}"))
    path = _definition(folder, "e", USED)
    assert lake.run("experiments", "set", path).out == "set e\n"
    assert (lake.path / "_uplake/experiments/e.toml").read_text() == path.read_text()
    assert lake.run("experiments", "show", "e").out == path.read_text()
    assert lake.run("experiments", "set", path).out == "e is as it was\n"
    other = _definition(folder, "e", '[[metric]]\nuse = "buying"\n')
    lake.refused("experiments", "set", other, says=["another definition of `e`", "--replace"])
    assert lake.run("experiments", "show", "e").out != other.read_text()
    assert lake.run("experiments", "set", other, "--replace").out == "replaced e\n"
    assert lake.run("experiments", "show", "e").out == other.read_text()
    lake.refused("experiments", "show", "x", says=["no experiment `x`", "it has e"])
    for name, says in [("a/b", "holds `/`"), ("..", "begins with `.`"), ("a\\u001b[2J", "\\u{1b}"), ("a:b", "holds `:`")]:
        path = _file(folder, "bad.toml", HEAD.replace('"NAME"', f'"{name}"') + USED)
        refused = lake.refused("experiments", "set", path, says=["experiment name", says])
        assert "\x1b" not in refused.err
        lake.refused("report", path, "--save", says=["experiment name"])
    lake.refused("experiments", "set", _definition(folder, "f", "[[metric]]\n"), says=["f.toml", "`type`"])
    assert set(_stored(lake, "experiments")) == {"e.toml"}
    # One that cannot be read hides no other.
    (lake.path / "_uplake/experiments/bad.toml").write_text("[experiment\n")
    listed = lake.run("experiments")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["bad", "e"]
    assert "warning: experiment bad" in listed.err
    [bad, good] = json.loads(lake.run("experiments", "--format", "json").out)
    assert "bad.toml:1" in bad["error"] and good["error"] is None


def saving_at_once_loses_nothing(lake, folder):
    _shop(lake, folder, {"e": 0.1})
    text = HEAD.replace("NAME", "e") + BUYING
    files = [_file(folder, f"e{n}.toml", f'hypothesis = "{n}"\n{text}') for n in range(6)]
    started = [lake.start("report", path, "--save") for path in files]
    for number, process in enumerate(started):
        _, err = process.communicate(timeout=support.TIMEOUT_SECONDS)
        assert process.returncode == 0, err
        result = int(err.decode().split("saved e as result ")[1])
        saved = json.loads(_stored(lake, "results")[f"e/{result:08}.json"])
        assert saved["hypothesis"] == str(number)
    assert set(_stored(lake, "results")) == {f"e/{n:08}.json" for n in range(1, 7)}


def _scipy_prior(values, errors):
    """Mean and deviation of the greatest likelihood."""
    values, errors = np.array(values), np.array(errors)

    def loss(point):
        variance = np.exp(2 * point[1]) + errors**2
        return 0.5 * np.sum(np.log(variance) + (values - point[0]) ** 2 / variance)

    start = [values.mean(), np.log(values.std())]
    found = optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-12, "fatol": 1e-14, "maxiter": 10**5})
    return found.x[0], np.exp(found.x[1])


def a_prior_is_that_of_past_lifts(lake, folder):
    planted = {f"e{n}": lift for n, lift in enumerate([0.4, -0.3, 0.1, 0.6, -0.1, 0.25, -0.45])}
    _shop(lake, folder, planted | {"skewed": 3.0}, skewed=["skewed"])
    lake.run("metric", "set", _file(folder, "m.toml", f"{REVENUE}\n{BUYING}"))
    lake.refused("experiments", "prior", "--metric", "revenue", says=["no saved results", "--save"])
    # Whatever the inference, lifts are those of the data: a belief is not fed with itself.
    methods = ['inference = "bayesian"\nprior = { mean = 0, deviation = 0.01 }\n',
               'inference = "anytime"\nplanned_users = 1000\n', 'lift = "none"\n', ""]
    values, errors, files = [], [], []
    for number, name in enumerate([*planted, "skewed"]):
        plain = _report(lake, _definition(folder, name, USED))
        if name != "skewed":
            control = plain["metrics"][0]["values"][0]["value"]
            difference = plain["metrics"][0]["comparisons"][0]["absolute"]
            values.append(difference["value"] / control)
            errors.append(difference["error"] / control)
        path = _definition(folder, name, USED)
        path.write_text(methods[number % 4] + path.read_text())
        files.append(path)
    lake.run("report", *files[:4], "--save", "--format", "csv")
    lake.refused("experiments", "prior", "--metric", "revenue", says=["4 lifts are too few", "5 or more"])
    said = lake.run("report", *files[4:], "--save", "--format", "csv")
    assert "saved skewed" in said.err
    found = lake.run("experiments", "prior", "--metric", "revenue")
    assert "left out: 1 experiments" in found.err
    words, line = found.out.splitlines()
    assert words.startswith("# From 7 lifts of revenue in 7 experiments;")
    mean, deviation = (float(part.split("=")[1].strip(" }")) for part in line.removeprefix("prior = {").split(","))
    expected = _scipy_prior(values, errors)
    assert mean == pytest.approx(expected[0], rel=1e-3) and deviation == pytest.approx(expected[1], rel=1e-3)
    low, high = (float(word) for word in words.split() if word[0].isdigit() and "." in word)
    assert low < deviation < high
    # The line is right where it says it goes.
    path = _definition(folder, "e0", USED)
    path.write_text(f'inference = "bayesian"\n{found.out}{path.read_text()}')
    assert _report(lake, path)["inference"] == "bayesian"
    lake.refused("experiments", "prior", "--metric", "revenu", says=["`revenu`", "buying, revenue"])


def a_bucket_has_a_catalogue_as_a_folder_has(bucket, lake, folder):  # noqa: F811
    metrics = _file(folder, "m.toml", f"{REVENUE}\n{BUYING}")
    outputs = []
    for where in (lake, bucket):
        where.run("metric", "set", metrics)
        assert "as it was in version 1" in where.run("metric", "set", metrics).out
        where.run("metric", "set", _file(folder, "m2.toml", REVENUE.replace("99", "98")))
        _shop(where, folder, {"e": 0.1})
        where.run("experiments", "set", _definition(folder, "e", USED))
        where.run("experiments", "set", _definition(folder, "e", USED + 'direction = "decrease"\n'), "--replace")
        assert "saved e as result 1" in where.run("report", "e", "--save").err
        assert "saved e as result 2" in where.run("report", "e", "--save").err
        report = _report(where, "e")
        report["reproduce"].pop("command")
        listed = json.loads(where.run("experiments", "--now", "2026-11-03", "--format", "json").out)
        listed[0].pop("saved_at")
        catalogue = json.loads(where.run("metric", "list", "--format", "json").out)
        for metric in catalogue:
            metric.pop("set_at")
        history = [line.split()[0] for line in where.run("metric", "history", "revenue").out.splitlines()]
        where.refused("metric", "show", "x", says=["it has buying, revenue"])
        outputs.append((report["metrics"], report["reproduce"]["definition"], listed, catalogue, history))
        assert "1 definitions, 2 metrics, 2 saved results" in where.run("lake", "check").out
    assert outputs[0] == outputs[1]
    # Of writers at once each has a version or is told.
    contents = [REVENUE.replace("growth", f"team {writer}") for writer in range(6)]
    started = [bucket.start("metric", "set", _file(folder, f"w{n}.toml", text)) for n, text in enumerate(contents)]
    codes = []
    for process in started:
        _, err = process.communicate(timeout=support.TIMEOUT_SECONDS)
        codes.append(process.returncode)
        assert process.returncode == 0 or b"another writer set version" in err, err
    versions = {key for key in bucket.keys("_uplake/metrics/revenue")}
    assert len(versions) == 2 + codes.count(0)
    backup = Lake(folder / "backup", lake.cwd)
    bucket.run("lake", "backup", backup.path)
    assert len(_stored(backup)) == 1 + len(versions)
    shutil.rmtree(backup.path)
