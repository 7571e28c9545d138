"""Every function is called on every type that it promises: plain, over a table, and between.

    pytest tests/functions/test_every_function.py        UPLAKE_BIN names the binary

Each call of `calls` is asked of literals, which the planner folds, and of the columns of a table
with the same values; both must give the same rows, and neither a panic or an internal error. A call
of two arguments is asked with a column beside a literal as well. Aggregates and windows are asked
over a VALUES list and over the table, aggregates with GROUP BY, too. Every function that the
session lists must have a call, so a new one of DataFusion's fails here until it has one.

Not here: whether the answers are right (tests/differential and tests/foreign ask others).
"""

import collections
import os
import pathlib
import re
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "foreign"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import calls
import display
import shell
from sqllogictest import same_text

# Two values and the type of each kind of column.
VALUES = {
    "bool": ("true", "false", "boolean"),
    "i16": ("3", "2", "smallint"),
    "i32": ("3", "2", "integer"),
    "i64": ("3", "2", "bigint"),
    "f32": ("0.5", "0.25", "real"),
    "f64": ("0.5", "0.25", "double"),
    "dec": ("0.50", "0.25", "decimal(10, 2)"),
    "text": ("'abc'", "'Zoë bob'", "text"),
    "bin": ("X'616263'", "X'00ff'", "bytea"),
    "date": ("'2024-02-03'", "'1999-12-31'", "date"),
    "ts": ("'2024-02-03 04:05:06'", "'1999-12-31 23:59:59'", "timestamp"),
    "tz": ("'2024-02-03 04:05:06Z'", "'1999-12-31 23:59:59Z'", "timestamptz"),
    "li": ("[3, 1, 2]", "[2, 5, 2]", "bigint[]"),
    "lf": ("[0.5, 2.5, 1.0]", "[0.25, 4.0, 0.5]", "double[]"),
    "lt": ("['abc', 'b', 'a']", "['Zoë bob', '', 'x']", "text[]"),
    "ll": ("[[1, 2], [3]]", "[[4], []]", "bigint[][]"),
    "st": ("named_struct('a', 3, 'b', 'abc')", "named_struct('a', 2, 'b', 'x')", None),
    "bm": ("bitmap_from_string('1,2,3')", "bitmap_from_string('2,4')", "bytea"),
}
# The value of a column and of its twin in each row.
ROWS = [(0, 1), (1, 0), (None, 0), (0, None)]
PLACE = re.compile(r"\{([A-Z])(2?)\}")


def literal(kind, which):
    first, second, sql_type = VALUES[kind]
    if which is None:
        source = "NULL" if sql_type else f"nullif({first}, {first})"
    else:
        source = (first, second)[which]
    return (
        f"CAST({source} AS {sql_type})"
        if sql_type and kind != "bm" or which is None and sql_type
        else source
    )


def argument_kinds(template):
    """The kinds of column a template is asked for: one per type of its class, else one without."""
    letters = [m for m in PLACE.findall(template) if m[0] != "E"]
    if not letters:
        return [{}]
    classes = list(dict.fromkeys(letter for letter, _ in letters))
    first = classes[0]
    found = []
    for kind in calls.CLASSES[first]:
        kinds = {first: kind} | {c: calls.CLASSES[c][-1] for c in classes[1:]}
        found.append(kinds | {"E": calls.ELEMENTS.get(kind, "i64")})
    return found


def filled(template, kinds, value):
    """The template with `value(kind, twin, position)` for each argument."""
    position = iter(range(9))
    text = PLACE.sub(lambda m: value(kinds[m[1]], bool(m[2]), next(position)), template)
    return text.replace("{{", "{").replace("}}", "}")


def column(kind, twin, _=0):
    return kind + ("_2" if twin else "")


def of_row(row):
    return lambda kind, twin, _: literal(kind, ROWS[row][twin])


def mixed(row):
    """The first argument a column, the others literals."""
    return lambda kind, twin, at: column(kind, twin) if at == 0 else literal(kind, ROWS[row][twin])


def values_list(columns=None):
    """The table's rows, or some columns of them, as a query of literals."""
    selects = []
    for n, row in enumerate(ROWS):
        every = {column(kind, twin): literal(kind, row[twin]) for kind in VALUES for twin in (0, 1)}
        asked = ", ".join(f"{every[name]} AS {name}" for name in columns or every)
        selects.append(f"SELECT {n + 1} AS n, '{'aabb'[n]}' AS v{', ' * bool(asked)}{asked}")
    return " UNION ALL ".join(selects)


class Asked:
    """Answers of one session, as text: rows, or what the error says."""

    def __init__(self, session):
        self.session = session
        self.bugs = []

    def rows(self, sql):
        answer = self.session.ask(sql)
        if answer.bug:
            self.bugs.append(f"{sql}\n    {first_lines(answer.error)}")
            return None, answer.error
        if answer.error is not None:
            return None, answer.error
        return display.rows(answer.table, display.DataFusion), None


def first_lines(text):
    return " ".join(text.split("\n")[:3])[:300]


def same(one, other):
    return len(one) == len(other) and all(
        len(a) == len(b) and all(map(same_text, a, b)) for a, b in zip(one, other)
    )


