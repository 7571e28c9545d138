"""Differences that are known, each with its reason: where a report is taken for wrong, or a refusal
for right, until it is mended. An entry that nothing meets any more is to be deleted.
"""
import re

# Part of a message, and why the report may be refused.
REFUSED = {}


def minus_nan(definition, path, expected, found):
    """-NaN sorts below every number, so ranks of quantiles and caps are one off."""
    text = str([metric.get("value") for metric in definition["metric"]])
    ranked = any(m["type"] == "quantile" or isinstance(m.get("cap"), str)
                 for m in definition["metric"])
    return ranked and "-amount" in text


BESIDE_NAN = [minus_nan]


def reason(world, definition, difference):
    for entry in BESIDE_NAN * world.has_nan:
        if entry(definition, *difference):
            return entry.__doc__
    return None


def refusal(message):
    for pattern, why in REFUSED.items():
        if re.search(pattern, message):
            return why
    return None
