"""Types of the tester, and random values of each.

A type says what an expression may be used for, not only how it is stored:
    int       whole numbers that stay small, so that sums and products do not overflow
    big       whole numbers up to the ends of 64 bits: compared, grouped, min and max; never added
    double    multiples of 1/4 below 4096, never NaN: their sums are exact in every order of rows
    wild      doubles with NaN, infinities, -0.0 and 1e300: compared, grouped, min, max; never added
    decimal   decimal(12,2)
    text, bool, date, timestamp, timestamptz
    ints, nested   lists of whole numbers, and of such lists

Invariant: a literal of `literal()` is written so that every engine gives it the same type.
"""

import datetime as dt
import decimal
import math

import pyarrow as pa

TYPES = [
    "int",
    "big",
    "double",
    "wild",
    "decimal",
    "text",
    "bool",
    "date",
    "timestamp",
    "timestamptz",
    "ints",
    "nested",
]
ARROW = {
    "int": pa.int64(),
    "big": pa.int64(),
    "double": pa.float64(),
    "wild": pa.float64(),
    "decimal": pa.decimal128(12, 2),
    "text": pa.string(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "ints": pa.list_(pa.int64()),
    "nested": pa.list_(pa.list_(pa.int64())),
}
SQL = {
    "int": "BIGINT",
    "big": "BIGINT",
    "double": "DOUBLE",
    "wild": "DOUBLE",
    "decimal": "DECIMAL(12,2)",
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "ints": "BIGINT[]",
    "nested": "BIGINT[][]",
}
# PostgreSQL's names of types, where they are others.
POSTGRES = {"double": "DOUBLE PRECISION", "wild": "DOUBLE PRECISION", "text": "TEXT"}
ARROW_NAMES = {"ints": "List(Int64)", "nested": "List(List(Int64))"}
# What can be ordered alike everywhere, and so be a key.
LISTS = ("ints", "nested")
ORDERED = [t for t in TYPES if t not in LISTS]

DAY = dt.date(2026, 11, 1)
WORDS = [
    "visit",
    "click",
    "pay",
    "a",
    "b",
    "Ab",
    "ab",
    "",
    "x_y",
    "50%",
    "it's",
    "ÄÖ",
    "日本",
    "😀",
    "0",
    "7",
    "-3",
    "control",
    "treat",
    "2026-11-02",
]
DEFAULTS = {"text": "visit"}
LONG_TEXT = "long 😀 " * 9_500  # beyond 64 KiB
LONG_CHARACTERS = 1_000  # from here on written as what is repeated
BIG = [2**63 - 1, -(2**63), 2**62, 2**53 + 1, 2**31, -(2**31) - 1, 0, 1, -1]
WILD = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e300, -1e300, 5e-324, 1.5, -2.25, 100.0]
FAR = [dt.datetime(2400, 1, 1), dt.datetime(1600, 2, 29, 12), dt.datetime(1969, 12, 31, 23, 59, 59)]


def value(rng, kind):
    """A random value, never None."""
    if kind == "int":
        return rng.choice([0, 1, 2, 3, rng.randint(-5, 20), rng.randint(-1000, 1000)])
    if kind == "big":
        return rng.choice([rng.choice(BIG), rng.randint(-10, 10)])
    if kind == "double":
        return rng.randint(-400, 400) / 4 if rng.random() < 0.7 else float(rng.randint(-5, 5))
    if kind == "wild":
        return rng.choice(WILD)
    if kind == "decimal":
        return decimal.Decimal(rng.choice([0, 125, rng.randint(-99999, 99999)])).scaleb(-2)
    if kind == "text":
        return rng.choice(WORDS)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "date":
        if rng.random() < 0.03:
            return rng.choice([dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(1970, 1, 1)])
        return DAY + dt.timedelta(days=rng.randint(0, 9))
    if kind in ("timestamp", "timestamptz"):
        return time(rng, kind)
    if kind == "nested":
        return [
            [rng.randint(0, 5) for _ in range(rng.randint(1, 2))] for _ in range(rng.randint(1, 3))
        ]
    return [None if rng.random() < 0.1 else rng.randint(0, 5) for _ in range(rng.randint(0, 4))]


def time(rng, kind):
    if rng.random() < 0.02:
        found = rng.choice(FAR)
    else:
        found = dt.datetime(2026, 11, 1) + dt.timedelta(
            days=rng.randint(0, 6),
            seconds=rng.choice([0, 1, 3600, rng.randint(0, 86399)]),
            microseconds=rng.choice([0, 0, 0, 500000, 1]),
        )
    return found.replace(tzinfo=dt.timezone.utc) if kind == "timestamptz" else found


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def type_name(kind, dialect):
    return POSTGRES.get(kind, SQL[kind]) if dialect == "postgres" else SQL[kind]


def postgres_literal(found, kind):
    """A literal whose type PostgreSQL need not guess."""
    if found is None:
        text = "NULL"
    elif kind in LISTS:
        text = quoted(repr(found).translate(str.maketrans("[]", "{}")).replace("None", "NULL"))
    else:
        text = quoted(str(found))
    return f"CAST({text} AS {type_name(kind, 'postgres')})"


def literal(found, kind, dialect):
    """The value as SQL; an atom, so that it needs no brackets."""
    if dialect == "postgres":
        return postgres_literal(found, kind)
    if found is None:
        if kind in LISTS and dialect == "uplake":
            return f"arrow_cast(NULL, '{ARROW_NAMES[kind]}')"
        return f"CAST(NULL AS {SQL[kind]})"
    if kind in ("int", "big"):
        # DuckDB's small literals are of 32 bits, in which sums overflow.
        if dialect == "duckdb":
            return f"CAST({found} AS BIGINT)"
        if dialect == "uplake" and -(2**63) < found:
            return str(found) if found >= 0 else f"({found})"
        return f"CAST('{found}' AS BIGINT)"
    if kind in ("double", "wild"):
        if not math.isfinite(found):
            return f"CAST('{found}' AS DOUBLE)"
        text = repr(found)
        text = text if "e" in text else text + "e0"
        return f"({text})" if text.startswith("-") else text
    if kind == "decimal":
        return f"CAST('{found}' AS DECIMAL(12,2))"
    if kind == "text":
        if len(found) < LONG_CHARACTERS:
            return quoted(found)
        unit = found[: (found + found).find(found, 1)]
        return f"repeat({quoted(unit)}, {len(found) // len(unit)})"
    if kind == "bool":
        return "true" if found else "false"
    if kind == "date":
        return f"DATE '{found.isoformat()}'"
    if kind == "timestamp":
        return f"TIMESTAMP '{found.isoformat(' ')}'"
    if kind == "timestamptz":
        return f"TIMESTAMPTZ '{found.replace(tzinfo=None).isoformat(' ')}+00'"
    if kind == "nested":
        text = repr(found)
        return text if dialect == "uplake" else f"CAST({text} AS BIGINT[][])"
    inner = ", ".join("NULL" if v is None else str(v) for v in found)
    if dialect == "duckdb":
        return f"CAST([{inner}] AS BIGINT[])"
    return (
        f"[{inner}]"
        if any(v is not None for v in found)
        else (f"arrow_cast([{inner}], 'List(Int64)')" if found else "arrow_cast([], 'List(Int64)')")
    )
