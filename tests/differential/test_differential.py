"""Two minutes of statements that nobody wrote, and tests of the tester itself.

    UPLAKE_BIN=target/release/uplake pytest -q tests/differential

UPLAKE_DIFFERENTIAL_SECONDS is how long (default 120, and no more than 3,000 statements),
UPLAKE_DIFFERENTIAL_SEED the first world (`seeds`).
"""

import datetime as dt
import math
import os
import random
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import changes
import compare
import engines
import expressions
import finds
import functions
import grammar
import known
import models
import oracles
import postgres
import reduce
import run
import schemas
import seeds
import shapes
import tree
import values
from tree import Call, Column, Item, Literal, Order, Select, TableRef

SECONDS = os.environ.get("UPLAKE_DIFFERENTIAL_SECONDS")
# A faster machine asks no more, so that what it finds is found everywhere.
STATEMENTS = 3000
UPLAKE = os.environ.get("UPLAKE_BIN", "uplake")


def test_statements_have_the_answers_of_duckdb(tmp_path, capsys):
    seed = seeds.first("UPLAKE_DIFFERENTIAL_SEED")
    arguments = ["--seconds", SECONDS or "120", "--seed", str(seed), "--uplake", UPLAKE]
    bound = [] if SECONDS else ["--statements", str(STATEMENTS)]
    options = run.parse([*arguments, *bound, "--folder", str(tmp_path)])
    report = run.run(options)
    with capsys.disabled():
        print(f"\nseed {options.seed}\n{run.summary(report)}")
    assert not report.different, run.summary(report) + "\n\n" + "\n\n".join(report.texts[:5])
    assert report.compared > 20 * float(SECONDS or 120) / 120, "hardly anything was compared"


# The comparator


def table(**columns):
    return pa.table(columns)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([1, 2, 2], [1, 2]),
        ([1, 2, 2], [1, 1, 2]),
        ([1, None], [1, 0]),
        (["a", ""], ["a", None]),
        ([1.0, math.nan], [1.0, None]),
        ([1.0, 2.0], [1.0, 2.0000001]),
        ([math.inf], [1.7976931348623157e308]),
        ([True], [1]),
        ([[1, 2]], [[2, 1]]),
        ([9007199254740993], [9007199254740992]),
    ],
)
def test_a_difference_is_noticed(ours, theirs):
    assert compare.difference(table(c=ours), table(c=theirs), False, 0) is not None
    assert compare.difference(table(c=theirs), table(c=ours), False, 0) is not None


def test_the_order_counts_only_where_it_is_asked_for():
    ours, theirs = table(c=[1, 2, 3]), table(c=[3, 2, 1])
    assert compare.difference(ours, theirs, False, 0) is None
    assert compare.difference(ours, theirs, True, 0) is not None


def test_a_computed_double_may_differ_in_its_last_digits_and_no_more():
    ours, theirs = table(c=[0.1 + 0.2, 5.0]), table(c=[5.0, 0.3])
    assert compare.difference(ours, theirs, False, compare.TOLERANCE) is None
    assert compare.difference(ours, theirs, False, 0) is not None
    assert compare.difference(table(c=[1.0]), table(c=[1.0 + 1e-8]), False, compare.TOLERANCE)


def test_nan_is_nan_and_zero_has_no_sign():
    ours, theirs = table(c=[math.nan, -0.0]), table(c=[0.0, math.nan])
    assert compare.difference(ours, theirs, False, 0) is None


def test_rows_of_null_beside_zero_are_put_in_one_order():
    rows = [(None, 0.0), (0.0, None), (None, 1.5), (1.5, None)]
    ours, theirs = (
        table(a=[a for a, _ in order], b=[b for _, b in order]) for order in (rows, rows[::-1])
    )
    assert compare.difference(ours, theirs, False, compare.TOLERANCE) is None
    assert compare.row_key(rows[0]) != compare.row_key(rows[1])


def test_other_columns_and_types_are_noticed():
    assert compare.difference(table(a=[1]), table(a=[1], b=[1]), False, 0)
    assert "column 0 is double" in compare.difference(table(a=[1.0]), table(a=[1]), False, 0)


# Worlds and statements


