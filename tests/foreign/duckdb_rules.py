"""Where uplake means to differ from DuckDB's files: SQL that is DuckDB's own, and answers of
DataFusion's functions and types that are another choice.

Not here: running (`duckdb_tests`), how a rule is asked (`sqllogictest.Rule`).
"""

import re

import sqllogictest as slt
from sqllogictest import NoSuchTable, OfKeyedTable, Rule

PARSER = (
    r"^(Expected:|did not expect|No infix parser|No prefix parser|Unterminated|Unexpected|"
    r"Unsupported SQL statement|Unsupported expr|Unsupported ast|Failed to parse placeholder|"
    r"sql parser error|Unsupported interval|Unsupported value|Unsupported language)"
)

REFUSED = [
    Rule(
        "subqueries that DataFusion cannot plan",
        message=r"^(a subquery here may compare with|LATERAL, or a function in FROM, may name|"
        r"Correlated scalar subquery|"
        r"Too many columns! The subquery|Unsupported JOIN operator|Can't plan correlated)",
    ),
    Rule("foreign keys and checks", message=r"(Foreign key|Check) constraints are not"),
    Rule("tables without a column", message="a table needs a column"),
    Rule("one mark between two digits", raw=r"\d__\d", message="is no number"),
    Rule("SELECT without a column", message="SELECT has no column"),
    Rule("unnest of several lists in one call", message=r"unnest\(\) requires exactly one"),
    Rule("EXPLAIN in other forms", sql=r"^\s*explain\b", message="Invalid explain format"),
    Rule("ORDER BY in a window's aggregate", message="Aggregate ORDER BY is not implemented"),
    Rule("frames whose ends are not whole numbers", message="Invalid window frame"),
    Rule("DISTINCT ON without its ORDER BY", message="SELECT DISTINCT ON expressions must"),
    Rule(
        "two columns of one name, in a subquery or a table",
        message="Projections require unique expression names|Schema contains duplicate|"
        "duplicate (unqualified )?field name|is there twice",
    ),
    Rule(
        "range and generate_series name their column `value`",
        message=r"columns are \S*value\b|" r"No field named (range|generate_series)\b",
    ),
    Rule(
        "texts that PostgreSQL's or DuckDB's casts read and DataFusion's do not",
        message=r"cannot read '|Error parsing timestamp|Invalid input syntax for type|"
        r"Could not parse '|Overflow converting",
    ),
    Rule(
        "aliases of SELECT in WHERE, GROUP BY and SELECT itself; values without parentheses",
        message=r"column '?\w+'? not found|column '[^']+' not found in '",
    ),
    Rule(
        "escape characters of LIKE beside the backslash",
        message="LIKE does not support escape_char|Invalid escape character",
    ),
    Rule("slices without a bound", message="Slice subscript requires"),
    Rule(
        "parts of dates beside DataFusion's",
        message=r"Date part '\w+' not supported|date_trunc granularity|non-empty constant string|"
        r"must be non-null scalar",
    ),
    Rule(
        "operators of DuckDB",
        message=r"Unsupported (binary|SQL unary) operator|Unsupported A(ny|ll)Op",
    ),
    Rule(
        "table functions of columns",
        message="Arguments must be literals|Unsupported function argument",
    ),
    Rule(
        "names of columns for VALUES and subqueries that have others",
        message=r"Source table contains|columns are v\.column1",
    ),
    Rule(
        "GROUP BY an alias beside other columns; ORDER BY columns that UNION took away",
        message=r"must appear in (GROUP BY|select list)|^No field named|"
        r"Incompatible inputs for Union|ORDER BY of a UNION may name|"
        r"ambiguous|Union schemas|duplicate alias|Order by column out of bounds",
    ),
    Rule("methods: x.f()", message="Dot access not supported"),
    Rule("FETCH FIRST and LIMIT of a subquery", message="FETCH clause|Unsupported LIMIT"),
    Rule("ON CONFLICT DO UPDATE", message="write ON CONFLICT DO NOTHING"),
    Rule("names of tables with other signs than letters, digits and _", message="table name `"),
    Rule("recursive CTEs named twice", message="Multiple recursive references"),
    Rule("intervals times numbers", message="Cannot get result type for temporal operation"),
    Rule("changes in a CTE", message="not implemented yet"),
    Rule(
        "NULL, 0 and other borders that PostgreSQL or DataFusion refuse",
        message=r"negative count not allowed|start position must be at least|got invalid index|"
        r"does not support type|map key cannot be null|requires a positive integer|"
        r"expects array arguments|at least one argument|NOT cannot be used",
    ),
    Rule(
        "windows that cannot slide",
        message="retract_batch|Cannot run range queries|GROUPS requires",
    ),
    Rule("* RENAME and EXCLUDE of t.c", message="RENAME not supported|multi-part identifiers"),
    Rule("SHOW beside SHOW TABLES", sql=r"^\s*show\b", message="is not a variable"),
    Rule("TABLESAMPLE, * ILIKE", message="(TABLESAMPLE|ILIKE) is not supported"),
    Rule(
        "sums of bigint that do not fit are errors, where DuckDB's are hugeint",
        message="the sum does not fit",
    ),
    Rule(
        "an error of rows that a condition takes away may come",
        message="^Arrow error: Cast error: Cannot cast string",
    ),
    Rule(
        "recursion that only a LIMIT outside would end",
        sql=r"with\s+recursive",
        message="^the time-out",
    ),
    Rule("placeholders outside of PREPARE", message="^Execution error: Placeholder"),
    Rule("tables that a refused DROP left", sql=r"^\s*create\b", message="exists already"),
    Rule(
        "grouping sets with empty or composite sets in a list",
        message="Empty tuple|Tuple expressions",
    ),
    Rule(
        "names and numbers of arguments that functions do not have",
        message=r"Unknown parameter name|takes a value and a key|was called with \d+ arguments|"
        r"requires key and value|expects list as first",
    ),
    Rule(
        "structs, maps and lists of them are not compared",
        message="^Invalid argument error: Nested comparison|^Uncomparable values",
    ),
    Rule("whole numbers beyond 64 bits", message=r"-?[\d.]+e\d\d does not fit bigint"),
    Rule(
        "aggregates of an untyped NULL",
        message=r"AvgAccumulator for \(Null|SUM not supported for Null",
    ),
    Rule(
        "HAVING and QUALIFY without what they are for",
        message="QUALIFY clause requires|HAVING clause references",
    ),
    Rule("VALUES of structs that differ", message="Inconsistent data type across values"),
    Rule("conditions that are not booleans", message="non-boolean predicate"),
    Rule(
        "table functions of columns",
        message=r"Argument #\d must be an INTEGER|Second argument must be a timestamp or NULL, got Col",
    ),
    Rule(
        "a WITH in another that has its name",
        message="WITH query name .* specified more than once",
    ),
    Rule(
        "subqueries in which conditions on outer columns cannot move",
        message="an outer join is not supported in a subquery|window functions over rows that depend",
    ),
    Rule(
        "recursive queries that read themselves in a subquery, or have a LIMIT",
        message=r"the recursive query `\w+` ",
    ),
    Rule(
        "ceil and floor of a decimal keep its type, in which the next number may not fit",
        message="Decimal overflow while applying (ceil|floor)",
    ),
    Rule("UNIQUE, generated columns", message="generated columns are not supported"),
    Rule("WITH ORDINALITY", message="WITH ORDINALITY is not supported"),
    Rule(
        "FETCH FIRST and LIMIT of a subquery",
        message=r"OFFSET expression|Expected (LIMIT|OFFSET) to be",
    ),
    Rule(
        "intervals beyond 292 years of nanoseconds",
        message="Arithmetic overflow: Overflow happened on",
    ),
    Rule(
        "types of DuckDB that a table or a cast has not",
        message=r"Unsupported TRY_CAST|type ARRAY`\) not supported",
    ),
    Rule("time zones with seconds", message="failed to parse timezone"),
    Rule(
        "arguments of windows that are not literals",
        message="signed integer literal|only support Literal types|INTERVAL expression cannot be",
    ),
    Rule("two columns of one name, in a subquery or a table", message="two columns are named"),
    Rule("columns by #number", message="column '#"),
    Rule("EXPLAIN in other forms", sql=r"^\s*explain\b"),
    Rule("UNIQUE, generated columns", sql=r"^\s*insert\b", message="Column count doesn't match"),
    Rule(
        "NULL, 0 and other borders that PostgreSQL or DataFusion refuse",
        message=r"unnest\(\) does not support|got invalid stride|field position must not be zero|"
        r"step can't be 0|on FACTORIAL|zero raised to a negative",
    ),
    Rule("fields of structs whatever their case", message="Field \\w+ not found in struct"),
    Rule("aggregates of an outer query's columns", message="not allowed in the WHERE clause"),
    Rule(
        "DISTINCT with ORDER BY another expression, as PostgreSQL",
        message="ORDER BY expressions must appear in argument list",
    ),
    Rule("a literal with a point is a double", message="to store in a Decimal128 of precision"),
    Rule("flags of regular expressions beside i, m, s, g, x", message="unrecognized flag"),
    Rule("primary keys of reals", message="cannot be in a primary key"),
    Rule("rows compared with a subquery", message="can't cast to \\w+ in InSubquery"),
    NoSuchTable("tables and functions of DuckDB", message="there is no table"),
    Rule("lambdas", sql=r"->|\blambda\b", message="No field named"),
    Rule(
        "columns of DuckDB that every table has",
        message=r"No field named \S*(rowid|oid|filename)\b|" r"column '(rowid|filename)' not found",
    ),
    Rule("transactions", sql=r"^\s*(begin|commit|rollback|abort|start\s+transaction)\b"),
    Rule(
        "settings, pragmas and CALLs of DuckDB",
        sql=r"^\s*(set|reset|pragma|call|load|install|checkpoint|force\s+checkpoint|"
        r"vacuum|analyze)\b",
    ),
    Rule(
        "sequences, types, macros, indexes, schemas, triggers, comments",
        sql=r"^\s*(create|drop|alter|comment)\b.*\b(sequence|type|macro|function|index|schema|"
        r"trigger|secret|on)\b",
        message=r"not supported|Unsupported|Expected|found|supported currently",
    ),
    Rule(
        "attached databases", sql=r"^\s*(attach|detach|use|copy\s+from\s+database|export|import)\b"
    ),
    Rule(
        "ALTER TABLE beside ADD, DROP and RENAME COLUMN and SET (…)",
        sql=r"^\s*alter\b",
        message=r"^ALTER TABLE … .* is not supported|of a column that is added is not supported",
    ),
    Rule(
        "ALTER TABLE beside ADD, DROP and RENAME COLUMN and SET (…)",
        sql=r"^\s*alter\s+table\s+v1\s+rename\s+to\b",
        message="there is no table",
    ),
    Rule(
        "a parameter has the type of its place, as in PostgreSQL",
        sql=r"^\s*execute\b",
        message=r"^\$\d+: \S+ does not fit",
    ),
    Rule(
        "DEALLOCATE of what is not there is an error, as in PostgreSQL",
        sql=r"^\s*deallocate\b",
        message=r"^there is no prepared statement",
    ),
    Rule(
        "a row that several rows of FROM change is an error",
        sql=r"^\s*update\b.*\bfrom\b",
        message="is changed by more than one row of the source",
    ),
    Rule(
        "PREPARE of other statements than queries",
        sql=r"^\s*prepare\b",
        message="only (a query|queries) can be prepared",
    ),
    Rule(
        "parameters beside $1 and ?",
        message=r"^parameters are (\$1, \$2 and so on, not|either)|^Expected: literal string, found: \$",
    ),
    Rule(
        "PREPARE of a name that is taken is an error, as in PostgreSQL",
        message=r"there is a prepared statement \w+ already",
    ),
    Rule(
        "MERGE … RETURNING, RETURNING within WITH and with ON CONFLICT DO NOTHING",
        message=r"MERGE … RETURNING is not supported|RETURNING .*is not supported",
    ),
    Rule(
        "MERGE beside UPDATE, DELETE and INSERT … VALUES",
        sql=r"\bmerge\s+into\b",
        message=r"in merge clause|^Expected: (ON|SET|VALUES), found: (USING|WHEN|EOF|by|;)",
    ),
    Rule(
        "whole numbers beyond 64 bits",
        raw=r"-9223372036854775808",
        message=r"^integer overflow in \(- ",
    ),
    Rule(
        "CREATE OR REPLACE, TEMPORARY, DEFAULT, UNIQUE, CHECK, FOREIGN KEY",
        sql=r"^\s*create\b",
        message=r"not supported|Unsupported",
    ),
    Rule(
        "INSERT beside INSERT … SELECT and VALUES",
        sql=r"^\s*(insert|replace|truncate)\b",
        message="not supported|not implemented|Unsupported|Expected",
    ),
    Rule(
        "DELETE with more than WHERE and a condition on its own columns",
        sql=r"^\s*delete\b",
        message="not supported|WHERE only|Expected",
    ),
    Rule(
        "SIMILAR TO of a pattern that is computed",
        message=r"SIMILAR TO of a pattern that is computed is not supported",
    ),
    Rule("ANY and ALL beside = ANY and <> ALL", message=r"(ANY|ALL) \(subquery\) is supported"),
    Rule("syntax of DuckDB", message=PARSER),
    Rule(
        "functions of DuckDB",
        message=r"Invalid function|table function '[^']*' not found|Invalid aggregate|"
        r"Invalid window function",
    ),
    Rule(
        "types of DuckDB that a table or a cast has not",
        message=r"Unsupported SQL type|cannot be stored in a Delta table|Unsupported CAST|"
        r"Unsupported data type|invalid type",
    ),
    Rule(
        "files in place that are not Parquet, CSV or JSON",
        message="no file matches|is no address that is known",
    ),
    Rule(
        "databases, schemas and catalogs of DuckDB",
        message=r"is not a table of the lake|there is no table `(duckdb|pg|sqlite|information)_\w+|"
        r"there is no table `\w+\.\w+",
    ),
    Rule(
        "types that DuckDB casts by itself",
        message=r"No function matches|Cannot automatically convert|expressions have incompatible|"
        r"Cannot infer common|Failed to coerce|Failed to unify|does not support zero",
    ),
]

