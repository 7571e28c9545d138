"""Where uplake means to differ from DataFusion's files: statements that docs/sql.md does not
promise, and the types that a table keeps.

Not here: running (`datafusion_tests`), how a rule is asked (`sqllogictest.Rule`).
"""

import datetime as dt
import re

from sqllogictest import NoSuchTable, Rule, same_row

REFUSED = [
    Rule("external tables", sql=r"^\s*create\s+(or replace\s+)?(unbounded\s+)?external\b"),
    Rule(
        "catalogs and schemas beside the lake's",
        message=r"(Create|Drop)Catalog(Schema)? is not supported|is not a table of the lake",
    ),
    Rule(
        "catalogs and schemas beside the lake's", message=r"there is no table `foo_schema\.\w+`"
    ),
    Rule(
        "PREPARE of a name that is taken is an error, as in PostgreSQL",
        message=r"there is a prepared statement \w+ already",
    ),
    Rule("EXPLAIN EXECUTE", message="EXPLAIN EXECUTE is not supported"),
    Rule(
        "columns without an alias are called by their text",
        raw=r"\"count\(t\.a\)\"",
        message=r"possible column v\.count\(a\)",
    ),
    Rule("functions that users write", message=r"(Create|Drop)Function is not supported"),
    Rule(
        "SIMILAR TO of a pattern that is computed",
        message=r"SIMILAR TO of a pattern that is computed is not supported",
    ),
    Rule("ANY and ALL beside = ANY and <> ALL", message=r"(ANY|ALL) \(subquery\) is supported"),
    Rule(
        "CREATE OR REPLACE, TEMPORARY, DEFAULT, UNIQUE",
        sql=r"^\s*create\b",
        message=r"(TABLE|TEMPORARY|UNIQUE|form of CREATE TABLE) (is|are) not",
    ),
    Rule(
        "INSERT OVERWRITE, REPLACE and TRUNCATE",
        sql=r"^\s*(insert|replace|truncate)\b",
        message="not supported",
    ),
    Rule("transactions", sql=r"^\s*(begin|commit|rollback|start\s+transaction)\b"),
    Rule("settings of DataFusion", sql=r"^\s*(re)?set\s+\"?datafusion\b"),
    Rule("SELECT INTO", sql=r"\bselect\b.*\binto\b", message="not supported"),
    Rule("catalogs and schemas beside the lake's", sql=r"\bdatafusion\.public\b"),
    Rule("names of tables with other signs than letters, digits and _", message="table name `"),
    Rule(
        "functions that DataFusion's runner makes in Rust",
        message=r"Invalid function '(async_abs|example)'",
    ),
    Rule(
        "a name in * REPLACE is a column",
        sql=r"\*\s*replace\s*\(",
        message=r"column '\w+' not found",
    ),
    Rule("SELECT without a column", message="SELECT has no column"),
    Rule("UUID", message="Unsupported SQL type UUID"),
    Rule("tables without a column", message="a table needs a column"),
    Rule(
        "answered, but in a type of Arrow that Python does not read",
        message="Arrow IPC field metadata cannot encode",
    ),
    Rule(
        "types that a table cannot hold",
        sql=r"^\s*(create\s+table|insert)\b",
        message=r"18446744073709551615 does not fit|to FixedSizeBinary",
    ),
    Rule(
        "GROUP BY a key does not stand for the row's other columns",
        message="must appear in GROUP BY clause|Correlated scalar subquery must be aggregated",
    ),
    Rule("tables that a refused DROP left", sql=r"^\s*create\b", message="exists already"),
    Rule("times beyond those of nanoseconds", message="converted value exceeds"),
    Rule("an overflow in rows past LIMIT", sql=r"\blimit\b", message="overflow on abs"),
    NoSuchTable("tables that DataFusion's runner makes in Rust", message="there is no table"),
    Rule(
        "types that a table cannot hold",
        sql=r"^\s*create\s+table\b",
        message=r"Unsupported SQL type|cannot be (stored|kept)|no type for|types are text, bigint",
    ),
    Rule(
        "files in place that are not Parquet, CSV or JSON, by their name's end",
        raw=r"from\s+'[^']*(\.avro|\.arrow|/[^'/.]*)'",
        message="no file matches",
    ),
]