def test_a_world_and_its_statements_are_functions_of_the_seed():
    for seed in range(20):
        first, again = schemas.make(seed), schemas.make(seed)
        assert repr(first) == repr(again)
        texts = []
        for world in (first, again):
            made = grammar.Grammar(random.Random(seed), world)
            queries = [made.statement() for _ in range(5)] + [
                shapes.statement(made) for _ in range(5)
            ]
            texts.append([tree.sql(q, "uplake") for q in queries])
        assert texts[0] == texts[1]


def test_every_shape_is_made():
    made = set()
    for seed in range(60):
        given = grammar.Grammar(random.Random(seed), schemas.make(seed))
        for _, shape in shapes.SHAPES:
            try:
                made.add(shape.__name__ if shape(given) is not None else None)
            except expressions.Impossible:
                continue
    assert made >= {shape.__name__ for _, shape in shapes.SHAPES}


def test_newer_forms_are_made_and_postgres_is_asked_older_ones():
    texts, theirs = [], []
    for seed in range(40):
        made = grammar.Grammar(random.Random(seed), schemas.make(seed))
        for query in [made.statement() for _ in range(20)]:
            texts.append(tree.sql(query, "uplake"))
            try:
                theirs.append(tree.sql(query, "postgres"))
            except tree.Unspelt:
                continue
    forms = ("ORDER BY ALL", "GROUP BY ALL", "EXCEPT ALL", "INTERSECT ALL", "> ANY (", "<= ALL (")
    for words in forms:
        assert any(words in text for text in texts), words
    assert theirs and not any("BY ALL" in text for text in theirs)


def test_rows_are_cut_off_only_in_a_total_order():
    cut = 0
    for seed in range(30):
        made = grammar.Grammar(random.Random(seed), schemas.make(seed))
        for query in [made.statement() for _ in range(20)] + [
            shapes.statement(made) for _ in range(20)
        ]:
            assert tree.has_one_answer(query), tree.sql(query, "uplake")
            cut += any(getattr(n, "limit", None) is not None for n in tree.walk(query))
    assert cut > 50


def test_rows_that_are_ordered_by_a_computed_double_may_tie():
    asked = []
    for seed in range(40):
        made = grammar.Grammar(random.Random(seed), schemas.make(seed))
        asked += [q for q in [made.statement() for _ in range(30)] if tree.is_ordered(q)]
    computed = [q for q in asked if any(tree.is_computed(i.value) for i in tree.results(q))]
    assert computed and not any(tree.has_one_order(q) for q in computed)
    assert sum(tree.has_one_order(q) for q in asked) == len(asked) - len(computed) > 100


def test_computed_doubles_are_no_columns_of_other_queries():
    derived = 0
    for seed in range(30):
        made = grammar.Grammar(random.Random(seed), schemas.make(seed))
        for query in [made.statement() for _ in range(30)]:
            nodes = list(tree.walk(query))
            for node in [n for n in nodes if isinstance(n, tree.Derived)]:
                derived += 1
                items = tree.first_select(node.query).items
                computed = {i.name for i in items if tree.is_computed(i.value)}
                used = {n.name for n in nodes if isinstance(n, Column) and n.alias == node.alias}
                assert not computed & used, tree.sql(query, "duckdb")
            for node in [n for n in nodes if isinstance(n, tree.SetOperation)]:
                items = [*tree.first_select(node.left).items, *tree.first_select(node.right).items]
                keys = [i for i in items if node.kind != "UNION ALL"]
                assert not any(tree.is_computed(i.value) for i in keys), tree.sql(query, "duckdb")
    assert derived > 50


def test_brackets_stand_where_precedence_asks_for_them():
    a, b = Column("t", "a", "bool"), Column("t", "b", "bool")
    distinct = Call(functions.named("IS DISTINCT FROM", "bool", "bool"), [a, b], "bool")
    both = Call(functions.AND_, [distinct, b], "bool")
    assert tree.Renderer("uplake").expression(both) == "t.a IS DISTINCT FROM t.b AND t.b"
    inside = Call(distinct.function, [a, Call(functions.AND_, [a, b], "bool")], "bool")
    assert tree.Renderer("uplake").expression(inside) == "t.a IS DISTINCT FROM (t.a AND t.b)"


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        ("", 0),
        ("0:2", 0),
        ("0:1,5000000:2", 2),
        ("0:1,20000000:2", 1),
        ("5:3", 2),
        ("0:2,1:1", 1),
        ("0:1,9000000:1,15000000:2,16000000:4", 3),
    ],
)
def test_the_model_of_a_funnel_follows_its_definition(rows, steps):
    assert models.window_funnel(10, rows) == steps