DIFFERS = [
    Rule(
        "RETURNING * has the columns of FROM, too, as in PostgreSQL",
        sql=r"^\s*update\b.*\bfrom\b.*\breturning\s+\*",
    ),
    Rule("EXPLAIN shows uplake's own plans", sql=r"^\s*explain\b"),
    Rule(
        "SHOW and DESCRIBE have columns of their own", sql=r"^\s*(show|desc|describe|summarize)\b"
    ),
    OfKeyedTable(
        "with a primary key rows replace those of their key",
        sql=r"^\s*insert\b",
        expected=r"\A\Z|[Cc]onstraint|[Dd]uplicate key",
    ),
    Rule("foreign keys", expected=r"foreign key|main key"),
    Rule(
        "answered here, refused by DuckDB's types, names or syntax",
        expected=r"(Binder|Parser|Catalog|Not implemented|Invalid Input|Syntax) Error|"
        r"explicit cast is required|No function matches|has no effect|not supported|"
        r"template type|cannot contain|Cannot (compare|group)|depth limit|out of range - should|"
        r"ORDER term out of range|does not align|can not contain NULL|column names|"
        r"aliases cannot|Invalid replacement|Sample rows|syntax error",
    ),
    Rule(
        "substr and substring count places from the start only, as PostgreSQL",
        sql=r"\bsubstr(ing)?\s*\(.*-\s*\d",
    ),
    Rule("overlay of a negative length, as PostgreSQL", sql=r"\boverlay\s*\(.*-\s*\d"),
    Rule("sha256 and the like give bytes", sql=r"\b(sha\d+|md5)\s*\("),
    Rule(
        "reverse and length count code points; length of a list is that of its text",
        sql=r"\b(reverse|length)\s*\(",
    ),
    Rule(
        "NULLs and NULL lists in list functions, as DataFusion takes them",
        sql=r"\b(list|array)_(distinct|intersect|has_any|has_all|position|indexof|concat|zip|"
        r"resize|"
        r"to_string|length|sort|except|extract|contains|has)\s*\(|\bflatten\s*\(|\|\|",
    ),
    Rule(
        "maps: a list or NULL as key, NULL for a key that is not there",
        sql=r"\bmap(_extract)?\s*\(",
    ),
    Rule("concat of lists is text", sql=r"\bconcat\s*\("),
    Rule(
        "LIMIT without ORDER BY",
        raw=r"SELECT \* FROM '[^']*/empty_?list\w*\.parquet'",
        expected=r"\A(\[\]\s*)+\Z",
    ),
    Rule(
        "ORDER BY a name that two columns have is by the first",
        sql=r"SELECT i, i % 2 AS i, SUM\(i\) FROM integers GROUP BY i ORDER BY i, 3",
    ),
    Rule(
        "a REAL is shown with as many digits as tell it from others",
        sql=r"SELECT i::FLOAT FROM integers ORDER BY i",
        message=r"-2147483600\.0",
    ),
    Rule(
        "NULLS FIRST and LAST hold for NULLs within lists, too",
        sql=r"order\s+by\s+l\b",
        expected=r"\[NULL\]",
    ),
    Rule(
        "NULLS FIRST and LAST hold for NULLs within lists, too",
        sql=r"order\s+by\s+l\b",
        message=r"\[NULL\]",
    ),
    Rule(
        "ON CONFLICT DO NOTHING counts the rows that were offered",
        sql=r"on\s+conflict\s+do\s+nothing",
        message=r"\Ainserted \d+ rows",
    ),
    Rule("text is not read as a list", raw=r"(varchar|int\w*|date|double|bool\w*)\[\]"),
    Rule("bytea of text takes its bytes as they are", raw=r"\\x|\\\\x", sql=r"blob|bytea"),
    Rule(
        "text of dates and times is ISO 8601's, years before 1 included",
        raw=r"\((bc|BC)\)|-\d{3,}-\d\d-\d\d|infinity|epoch",
        sql=r"date|timestamp|time",
    ),
    Rule(
        "text of dates and times is ISO 8601's, years before 1 included",
        expected=r"\((bc|BC)\)|infinity|epoch",
    ),
    Rule(
        "lists and structs with NULLs are ordered as Arrow does",
        sql=r"\b(min|max)\s*\(|[<>=]",
        expected=r"NULL",
        raw=r"list_|struct|lhs|tbl\.a|\bs\b",
    ),
    Rule(
        "corr and regr_… of one row or of overflowing doubles, as PostgreSQL",
        sql=r"\b(corr|regr_\w+|covar_\w+|stddev\w*|var_\w+)\s*\(",
        expected=r"(?i)nan|inf|e\+",
    ),
    Rule(
        "corr and regr_… of one row or of overflowing doubles, as PostgreSQL",
        sql=r"\bregr_r2\(1e230\s*\*",
    ),
    Rule(
        "a number beyond the range of REAL becomes infinite",
        raw=r"(?i)1e308::(float|real)\b",
        expected="Conversion|out of range|\\^|\\A(error)?\\Z",
    ),
    Rule(
        "round of doubles rounds the decimals that are shown, not the bits",
        raw=r"round\(42\.12345::DOUBLE, 4\)",
    ),
    Rule(
        "information_schema names uplake's catalog and types, and has no schemas of users",
        sql=r"\binformation_schema\.(schemata|tables|columns)\b",
    ),
    Rule(
        "fractions of units of intervals are kept, in smaller units",
        raw=r"(?i)interval\s+'-?\d+\.\d+'\s+(micro|milli)?(second|minute|hour|day|week|month|year|"
        r"decade|century)\b|'-?\d+\.\d+ (week|microsecond)'::interval",
    ),
    Rule(
        "string_agg with a NULL between gives the texts, as PostgreSQL",
        raw=r"string_agg\('\w+',\s*NULL\)",
    ),
    Rule(
        "windows without ORDER BY over rows in no order",
        sql=r"over\s*(\w+|\(\s*(partition\s+by\s+[\w, ]+)?\s*(rows|range|groups|\)))",
    ),
    Rule("nth_value from the end", sql=r"nth_value\s*\([^)]*-\s*\d"),
    Rule(
        "a JOIN without ON, or POSITIONAL as a name, is a cross join", sql=r"\bpositional\s+join\b"
    ),
    Rule("words after an interval or a value are names", sql=r"\binterval\s+\d+\s+\w+s\b"),
    Rule("words after an interval or a value are names", sql=r"\binterval\s+''\s+millennia\b"),
    Rule(
        "fractions of months in intervals are cut",
        raw=r"interval\s+'-?[\d.]+ ?(century|decade|year|month)",
    ),
    Rule("sums of overflowing literals are doubles", sql=r"\d{20,}"),
    Rule("% of decimals is that of doubles", sql=r"%\s*-?\d+\.\d"),
    Rule("a match of ~ is the whole text there, any part here, as PostgreSQL", raw=r"!?~\s*'"),
    Rule("rows as structs", sql=r"\brow\s*\("),
    Rule("rows as structs", sql=r"^\s*execute\b", message=r"^\{'c0': ", expected=r"^\("),
    Rule(
        "names of columns in capitals are the same", expected=r"^$", raw=r"(?i)\{'(\w+)':[^}]*'\1'"
    ),
    Rule(
        "count of several arguments counts rows in which none is NULL", sql=r"\bcount\s*\(\s*\d, "
    ),
    Rule(
        "an error of rows that FILTER leaves out does not come",
        sql=r"\bfilter\s*\(",
        expected="Conversion Error",
    ),
    Rule(
        "casts of fractions to whole numbers cut them, as DataFusion's do",
        raw=r"-?\d+\.\d::(float|double) as \w*int|AVG\(StandardCost\)",
    ),
    Rule("^ is the exclusive or of bits, as in DataFusion's reference", sql=r"\d\s*\^\s*\d"),
    Rule("bytea of text takes its bytes as they are", raw=r"(?i)\bblobs\b|::BYTEA"),
    Rule(
        "texts of dates, times and intervals in other forms than ISO 8601 are NULL in try_cast",
        raw=r"(?i)try_cast\('(?!\d{4}-\d\d-\d\d \d\d:\d\d:\d\d')[^']*' as "
        r"(date|time|timestamp|interval)",
    ),
    Rule("DECIMAL without digits is decimal(38, 10)", raw=r"(?i)::decimal(::|;|$)"),
    Rule(
        "results of decimals have more digits than their arguments",
        raw=r"(?i)decimal",
        expected="Overflow in (addition|subtract|multiplication|ROUND) of DECIMAL",
    ),
    Rule("intervals keep nanoseconds", raw=r"(?i)interval '0\."),
    Rule("text of intervals is Arrow's", raw=r"(?i)interval '[^']*'::varchar"),
    Rule("= ANY of NULL is NULL, as PostgreSQL", raw=r"(?i)any\(null\)"),
    Rule("tables keep microseconds", raw=r"(?i)\bts_precision\b"),
    Rule("zones in texts of timestamps are heeded", raw=r"(?i)timestamp '[^']* [A-Z]{3}'"),
    Rule(
        "answered here, refused by DuckDB's types, names or syntax",
        expected=r"\A\Z",
        raw=r"(?i)with recursive|timestamptz::(date|time)|[lr]pad\(|escape '%'|- interval",
    ),
    Rule(
        "answered here, refused by DuckDB's types, names or syntax",
        expected="UNNEST of struct|^ss_items|Unimplemented type for cast|"
        "outside of supported range",
    ),
    Rule("split_part at nothing is the whole text, as PostgreSQL", raw=r"split_part\([^)]*''"),
    Rule("shifts by less than 0 or more than the bits wrap round, as PostgreSQL", sql=r"<<|>>"),
    Rule("a match of ~ is the whole text there, any part here, as PostgreSQL", raw=r"!?~\*\s*'"),
    Rule("numbers as timestamps", raw=r"(?i)try_cast\(\[.*as timestamp|insert into ts_tbl"),
    Rule("a float divided by a double is a double", raw=r"(?i)::float / \d"),
    Rule("sums of doubles do not heed ORDER BY", sql=r"\bsum\s*\(\s*\w+\s+order\s+by\b"),
    Rule("LIMIT without ORDER BY", sql=r"\A(?!.*\border\s+by\b).*\blimit\s+\d+\s*;?\s*\Z"),
]
HASHED_OTHERWISE = "rows of which the file has only a hash of DuckDB's text"

