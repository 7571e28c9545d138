"""Random definitions of experiments, and their TOML.

A definition is a dict shaped like the TOML; SQL in it is an `Expression`, which the model evaluates
and `to_toml` writes. Names of sections in lists are those of the file: `variant`, `metric`,
`dimension`.

Invariants:
- Every definition is one that docs/experiments.md allows.
- All definitions of a batch have the same dimensions by name: `--dimension` holds for all of them.
"""
import random

from reports import expressions as ex
from reports.data import HOUR, MINUTE, DAY

LENGTHS = {"minutes": MINUTE, "hours": HOUR, "days": DAY}
TYPES = ["proportion", "retention", "threshold", "funnel", "mean", "mean", "count", "distinct",
         "ratio", "quantile", "unique_days", "first", "last"]
NEED_TIME = ("unique_days", "first", "last")


def length(text):
    """Microseconds of "7 days"."""
    count, unit = text.split()
    return int(float(count) * LENGTHS[unit if unit.endswith("s") else unit + "s"])


def batch(world, seed):
    """Definitions that one command reports, and the dimensions that it asks for."""
    rng = random.Random(f"definitions {world.seed} {seed}")
    asked = [name for name in ex.DIMENSIONS if rng.random() < rng.choice([0, 0.3, 0.6])]
    return [definition(rng, world, f"e{number}", asked) for number in range(12)], asked


def definition(rng, world, name, asked):
    """One experiment: `design` is what is assigned to arms."""
    if rng.random() < 0.06 and not asked:
        return summary(rng, world, name)
    design = rng.choices(["users", "timeless", "clusters", "switchback"], [70, 8, 12, 10])[0]
    found = {"name": name}
    if rng.random() < 0.3:
        found["hypothesis"] = rng.choice(
            ["More is better", 'It "helps", \\ they say', "Ünicode 😀"])
    add_period(rng, world, found, design)
    if rng.random() < 0.3:
        found["alpha"] = rng.choice([0.01, 0.1, 0.2])
    found["exposures"] = exposures(rng, world, design)
    if design == "switchback":
        found["switchback"] = {"region": ex.column("shop"),
                               "every": rng.choice(["4 hours", "1 day", "90 minutes", "7 hours"])}
    found["variant"] = variants(rng, world)
    add_dimensions(rng, found, asked)
    add_inference(rng, world, found)
    found["metric"] = metrics(rng, world, found, design)
    if rng.random() < 0.25:
        found["lift"] = rng.choice(["delta", "none", "fieller"])
    if design in ("users", "timeless") and found["dimension"] and rng.random() < 0.25:
        found["stratify"] = rng.choice(found["dimension"])["name"]
    if design == "users" and rng.random() < 0.1:
        found["assignment"] = assignment(rng)
    add_follow_up(random.Random(f"follow up {rng.random()}"), world, found, design)
    return found


def add_follow_up(rng, world, found, design):
    """Users whose window is not over, and days since exposure."""
    planned = found.get("inference") == "group_sequential"
    words = ["include"] if planned else ["include", "exclude", "exclude"]
    if rng.random() < 0.3:
        found["in_progress"] = rng.choice(words)
    if rng.random() < 0.15:
        found["days_since_exposure"] = rng.choice([1, 2, 4])
    if rng.random() < 0.2:
        found["observed_until"], found["observed_until_us"] = instant(
            world, rng.randrange(world.days + 1), rng.choice([0, 5, 12]))
        if world.zone != "UTC":
            found["time_zone"] = world.zone
    for metric in found["metric"]:
        window = metric.get("window")
        ends = window is not None and (isinstance(window, str) or "to" in window)
        if ends and rng.random() < 0.4:
            metric["in_progress"] = rng.choice(words)
        plain = metric["type"] not in ("funnel", "distinct", "quantile")
        if plain and design in ("users", "clusters") and rng.random() < 0.15:
            metric["days_since_exposure"] = rng.choice([1, 3])


