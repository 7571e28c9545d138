"""Differences that are known, each with its reason: where a report is taken for wrong, or a refusal
for right, until it is mended. An entry that nothing meets any more is to be deleted.
"""
import math
import re

# Part of a message, and why the report may be refused.
REFUSED = {
    "Physical plan does not support logical expression InSubquery":
        "A subquery in a metric's condition is refused.",
}


def late_look(definition, path, expected, found):
    """Bounds of a group sequential test are integrated to 1e-8, not 1e-9."""
    if definition.get("inference") != "group_sequential":
        return False
    if not re.search(r"\.(low|high|p|p_adjusted)$", path) or ".series" in path:
        return False
    value, atol = getattr(expected, "value", expected), getattr(expected, "atol", 0)
    are_numbers = isinstance(value, float) and isinstance(found, float)
    return are_numbers and math.isclose(value, found, rel_tol=1e-7, abs_tol=100 * atol)


def other_of_clusters(definition, path, expected, found):
    """The merged row "(other)" counts a cluster once per value that is merged."""
    return "cluster" in definition.get("exposures", ()) and re.search(
        r"\.rows\[19\]|\.differences|sample_ratio_alarms", path)


def minus_nan(definition, path, expected, found):
    """-NaN sorts below every number, so ranks of quantiles and caps are one off."""
    text = str([metric.get("value") for metric in definition["metric"]])
    ranked = any(m["type"] == "quantile" or isinstance(m.get("cap"), str)
                 for m in definition["metric"])
    return ranked and "-amount" in text


def nearly_one(definition, path, expected, found):
    """The normal tail is 0.5 for |z| below 4e-8."""
    value = getattr(expected, "value", expected)
    return (re.search(r"\.(p|p_adjusted|chance_to_win)$", path) and isinstance(value, float)
            and isinstance(found, float) and abs(value - found) < 4e-8
            and (value > 1 - 1e-7 or abs(value - 0.5) < 1e-7))


def days_before_nan(definition, path, expected, found):
    """A value that is not finite takes the points of earlier days, too, if its row is the first."""
    return ".series" in path and found is None


ALWAYS = [late_look, other_of_clusters, nearly_one]
BESIDE_NAN = [minus_nan, days_before_nan]


def reason(world, definition, difference):
    for entry in ALWAYS + BESIDE_NAN * world.has_nan:
        if entry(definition, *difference):
            return entry.__doc__
    return None


def refusal(message):
    for pattern, why in REFUSED.items():
        if re.search(pattern, message):
            return why
    return None