# Statements after which the answers of the session are others.
CHANGING_SETTINGS = [
    (re.compile(pattern, re.IGNORECASE), why)
    for pattern, why in [
        (r"\s*create\s+(or\s+replace\s+)?trigger\b", "triggers"),
        (r"\s*(begin|start\s+transaction|rollback)\b", "transactions"),
        (
            r"\s*(set|pragma)\s+(global\s+)?(order_by_non_integer_literal|max_expression_depth|"
            r"old_implicit_casting|scalar_subquery_error_on_multiple_rows)",
            "settings of DuckDB",
        ),
        (r"\s*(set|pragma)\s+(global\s+)?default_order", "a default order other than ascending"),
        (r"\s*(set|pragma)\s+(global\s+)?default_collation", "collations"),
        (
            r"\s*(set|pragma)\s+(global\s+)?(integer_division|ieee_floating_point_ops)",
            "settings of DuckDB that change arithmetic",
        ),
        (r"\s*(set|pragma)\s+(global\s+)?(timezone|calendar)", "time zones of a session"),
    ]
]
# Tables whose rows or their order cannot be the file's: what a CREATE says, and why.
OTHER_ROWS = [
    (re.compile(r"\bunique\b|\bgenerated\b", re.IGNORECASE), "UNIQUE, generated columns"),
    (re.compile(r"\bcollate\b", re.IGNORECASE), "collations"),
]