# The reducer


def test_a_statement_is_reduced_to_what_fails():
    made = grammar.Grammar(random.Random(3), schemas.make(3))
    planted = Call(functions.named("contains", "text"), [Literal("planted", "text")], "bool")
    for _ in range(10):
        query = made.until_made(lambda: made.select(1, ["int", "text"], None))
        query.where = Call(
            functions.AND_,
            [
                made.boolean(
                    2,
                    expressions.RowLeaves(expressions.Relation([Column("t", "n", "int")], None, 1)),
                    0,
                ),
                planted,
            ],
            "bool",
        )
        fails = lambda q: any(n == planted for n in tree.walk(q))
        small = reduce.statement(query, fails, float("inf"))
        assert fails(small)
        assert len(tree.sql(small, "uplake")) < 200


def test_rows_and_clauses_are_reduced_to_what_fails():
    world = next(
        w
        for w in map(schemas.make, range(100))
        if len(w.table("events").pieces) > 1 and len(w.table("events").rows()) > 20
    )
    wanted = world.table("events").rows()[7][0]
    query = Select([Item(Column("events", "rid", "int"))], TableRef("events", "events"))
    fails = lambda w: any(r[0] == wanted for t in w.tables for r in t.rows())
    small = reduce.tables(world, query, fails, float("inf"))
    assert [t.name for t in small.tables] == ["events"]
    assert [r[0] for r in small.table("events").rows()] == [wanted]
    assert small.table("events").indexed_by == [] and small.table("events").partitioned_by == []


@pytest.fixture
def court(tmp_path):
    world = next(w for w in map(schemas.make, range(200)) if 5 < len(w.table("events").rows()) < 50)
    found = oracles.Court(world, UPLAKE, tmp_path / "court")
    yield found
    found.close()


def test_a_planted_difference_is_found_reduced_and_printed(court, tmp_path, monkeypatch):
    """DuckDB is told another statement: abs() for the minus of Uplake."""
    wrong = functions.scalar("minus", "int", "int", "- {0}", "abs({0})")
    rid = Column("t", "rid", "int")
    query = Select(
        [Item(Call(wrong, [rid], "int"), "c0"), Item(rid, "c1")],
        TableRef("events", "t"),
        Call(functions.named("is NOT NULL", "int"), [rid], "bool"),
        order=[Order(1), Order(2)],
    )
    failure = court.check(query)
    assert failure.kind == "different" and known.explain(failure) is None
    small = reduce.reduce(failure, court, UPLAKE, tmp_path, lambda _: True, 20)
    text = reduce.test_text(small)
    assert "SELECT - t.rid AS c0 FROM events AS t\n" in text
    assert len(small.world.table("events").rows()) == 1
    assert "CREATE TABLE events" in text and "----" in text


def test_views_and_text_files_are_asked_and_a_planted_difference_is_found(court):
    wrong = functions.scalar("plus", "int", "int", "{0} + 1", "{0} + 2")
    table = next(t for t in court.world.tables if schemas.text_file(0, t, court.folder))
    rid = Column("t", "rid", "int")
    right = Select([Item(rid, "c0")], TableRef(table.name, "t"))
    planted = Select([Item(Call(wrong, [rid], "int"), "c0")], TableRef(table.name, "t"))
    named = Select([Item(Column("w", "c0", "int"), "c0")], TableRef("w", "w"))
    for way in ("view", "files"):
        assert court.check(right, way) is None
        assert court.check(planted, way).kind == "different", way
    for query, kind in ((right, None), (planted, "different")):
        named.ctes = [tree.With("w", query)]
        found = court.check(named, "view")
        assert (found and found.kind) == kind