DIFFERS = [
    Rule(
        "a view that is made again with the same text is there",
        sql=r"^\s*create\s+view\b",
        expected="already exists",
    ),
    Rule(
        "PREPARE may name more or fewer types than there are parameters, as in PostgreSQL",
        sql=r"^\s*prepare\b",
        expected=r"Prepare specifies \d+ data types but",
    ),
    Rule(
        "PREPARE may name more or fewer types than there are parameters, as in PostgreSQL",
        raw=r"^DEALLOCATE my_plan",
        expected="does not exist",
    ),
    Rule(
        "answered here, not by DataFusion", expected=r"not implemented|Invalid \\\(non-executable"
    ),
    Rule(
        "DataFusion's files expect a wrong answer and say so: NULL NOT IN … OR",
        sql=r"\bnot\s+in\b.*\bor\b.*\bnot\s+in\b",
        expected=r"NULL e",
    ),
    Rule(
        "tables without an end", sql=r"\b(unbounded|\w*infinite)\w*", expected=r"\A\Z|SanityCheck"
    ),
    Rule("times beyond those of nanoseconds", sql=r"\bint96_from_spark\b"),
    Rule("external tables", expected="incorrect number of fields"),
    Rule("EXPLAIN shows uplake's own plans", sql=r"^\s*explain\b"),
    Rule("SHOW and DESCRIBE have columns of their own", sql=r"^\s*(show|desc|describe)\b"),
    Rule(
        "information_schema names uplake's catalog and is always there",
        sql=r"\binformation_schema\b",
    ),
    Rule(
        "information_schema names uplake's catalog and is always there",
        expected=r"information_schema",
    ),
    Rule("functions that users write", expected="Invalid function"),
    Rule(
        "capitals: columns are found whatever their case, tables in lower case",
        expected=r"[Cc]olumn names are case|table '\w+\.public\.\w+' not found",
    ),
    Rule("memory is bounded by --memory", expected="Resources exhausted"),
    Rule("names of data files and rows in them", sql=r"\b(input_file_name|file_row_index)\b"),
    Rule("timestamptz without a zone is in UTC", raw=r"arrow_cast\('[^']*'::timestamptz"),
    Rule(
        "tables keep Delta's types: microseconds in UTC, dates without a time, signed numbers",
        sql=r"\barrow_(typeof|field)\(.*\bfrom\b",
    ),
    Rule(
        "answered here, not by DataFusion",
        expected="Projections require unique expression names|which would be ambiguous",
    ),
    Rule(
        "answered here, not by DataFusion", raw=r"count\((1?)\), count\(\1\)", expected=r"\A\Z"
    ),
    Rule(
        "ANY of a list with a NULL is NULL where it is not true, as in PostgreSQL",
        raw=r"\bany\(make_array\([^()]*NULL",
        message=r"\ANULL\Z",
    ),
    Rule("array_has… of NULL is NULL", expected="does not support type 'Null'"),
    Rule(
        "a TIMESTAMP is of microseconds, and so is a number that is cast to one",
        raw=r"(?i)'[^']*\.\d{7,}[^']*'::timestamp|timestamp\s+'[^']*\.\d{7,}[^']*'|"
        r"[\d).x]::timestamp\b|cast\([^']*\bas timestamp\)|now\(\)::bigint",
    ),
    Rule(
        "a TIMESTAMP is of microseconds, and so is a number that is cast to one",
        raw=r"(?i)arrow_typeof\([^()]*::timestamp|^SELECT arrow_typeof\(to_timestamp",
    ),
    Rule(
        "a date and an interval of hours are a timestamp, as in PostgreSQL",
        raw=r"::date [+-] interval '\d+ hour'",
    ),
    Rule("NaN is one number, above all others, as in PostgreSQL", raw=r"-NaN|\btest_float\b"),
    Rule("files in place are read always", raw=r"from\s+'", expected="not found"),
    Rule("external tables", sql=r"^\s*create\s+(unbounded\s+)?external\b"),
]

KEPT_TYPES = "tables keep Delta's types: microseconds in UTC, dates without a time, signed numbers"
TIMES = re.compile(
    r"([+-]?\d{4,6}-\d\d-\d\d)(?:T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?)?"
)
TYPES = [
    (re.compile(r"Dictionary\(\w+, ((?:[^()]|\([^()]*\))+)\)"), r"\1"),
    (re.compile(r"\b(Large)?(Utf8|Binary|List)(View)?\b"), r"\2"),
    (re.compile(r"Timestamp\([^()]*\)"), "Timestamp"),
    (re.compile(r"\bUInt8\b"), "Int16"),
    (re.compile(r"\bUInt16\b"), "Int32"),
    (re.compile(r"\bUInt(32|64)\b"), "Int64"),
    (re.compile(r"\bFloat16\b"), "Float32"),
    (re.compile(r",? ?field: '\w+'"), ""),
    (re.compile(r"\bDate64\b"), "Date32"),
    (re.compile(r"nullable: false"), "nullable: true"),
    (re.compile("non-null ?"), ""),
    (re.compile(r"\bDecimal128\(20, 0\)"), "Int64"),
]


def as_kept(line):
    """A row's text with each time in UTC and whole microseconds, and types as tables have them."""
    for pattern, kept in TYPES:
        line = pattern.sub(kept, line)
    line = TYPES[0][0].sub(r"\1", line)
    return TIMES.sub(one_time, line)


def one_time(found):
    day, clock, part, zone = found.groups()
    if clock is None:
        return day + "T00:00:00.000000"
    micros = (part or "").ljust(6, "0")[:6]
    if zone in (None, "Z") or len(day) != 10:
        return f"{day}T{clock}.{micros}"
    try:
        when = dt.datetime.fromisoformat(f"{day}T{clock}{zone}").astimezone(dt.timezone.utc)
    except (ValueError, OverflowError):
        return found[0]
    return f"{when:%Y-%m-%dT%H:%M:%S}.{micros}"


def same_as_kept(got, want):
    """Rows as lists of words."""
    if not re.search(r"\d\dT\d\d", " ".join(word for row in got for word in row)):
        want = [[re.sub(r"(\d-\d\d)T[\d:.]+", r"\1", word) for word in row] for row in want]
    got, want = ([as_kept(" ".join(row)).split() for row in rows] for rows in (got, want))
    return len(got) == len(want) and all(map(same_row, sorted(got), sorted(want)))


# Tables whose rows cannot be the file's: what a CREATE says, and why.
OTHER_ROWS = [
    (
        re.compile(
            r"at\s+time\s+zone\s+'(?!utc)|Timestamp\(\w+, (?:Some\()?\\?\"(?!UTC|\+00)",
            re.IGNORECASE,
        ),
        "tables keep times in UTC, not in another zone",
    ),
    (
        re.compile(r"to_timestamp_nanos|Timestamp\((?:ns|Nanosecond)", re.IGNORECASE),
        "tables keep microseconds",
    ),
    (
        re.compile(
            r"cast\(column1 as timestamp\) as ts\b|\(time TIMESTAMP\) AS VALUES\s*\(\d",
            re.IGNORECASE,
        ),
        "a TIMESTAMP is of microseconds, and so is a number that is cast to one",
    ),
]
