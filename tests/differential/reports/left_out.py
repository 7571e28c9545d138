"""Health of the data that no figure shows: exposures that cannot count, users who had been exposed
before the start, conditions that no row passes."""
from reports.units import passes


def left_out(report):
    """Keys of `health`."""
    definition = report.definition
    asked = definition.get("exposures") or definition["summary"]
    exposed = getattr(report, "exposed", None)  # of figures nobody knows the users
    in_arms = sum(report.everyone.users_of)
    in_many, unknown = report.seen()
    # Exposed, and in no arm: left out by name, or never activated.
    elsewhere = exposed and (any(exposed.excluded) or exposed.idle)
    before = None
    if "start" in definition and "time" in asked and not report.is_switchback:
        before = sum(user.key in exposed.before for user in exposed.users + exposed.idle)
    return {
        "exposures_without_user": exposed.without_user if exposed else 0,
        "exposures_without_time": exposed.without_time if exposed else 0,
        "users_exposed_before": before,
        "no_exposures": None if in_arms or in_many or unknown or elsewhere
                        else why_nobody(report, asked),
        "unmatched": unmatched(report, asked) if in_arms else [],
    }


def why_nobody(report, asked):
    rows = report.world.tables[asked["table"]].rows
    if any(passes(asked.get("where"), row, report.world) for row in rows):
        return "none_counts"
    return "where_passes_nothing" if rows else "empty_table"


def unmatched(report, asked):
    found = []
    for metric in report.metrics:
        table = metric.get("table", asked["table"])
        rows = report.world.tables[table].rows
        for conditions in conditions_of(metric):
            one = {"metric": metric["name"], "table": table, "where": written(conditions)}
            if one not in found and not any(
                    all(passes(c, row, report.world) for c in conditions) for row in rows):
                found.append(one)
    return found


def conditions_of(metric):
    """Per number of a metric, what all a row must pass; those before exposure have the same."""
    own = [metric["where"]] if "where" in metric else []
    if metric["type"] == "ratio":
        for side in ("numerator", "denominator"):
            yield own + ([metric[side]["where"]] if "where" in metric[side] else [])
    elif metric["type"] == "funnel":
        yield own + [metric["steps"][metric["reached"] - 1]["where"]]
    else:
        yield own
    for term in metric.get("cuped", {}).get("with", []):
        yield [term["where"]] if "where" in term else []


def written(conditions):
    if len(conditions) < 2:
        return conditions[0].sql if conditions else None
    return " AND ".join(f"({condition.sql})" for condition in conditions)