INTEGER_CAST = re.compile(r"(::\s*|\bas\s+)u?(tiny|small|big|huge)?int(eger|\d+)?\b", re.IGNORECASE)
DURATION = re.compile(r"(-?\d+) days (-?\d+) hours (-?\d+) mins (-?\d+(?:\.\d+)?)(?: secs)?")


def canonical(value):
    """A value without the marks that the two print in other ways."""
    value = re.sub(r"(\d{4}-\d\d-\d\d)T(\d\d:)", r"\1 \2", value)
    value = re.sub(r"(\d{4}-\d\d-\d\d) 00:00:00(?!\.)", r"\1", value)
    value = re.sub(r"(:\d\d\.\d*?)0+(?!\d)", r"\1", value).replace("\0", "\\0")
    value = re.sub(r"(:\d\d)\.(?!\d)", r"\1", value)
    value = DURATION.sub(whole_duration, value)
    return re.sub(
        r"\(empty\)|['\"]|\bc\d+: |\b\d+: |[(){}\[\]]|,(?=\s*$)|(?<=,) ", "", value
    ).strip()


def whole_duration(found):
    """As DuckDB prints an interval of days and a time."""
    days, hours, minutes = (int(found[n]) for n in (1, 2, 3))
    seconds = float(found[4])
    sign = "-" if min(hours, minutes, seconds) < 0 else ""
    clock = f"{sign}{abs(hours):02d}:{abs(minutes):02d}:{abs(int(seconds)):02d}"
    part = f"{abs(seconds) % 1:.6f}".strip("0").rstrip(".")
    named = f"{days} day{'' if abs(days) == 1 else 's'}" if days else ""
    timed = clock + part if hours or minutes or seconds else ""
    return " ".join(filter(None, [named, timed])) or "00:00:00"


