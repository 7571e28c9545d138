"""The functions and operators that statements are made of, with their types and all spellings.

Where DuckDB spells or types one differently, the second template says so, and where PostgreSQL does,
the third (`postgres=`); it is the only place that does. ABSENT is the spelling of a function that
PostgreSQL does not have: the statement is not asked there. `T` stands for any type that can be ordered; an argument `=value` is a constant of that
spelling, given in the template itself.

In the templates of aggregates {d} is where DISTINCT goes, {o} ORDER BY, {f} FILTER and OVER.
"""

from tree import ABSENT, AND, COMPARE, IN, IS, NOT, OR, OTHER, Function
from values import LISTS, ORDERED, TYPES

ADD, MULTIPLY, MINUS = 8, 9, 10


def scalar(name, result, args, uplake, duckdb=None, level=0, computed=False, postgres=None):
    return Function(name, result, tuple(args.split()), uplake, duckdb, level, computed, postgres)


def of_each(types, make):
    return [make(t) for t in types]


def operators():
    found = [
        scalar("and", "bool", "bool bool", "{0} AND {1}", level=AND),
        scalar("or", "bool", "bool bool", "{0} OR {1}", level=OR),
        scalar("not", "bool", "bool", "NOT {0}", level=NOT),
    ]
    for test in ("TRUE", "FALSE", "NOT TRUE", "NOT FALSE", "NULL", "NOT NULL"):
        found.append(scalar(f"is {test}", "bool", "bool", f"{{0}} IS {test}", level=IS))
    for kind in TYPES:
        for test in ("NULL", "NOT NULL"):
            found.append(scalar(f"is {test}", "bool", kind, f"{{0}} IS {test}", level=IS))
    for kind in ORDERED:
        for op in ("=", "<>", "<", "<=", ">", ">="):
            found.append(scalar(op, "bool", f"{kind} {kind}", f"{{0}} {op} {{1}}", level=COMPARE))
        for op in ("IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
            found.append(scalar(op, "bool", f"{kind} {kind}", f"{{0}} {op} {{1}}", level=IS))
        if kind != "bool":
            for op in ("BETWEEN", "NOT BETWEEN"):
                found.append(
                    scalar(
                        op, "bool", f"{kind} {kind} {kind}", f"{{0}} {op} {{1}} AND {{2}}", level=IN
                    )
                )
    return found


LIKES = [("LIKE", False), ("NOT LIKE", False), ("ILIKE", True), ("NOT ILIKE", True)]
PATTERNS = [
    "%",
    "a%",
    "%b",
    "%i%",
    "_",
    "__",
    "vis%",
    "%click%",
    "u1%",
    "%1",
    "%x\\_y%",
    "",
    "%😀%",
    "V%",
    "%T",
    "50\\%",
    "%'s",
]


# With what says the same as a regular expression: DuckDB's SIMILAR TO takes one.
SIMILAR_TO = [
    ("%", ".*"),
    ("a%", "a.*"),
    ("_", "."),
    ("%(i|a)%", ".*(i|a).*"),
    ("(vis|cl)%", "(vis|cl).*"),
    ("[a-c_]+", "[a-c_]+"),
    ("%[[:digit:]]", ".*[0-9]"),
    ("[^u]*", "[^u]*"),
    ("u[0-9]{1,2}", "u[0-9]{1,2}"),
    ("50\\%", "50%"),
    ("x\\_y|.", "x_y|[.]"),
    ("(Ab|ab|日_)?", "(Ab|ab|日.)?"),
]


def escaped(pattern):
    """In a template, where a bracket has its meaning."""
    return pattern.replace("{", "{{").replace("}", "}}")


def scalars():
    same = scalar
    found = [
        # whole numbers
        same("+", "int", "int int", "{0} + {1}", level=ADD),
        same("-", "int", "int int", "{0} - {1}", level=ADD),
        same("*", "int", "int int", "{0} * {1}", level=MULTIPLY),
        same(
            "/", "int", "int int", "{0} / nullif({1}, 0)", "({0} // nullif({1}, 0))", level=MULTIPLY
        ),
        same(
            "%", "int", "int int", "{0} % nullif({1}, 0)", "({0} % nullif({1}, 0))", level=MULTIPLY
        ),
        same("minus", "int", "int", "- {0}", level=MINUS),
        same("&", "int", "int int", "{0} & {1}", level=OTHER),
        same("|", "int", "int int", "{0} | {1}", level=OTHER),
        same("abs", "int", "int", "abs({0})"),
        same("to big", "big", "int", "coalesce({0}, 0)"),
        same("length", "int", "text", "length({0})", "CAST(length({0}) AS BIGINT)"),
        same("octet_length", "int", "text", "octet_length({0})", "CAST(strlen({0}) AS BIGINT)"),
        same("strpos", "int", "text text", "strpos({0}, {1})", "CAST(instr({0}, {1}) AS BIGINT)"),
        same("ascii", "int", "text", "ascii({0})", "CAST(ascii({0}) AS BIGINT)"),
        same(">>", "int", "int", "{0} >> 1", level=OTHER),
        same("gcd", "int", "int", "gcd({0}, 6)"),
        same("position", "int", "text", "position('i' IN {0})"),
        same("char_length", "int", "text", "char_length({0})"),
        same("bit_length", "int", "text", "bit_length({0})"),
        same("days between", "int", "date date", "{0} - {1}", level=ADD),
        same("case of bool", "int", "bool", "CASE WHEN {0} THEN 1 ELSE 0 END"),
        same("floor of double", "int", "double", "CAST(floor({0}) AS BIGINT)"),
        same("of double", "int", "double", "CAST({0} AS BIGINT)"),
        same("of decimal", "int", "decimal", "CAST({0} AS BIGINT)"),
        same(
            "hours between",
            "int",
            "timestamp timestamp",
            "CAST(date_part('hour', {0} - {1}) AS BIGINT)",
        ),
        # Lengths of lists have no sign in Uplake, and mix badly with numbers that have one.
        same(
            "cardinality",
            "int",
            "ints",
            "CAST(array_length({0}) AS BIGINT)",
            "CAST(len({0}) AS BIGINT)",
            postgres="cardinality({0})",
        ),
        same("element", "int", "ints", "{0}[1]", "{0}[1]", postgres="({0})[1]"),
        # doubles
        same("+", "double", "double double", "{0} + {1}", level=ADD),
        same("-", "double", "double double", "{0} - {1}", level=ADD),
        same("+ int", "double", "double int", "{0} + {1}", level=ADD),
        same("* 2", "double", "double", "{0} * 2", level=MULTIPLY),
        same("minus", "double", "double", "- {0}", level=MINUS),
        same("abs", "double", "double", "abs({0})"),
        same("%", "double", "double", "{0} % 2", level=MULTIPLY, postgres=ABSENT),
        # PostgreSQL rounds a half to the even number.
        same("round", "double", "double", "round({0})", postgres=ABSENT),
        same("floor", "double", "double", "floor({0})"),
        same("ceil", "double", "double", "ceil({0})"),
        same("trunc", "double", "double", "trunc({0})"),
        same(
            "cast int",
            "double",
            "int",
            "CAST({0} AS DOUBLE)",
            postgres="CAST({0} AS DOUBLE PRECISION)",
        ),
        same("abs", "wild", "wild", "abs({0})"),
        same(
            "cast double",
            "wild",
            "double",
            "coalesce({0}, CAST('NaN' AS DOUBLE))",
            postgres="coalesce({0}, CAST('NaN' AS DOUBLE PRECISION))",
        ),
        same("sqrt", "wild", "int", "sqrt(abs({0}))", computed=True),
        same("ln", "wild", "int", "ln(abs({0}) + 1)", computed=True),
        same(
            "div",
            "wild",
            "double double",
            "{0} / nullif({1}, 0)",
            "({0} / nullif({1}, 0))",
            MULTIPLY,
            computed=True,
        ),
        same(
            "power",
            "wild",
            "int",
            "power(CAST({0} AS DOUBLE), 2)",
            postgres="power(CAST({0} AS DOUBLE PRECISION), 2)",
        ),
        # decimals
        same("+", "decimal", "decimal decimal", "CAST({0} + {1} AS DECIMAL(12,2))"),
        same("-", "decimal", "decimal decimal", "CAST({0} - {1} AS DECIMAL(12,2))"),
        same("minus", "decimal", "decimal", "- {0}", level=MINUS),
        same("abs", "decimal", "decimal", "abs({0})"),
        same("* int", "decimal", "decimal", "CAST({0} * 2 AS DECIMAL(12,2))"),
        same("round", "decimal", "decimal", "CAST(round({0}, 1) AS DECIMAL(12,2))"),
        same("cast", "decimal", "int", "CAST({0} % 1000 AS DECIMAL(12,2))"),
        # text
        same("||", "text", "text text", "{0} || {1}", level=OTHER),
        same("|| int", "text", "text int", "{0} || {1}", level=OTHER),
        same("int ||", "text", "int text", "{0} || {1}", level=OTHER),
        same("concat", "text", "text text", "concat({0}, {1})"),
        same("concat_ws", "text", "text text", "concat_ws('-', {0}, {1})"),
        same("upper", "text", "text", "upper({0})"),
        same("lower", "text", "text", "lower({0})"),
        same("trim", "text", "text", "trim({0})"),
        same("substr", "text", "text", "substr({0}, 2, 2)"),
        same("left", "text", "text", "left({0}, 2)"),
        same("right", "text", "text", "right({0}, 1)"),
        same("left but", "text", "text", "left({0}, -1)"),
        same("right but", "text", "text", "right({0}, -2)"),
        same("reverse", "text", "text", "reverse({0})"),
        same("translate", "text", "text", "translate({0}, 'aip', 'xy')"),
        same("substring", "text", "text", "substring({0} FROM 2 FOR 3)"),
        same("ltrim", "text", "text", "ltrim({0}, 'av')"),
        same("rtrim", "text", "text", "rtrim({0}, '1k')"),
        same("trim both", "text", "text", "trim(BOTH 'a' FROM {0})"),
        same("split_part from the end", "text", "text", "split_part({0}, 'i', -1)"),
        same(
            "to_char",
            "text",
            "timestamp",
            "to_char({0}, '%Y-%m-%d %H:%M')",
            "strftime({0}, '%Y-%m-%d %H:%M')",
            postgres=ABSENT,
        ),
        same(
            "regexp_replace groups",
            "text",
            "text",
            "regexp_replace({0}, '([a-c])(.)', '\\2\\1')",
        ),
        same("replace", "text", "text text", "replace({0}, 'a', {1})"),
        same("lpad", "text", "text", "lpad({0}, 5, '*')"),
        same("rpad", "text", "text", "rpad({0}, 4, 'ab')"),
        same("split_part", "text", "text", "split_part({0}, 'i', 1)"),
        same("repeat", "text", "text", "repeat({0}, 2)"),
        same("md5", "text", "text", "md5({0})"),
        same("cast int", "text", "int", "CAST({0} AS VARCHAR)"),
        same("cast date", "text", "date", "CAST({0} AS VARCHAR)"),
        same("cast bool", "text", "bool", "CAST({0} AS VARCHAR)"),
        same("cast decimal", "text", "decimal", "CAST({0} AS VARCHAR)"),
        same("cast timestamp", "text", "timestamp", "CAST({0} AS VARCHAR)"),
        same("cast timestamptz", "text", "timestamptz", "CAST({0} AS VARCHAR)"),
        same("regexp_replace", "text", "text", "regexp_replace({0}, '[aeiou]', '.', 'g')"),
        # Of an empty list DuckDB gives NULL, PostgreSQL an empty text.
        same(
            "array_to_string",
            "text",
            "ints",
            "array_to_string({0}, ',')",
            "CASE WHEN {0} IS NOT NULL THEN coalesce(array_to_string({0}, ','), '') END",
        ),
        same("starts_with", "bool", "text text", "starts_with({0}, {1})"),
        same(
            "contains", "bool", "text", "contains({0}, 'i')", postgres="(strpos({0}, 'i') > 0)"
        ),
        same(
            "regexp_like",
            "bool",
            "text",
            "regexp_like({0}, '^[a-c]')",
            "regexp_matches({0}, '^[a-c]')",
        ),
        same("isnan", "bool", "wild", "isnan({0})", postgres="({0} = 'NaN')"),
        # PostgreSQL's ANY is NULL where a list with a NULL does not hold the value.
        same(
            "array_has",
            "bool",
            "ints int",
            "array_has({0}, {1})",
            "list_contains({0}, {1})",
            postgres="CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL"
            " THEN array_position({0}, {1}) IS NOT NULL END",
        ),
        # times
        same("+ days", "date", "date", "CAST({0} + INTERVAL '2 days' AS DATE)"),
        same("+ month", "date", "date", "CAST({0} + INTERVAL '1 month' AS DATE)"),
        same("of timestamp", "date", "timestamp", "CAST({0} AS DATE)"),
        # DuckDB's comparisons with the month of a date that is NULL may be true.
        same(
            "date_trunc month",
            "timestamp",
            "date",
            "CAST(date_trunc('month', {0}) AS TIMESTAMP)",
            "date_trunc('month', CAST({0} AS TIMESTAMP))",
        ),
        same("of date", "timestamp", "date", "CAST({0} AS TIMESTAMP)"),
        same("date_trunc day", "timestamp", "timestamp", "date_trunc('day', {0})"),
        same("date_trunc hour", "timestamp", "timestamp", "date_trunc('hour', {0})"),
        same("date_trunc week", "timestamp", "timestamp", "date_trunc('week', {0})"),
        same("+ hours", "timestamp", "timestamp", "{0} + INTERVAL '36 hours'", level=ADD),
        same("- month", "timestamp", "timestamp", "{0} - INTERVAL '1 month'", level=ADD),
        same(
            "date_bin",
            "timestamp",
            "timestamp",
            "date_bin(INTERVAL '15 minutes', {0}, TIMESTAMP '2000-01-01 00:00:00')",
            "time_bucket(INTERVAL '15 minutes', {0}, TIMESTAMP '2000-01-01 00:00:00')",
        ),
        same("date_trunc day", "timestamptz", "timestamptz", "date_trunc('day', {0})"),
        same("local", "timestamp", "timestamptz", "timezone('America/New_York', {0})"),
        same("moment", "timestamptz", "timestamp", "timezone('Europe/Berlin', {0})"),
        same(
            "to_timestamp",
            "timestamptz",
            "timestamp",
            "to_timestamp(CAST(CAST({0} AS DATE) AS VARCHAR))",
            "CAST(CAST(CAST({0} AS DATE) AS VARCHAR) AS TIMESTAMPTZ)",
            postgres="CAST(CAST(CAST({0} AS DATE) AS VARCHAR) AS TIMESTAMPTZ)",
        ),
        same("to_timestamp", "timestamptz", "int", "to_timestamp({0})"),
        # lists
        same("array_append", "ints", "ints int", "array_append({0}, {1})"),
        same(
            "make_array",
            "ints",
            "int int",
            "make_array({0}, {1})",
            "[{0}, {1}]",
            postgres="CAST(ARRAY[{0}, {1}] AS BIGINT[])",
        ),
        # Of two NULLs DuckDB makes an empty list.
        same(
            "array_concat",
            "ints",
            "ints ints",
            "array_concat({0}, {1})",
            "CASE WHEN {0} IS NOT NULL OR {1} IS NOT NULL THEN list_concat({0}, {1}) END",
            postgres="array_cat({0}, {1})",
        ),
        same(
            "array_concat",
            "nested",
            "nested nested",
            "array_concat({0}, {1})",
            "CASE WHEN {0} IS NOT NULL OR {1} IS NOT NULL THEN list_concat({0}, {1}) END",
        ),
        same("array_append", "nested", "nested ints", "array_append({0}, {1})"),
        same("flatten", "ints", "nested", "flatten({0})"),
        same(
            "array_length",
            "int",
            "nested",
            "CAST(array_length({0}) AS BIGINT)",
            "CAST(len({0}) AS BIGINT)",
        ),
    ]
    for part in ("year", "month", "day", "dow", "doy", "quarter", "week"):
        for kind in ("date", "timestamp"):
            text = f"extract({part} FROM {{0}})"
            # DuckDB gives a double for a constant NULL.
            whole = f"CAST({text} AS BIGINT)"
            found.append(same(part, "int", kind, text, whole, postgres=whole))
    for part, kind in (("isodow", "date"), ("isodow", "timestamp"), ("second", "timestamp")):
        text = f"date_part('{part}', {{0}})"
        whole = f"CAST({text} AS BIGINT)"
        theirs = ABSENT if part == "second" else whole  # PostgreSQL has fractions of one
        found.append(same(part, "int", kind, text, whole, postgres=theirs))
    for part in ("hour", "minute"):
        text = f"date_part('{part}', {{0}})"
        whole = f"CAST({text} AS BIGINT)"
        found.append(same(part, "int", "timestamp", text, whole, postgres=whole))
    for kind in TYPES:
        found.append(same("coalesce", kind, f"{kind} {kind}", "coalesce({0}, {1})"))
    for kind in ORDERED:
        found.append(same("nullif", kind, f"{kind} {kind}", "nullif({0}, {1})"))
        if kind != "bool":
            found.append(same("greatest", kind, f"{kind} {kind}", "greatest({0}, {1})"))
            found.append(same("least", kind, f"{kind} {kind}", "least({0}, {1})"))
    for pattern, regular_expression in SIMILAR_TO:
        for word, negation in (("SIMILAR TO", ""), ("NOT SIMILAR TO", "NOT ")):
            ours = f"{{0}} {word} '{escaped(pattern)}'"
            theirs = f"({negation}regexp_full_match({{0}}, '{escaped(regular_expression)}', 's'))"
            found.append(Function("similar to", "bool", ("text",), ours, theirs, IN))
    for word, _ in LIKES:
        for pattern in PATTERNS:
            quoted = pattern.replace("'", "''")
            # Uplake's LIKE has the backslash as its escape, as PostgreSQL has; DuckDB has none.
            theirs = f"({{0}} {word} '{quoted}' ESCAPE '\\')"
            found.append(
                Function(word.lower(), "bool", ("text",), f"{{0}} {word} '{quoted}'", theirs, IN)
            )
    return found


WHOLE_SUM = "CAST(sum({d}{0}){f} AS BIGINT)"


def aggregates():
    """Aggregates whose answer does not depend on the order of rows."""
    found = [
        scalar("count(*)", "int", "", "count({d}*){f}"),
        scalar("sum", "int", "int", "sum({d}{0}){f}", WHOLE_SUM, postgres=WHOLE_SUM),
        scalar("sum", "double", "double", "sum({d}{0}){f}"),
        scalar("sum", "decimals", "decimal", "sum({d}{0}){f}"),
        scalar(
            "avg",
            "wild",
            "int",
            "avg({d}{0}){f}",
            computed=True,
            postgres="CAST(avg({d}{0}){f} AS DOUBLE PRECISION)",
        ),
        scalar("avg", "wild", "double", "avg({d}{0}){f}", computed=True),
        scalar("bool_and", "bool", "bool", "bool_and({d}{0}){f}"),
        scalar("bool_or", "bool", "bool", "bool_or({d}{0}){f}"),
        scalar("bit_and", "int", "int", "bit_and({d}{0}){f}"),
        scalar("bit_or", "int", "int", "bit_or({d}{0}){f}"),
        scalar(
            "exact_sum",
            "double",
            "double",
            "exact_sum({0}){f}",
            "sum({0}){f}",
            postgres="sum({0}){f}",
        ),
        # A mean of decimals has four digits more than they have, and is cut off there.
        scalar(
            "avg",
            "averages",
            "decimal",
            "avg({d}{0}){f}",
            "CAST(CAST(sum({d}{0}){f} * 100 AS HUGEINT) * 10000 // count({d}{0}){f}"
            " AS DECIMAL(20,0))"
            " * CAST('0.000001' AS DECIMAL(7,6))",
            postgres="trunc(avg({d}{0}){f}, 6)",
        ),
    ]
    for kind in TYPES:
        found.append(scalar("count", "int", kind, "count({d}{0}){f}"))
    for kind in ORDERED:
        for name, of_bools in (("min", "bool_and"), ("max", "bool_or")):
            # PostgreSQL has no min and max of truths.
            theirs = f"{of_bools}({{d}}{{0}}){{f}}" if kind == "bool" else None
            found.append(
                scalar(name, kind, kind, f"{name}({{d}}{{0}}){{f}}", postgres=theirs)
            )
    return found


SUM_OF_TRUE = scalar(
    "sum of true",
    "int",
    "bool",
    "sum(CASE WHEN {0} THEN 1 ELSE 0 END){f}",
    "CAST(sum(CASE WHEN {0} THEN 1 ELSE 0 END){f} AS BIGINT)",
    postgres="CAST(sum(CASE WHEN {0} THEN 1 ELSE 0 END){f} AS BIGINT)",
)


def more_aggregates():
    """Aggregates without a DISTINCT."""
    found = [
        SUM_OF_TRUE,
        scalar(
            "median",
            "wild",
            "double",
            "median({0}){f}",
            computed=True,
            postgres="percentile_cont(0.5) WITHIN GROUP (ORDER BY {0}){f}",
        ),
        scalar(
            "percentile_cont",
            "wild",
            "double",
            "percentile_cont(0.25) WITHIN GROUP (ORDER BY {0}){f}",
            "quantile_cont({0}, 0.25){f}",
            computed=True,
        ),
        scalar("bit_xor", "int", "int", "bit_xor({0}){f}"),
        scalar(
            "avg of case",
            "wild",
            "bool",
            "avg(CASE WHEN {0} THEN 1e0 ELSE 0e0 END){f}",
            computed=True,
            postgres="avg(CASE WHEN {0} THEN CAST(1 AS DOUBLE PRECISION) ELSE 0 END){f}",
        ),
        # Without variance PostgreSQL and Uplake give NULL, DuckDB NaN.
        scalar(
            "corr",
            "wild",
            "double double",
            "corr({0}, {1}){f}",
            "CASE WHEN NOT isnan(corr({0}, {1}){f}) THEN corr({0}, {1}){f} END",
            computed=True,
        ),
    ]
    for name in ("stddev", "stddev_pop", "var_samp", "var_pop"):
        found.append(scalar(name, "wild", "double", f"{name}({{0}}){{f}}", computed=True))
    for name in ("covar_pop", "covar_samp"):
        found.append(
            scalar(name, "wild", "double double", f"{name}({{0}}, {{1}}){{f}}", computed=True)
        )
    return found


def ordered_aggregates():
    """Aggregates of the rows in an order, which must be total."""
    found = [scalar("string_agg", "text", "text", "string_agg({0}, ','{o}){f}")]
    for kind in TYPES:
        every = "(array_agg({0}{o}){f})"
        first, last = f"{every}[1]", f"{every}[CAST(count(*){{f}} AS INTEGER)]"
        if kind in LISTS:  # PostgreSQL has no array of lists of different lengths
            first = last = ABSENT
        found.append(
            scalar(
                "first_value",
                kind,
                kind,
                "first_value({0}{o}){f}",
                "first({0}{o}){f}",
                postgres=first,
            )
        )
        found.append(
            scalar(
                "last_value",
                kind,
                kind,
                "last_value({0}{o}){f}",
                "last({0}{o}){f}",
                postgres=last,
            )
        )
    found.append(scalar("array_agg", "ints", "int", "array_agg({0}{o}){f}"))
    return found


def window_functions():
    """Functions of a window alone; all but ranks want a total order."""
    found = [
        scalar(name, "int", "", f"{name}(){{f}}") for name in ("row_number", "rank", "dense_rank")
    ]
    found += [
        scalar(name, "wild", "", f"{name}(){{f}}", computed=True)
        for name in ("percent_rank", "cume_dist")
    ]
    found.append(scalar("ntile", "int", "", "ntile(3){f}"))
    for kind in TYPES:
        for name in ("first_value", "last_value"):
            found.append(scalar(name, kind, kind, f"{name}({{0}}){{f}}"))
        found.append(scalar("nth_value", kind, kind, "nth_value({0}, 2){f}"))
        for name in ("lag", "lead"):
            found.append(scalar(name, kind, kind, f"{name}({{0}}){{f}}"))
            found.append(scalar(name, kind, kind, f"{name}({{0}}, 2){{f}}"))
    return found


OPERATORS = operators()
SCALARS = scalars()
AGGREGATES = aggregates()
MORE_AGGREGATES = more_aggregates()
ORDERED_AGGREGATES = ordered_aggregates()
WINDOW_FUNCTIONS = window_functions()


def by_result(functions):
    found = {}
    for function in functions:
        found.setdefault(function.result, []).append(function)
    return found


SCALARS_BY_RESULT = by_result(SCALARS)
AND_ = OPERATORS[0]
OR_ = OPERATORS[1]
NOT_ = OPERATORS[2]
_BY_NAME = {
    (f.name, f.args): f
    for f in [*OPERATORS, *SCALARS, *AGGREGATES, *MORE_AGGREGATES, *WINDOW_FUNCTIONS]
}


def named(name, *args):
    """The function of that name for arguments of these types."""
    return _BY_NAME[name, args]
