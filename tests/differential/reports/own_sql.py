"""A report against its own SQL: `--show-sql` run by `uplake sql --no-index`.

The statement gives a row per exposed user. Its columns have no names of metrics, so a metric's
means are looked for among the means of all columns: per arm, each must be there. Users per arm are
exact.

Left out: caps, thresholds, logs and users in progress (applied after the SQL), quantiles (ranks), clusters
(sums of users), and what is no sum of days (unique days, first and last values).
"""
import collections
import json
import math

from reports import expressions as ex


def differences(lake, definition, asked, report):
    """(path, expected, found), as of the model."""
    rows = per_user(lake, definition, asked)
    if rows is None:
        return []
    values = [ex.as_text(v.get("value", v["name"])) for v in definition["variant"]]
    arms = [[] for _ in values]
    for row in rows:
        if "activated_by" in definition["exposures"] and row["__up_time"] is None:
            continue
        if row["__up_variant"] == row["__up_last_variant"] and row["__up_variant"] in values:
            arms[values.index(row["__up_variant"])].append(row)
    found = []
    units = [arm["units"] for arm in report["arms"]]
    if [len(rows) for rows in arms] != units:
        found.append((".arms.units by SQL", [len(rows) for rows in arms], units))
        return found
    candidates = [means(rows) for rows in arms]
    for metric in report["metrics"]:
        if not any(units) or is_left_out(metric, definition):
            continue
        for place in range(len(metric["moments"][0]["means"])):
            ours = [m["means"][place] for m in metric["moments"]]
            if not any(is_same(ours, of) for of in together(candidates)):
                found.append((f".metrics[{metric['name']}].means[{place}] by SQL",
                              "one of the columns' means", ours))
    return found


def is_left_out(metric, definition):
    name = metric["name"].split(": ")[0]
    asked = next(m for m in definition["metric"] if m["name"] in (name, metric["name"]))
    if (metric.get("in_progress") or {}).get("excluded"):
        return True
    kinds = ("quantile", "threshold", "unique_days", "first", "last")
    return metric["kind"] in kinds or "cap" in asked or "transform" in asked


def per_user(lake, definition, asked):
    """The rows of the statement per user; None for clusters, and for figures of arms."""
    if "summary" in definition or "cluster" in definition["exposures"]:
        return None
    text = lake.sql_of(definition, asked)
    parts = text.split("\n\n-- ")
    chosen = [part for part in parts if part.lstrip("- ").startswith("Per exposed user")]
    statement = chosen[0] if chosen else text
    statement = "\n".join(line for line in statement.splitlines()
                          if not line.startswith(("-- ", "Per exposed")))
    answer = lake.sql(statement, "--no-index")
    return [json.loads(line) for line in answer.splitlines()]


def numbers(row):
    """Column -> number of a user: sums of days, the day of a first row, the steps of a funnel."""
    for name, value in row.items():
        if not name.startswith("m"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for key in value[0]:
                if key != "day":
                    yield f"{name}.{key}", sum(number(day[key]) for day in value)
        elif isinstance(value, list):
            for steps in range(1, len(value) + 1):
                yield f"{name}[{steps}]", 1.0
        elif isinstance(value, str):
            yield name, 1.0
        else:
            yield name, number(value)


def number(value):
    return 0.0 if value is None else float(value)


def means(rows):
    sums = collections.defaultdict(list)
    for row in rows:
        for name, value in numbers(row):
            sums[name].append(value)
    return {name: sum(values) / len(rows) for name, values in sums.items()}


def together(candidates):
    """Per column its mean in each arm; 0 where no user of an arm has any, and for no column."""
    names = {name for arm in candidates for name in arm}
    yield [0.0] * len(candidates)
    for name in names:
        yield [arm.get(name, 0.0) for arm in candidates]


def is_same(ours, theirs):
    # What is not finite is 0 in a report.
    theirs = [value if math.isfinite(value) else 0.0 for value in theirs]
    return all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9 * max(1, abs(b)))
               for a, b in zip(ours, theirs))