def same_but(sql, rows, want):
    """The name of the rule by which other rows are meant, or `other`."""
    rows, want = (
        [[canonical(v) for v in row if v.strip()] for row in all_rows] for all_rows in (rows, want)
    )
    if same_in_any_order(sql, rows, want, slt.same_text):
        return "same"
    if INTEGER_CAST.search(sql) and same_in_any_order(sql, rows, want, next_to):
        return "casts of fractions to whole numbers cut them, as DataFusion's do"
    if re.search(r"/", slt.without_strings(sql)) and same_in_any_order(sql, rows, want, cut):
        return "/ of whole numbers is a whole number, as in PostgreSQL"
    return "other"


def same_in_any_order(sql, rows, want, same_value):
    if slt.outer_order(sql) is None:
        rows, want = slt.any_order(rows), slt.any_order(want)
    return len(rows) == len(want) and all(
        len(a) == len(b) and all(x == y or same_value(x, y) for x, y in zip(a, b))
        for a, b in zip(rows, want)
    )


def next_to(got, want):
    """Whether two whole numbers are one apart."""
    try:
        return abs(int(got) - int(want)) == 1
    except ValueError:
        return slt.same_text(got, want)


def cut(got, want):
    """Whether a number is another without its fraction."""
    try:
        return int(got) == int(float(want))
    except ValueError:
        return slt.same_text(got, want)