def summary(rng, world, name):
    """Of figures that somebody else computed."""
    found = {"name": name, "summary": {"table": "results", "variant": ex.column("variant"),
                                       "users": ex.column("users")}}
    if rng.random() < 0.7:
        found["summary"]["time"] = ex.column("day")
    else:
        found["summary"]["where"] = ex.last_day(world)
    if rng.random() < 0.3:
        found["alpha"] = rng.choice([0.01, 0.1, 0.2])
    if world.zone != "UTC":
        found["time_zone"] = world.zone
    arms = ["A", "B", "C"][:rng.choice([2, 3])]
    found["variant"] = [{"name": arm, "share": share} for arm, share in zip(
        arms, [0.5, 0.5] if len(arms) == 2 else [0.4, 0.4, 0.2])]
    found["dimension"] = []
    add_inference(rng, world, found)
    found["metric"] = []
    for number in range(rng.choice([1, 2, 3])):
        kind = rng.choice(["mean", "proportion"])
        metric = {"name": f"m{number}", "type": kind, "mean": ex.column("mean"),
                  "where": ex.of_metric("revenue" if kind == "mean" else "paid")}
        if kind == "mean":
            metric["variance"] = ex.column("spread")
        elif inference(found) == "fixed" and rng.random() < 0.4:
            metric["test"] = rng.choice(["pooled", "exact"])
        if rng.random() < 0.3:
            metric["guardrail"] = True
            metric["margin"] = 0.1
        if rng.random() < 0.2:
            metric["equivalence"] = rng.choice([0.1, 0.5])
        if rng.random() < 0.3:
            metric["direction"] = "decrease"
        found["metric"].append(metric)
    return found


def inference(found):
    return found.get("inference", "fixed")


def add_period(rng, world, found, design):
    if design == "timeless" or rng.random() < 0.12:
        return
    first, last = 0, world.days
    hours = [0, 0]
    if rng.random() < 0.25:
        hours = [rng.choice([0, 5, 12]), rng.choice([0, 5, 12])]
    if world.days > 2 and rng.random() < 0.2:
        first = 1
    found["start"], found["start_us"] = instant(world, first, hours[0])
    found["end"], found["end_us"] = instant(world, last, hours[1])
    if world.zone != "UTC" or rng.random() < 0.3:
        found["time_zone"] = world.zone


def instant(world, day, hour):
    local, micros = world.instant(day, hour)
    return local.date().isoformat() if hour == 0 else local.isoformat(), micros


def exposures(rng, world, design):
    if design == "timeless":
        found = {"table": "players", "user": ex.column("user_id"), "variant": ex.column("version")}
        if rng.random() < 0.2:
            found["where"] = rng.choice(ex.PLAYER_FILTERS)
        return found
    found = {"table": "exposures", "variant": ex.column("variant"), "time": ex.column("ts")}
    if design != "switchback" or rng.random() < 0.3:
        found["user"] = ex.column("user_id")
    if rng.random() < 0.5:
        found["where"] = rng.choice(ex.EXPOSURE_FILTERS)
    if rng.random() < 0.02:
        found["where"] = ex.NO_EXPOSURE
    if design == "clusters":
        found["cluster"] = ex.column("shop")
    if design in ("users", "clusters") and rng.random() < 0.12:
        found["exclude"] = [rows_of_users(rng) for _ in range(rng.choice([1, 1, 2]))]
    if design == "users" and rng.random() < 0.15:
        found["activated_by"] = {
            "table": "events", "where": rng.choice([*ex.JOURNEY, *ex.EVENT_FILTERS])}
        if rng.random() < 0.2:
            found["activated_by"] = {
                "table": "orders", "user": ex.column("buyer"), "time": ex.column("paid_at")}
    return found


def rows_of_users(rng):
    """Users to be left out."""
    if rng.random() < 0.4:
        return {"table": "orders", "user": ex.column("buyer"), "where": rng.choice(ex.ORDER_FILTERS)}
    return {"table": "players", "where": rng.choice(ex.PLAYER_FILTERS)}


def variants(rng, world):
    arms = list(world.arms)
    if len(arms) == 3 and rng.random() < 0.2:
        arms.pop()  # the third is then unknown
    shares = {2: [[0.5, 0.5], [0.5, 0.5], [0.6, 0.4], [0.9, 0.1]],
              3: [[0.34, 0.33, 0.33], [0.5, 0.3, 0.2], [0.5, 0.5, 0.0]]}[len(arms)]
    chosen = rng.choice(shares)
    found = []
    for number, (arm, share) in enumerate(zip(arms, chosen)):
        variant = {"name": ex.as_text(arm), "share": share}
        if rng.random() < 0.4 or not isinstance(arm, str):
            variant["name"] = ["control", "new look", "third"][number]
            variant["value"] = arm if rng.random() < 0.5 else ex.as_text(arm)
        found.append(variant)
    if rng.random() < 0.25:
        rng.choice(found)["control"] = True
    return found


