"""The reader and the judge of others' suites, with literals; and the suites themselves if asked.

    pytest tests/foreign -rs
    UPLAKE_FOREIGN_DATAFUSION=CHECKOUT UPLAKE_FOREIGN_TPC=0.1 pytest tests/foreign -rs

The suites take minutes and files that are not ours, so each runs only if its variable says where
they are; docs/foreign-suites.md says how to get them.
"""

import datetime as dt
import decimal
import os
import pathlib
import subprocess
import sys

import pyarrow as pa
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import datafusion_rules
import datafusion_tests
import display
import duckdb_rules
import shell
import sqllogictest as slt

FILE = """\
# a comment
statement ok
CREATE TABLE t (a INT)

query IT rowsort
SELECT a, b
FROM t
----
1 x
NULL (empty)

statement error Cannot .* this
SELECT that

query error
SELECT nothing
----
the text of the error
"""


def test_records_have_their_lines_their_sql_and_what_is_expected():
    found = slt.parse(FILE)
    assert [(r.line, r.kind, r.expects) for r in found] == [
        (2, "statement", "ok"),
        (5, "query", "rows"),
        (12, "statement", "error"),
        (15, "query", "error"),
    ]
    assert found[1].sql == "SELECT a, b\nFROM t" and found[1].sort == "rowsort"
    assert found[1].rows == ["1 x", "NULL (empty)"]
    assert found[2].error == "Cannot .* this" and found[3].error == "the text of the error"


def test_the_text_of_an_error_may_hold_a_blank_line_where_two_end_it():
    text = "query error\nSELECT 1\n----\none\n\ntwo\n\n\nquery I\nSELECT 2\n----\n2\n"
    assert [r.error for r in slt.parse(text, long_errors=True)] == ["one\n\ntwo", ""]
    with pytest.raises(ValueError, match="line 6: `two` begins no record"):
        slt.parse(text)


def test_loops_are_unrolled_inside_out():
    text = """\
foreach type int text

loop i 0 2

statement ok
SELECT {i}::${type}

endloop

endloop
"""
    assert [r.sql for r in slt.expand(slt.parse(text))] == [
        "SELECT 0::int",
        "SELECT 1::int",
        "SELECT 0::text",
        "SELECT 1::text",
    ]


def test_statements_end_at_semicolons_outside_of_quotes():
    assert slt.statements("SELECT ';' -- a; b\n; SELECT \"x;y\";") == ["SELECT ';'", 'SELECT "x;y"']


@pytest.mark.parametrize(
    "a, b, same",
    [
        ("1", "1.0", True),
        ("0.666667", "0.6666666666666666", True),
        ("1", "2", False),
        ("1.10", "1.1", True),
        ("10.01", "10.02", False),
        ("nan", "NaN", True),
        ("inf", "-inf", False),
        ("1e3", "1000", True),
        ("9007199254740993", "9007199254740992", False),
        ("a", "b", False),
        ("9223372036854775807", "-9223372036854775808", False),
        ("0", "-0.0", True),
    ],
)
def test_numbers_are_compared_by_value_to_the_digits_given(a, b, same):
    assert slt.same_text(a, b) == same and slt.same_text(b, a) == same


@pytest.mark.parametrize(
    "sql, got, outcome",
    [
        ("SELECT a, b FROM t", [["2", "x"], ["1", "y"]], "same"),
        ("SELECT a, b FROM t ORDER BY a", [["1", "y"], ["2", "x"]], "same"),
        ("SELECT a, b FROM t ORDER BY a", [["2", "x"], ["1", "y"]], "other"),
        ("SELECT a, b FROM t ORDER BY 2 DESC", [["2", "x"], ["1", "y"]], "other"),
        ("SELECT a, b FROM t ORDER BY lower(b)", [["2", "x"], ["1", "y"]], "other"),
        ("SELECT (SELECT a FROM u ORDER BY a), b FROM t", [["2", "x"], ["1", "y"]], "same"),
        ("SELECT a, b FROM t", [["2", "x"], ["2", "x"]], "other"),
    ],
)
def test_an_order_counts_only_where_the_statement_gives_one(sql, got, outcome):
    assert slt.compared(sql, got, [["1", "y"], ["2", "x"]], "", ["a", "b"]) == outcome


def test_rows_of_one_key_may_change_places():
    want, got = [["1", "x"], ["1", "y"], ["2", "z"]], [["1", "y"], ["1", "x"], ["2", "z"]]
    other, sql = [["1", "y"], ["1", "w"], ["2", "z"]], "SELECT a, b FROM t ORDER BY a"
    assert slt.compared(sql, other, want, "", ["a", "b"]) == "other"
    assert slt.compared(f"{sql} LIMIT 3", other, want, "", ["a", "b"]) == "ties"
    assert slt.compared("SELECT a, b FROM t ORDER BY a", got, want, "", ["a", "b"]) == "ties"