def test_a_text_file_has_the_rows_of_its_table(tmp_path):
    """DuckDB reads it as Uplake is asked to, all columns being text."""
    kinds, formats = set(), set()
    for seed in range(40):
        world = schemas.make(seed)
        schemas.write_files(world, tmp_path)
        duck = engines.Duck(world)
        for t in world.tables:
            path = schemas.text_file(seed, t, tmp_path)
            if path is None or any(c.type in values.LISTS for c in t.columns):
                continue
            reader = f"read_csv('{path}', all_varchar = true, header = true)"
            if path.endswith("json"):
                fields = ", ".join(f"'{c.name}': 'VARCHAR'" for c in t.columns)
                reader = f"read_json('{path}', columns = {{{fields}}})"
            items = ", ".join(
                f"CAST({schemas.quote(c.name)} AS {c.sql_type()})" for c in t.columns
            )
            found = duck.ask(f"SELECT {items} FROM {reader}")
            theirs = duck.ask(f"SELECT * FROM {t.name}")
            assert compare.difference(found, theirs, False, 0) is None, path
            kinds |= {c.type for c in t.columns}
            formats.add(path.rsplit(".")[-1])
        duck.close()
    assert formats == {"csv", "json"} and len(kinds) >= 9, (formats, kinds)


def test_a_planted_difference_of_changed_rows_is_found(court):
    class Wrong(changes.Update):
        """DuckDB is told to change one row less."""

        def text(self, dialect):
            return super().text(dialect) + (" AND x.rid <> 3" if dialect == "duckdb" else "")

    table = court.world.table("events")
    name = next(c for c in table.columns if c.name != "rid" and c.type in values.ORDERED)
    rid = Column("x", "rid", "int")
    test = Call(functions.named("is NOT NULL", "int"), [rid], "bool")
    everywhere = [(name.name, Literal(None, name.type))]
    same = changes.Update(table, [(name.name, Column("x", name.name, name.type))], test)
    assert court.check_change(same) is None
    other = Call(functions.named("=", "int", "int"), [rid, Literal(3, "int")], "bool")
    kept = Select([Item(Column("x", name.name, name.type))], TableRef("events", "x"), other)
    if court.expected(kept).column(0)[0].as_py() is None:
        everywhere = [(name.name, Literal(values.value(random.Random(1), name.type), name.type))]
    found = court.check_change(Wrong(table, everywhere, test))
    assert found.kind == "different" and found.statement.startswith("UPDATE events AS x SET")
    assert "UPDATE events AS x SET" in reduce.test_text(found)


def test_all_ways_to_change_rows_are_made():
    ways, texts = set(), []
    for seed in range(40):
        world = schemas.make(seed)
        made = grammar.Grammar(random.Random(seed), world)
        for t in world.tables:
            change = changes.make(made, t)
            ways.add(change.way)
            texts.append(change.text("uplake"))
    assert ways == {"delete", "update", "merge"}
    for words in ("USING", " FROM ", "WHEN MATCHED", "WHEN NOT MATCHED", "THEN DELETE", "THEN INSERT"):
        assert any(words in text for text in texts), words


def test_a_refusal_is_a_failure_and_a_dead_process_is_replaced(court):
    refused = functions.scalar(
        "no such function", "int", "int", "no_such_function({0})", "abs({0})"
    )
    query = Select(
        [Item(Call(refused, [Column("t", "rid", "int")], "int"), "c0")], TableRef("events", "t")
    )
    assert court.check(query).kind == "refused"
    assert court.check_batch([query])[0].kind == "refused"
    court.session("duckdb").process.kill()
    whole = Select([Item(Column("t", "rid", "int"), "c0")], TableRef("events", "t"))
    assert court.check(whole).kind == "died"
    assert court.check(whole) is None
    assert court.check_batch([whole, whole]) == [None, None]


def test_what_is_refused_by_choice_says_so(court):
    session = court.session("duckdb")
    session.ask("CREATE TABLE t AS SELECT 1 AS x")
    session.ask("CREATE TABLE u AS SELECT 1 AS x")
    for statement, message, _ in known.REFUSED:
        with pytest.raises(engines.Refused, match=message) as refused:
            session.ask(statement)
        assert not isinstance(refused.value, engines.Died), statement


def test_a_session_answers_what_was_asked_last(court):
    session = court.session("duckdb")
    assert session.ask("SELECT 1 AS a").to_pylist() == [{"a": 1}]
    with pytest.raises(engines.Refused):
        session.ask("SELECT nothing")
    long_list = ", ".join(map(str, range(5000)))
    assert session.ask(f"SELECT 7 IN ({long_list}) AS a").to_pylist() == [{"a": True}]


# What is known


def failure_of(query, message, kind="refused", world=0):
    return oracles.Failure(schemas.make(world), "duckdb", query, kind, message)