def add_dimensions(rng, found, asked):
    names = sorted({*asked, *(n for n in ex.DIMENSIONS if rng.random() < 0.25)})
    found["dimension"] = []
    for name in names:
        if found["exposures"]["table"] == "players" and name != "country":
            sql = ex.column("games")
        else:
            sql = rng.choice(ex.DIMENSIONS[name])
        dimension = {"name": name}
        if sql is not None:
            dimension["sql"] = sql
        found["dimension"].append(dimension)


def add_inference(rng, world, found):
    kind = rng.choices(["fixed", "anytime", "group_sequential", "bayesian"], [55, 15, 15, 15])[0]
    people = max(4, len({r["user_id"] for r in world.tables["exposures"].rows}))
    plan = rng.choice([people, people * 2, people * 4, people // 2, 10_000])
    if kind != "fixed" or rng.random() < 0.2:
        found["inference"] = kind
    if rng.random() < 0.08:
        found["compat"] = "growthbook"
    if kind == "group_sequential" or kind == "anytime" and (
            "compat" not in found or rng.random() < 0.5):
        found["planned_users"] = plan
    if kind == "group_sequential":
        found["looks"] = rng.choice([1, 2, 4, 5, 28])
    if kind == "bayesian" and rng.random() < 0.6:
        found["prior"] = {"deviation": rng.choice([0.05, 0.1, 1])}
        if rng.random() < 0.5:
            found["prior"]["mean"] = rng.choice([0, 0.02])
    if rng.random() < 0.4:
        found["correction"] = rng.choice(["holm", "benjamini-hochberg", "none"])


def metrics(rng, world, found, design):
    names = set()
    made = []
    for number in range(rng.choice([1, 2, 2, 3, 4])):
        name = rng.choice(["m", "revenue per user", "m ü"]) + str(number)
        names.add(name)
        made.append(metric(rng, world, found, design, name))
    return made


def metric(rng, world, found, design, name):
    kinds = [k for k in TYPES if allowed(k, found, design)]
    kind = rng.choice(kinds)
    made = {"name": name, "type": kind}
    timeless = design == "timeless"
    filters, values, things = add_table(rng, made, timeless)
    if kind in NEED_TIME and timeless and "time" not in made:
        if filters is ex.PLAYER_FILTERS:
            kind = made["type"] = "count"
        else:
            made["time"] = ex.column("paid_at" if filters is ex.ORDER_FILTERS else "ts")
    if rng.random() < 0.6:
        made["where"] = rng.choice(filters)
    if made.get("table") == "events" and rng.random() < 0.01:
        made["where"] = ex.of_players("DE")
    if made.get("table") == "events" and rng.random() < 0.04:
        made["where"] = ex.NO_EVENT
    if rng.random() < 0.25:
        made["direction"] = rng.choice(["increase", "decrease"])
    if rng.random() < 0.3:
        made["guardrail"] = True
        if kind != "quantile" and rng.random() < 0.6:
            made["margin"] = rng.choice([0.02, 0.1, 0.5])
    if rng.random() < 0.2:
        made["equivalence"] = rng.choice([0.02, 0.2, 0.5, 0.9])
    may_window = not timeless and design != "switchback"
    if kind == "retention":
        made["window"] = {"from": rng.choice(["1 day", "2 hours", "30 minutes"])}
        if rng.random() < 0.7:
            made["window"]["to"] = rng.choice(["2 days", "4 days", "50 hours"])
    elif may_window and rng.random() < 0.35:
        made["window"] = rng.choice(
            ["1 day", "3 days", "6 hours", {"from": "1 day"}, {"from": "1 hour", "to": "2 days"}])
    add_kind(rng, made, kind, filters, values, things)
    can_cuped = kind not in ("funnel", "quantile") and may_window
    if can_cuped and rng.random() < 0.35:
        made["cuped"] = {"pre": rng.choice(["2 days", "4 days", "12 hours"])}
        of_some = kind in ("first", "last") and not made.get("zeros")
        if kind != "ratio" and not of_some and rng.random() < 0.35:
            made["cuped"]["with"] = [covariate(rng, filters, values)
                                     for _ in range(rng.choice([1, 1, 2]))]
    share = kind in ("proportion", "retention", "threshold", "funnel")
    plain = "cuped" not in made and design in ("users", "timeless")
    if share and plain and inference(found) == "fixed" and rng.random() < 0.4:
        made["test"] = rng.choice(["unpooled", "pooled", "exact"])
    return made


def add_table(rng, made, timeless):
    """Which table a metric is of: filters, values and things to be had there."""
    if timeless and rng.random() < 0.7:
        if rng.random() < 0.3:
            made["table"] = "players"
        return ex.PLAYER_FILTERS, ex.PLAYER_VALUES, ex.PLAYER_THINGS
    if rng.random() < 0.15:
        made |= {"table": "orders", "user": ex.column("buyer")}
        if not timeless or rng.random() < 0.3:
            made["time"] = ex.column("paid_at")
        return ex.ORDER_FILTERS, ex.ORDER_VALUES, ex.ORDER_THINGS
    made["table"] = "events"
    if timeless and rng.random() < 0.3:
        made["time"] = ex.column("ts")
    return ex.EVENT_FILTERS, ex.EVENT_VALUES, ex.EVENT_THINGS


def allowed(kind, found, design):
    if kind == "quantile" and design not in ("users", "timeless"):
        return False
    if kind in ("retention", "funnel") and design == "timeless":
        return False
    return not (kind == "retention" and design == "switchback")


def add_kind(rng, made, kind, filters, values, things):
    if kind in ("proportion", "retention") and rng.random() < 0.4:
        made["value"] = rng.choice(values)
    elif kind == "threshold":
        made["value"] = rng.choice(values)
        made["at_least"] = rng.choice([0.5, 0.5, 1, 3, 10])
    elif kind in ("mean", "quantile", "first", "last"):
        made["value"] = rng.choice(values)
    elif kind == "distinct":
        made["value"] = rng.choice(things)
    elif kind == "ratio":
        made["numerator"] = covariate(rng, filters, values)
        made["denominator"] = covariate(rng, filters, values)
        if rng.random() < 0.5:
            made["denominator"]["value"] = ex.number("1", lambda r: 1)
    elif kind == "funnel":
        # One who viewed, put into the cart and paid; or anything.
        wheres = ex.JOURNEY if filters is ex.EVENT_FILTERS and rng.random() < 0.6 else [
            rng.choice(filters) for _ in range(rng.choice([2, 2, 3, 4]))]
        if filters is ex.EVENT_FILTERS and rng.random() < 0.1:
            wheres = [*wheres[:-1], ex.NO_EVENT]
        made["steps"] = [{"name": f"step {n}", "where": where} for n, where in enumerate(wheres)]
    if kind == "quantile":
        made["level"] = rng.choice([0.5, 0.25, 0.75, 0.9, 0.99])
        if rng.random() < 0.6:
            made["per"] = rng.choice(["user", "row", "row"])
    if kind in ("first", "last") and rng.random() < 0.5:
        made["zeros"] = rng.random() < 0.7
    if kind in ("mean", "count", "distinct", "unique_days"):
        if rng.random() < 0.4:
            made["cap"] = rng.choice([2, 50.5, "95 %", "80%", "99 %", "66.6 %",
                                      {"quantile": 0.9, "zeros": False}, {"quantile": 0.75},
                                      {"quantile": 0.666, "zeros": False}])
        if "margin" not in made and rng.random() < 0.2:
            made["transform"] = "log1p"
            made.pop("equivalence", None)


def covariate(rng, filters, values):
    term = {"value": rng.choice(values)}
    if rng.random() < 0.5:
        term["where"] = rng.choice(filters)
    if filters is ex.EVENT_FILTERS and rng.random() < 0.04:
        term["where"] = ex.NO_EVENT
    return term


def assignment(rng):
    system = rng.choice(["growthbook", "growthbook", "optimizely", "unleash", "statsig", "planout",
                         "eppo"])
    found = {"system": system, "seed": rng.choice(["free_shipping", "ü", "7"])}
    if system == "growthbook" and rng.random() < 0.6:
        found["version"] = rng.choice([1, 2])
    if system == "statsig":
        found["rule"] = "salt"
    if system == "planout":
        found["parameter"] = "button"
    if rng.random() < 0.4:
        found["coverage"] = rng.choice([0.5, 0.1, 1])
    return found


def to_toml(found):
    lines = []
    tables = ("exposures", "summary", "switchback", "assignment")
    for key, value in found.items():
        if key not in (*tables, "variant", "dimension", "metric", "start_us", "end_us",
                       "observed_until_us"):
            lines.append(f"{key} = {written(value)}")
    for section in tables:
        if section in found:
            lines += ["", f"[{section}]"]
            lines += [f"{key} = {written(value)}" for key, value in found[section].items()]
    for section in ("variant", "dimension", "metric"):
        for item in found[section]:
            lines += ["", f"[[{section}]]"]
            lines += [f"{key} = {written(value)}" for key, value in item.items()]
    return "\n".join(lines) + "\n"


def written(value):
    if isinstance(value, ex.Expression):
        return written(value.sql)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {written(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
