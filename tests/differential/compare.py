"""Are two answers the same?

Exact for everything but doubles of statements that compute them (`tolerance`): means, deviations
and logarithms may differ in their last digits. NaN is NaN, and 0.0 is -0.0, as they are in SQL.
Without an ORDER BY rows are compared as multisets.
"""

import collections
import datetime as dt
import decimal
import math

import pyarrow as pa

TOLERANCE = 1e-9


def plain(value):
    """One form for what both sides spell differently."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else value.normalize()
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    if isinstance(value, list):
        return tuple(plain(v) for v in value)
    return value


def rows_of(table):
    """The rows of an Arrow table as tuples."""
    columns = [values_of(column) for column in table.columns]
    return list(zip(*columns)) if columns else [()] * table.num_rows


def values_of(column):
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    try:
        found = column.to_pylist()
    except (OverflowError, ValueError):
        # A time that no calendar of Python has: its number.
        width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return [None if v is None else f"{kind} {v}" for v in column.cast(width).to_pylist()]
    if pa.types.is_floating(kind):
        # One NaN for all, so that rows can be counted by their hashes.
        return [math.nan if v is not None and v != v else v for v in found]
    is_plain = not (
        pa.types.is_decimal(kind) or pa.types.is_nested(kind) or getattr(kind, "tz", None)
    )
    return found if is_plain else [plain(v) for v in found]


def kind_class(kind):
    """What must be alike in the types of two columns: the width of a whole number need not."""
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return "integer"
    if pa.types.is_floating(kind):
        return "double"
    if pa.types.is_decimal(kind):
        return "decimal"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list"
    return str(kind)


def key(value):
    """Sorts any values; numbers by size, whatever their type."""
    if value is None:
        return (0, 0)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, float):
        if math.isnan(value):
            return (3, 0)
        # Two right answers may differ in the last digits, and must sort alike.
        return (2, float(f"{value:.9g}") + 0.0)
    if isinstance(value, int):
        return (2, value)
    if isinstance(value, decimal.Decimal):
        return (2, value)
    if isinstance(value, tuple):
        return (5, tuple(key(v) for v in value))
    return (4, type(value).__name__, value)


def row_key(row):
    # Floats last: only they may differ. With its place, or (NULL, 0.0) and (0.0, NULL) were one.
    first = [(place, key(v)) for place, v in enumerate(row) if not isinstance(v, float)]
    return first + [(place, key(v)) for place, v in enumerate(row) if isinstance(v, float)]


def same_value(ours, theirs, tolerance):
    if ours is theirs:
        return True
    if isinstance(ours, float) and isinstance(theirs, float):
        if ours == theirs:
            return True
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return tolerance > 0 and math.isclose(
            ours, theirs, rel_tol=tolerance, abs_tol=tolerance * 1e-3
        )
    if isinstance(ours, (bool, float)) != isinstance(theirs, (bool, float)):
        return False
    return ours == theirs


def same_row(ours, theirs, tolerance):
    return all(same_value(a, b, tolerance) for a, b in zip(ours, theirs))


def difference(ours, theirs, ordered, tolerance):
    """What differs between two answers (Arrow tables), or None."""
    if ours.num_columns != theirs.num_columns:
        return f"{ours.num_columns} columns, expected {theirs.num_columns}"
    a, b = rows_of(ours), rows_of(theirs)
    found = row_difference(a, b, ordered, tolerance)
    if found:
        return found
    classes = [
        (kind_class(x.type), kind_class(y.type)) for x, y in zip(ours.columns, theirs.columns)
    ]
    for number, (x, y) in enumerate(classes):
        if x != y and "null" not in (x, y):
            return f"column {number} is {x}, expected {y}"
    return None


def row_difference(a, b, ordered, tolerance):
    if len(a) != len(b):
        return f"{len(a)} rows, expected {len(b)}"
    if not ordered:
        if collections.Counter(a) == collections.Counter(b):
            return None
        a, b = sorted(a, key=row_key), sorted(b, key=row_key)
    for number, (x, y) in enumerate(zip(a, b)):
        if not same_row(x, y, tolerance):
            if not ordered and tolerance and same_multiset(a, b, tolerance):
                return None
            return f"row {number}: {shown(x)}, expected {shown(y)}"
    return None


def same_multiset(a, b, tolerance):
    """The slow way, for doubles that sort differently by their last digits."""
    left = list(b)
    if len(left) > 3000:
        return False
    for row in a:
        at = next((n for n, other in enumerate(left) if same_row(row, other, tolerance)), None)
        if at is None:
            return False
        left.pop(at)
    return True


def shown(row):
    text = repr(row)
    return text if len(text) <= 400 else text[:400] + "…"
