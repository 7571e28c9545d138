"""Values that go over the wire and come back: the SQL that makes each, and what it is in Python.

The SQL means the same to Postgres, against which the table is checked (UPLAKE_WIRE_PEER=postgres).
"""

import datetime as dt
import decimal
import math

UTC = dt.timezone.utc
BIG = decimal.Decimal("12345678901234567890123456.1234567890")
WORDS = "naïve ☃ 😀 'quoted' \"double\" \\ back\nline\ttab"

# name: (SQL, type's oid, text of the wire, value in Python)
SCALARS = {
    "true": ("true", 16, "t", True),
    "false": ("false", 16, "f", False),
    "smallint": ("(-32768)::smallint", 21, "-32768", -32768),
    "integer": ("2147483647::integer", 23, "2147483647", 2**31 - 1),
    "bigint": ("'-9223372036854775808'::bigint", 20, "-9223372036854775808", -(2**63)),
    "real": ("1.5::real", 700, "1.5", 1.5),
    "double": ("0.1::double precision", 701, "0.1", 0.1),
    "small double": ("1e-7::double precision", 701, "1e-07", 1e-7),
    "large double": ("1e20::double precision", 701, "1e+20", 1e20),
    "nan": ("'nan'::double precision", 701, "NaN", math.nan),
    "infinity": ("'infinity'::double precision", 701, "Infinity", math.inf),
    "minus infinity": ("'-infinity'::double precision", 701, "-Infinity", -math.inf),
    "decimal": (f"'{BIG}'::decimal(38,10)", 1700, str(BIG), BIG),
    "negative decimal": ("'-0.0001'::decimal(10,4)", 1700, "-0.0001", decimal.Decimal("-0.0001")),
    "zero with a scale": ("'0'::decimal(10,2)", 1700, "0.00", decimal.Decimal("0.00")),
    "round decimal": ("'10000'::decimal(9,0)", 1700, "10000", decimal.Decimal("10000")),
    "text": ("'" + WORDS.replace("'", "''") + "'", 25, WORDS, WORDS),
    "empty text": ("''::text", 25, "", ""),
    "bytea": ("decode('00ff5c27', 'hex')", 17, "\\x00ff5c27", b"\x00\xff\\'"),
    "empty bytea": ("decode('', 'hex')", 17, "\\x", b""),
    "date": ("date '2026-02-28'", 1082, "2026-02-28", dt.date(2026, 2, 28)),
    "early date": ("date '0001-01-01'", 1082, "0001-01-01", dt.date(1, 1, 1)),
    "timestamp": (
        "timestamp '2026-01-31 10:00:00.000001'", 1114, "2026-01-31 10:00:00.000001",
        dt.datetime(2026, 1, 31, 10, 0, 0, 1),
    ),
    "half a second": (
        "timestamp '2026-01-31 10:00:00.5'", 1114, "2026-01-31 10:00:00.5",
        dt.datetime(2026, 1, 31, 10, 0, 0, 500_000),
    ),
    "before 1970": (
        "timestamp '1969-12-31 23:59:59.999999'", 1114, "1969-12-31 23:59:59.999999",
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    ),
    "before 2000": (
        "timestamp '1999-12-31 23:59:59.999999'", 1114, "1999-12-31 23:59:59.999999",
        dt.datetime(1999, 12, 31, 23, 59, 59, 999_999),
    ),
    "timestamptz": (
        "'2026-01-31 10:00:00.25+02'::timestamp with time zone", 1184, "2026-01-31 08:00:00.25+00",
        dt.datetime(2026, 1, 31, 8, 0, 0, 250_000, UTC),
    ),
    "time": ("'10:00:00.000001'::time", 1083, "10:00:00.000001", dt.time(10, 0, 0, 1)),
    "days": ("interval '2 days'", 1186, "2 days", dt.timedelta(days=2)),
    "negative interval": (
        "interval '-2 days -3 hours'", 1186, "-2 days -03:00:00", -dt.timedelta(days=2, hours=3),
    ),
    "mixed interval": (
        "interval '1 day -1.5 seconds'", 1186, "1 day -00:00:01.5", dt.timedelta(days=1, seconds=-1.5),
    ),
    "difference of timestamps": (
        "timestamp '2026-01-01 00:00:00' - timestamp '2026-01-01 10:00:00.5'", 1186, "-10:00:00.5",
        -dt.timedelta(hours=10, seconds=0.5),
    ),
}
LISTS = {
    "list of bigints": ("array[1::bigint, null, -3::bigint]", 1016, "{1,NULL,-3}", [1, None, -3]),
    "list of texts": (
        "array['a', '', null, 'NULL', 'b \"c\" \\ {d},e']", 1009,
        '{a,"",NULL,"NULL","b \\"c\\" \\\\ {d},e"}', ["a", "", None, "NULL", 'b "c" \\ {d},e'],
    ),
    "list of doubles": (
        "array[1.5::double precision, 'infinity'::double precision]", 1022, "{1.5,Infinity}", [1.5, math.inf],
    ),
    "list of booleans": ("array[true, false, null]", 1000, "{t,f,NULL}", [True, False, None]),
    "list of dates": (
        "array[date '2026-01-31', null]", 1182, "{2026-01-31,NULL}", [dt.date(2026, 1, 31), None],
    ),
    "list of timestamps": (
        "array[timestamp '2026-01-31 10:00:00']", 1115, '{"2026-01-31 10:00:00"}',
        [dt.datetime(2026, 1, 31, 10)],
    ),
    "list of decimals": (
        "array['1.50'::decimal(10,2), '-2.25'::decimal(10,2)]", 1231, "{1.50,-2.25}",
        [decimal.Decimal("1.50"), decimal.Decimal("-2.25")],
    ),
    "nested list": ("array[array[1::bigint, 2], array[3::bigint, 4]]", 1016, "{{1,2},{3,4}}", [[1, 2], [3, 4]]),
}
ALL = SCALARS | LISTS

