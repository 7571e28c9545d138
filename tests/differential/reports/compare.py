"""Is a report what the model expects? Every key that the model gives is looked at.

Numbers are the same within 1e-9 of their size. Where a number is a small difference of large ones,
the model says by `Near` what rounding may add; where no double arithmetic can be trusted, or a
p-value is alpha itself, it says `Unsure`, which is counted and never looked at.
"""
import dataclasses
import math

RELATIVE = 1e-9
# What a report does not have unless it is asked for.
OPTIONAL = {"activation": None, "diluted": None, "excluded": [], "overlaps": []}


@dataclasses.dataclass(frozen=True)
class Near:
    value: float
    atol: float


@dataclasses.dataclass(frozen=True)
class OneOf:
    values: tuple
    atol: float = 0.0


@dataclasses.dataclass(frozen=True)
class Unsure:
    reason: str


@dataclasses.dataclass
class Found:
    """What a comparison saw: differences (path, expected, found), and how much it looked at."""
    differences: list = dataclasses.field(default_factory=list)
    numbers: int = 0
    unsure: int = 0


def compare(expected, actual, path="", found=None):
    found = Found() if found is None else found
    if isinstance(expected, Unsure):
        found.unsure += 1
    elif isinstance(expected, dict):
        compare_dict(expected, actual, path, found)
    elif isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            found.differences.append((path, expected, actual))
        else:
            for number, (e, a) in enumerate(zip(expected, actual)):
                compare(e, a, f"{path}[{number}]", found)
    else:
        found.numbers += 1
        if not is_same(expected, actual):
            found.differences.append((path, expected, actual))
    return found


def compare_dict(expected, actual, path, found):
    if not isinstance(actual, dict):
        found.differences.append((path, expected, actual))
        return
    actual = {**{key: OPTIONAL[key] for key in OPTIONAL if key in expected}, **actual}
    for key, value in expected.items():
        if key not in actual:
            found.differences.append((f"{path}.{key}", value, "nothing"))
        else:
            compare(value, actual[key], f"{path}.{key}", found)


def is_same(expected, actual):
    if isinstance(expected, OneOf):
        return actual in expected.values or (
            expected.atol > 0 and isinstance(actual, (int, float)))
    atol = 0.0
    if isinstance(expected, Near):
        expected, atol = expected.value, expected.atol
    is_number = isinstance(expected, (int, float)) and not isinstance(expected, bool)
    if is_number and isinstance(actual, (int, float)) and not isinstance(actual, bool):
        if isinstance(expected, int) and isinstance(actual, int):
            return expected == actual
        return math.isclose(expected, actual, rel_tol=RELATIVE, abs_tol=max(atol, 1e-300))
    return type(expected) is type(actual) and expected == actual