class Answering:
    """Answers by heart, in place of a shell."""

    def __init__(self, answers):
        self.answers = answers

    def ask(self, sql):
        return self.answers[sql]


def verdicts(text, answers, refused=(), differs=()):
    suite = datafusion_tests.DataFusion("/nowhere")
    suite.refused, suite.differs = list(refused), list(differs)
    found = slt.run_records(suite, slt.parse(text), Answering(answers), slt.State("f", "/nowhere"))
    return [(v.kind, v.rule) for v in found]


def rows(*values):
    return shell.Answer(table=pa.table({"a": pa.array(values)}))


def test_each_outcome_has_its_verdict():
    text = "\n".join(f"query I\nSELECT {n}\n----\n1\n" for n in range(5))
    answers = {
        "SELECT 0": rows(1),
        "SELECT 1": rows(2),
        "SELECT 2": shell.Answer(error="it cannot be"),
        "SELECT 3": shell.Answer(error="no such thing"),
        "SELECT 4": shell.Answer(error="panicked at x", bug=True),
    }
    assert verdicts(text, answers, refused=[slt.Rule("things", message="no such")]) == [
        ("passed", ""),
        ("wrong", ""),
        ("failed", ""),
        ("refused", "things"),
        ("bug", ""),
    ]


def test_an_error_that_does_not_come_is_wrong_but_for_a_rule():
    text = "statement error division by zero\nSELECT 1 / 0\n"
    assert verdicts(text, {"SELECT 1 / 0": rows(0)}) == [("wrong", "")]
    rule = slt.Rule("zero", expected="by zero")
    assert verdicts(text, {"SELECT 1 / 0": rows(0)}, differs=[rule]) == [("refused", "zero")]
    assert verdicts(text, {"SELECT 1 / 0": shell.Answer(error="no")}) == [("passed", "")]


def test_what_hangs_on_a_refused_table_is_refused_but_not_other_rows():
    text = """\
statement ok
CREATE TABLE odd (a UUID)

query I
SELECT a FROM odd
----
1

query I
SELECT 5
----
6
"""
    answers = {
        "CREATE TABLE odd (a UUID)": shell.Answer(error="Unsupported SQL type UUID"),
        "SELECT a FROM odd": shell.Answer(error="there is no table `odd`"),
        "SELECT 5": rows(5),
    }
    rule = slt.Rule("types", message="Unsupported SQL type")
    assert verdicts(text, answers, refused=[rule]) == [
        ("refused", "types"),
        ("refused", "reads what was refused before"),
        ("wrong", ""),
    ]


def test_only_names_of_tables_excuse_an_answer():
    state = slt.State("f", "/nowhere")
    for sql, named in [
        ("SELECT a FROM t", []),
        ("SELECT b FROM (SELECT 1) JOIN x, a ON a = 1", ["a"]),
        ("SELECT b FROM \"A\" WHERE 'from a' = b", ["a"]),
        ("INSERT INTO a VALUES (1)", ["a"]),
        ("SELECT b FROM t AS x, a AS y WHERE b", ["a"]),
        ("SELECT count(a) FROM t JOIN u ON a = b ORDER BY a", []),
    ]:
        assert state.named({"a"}, sql) == named, sql


def test_a_record_for_another_engine_is_left_out_alone():
    text = "onlyif postgres\nquery I\nSELECT 1\n----\n9\n\nquery I\nSELECT 2\n----\n2\n"
    assert verdicts(text, {"SELECT 2": rows(2)}) == [
        ("refused", "made for Postgres"),
        ("passed", ""),
    ]


def test_parts_that_a_file_leaves_out_match_anything():
    text = "query I\nSELECT 1\n----\nelapsed <slt:ignore> ms\n"
    assert verdicts(text, {"SELECT 1": rows("elapsed 0.5 ms")}) == [("passed", "")]
    assert verdicts(text, {"SELECT 1": rows("took 0.5 ms")}) == [("wrong", "")]


def test_rules_see_neither_strings_nor_comments():
    rule = slt.Rule("views", sql=r"\bview\b")
    assert rule.holds("CREATE VIEW v AS SELECT 1", "")
    assert not rule.holds("SELECT 'a view' -- of a view", "")