def scalar_pairs(template, kinds):
    """(literals, columns): queries that must answer alike."""
    over = filled(template, kinds, column)
    if not PLACE.search(template):
        return [(f"SELECT {over}", f"SELECT {over} FROM t WHERE n = 1")]
    plain = [filled(template, kinds, of_row(row)) for row in range(len(ROWS))]
    folded = " UNION ALL ".join(f"SELECT {n} AS n, {p} AS a" for n, p in enumerate(plain, 1))
    pairs = [(f"{folded} ORDER BY n", f"SELECT n, {over} AS a FROM t ORDER BY n")]
    if len(PLACE.findall(template)) > 1:
        half = filled(template, kinds, mixed(0))
        pairs.append((f"SELECT {plain[0]}", f"SELECT {half} FROM t WHERE n = 1"))
    return pairs


def listed_rows(template, kinds, call):
    """A VALUES list with the columns of a call."""
    names = {column(kinds[letter], bool(twin)) for letter, twin in PLACE.findall(template)}
    names |= {name for name in ("text", "date") if re.search(rf"\b{name}\b", call)}
    return values_list(sorted(names)) if names else values_list(["bool"])


def aggregate_pairs(template, kinds):
    call = filled(template, kinds, column)
    rows = listed_rows(template, kinds, call)
    return [
        (f"SELECT {call} FROM ({rows})", f"SELECT {call} FROM t"),
        (
            f"SELECT v, {call} FROM ({rows}) GROUP BY v ORDER BY v",
            f"SELECT v, {call} FROM t GROUP BY v ORDER BY v",
        ),
    ]


def window_pairs(template, kinds):
    call = filled(template, kinds, column)
    rows = listed_rows(template, kinds, call)
    return [(f"SELECT n, {call} FROM ({rows}) ORDER BY n", f"SELECT n, {call} FROM t ORDER BY n")]


def checked(asked, families, pairs_of):
    """What is wrong with the calls: for each template the types, and the first of them in full."""
    problems = []
    for name, template in ((n, t) for n, templates in families.items() for t in templates):
        wrong, expected = {}, dict(calls.REFUSED.get(template, {}))
        # list_append and the like are other names of array_append and the like.
        alias = name.startswith("list_") and f"array_{name.removeprefix('list_')}" in families
        for kinds in argument_kinds(template)[: 1 if alias else None]:
            kind = next(iter(kinds.values()), "no argument")
            found = (disagreement(asked, name, *pair) for pair in pairs_of(template, kinds))
            problem = next(filter(None, found), None)
            if problem and not (problem.refused and expected.pop(kind, None)):
                wrong[kind] = problem.text
        wrong.update({kind: "is answered: take it out of REFUSED" for kind in expected})
        if wrong:
            problems.append(f"{template} of {', '.join(wrong)}\n  {next(iter(wrong.values()))}")
    return problems


Problem = collections.namedtuple("Problem", "text refused")


def disagreement(asked, name, plain, over):
    """What is wrong between two statements that must answer alike, or None."""
    (one, refusal), (other, error) = asked.rows(plain), asked.rows(over)
    if refusal or error:
        text = f"{plain if refusal else over}\n  {first_lines(refusal or error)}"
        return Problem(text, refused=not shell.BUG.search(refusal or error))
    if name not in calls.CHANGING | calls.APPROXIMATE and not same(one, other):
        return Problem(f"{plain}\n  gives {one}\n  {over}\n  gives {other}", refused=False)
    return None


@pytest.fixture(scope="module")
def asked():
    binary = shutil.which(os.environ.get("UPLAKE_BIN", "uplake"))
    if binary is None:
        pytest.fail("no uplake: set UPLAKE_BIN to the binary")
    with tempfile.TemporaryDirectory() as folder:
        with shell.Shell(os.path.abspath(binary), f"{folder}/lake", folder) as session:
            made = session.ask(f"CREATE TABLE t AS {values_list()}")
            assert made.error is None, made.error
            yield Asked(session)


@pytest.mark.parametrize(
    "families, pairs_of",
    [
        (calls.SCALAR, scalar_pairs),
        (calls.AGGREGATE, aggregate_pairs),
        (calls.WINDOW, window_pairs),
    ],
    ids=["scalar", "aggregate", "window"],
)
def test_literals_and_columns_agree(asked, families, pairs_of):
    problems = checked(asked, families, pairs_of)
    assert not problems, f"{len(problems)} calls\n" + "\n".join(problems)


def test_nothing_was_a_bug(asked):
    assert not asked.bugs, "\n".join(asked.bugs)


def test_every_function_has_a_call(asked):
    listed, error = asked.rows(
        "SELECT DISTINCT routine_name, function_type " "FROM information_schema.routines"
    )
    assert error is None, error
    by_kind = {
        "SCALAR": calls.SCALAR,
        "AGGREGATE": calls.AGGREGATE,
        "WINDOW": calls.WINDOW,
        "TABLE": {"range", "generate_series"},
    }
    without = collections.defaultdict(list)
    for name, kind in listed:
        if name not in by_kind[kind] and name not in calls.ELSEWHERE:
            without[kind].append(name)
    assert not without, dict(without)
    known = {name for name, _ in listed}
    gone = sorted(set().union(calls.SCALAR, calls.AGGREGATE, calls.WINDOW) - known)
    assert not gone, f"there are calls of functions that are not listed: {gone}"