# Values that are sent as parameters, and the type that the statement names for each.
PARAMETERS = {
    "boolean": ("boolean", True),
    "smallint": ("smallint", -7),
    "integer": ("integer", 2**31 - 1),
    "bigint": ("bigint", 2**62),
    "real": ("real", 1.5),
    "double": ("double precision", -0.1),
    "infinity": ("double precision", math.inf),
    "decimal": ("decimal(38,10)", BIG),
    "text": ("text", WORDS),
    "empty text": ("text", ""),
    "bytea": ("bytea", b"\x00\xff\\'"),
    "date": ("date", dt.date(1999, 12, 31)),
    "timestamp": ("timestamp", dt.datetime(2026, 1, 31, 10, 0, 0, 1)),
    "timestamptz": ("timestamp with time zone", dt.datetime(2026, 1, 31, 8, 0, tzinfo=UTC)),
    "interval": ("interval", -dt.timedelta(days=2, hours=3)),
    "null": ("bigint", None),
    "no number": ("double precision", math.nan),
    "minus infinity": ("double precision", -math.inf),
    "small bigint": ("bigint", -(2**63) + 1),
    "small decimal": ("decimal(38,10)", decimal.Decimal("-0.0000000001")),
    "empty bytea": ("bytea", b""),
    # asyncpg takes the first and the last of all for infinities.
    "early date": ("date", dt.date(1, 1, 2)),
    "late date": ("date", dt.date(9999, 12, 30)),
    "early timestamp": ("timestamp", dt.datetime(1, 1, 1, 0, 0, 0, 1)),
    "late timestamp": ("timestamp", dt.datetime(9999, 12, 31, 23, 59, 59, 999_998)),
    "time": ("time", dt.time(23, 59, 59, 999_999)),
    "long interval": ("interval", dt.timedelta(days=10_000, seconds=-0.000001)),
    "zero interval": ("interval", dt.timedelta(0)),
}
# Lists that are sent, with a type that is cast to.
LIST_PARAMETERS = {
    "bigints": ("bigint[]", [1, None, -(2**63)]),
    "doubles": ("double precision[]", [1.5, math.inf, None]),
    "booleans": ("boolean[]", [True, None, False]),
    "texts": ("text[]", ["a", "", None, "NULL", 'b "c" \\ {d},e', "naïve ☃"]),
    "dates": ("date[]", [dt.date(2026, 1, 31), None]),
    "timestamps": ("timestamp[]", [dt.datetime(2026, 1, 31, 10, 0, 0, 1)]),
    "decimals": ("decimal(10,2)[]", [decimal.Decimal("1.50"), None]),
    "bytes": ("bytea[]", [b"\x00\xff", b"", None]),
    "nothing": ("bigint[]", []),
    "nested": ("bigint[][]", [[1, 2], [3, 4]]),
}


def same(ours, expected):
    """Equal, of one type, and NaN equals NaN."""
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(ours, float) and math.isnan(ours)
    if isinstance(expected, list):
        return isinstance(ours, list) and len(ours) == len(expected) and all(map(same, ours, expected))
    if isinstance(expected, dt.datetime) and expected.tzinfo:
        return ours == expected and ours.tzinfo is not None
    if isinstance(ours, memoryview):
        ours = bytes(ours)
    if isinstance(ours, decimal.Decimal) and isinstance(expected, decimal.Decimal):
        return f"{ours:f}" == f"{expected:f}"
    return type(ours) is type(expected) and ours == expected


# What a statement that fails says: name → (SQL, SQLSTATE, position in characters from 1 or None).
ERRORS = {
    "no such table": ("select * from nowhere", "42P01", 15),
    "no such column": ("select naïve, ☃ from people".replace("naïve, ☃", "name, nope"), "42703", 14),
    "position counts characters": ("select '☃😀', nope from people", "42703", 14),
    "syntax": ("select 1 fromm people", "42601", 16),
    "a text that ends too early": ("select (1", "42601", 10),
    "no such function": ("select nope(1)", "42883", 8),
    "division by zero": ("select id / (id - id) from people", "22012", None),
    "text that is no number": ("select name::bigint from people where id = 1", "22P02", None),
    "ambiguous": ("select id from people a join people b on a.id = b.id", "42702", 8),
    "table exists": ("create table people (id bigint)", "42P07", None),
    "no such type": ("select 1::nope", "42704", 11),
    "not grouped": ("select name, count(*) from people", "42803", 8),
    "subquery of many rows": ("select (select id from people)", "21000", None),
}