def test_statements_are_asked_in_parts(court):
    for way, parts in [("parts 2", 2), ("parts 3", 3)]:
        session = court.session(way)
        plan = str(session.ask("EXPLAIN SELECT count(*) FROM events").to_pylist())
        assert f"PartsExec: parts={parts}" in plan, plan
        session.process.kill()
        with pytest.raises(engines.Died):
            session.ask("SELECT 1")
        plan = str(session.ask("EXPLAIN SELECT count(*) FROM events").to_pylist())
        assert f"PartsExec: parts={parts}" in plan, plan


def test_a_known_difference_is_no_wider_than_its_reason():
    n = Column("t", "n", "int")
    plain = Select([Item(n, "c0")], TableRef("events", "t"))
    message = "Cannot cast Date32 value 1 to Timestamp(ns): converted value exceeds the representable"
    assert "2262" in known.explain(failure_of(plain, message))
    assert known.explain(failure_of(plain, "Another error")) is None
    assert known.explain(failure_of(plain, message, "died")) is None
    assert known.explain(failure_of(plain, message, "different")) is None


def test_an_overflow_of_a_row_that_is_dropped_is_no_difference(court):
    """DuckDB computes what no row of the answer has; what a row of it has is an overflow for both."""
    rid = Column("t", "rid", "int")
    times = functions.named("*", "int", "int")
    huge = Call(times, [Literal(2**62, "int"), Call(times, [rid, Literal(9, "int")], "int")], "int")
    kept = Call(functions.named("=", "int", "int"), [huge, Literal(5, "int")], "bool")

    def answered(query, uplake_says):
        failure = oracles.Failure(court.world, "duckdb", query, "different", "answered")
        return court.without_dropped(failure, uplake_says).excuse

    query = Select([Item(rid, "c0")], TableRef("events", "t"), kept)
    assert isinstance(court.expected(query), engines.Refused)
    assert answered(query, table(c0=pa.array([], pa.int64())))
    assert not answered(query, table(c0=[7]))


# PostgreSQL, and the faults of before


@pytest.fixture(scope="module")
def server():
    if postgres.programs() is None:
        warnings.warn(f"PostgreSQL is not tested: {postgres.MISSING}", stacklevel=1)
        pytest.skip(postgres.MISSING)
    with postgres.serving() as found:
        assert found is not None, "PostgreSQL is installed and does not start"
        yield found


def test_postgres_holds_a_world_as_duckdb_does(tmp_path, server):
    kinds = set()
    for seed in range(4):
        world = schemas.make(seed)
        schemas.write_files(world, tmp_path)
        duck, third = engines.Duck(world), postgres.Postgres(server, world)
        for t in world.tables:
            columns = [c for c in t.columns if postgres.has_type(c.type)]
            items = [Item(Column("t", c.name, c.type), f"c{n}") for n, c in enumerate(columns)]
            query = Select(items, TableRef(t.name, "t"))
            theirs = duck.ask(tree.sql(query, "duckdb"))
            assert postgres.difference(third.ask(query), theirs, False, 0) is None, t.name
            kinds |= {c.type for c in columns if t.rows()}
        third.close()
        duck.close()
    assert len(kinds) >= 9, kinds


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "ints"),
        (-(2**63), "big"),
        (5e-324, "wild"),
        (math.nan, "wild"),
        (-math.inf, "wild"),
        ("it's 50%", "text"),
        ([1, None], "ints"),
        ([], "ints"),
        (dt.datetime(1600, 2, 29, 12), "timestamp"),
        (dt.datetime(2400, 1, 1, tzinfo=dt.timezone.utc), "timestamptz"),
    ],
)
def test_postgres_reads_literals_as_duckdb_does(server, value, kind):
    world = schemas.World(0, [], [], {})
    query = Select([Item(Literal(value, kind), "c0")])
    duck, third = engines.Duck(world), postgres.Postgres(server, world)
    theirs = duck.ask(tree.sql(query, "duckdb"))
    assert postgres.difference(third.ask(query), theirs, True, 0) is None
    third.close()
    duck.close()