@pytest.mark.parametrize(
    "values, kind, theirs, ducks",
    [
        (
            [1.5, float("inf"), None],
            pa.float64(),
            ["1.5", "Infinity", "NULL"],
            ["1.5", "inf", "NULL"],
        ),
        ([decimal.Decimal("1.50")], pa.decimal128(5, 2), ["1.5"], ["1.50"]),
        ([0.1], pa.float32(), ["0.1"], ["0.1"]),
        (["", "x"], pa.string(), ["(empty)", "x"], ["(empty)", "x"]),
        ([dt.date(2024, 2, 3)], pa.date32(), ["2024-02-03"], ["2024-02-03"]),
        (
            [1],
            pa.timestamp("ns"),
            ["1970-01-01T00:00:00.000000001"],
            ["1970-01-01 00:00:00.000000001"],
        ),
        (
            [0],
            pa.timestamp("us", "Europe/Berlin"),
            ["1970-01-01T01:00:00+01:00"],
            ["1970-01-01 01:00:00+01"],
        ),
        ([[1, None]], pa.list_(pa.int64()), ["[1, NULL]"], ["[1, NULL]"]),
        (
            [{"a": 1, "b": "x"}],
            pa.struct({"a": pa.int64(), "b": pa.string()}),
            ["{a: 1, b: x}"],
            ["{'a': 1, 'b': x}"],
        ),
        ([b"\x00a"], pa.binary(), ["0061"], ["\\x00a"]),
    ],
)
def test_values_are_printed_as_each_project_prints_them(values, kind, theirs, ducks):
    table = pa.table({"c": pa.array(values, kind)})
    assert [row[0] for row in display.rows(table, display.DataFusion)] == theirs
    assert [row[0] for row in display.rows(table, display.DuckDB)] == ducks


def test_years_beyond_the_calendar_are_counted_on():
    assert display.date_text(2_932_897) == "+10000-01-01"
    assert display.date_text(-719_529) == "-0001-12-31"


def test_an_input_is_one_for_the_shell():
    assert shell.one_input("SELECT 1;") == "SELECT 1;\n"
    assert shell.one_input("SELECT 'a;\nb' -- c\n;") == "SELECT 'a; b' -- c\n;\n"


def test_what_the_shell_asks_within_an_input_is_no_row():
    assert shell.answer(b"     ;>      '> uplake> ", "inserted 1 rows").message
    sink = pa.BufferOutputStream()
    table = pa.table({"a": [1]})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    answered = b"     ;> " + sink.getvalue().to_pybytes() + b"uplake> "
    assert shell.answer(answered, "").table == table


def test_tables_keep_times_in_utc_and_microseconds():
    want = [["2024-01-01T00:00:00.123456789+01:00", "UInt32"]]
    assert datafusion_rules.same_as_kept([["2023-12-31T23:00:00.123456Z", "Int64"]], want)
    assert not datafusion_rules.same_as_kept([["2024-01-01T00:00:00.123456Z", "Int64"]], want)


@pytest.mark.parametrize(
    "sql, got, want, rule",
    [
        ("SELECT 7 / 2", "3", "3.5", "/ of whole numbers is a whole number, as in PostgreSQL"),
        ("SELECT 7 / 2", "4", "3.5", "other"),
        (
            "SELECT cast(1.5 AS INT)",
            "1",
            "2",
            "casts of fractions to whole numbers cut them, as DataFusion's do",
        ),
        ("SELECT 1.5", "1", "2", "other"),
        ("SELECT t", "1970-01-01T00:00:00.5", "1970-01-01 00:00:00.5", "same"),
    ],
)
def test_a_dialect_excuses_no_other_value(sql, got, want, rule):
    assert duckdb_rules.same_but(sql, [[got]], [[want]]) == rule


@pytest.mark.parametrize(
    "sql, got, expected, rule",
    [
        ("SELECT a FROM t LIMIT 5;", "1", "2", "LIMIT without ORDER BY"),
        ("SELECT a FROM t ORDER BY a LIMIT 5", "1", "2", None),
        ("SELECT i IN (SELECT i FROM t WHERE i = a) FROM integers", "0", "NULL", None),
        (
            "SELECT l FROM t ORDER BY l LIMIT 5",
            "[NULL]",
            "[0]",
            "NULLS FIRST and LAST hold for NULLs within lists, too",
        ),
        ("SELECT l FROM t ORDER BY l LIMIT 5", "[100]", "[1]", None),
        ("SELECT INTERVAL '30' HOUR <= INTERVAL '1' DAY", "true", "0", None),
    ],
)
def test_rules_excuse_no_more_than_they_say(sql, got, expected, rule):
    found = [one.name for one in duckdb_rules.DIFFERS if one.holds(sql, got, expected)]
    assert found[:1] == ([rule] if rule else [])


SUITES = {
    "UPLAKE_FOREIGN_DATAFUSION": lambda place: ["datafusion_tests.py", place],
    "UPLAKE_FOREIGN_DUCKDB": lambda place: ["duckdb_tests.py", place],
    "UPLAKE_FOREIGN_TPC": lambda scale: ["tpc.py", "tpch", "--scale", scale],
    "UPLAKE_FOREIGN_TPCDS": lambda scale: ["tpc.py", "tpcds", "--scale", scale],
}


@pytest.mark.parametrize("variable", SUITES)
def test_suite(variable):
    place = os.environ.get(variable)
    if not place:
        pytest.skip(f"NOT RUN: set {variable} to run it; docs/foreign-suites.md says to what")
    name, *rest = SUITES[variable](place)
    done = subprocess.run([sys.executable, HERE / name, *rest], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