def test_postgres_says_nothing_of_what_it_cannot_say(server):
    world = schemas.World(0, [], [], {})
    third = postgres.Postgres(server, world)
    one = Literal(1, "int")

    def asked(function, *args):
        return Select([Item(Call(function, list(args), "int"), "c0")])

    absent = functions.scalar("x", "int", "int", "x({0})", postgres=tree.ABSENT)
    unknown = functions.scalar("no_such_function", "int", "int", "no_such_function({0})")
    zero = functions.scalar("by zero", "int", "int", "{0} / 0")
    cases = [
        (asked(absent, one), "no spelling"),
        (Select([Item(Literal([[1]], "nested"), "c0")]), "no spelling"),
        (asked(unknown, one), "refused as another dialect"),
        (asked(zero, one), "refused by its values"),
    ]
    for query, reason in cases:
        with pytest.raises(postgres.NoOpinion) as none:
            third.ask(query)
        assert none.value.reason == reason
    third.close()


def test_postgres_decides_where_duckdb_differs(court, tmp_path, server):
    court = oracles.Court(court.world, UPLAKE, tmp_path / "three", server)
    rid = Column("t", "rid", "int")

    def query(uplake, duckdb=None, postgres=None):
        function = functions.scalar("odd", "int", "int", uplake, duckdb, postgres=postgres)
        return Select([Item(Call(function, [rid], "int"), "c0")], TableRef("events", "t"))

    try:
        excused = court.check(query("abs({0})", duckdb="abs({0}) + 1"))
        assert "PostgreSQL gives the same" in known.explain(excused)
        wrong = court.check(query("abs({0}) + 1", duckdb="abs({0})", postgres="abs({0})"))
        assert wrong.kind == "different" and known.explain(wrong) is None
        both = query("abs({0}) + 1", postgres="abs({0})")
        assert court.check(both) is None
        alone = court.check(both, "postgres")
        assert alone.way == "postgres" and known.explain(alone) is None
        assert "PostgreSQL was asked" in reduce.test_text(alone)
        assert court.check(query("abs({0})", duckdb="no_such({0})")) is None
        refused = query("abs({0}) + 1", duckdb="no_such({0})", postgres="abs({0})")
        assert court.check(refused).way == "postgres"
    finally:
        court.close()


def test_the_columns_of_using_explain_no_other_rows():
    join = tree.Join("INNER", TableRef("a", "a"), TableRef("b", "b"), using=["k"])
    failure = failure_of(Select([Item(tree.Star())], join), "…", "different")
    failure.way = "postgres"
    failure.ours, failure.theirs = [(1, "x", 2)], [("x", 1, 2)]
    assert "USING" in known.explain(failure)
    failure.theirs = [("x", 1, 3)]
    assert known.explain(failure) is None


def test_a_subquery_explains_other_totals_and_no_other_groups():
    key = tree.InIdSet(Column("t", "n", "int"), "numbers", False)
    query = Select([Item(key, "c0")], TableRef("events", "t"), group=tree.Group([key], "ROLLUP"))
    failure = failure_of(query, "row 0: …", "different")
    assert known.explain(failure) is None
    failure.way = "postgres"
    assert "before 18" in known.explain(failure)
    query.group.kind = ""
    assert known.explain(failure) is None
    query.group = tree.Group([Column("t", "n", "int")], "ROLLUP")
    assert known.explain(failure) is None
    query.where = key
    assert known.explain(failure) is None
    below = Select([Item(key, "n")], TableRef("events", "e"))
    query.source = tree.Derived(below, "t")
    assert "before 18" in known.explain(failure)
    below.items, below.where = [Item(Column("e", "n", "int"), "n")], key
    assert known.explain(failure) is None


def test_a_fault_is_told_by_its_signature():
    user, value = Column("u", "user_id", "text"), Column("e", "v", "wild")
    join = tree.Join("LEFT", TableRef("exposures", "u"), TableRef("events", "e"))
    best = tree.Aggregate(functions.named("max", "wild"), [value], "wild")
    query = Select([Item(user), Item(best)], join, group=tree.Group([user]))
    failure = failure_of(query, "row 0: …", "different")
    failure.ours, failure.theirs = [("a", -1.7976931348623157e308)], [("a", None)]
    assert finds.start_values(failure) and not finds.json_of_nan(failure)
    failure.ours = [("a", 3.5)]
    assert not finds.start_values(failure)
    failure.way, failure.ours, failure.theirs = "batch", [("a", None)], [("a", math.inf)]
    assert finds.json_of_nan(failure) and not finds.start_values(failure)


def test_every_fault_has_a_number_of_its_own():
    numbers = [f.__doc__[:2] for f in finds.FAULTS] + list(finds.NOT_ASKED)
    assert sorted(numbers) == [f"{n:02}" for n in range(1, 31)]
