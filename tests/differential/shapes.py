"""Statements of the shapes that matter most here, each varied at random: first exposures joined
with events and summed per user, cohorts, funnels, retention, checks of experiments, and the shapes
in which faults were found.

A shape is a function of a Grammar that gives a statement, or None where the world has no table for
it. It may also raise `Impossible`.
"""

import functions
from functions import AND_, named, scalar
from expressions import Relation, RowLeaves
from tree import (
    ABSENT,
    Aggregate,
    AnyOfGroup,
    Call,
    Case,
    Column,
    Derived,
    Group,
    Grouping,
    InList,
    InQuery,
    Item,
    Join,
    Literal,
    Order,
    Over,
    Select,
    SetOperation,
    Star,
    TableRef,
    Window,
    With,
)
from values import ORDERED, TYPES


def statement(g):
    """A statement of a random shape."""
    return g.until_made(lambda: g.pick(*SHAPES)(g))


# Pieces of statements


def with_users(g, but=None):
    """A table with a column user_id."""
    found = [
        t for t in g.world.tables if any(c.name == "user_id" for c in t.columns) and t is not but
    ]
    return g.choose(found) if found else None


def column(relation, name):
    return next(c for c in relation.columns if c.name == name)


def equal(a, b):
    return Call(named("=", a.type, b.type), [a, b], "bool")


def items(*found):
    return [Item(value, f"c{n}") for n, value in enumerate(found)]


def aggregate(name, value, **more):
    function = named(name, value.type)
    return Aggregate(function, [value], function.result, **more)


def count():
    return Aggregate(named("count(*)"), [], "int")


def as_relation(query, alias):
    columns = [Column(alias, i.name, i.value.type) for i in query.items]
    return Derived(query, alias), Relation(columns, list(columns), 200)


def first_exposures(g, table):
    """One row per user: (source, relation)."""
    source, relation = g.table(table)
    user = column(relation, "user_id")
    if table.one_row_per_user and g.chance(0.5):
        return source, relation
    others = [c for c in relation.columns if c.type in ORDERED and c.name not in ("user_id", "rid")]
    picked = g.rng.sample(others, min(len(others), g.choose([1, 1, 2])))
    chosen = [user] + [aggregate(g.choose(["min", "min", "max"]), c) for c in picked]
    query = Select(
        [Item(user, "user_id")] + [Item(a, c.name) for a, c in zip(chosen[1:], picked)],
        source,
        group=Group([user]),
    )
    if g.chance(0.3):
        query.where = g.boolean(1, RowLeaves(relation), 0)
    alias = g.name("u")
    return as_relation(query, alias)


def per_user(g):
    """First exposures joined with events, grouped by user: (query, relation of its rows)."""
    left, right = with_users(g), with_users(g)
    if left is None:
        return None
    source, exposed = first_exposures(g, left)
    events, happened = g.table(right)
    if exposed.rows * happened.rows // len(g.world.users) > 20_000:
        return None
    user, other = column(exposed, "user_id"), column(happened, "user_id")
    on = equal(other, user)
    if g.chance(0.3):
        on = Call(AND_, [on, g.boolean(1, RowLeaves(happened), 0)], "bool")
    kind = g.pick((6, "LEFT"), (2, "INNER"), (1, "RIGHT"), (0.5, "FULL"))
    join = Join(kind, source, events, on)
    if g.chance(0.15):
        join = Join({"LEFT": "RIGHT"}.get(kind, kind), events, source, on)
    both = Relation([*exposed.columns, *happened.columns], None, 0)
    found = [Item(user, "user_id")]
    more = [c for c in exposed.columns if c.name != "user_id" and c.type in ORDERED]
    if more and g.chance(0.7):
        found.append(Item(aggregate("min", g.choose(more)), "variant"))
    for number in range(g.choose([1, 2, 3, 4])):
        found.append(Item(measure(g, happened, both), f"m{number}"))
    query = Select(found, join, group=Group([user]))
    if g.chance(0.25):
        query.where = g.boolean(1, RowLeaves(both), 0)
    return query


def measure(g, happened, both):
    """An aggregate of a user's events."""
    kind = g.choose([k for k in ORDERED if happened.of(k)])
    value = g.choose(happened.of(kind))
    names = ["min", "max", "count"]
    names += {
        "int": ["sum", "avg", "bit_or"],
        "double": ["sum", "avg"],
        "decimal": ["sum"],
        "bool": ["bool_or", "bool_and"],
    }.get(kind, [])
    if g.chance(0.2):
        return Aggregate(functions.SUM_OF_TRUE, [g.boolean(1, RowLeaves(happened), 0)], "int")
    if g.chance(0.15):
        return count()
    name = g.choose(names)
    distinct = name in ("count", "sum", "avg") and g.chance(0.15)
    found = aggregate(name, value, distinct=distinct)
    if g.chance(0.1):
        found.where = g.boolean(1, RowLeaves(both), 0)
    return found


# Shapes


def users_of_experiment(g):
    return per_user(g)


def variants(g):
    """Per-user values, then their sums by variant."""
    inner = per_user(g)
    if inner is None:
        return None
    source, relation = as_relation(inner, "p")
    names = {c.name: c for c in relation.columns}
    keys = [names["variant"]] if "variant" in names and g.chance(0.8) else []
    found = list(keys) + [count()]
    for c in relation.columns:
        if not c.name.startswith("m") or c.type in ("decimals", "averages"):
            continue
        found.append(aggregate(g.choose(["count", "min", "max"]), c))
        if c.type in ("int", "double"):
            filled = Call(named("coalesce", c.type, c.type), [c, Literal(0, c.type)], c.type)
            found.append(aggregate(g.choose(["sum", "avg"]), filled))
    return Select(items(*found), source, group=Group(keys) if keys else None)


def filtered_users(g):
    """The per-user values with a condition above them."""
    inner = per_user(g)
    if inner is None:
        return None
    source, relation = as_relation(inner, "p")
    usable = Relation([c for c in relation.columns if c.type in TYPES], None, 200)
    return Select(items(*relation.columns), source, g.boolean(1, RowLeaves(usable), 0))


def union_of_joins(g):
    """UNION ALL of two joins of the same tables under different conditions."""
    left, right = g.choose(g.world.tables), g.choose(g.world.tables)
    a, x = g.table(left)
    b, y = g.table(right)
    pairs = [
        (p, q)
        for p in x.columns
        for q in y.columns
        if p.type == q.type and p.type in ORDERED and g.join_rows(x, y, p, q) < 10_000
    ]
    users = [p for p in pairs if p[0].name == p[1].name == "user_id"]
    if not pairs:
        return None
    p, q = g.choose(users or pairs)
    on = equal(p, q)
    if p.type == "text" and g.chance(0.3):
        on = equal(p, Call(named("lower", "text"), [q], "text"))
    kind = g.choose(["RIGHT", "RIGHT", "LEFT", "FULL", "INNER"])
    join = Join(kind, a, b, on)
    picked = [c for c in (y if kind == "RIGHT" else x).columns if c.type in ORDERED]
    picked = g.rng.sample(picked, min(len(picked), 3))
    sides = []
    for _ in range(2):
        side = Select(items(*picked), join)
        if g.chance(0.6):
            same = [c for c in x.columns if any(c.name == o.name for o in y.columns)] or x.columns
            tested = g.choose(same)
            side.where = Call(
                named(g.choose(["is NULL", "is NOT NULL"]), tested.type), [tested], "bool"
            )
            if g.chance(0.4):
                side.where = g.boolean(1, RowLeaves(Relation(x.columns + y.columns, None, 0)), 0)
        sides.append(side)
    union = SetOperation("UNION ALL", *sides)
    if g.chance(0.5):
        return union
    source = Derived(union, "u")
    columns = [Column("u", f"c{n}", c.type) for n, c in enumerate(picked)]
    return Select(items(count(), *[aggregate("count", c) for c in columns]), source)


def grouped_union(g):
    """Groups above UNION ALL of tables' columns of one name."""
    names = [c.name for t in g.world.tables for c in t.columns if c.type in ORDERED]
    name = g.choose(names)
    sides = []
    for table in g.world.tables:
        for c in table.columns:
            if c.name == name:
                source, relation = g.table(table)
                value = column(relation, name)
                sides.append(Select(items(value, column(relation, "rid")), source))
    kind = sides[0].items[0].value.type
    sides = [s for s in sides if s.items[0].value.type == kind]
    union = sides[0]
    for side in sides[1:] or sides:
        union = SetOperation("UNION ALL", union, side)
    key, number = Column("u", "c0", kind), Column("u", "c1", "int")
    return Select(
        items(key, count(), aggregate("sum", number), aggregate("count", key)),
        Derived(union, "u"),
        group=Group([key]),
    )


def count_of_count(g):
    """An aggregate with FILTER above an aggregate without groups."""
    source, relation = g.table(g.choose(g.world.tables))
    inner = Select(
        items(g.aggregate(g.choose(["int", "int", "double", "text"]), relation, 0)), source
    )
    value = Column("q", "c0", inner.items[0].value.type)
    condition = g.boolean(1, RowLeaves(Relation([value], None, 1)), 0)
    name = g.choose(["count", "count", "min", "max"])
    outer = aggregate(name, value, where=condition if g.chance(0.8) else None)
    found = Select(items(outer), Derived(inner, "q"))
    if g.chance(0.5):
        found.items[0].name = None
    return found


def constant_of_outer_join(g):
    """A constant column of the outer side, ordered by."""
    found = g.join_of_users_or_rids()
    if found is None:
        return None
    (a, x), (b, y), p, q = found
    constant = g.literal(g.choose(["int", "text", "bool"]))
    inner = Select([Item(q, "k"), Item(constant, "y")], b)
    if g.chance(0.5):
        inner.group = Group([q])
    key, value = Column("q", "k", q.type), Column("q", "y", constant.type)
    kind = g.choose(["LEFT", "FULL", "RIGHT"])
    on = equal(key, p)
    join = (
        Join(kind, Derived(inner, "q"), a, on)
        if kind == "RIGHT"
        else Join(kind, a, Derived(inner, "q"), on)
    )
    picked = [value, column(x, "rid"), key]
    query = Select(items(*picked), join)
    query.order = [
        Order(1, g.chance(0.4), g.nulls()),
        Order(2, g.chance(0.4), g.nulls()),
        Order(3, False, g.nulls()),
    ]
    if g.chance(0.6):
        query.limit = g.choose([1, 3, 5, 10])
    if g.chance(0.3):
        query.where = g.boolean(1, RowLeaves(Relation([*x.columns, value], None, 1)), 0)
    return query


def using(g):
    """JOIN … USING, whose column is of both sides."""
    found = g.join_of_users_or_rids()
    if found is None or found[2].name != found[3].name:
        return None
    (a, x), (b, y), p, _ = found
    key = Column(None, p.name, p.type)
    join = Join(g.choose(["FULL", "FULL", "RIGHT", "LEFT", "INNER"]), a, b, using=[p.name])
    others = [c for c in [*x.columns, *y.columns] if c.name != p.name and c.type in ORDERED]
    if g.chance(0.5):
        query = Select(
            items(key, count(), aggregate("count", g.choose(others))), join, group=Group([key])
        )
    else:
        query = Select(items(key, g.choose(others), g.choose(others)), join)
        if g.chance(0.2):
            query.items = [Item(Star())]
    if g.chance(0.4):
        query.where = g.boolean(1, RowLeaves(Relation([key, *others], None, 1)), 0)
    if query.items[0] != Item(Star()) and g.chance(0.4):
        query.order = [Order(n + 1, g.chance(0.4), g.nulls()) for n in range(3)]
        query.limit = g.choose([None, 5])
    return query


def long_list(g):
    """A list of 100 or more as a key of groups, a result, a condition."""
    source, relation = g.table(g.choose(g.world.tables))
    texts = relation.of("text")
    kind = "text" if texts and g.chance(0.7) else "int"
    value = g.choose(relation.of(kind))
    many = [f"u{n}" for n in range(0, 220, 2)] if kind == "text" else list(range(0, 330, 3))
    tests = InList(value, [Literal(v, kind) for v in many], g.chance(0.3))
    group = Group([tests], g.choose(["", "ROLLUP", "CUBE"]))
    found = [tests, count()] + ([Grouping(tests)] if group.kind else [])
    return Select(items(*found), source, group=group)


def pairs_of_groups(g):
    """DISTINCT with one column twice, used twice."""
    source, relation = g.table(g.choose(g.world.tables))
    key = g.choose([c for c in relation.columns if c.type in ORDERED and c.name != "rid"])
    inner = Select([Item(key, "a"), Item(key, "b")], source, distinct=True)
    if g.chance(0.4):
        inner = Select(
            [Item(key, "a"), Item(key, "b"), Item(count(), "n")], source, group=Group([key])
        )
    left, right = TableRef("w", "l"), TableRef("w", "r")
    a, b = Column("l", "a", key.type), Column("r", "b", key.type)
    join = Join(g.choose(["INNER", "LEFT"]), left, right, equal(a, b))
    return Select(items(a), join, ctes=[With("w", inner)])


def from_first(g):
    source, relation = g.table(g.choose(g.world.tables))
    query = Select([], source)
    if g.chance(0.5):
        query.where = g.boolean(1, RowLeaves(relation), 0)
    return query


def bare_names(g):
    """Columns by their names alone, without an alias for any."""
    table = g.choose(g.world.tables)
    columns = g.rng.sample(table.columns, min(len(table.columns), g.choose([1, 1, 2, 3])))
    return Select(
        [Item(Column(None, c.name, c.type)) for c in columns], TableRef(table.name, table.name)
    )


def star(g):
    source, relation = g.table(g.choose(g.world.tables))
    query = Select([Item(Star())], source)
    if g.chance(0.7):
        query.where = g.condition(2, RowLeaves(relation), 1)
    return query


def volatile(g):
    """A condition with random() that is always, or never, true."""
    source, relation = g.table(g.choose(g.world.tables))
    never = g.chance(0.5)
    text = "random() > 1000" if never else "random() < 1000"
    test = Call(scalar("random", "bool", "", text, level=5), [], "bool")
    query = Select(items(count()), source)
    if g.chance(0.6):
        query.having = test
    else:
        query.where = test
    return query


def group_by_primary_key(g):
    keyed = [t for t in g.world.tables if t.primary_key]
    if not keyed:
        return None
    table = g.choose(keyed)
    source, relation = g.table(table)
    keys = [column(relation, name) for name in table.primary_key]
    others = [c for c in relation.columns if c.name not in table.primary_key]
    picked = g.rng.sample(others, min(2, len(others)))
    return Select(
        items(*keys, *[AnyOfGroup(c, c.type) for c in picked], count()), source, group=Group(keys)
    )


def numbered_by_equality(g):
    """A window ordered by tests of columns with the value that the condition tests one for."""
    source, relation = g.table(g.choose(g.world.tables))
    columns = [c for c in relation.columns if c.type in ORDERED and c.name != "rid"]
    a = g.choose(columns)
    b = g.choose([c for c in columns if c.type == a.type])
    value = g.literal(a.type)
    tests = [equal(c, value) for c in (a, b)]
    filled = Call(named("coalesce", b.type, b.type), [b, value], b.type)
    where = Call(named("=", b.type, b.type), [filled, value], "bool")
    ranked = scalar("rank", "int", "", g.choose(["rank(){f}", "count(*){f}"]))
    over = Over([], [Order(t) for t in tests])
    return Select(
        items(a, Window(ranked, [], over, "int")), source, where if g.chance(0.8) else None
    )


def case_of_truths(g):
    """GROUP BY of a CASE whose results are truths."""
    source, relation = g.table(g.choose(g.world.tables))
    bools = relation.of("bool")
    test = g.boolean(1, RowLeaves(relation), 0)
    if bools and g.chance(0.7):
        test = Call(
            named(f"is {g.choose(['TRUE', 'FALSE', 'NOT TRUE'])}", "bool"), [bools[0]], "bool"
        )
    results = [Literal(g.choose([True, False, None]), "bool") for _ in range(2)]
    case = Case(None, [(test, results[0])], results[1] if g.chance(0.4) else None, "bool")
    return Select(items(*([case] if g.chance(0.5) else []), count()), source, group=Group([case]))


def latest_per_group(g):
    """The first rows of each group by row_number."""
    source, relation = g.table(g.choose(g.world.tables))
    columns = [c for c in relation.columns if c.type in ORDERED]
    key = g.choose(columns)
    by = [
        Order(g.choose([c for c in columns if c.type != "wild"]), g.chance(0.6), g.nulls()),
        Order(relation.keys[0]),
    ]
    number = Window(
        scalar("row_number", "int", "", g.choose(["row_number(){f}", "rank(){f}"])),
        [],
        Over([key], by),
        "int",
    )
    inner = Select([Item(key, "k"), Item(relation.keys[0], "rid"), Item(number, "n")], source)
    n = Column("q", "n", "int")
    kept = Call(
        named(g.choose(["<=", "=", "<"]), "int", "int"),
        [n, Literal(g.choose([1, 2, 3]), "int")],
        "bool",
    )
    return Select(
        items(Column("q", "k", key.type), Column("q", "rid", "int"), n), Derived(inner, "q"), kept
    )


def top_of_groups(g):
    """Groups in the order of an aggregate, cut by LIMIT."""
    source, relation = g.table(g.choose(g.world.tables))
    key = g.choose([c for c in relation.columns if c.type in ORDERED and c.type != "wild"])
    value = (
        aggregate("count", g.choose(relation.columns))
        if g.chance(0.6)
        else aggregate(
            "max", g.choose([c for c in relation.columns if c.type in ORDERED and c.type != "wild"])
        )
    )
    query = Select(items(key, value), source, group=Group([key]))
    query.order = [Order(2, g.chance(0.7), g.nulls()), Order(1, g.chance(0.3), g.nulls())]
    query.limit = g.choose([1, 3, 10])
    return query


def several_variants(g):
    """GrowthBook's check: users with more than one value, beside the first one."""
    table = with_users(g)
    if table is None:
        return None
    source, relation = g.table(table)
    user = column(relation, "user_id")
    value = g.choose([c for c in relation.columns if c.type in ("text", "int", "bool", "date")])
    several = Call(
        named(">", "int", "int"),
        [aggregate("count", value, distinct=True), Literal(1, "int")],
        "bool",
    )
    other = g.choose([c for c in relation.columns if c.type in ORDERED])
    return Select(
        items(user, several, aggregate("min", value), aggregate("max", other)),
        source,
        group=Group([user]),
    )


def users_by_groups(g):
    """Exact users by ROLLUP, with grouping()."""
    table = with_users(g)
    if table is None:
        return None
    source, relation = g.table(table)
    keys = [c for c in relation.columns if c.type in ORDERED and c.name not in ("rid", "user_id")]
    keys = g.rng.sample(keys, min(len(keys), g.choose([1, 2])))
    kind = g.choose(["ROLLUP", "CUBE", "ROLLUP", ""])
    users = aggregate("count", column(relation, "user_id"), distinct=True)
    found = [*keys, users]
    if kind:
        found.append(Grouping(g.choose(keys)))
    if g.chance(0.5):
        found.append(count())
    return Select(items(*found), source, group=Group(keys, kind))


def cohorts(g):
    """Users by the day of their first row, and how many came on each later day."""
    table = with_users(g)
    if table is None:
        return None
    source, relation = g.table(table)
    times = relation.of("timestamp") + relation.of("date")
    if not times or relation.rows > 1000:
        return None
    user, time = column(relation, "user_id"), g.choose(times)
    first = Select(
        [Item(user, "user_id"), Item(aggregate("min", time), "first")], source, group=Group([user])
    )
    again, rows = g.table(table)
    day = "CAST({0} AS DATE)"

    def day_of(c):
        return c if c.type == "date" else Call(scalar("day", "date", c.type, day), [c], "date")

    start = Column("f", "first", time.type)
    then = column(rows, time.name)
    join = Join(
        g.choose(["INNER", "LEFT"]),
        Derived(first, "f"),
        again,
        equal(Column("f", "user_id", "text"), column(rows, "user_id")),
    )
    keys = [day_of(start), day_of(then)]
    users = aggregate("count", column(rows, "user_id"), distinct=True)
    return Select(items(*keys, users, count()), join, group=Group(keys))


def funnel(g):
    """window_funnel and retention of users, against a model of their definition."""
    table = with_users(g)
    if table is None:
        return None
    source, relation = g.table(table)
    times = relation.of("timestamp")
    if not times:
        return None
    user, time = column(relation, "user_id"), g.choose(times)
    steps = [g.boolean(1, RowLeaves(relation), 0) for _ in range(g.choose([2, 3]))]
    seconds = g.choose([3600, 86400, 3 * 86400])
    args = ", ".join(f"{{{n + 1}}}" for n in range(len(steps)))
    bits = " + ".join(f"CASE WHEN {{{n + 1}}} THEN {2 ** n} ELSE 0 END" for n in range(len(steps)))
    rows = f"coalesce(string_agg(epoch_us({{0}}) || ':' || ({bits}), ','), '')"
    theirs = f"window_funnel_model({seconds}, {rows})"
    passed = Aggregate(
        scalar(
            "window_funnel",
            "int",
            "timestamp" + " bool" * len(steps),
            f"window_funnel(INTERVAL '{seconds} seconds', {{0}}, {args})",
            theirs,
            postgres=ABSENT,
        ),
        [time, *steps],
        "int",
    )
    first = "coalesce(bool_or({0}), false)"
    each = ", ".join(
        [first] + [f"{first} AND coalesce(bool_or({{{n}}}), false)" for n in range(1, len(steps))]
    )
    stays = Aggregate(
        scalar(
            "retention",
            "bools",
            "bool " * len(steps),
            f"retention({', '.join('{%d}' % n for n in range(len(steps)))})",
            f"[{each}]",
            postgres=f"ARRAY[{each}]",
        ),
        list(steps),
        "bools",
    )
    found = [passed, stays] if g.chance(0.5) else [passed]
    group = Group([user]) if g.chance(0.9) else None
    query = Select(items(*([user] if group else []), *found), source, group=group)
    if g.chance(0.3):
        query.where = g.boolean(1, RowLeaves(relation), 0)
    return query


def anti_join(g):
    """NOT IN, NOT EXISTS and LEFT JOIN … IS NULL of users, also of constants."""
    left, right = with_users(g), with_users(g)
    if left is None:
        return None
    a, x = g.table(left)
    b, y = g.table(right)
    inner = Select(items(column(y, "user_id")), b)
    if g.chance(0.6):
        inner.where = g.boolean(1, RowLeaves(y), 0)
    outer = column(x, "user_id")
    if g.chance(0.25):
        outer = g.literal("text")
    test = InQuery(outer, inner, g.chance(0.6))
    where = test
    way = g.rng.random()
    if way < 0.25:
        where = Call(functions.OR_, [g.boolean(1, RowLeaves(x), 0), test], "bool")
    elif way < 0.4:
        where = Call(
            named(g.choose(["is NULL", "is FALSE", "is NOT TRUE", "is NOT NULL"]), "bool"),
            [test],
            "bool",
        )
    elif way < 0.55:
        where = Call(functions.NOT_, [test], "bool")
    elif way < 0.7:
        return Select(items(column(x, "rid"), test), a)
    return Select(items(column(x, "rid"), column(x, "user_id")), a, where)


def overflow(g):
    """Whole numbers at the ends of 64 bits, added: right, or refused by both."""
    source, relation = g.table(g.choose(g.world.tables))
    value = g.choose(relation.of("big"))
    if g.chance(0.4):
        whole = "CAST(sum({0}){f} AS BIGINT)"
        function = scalar("sum of big", "big", "big", "sum({0}){f}", whole, postgres=whole)
        key = g.choose([c for c in relation.columns if c.type in ORDERED])
        return Select(items(key, Aggregate(function, [value], "big")), source, group=Group([key]))
    op, level = g.choose([("+", functions.ADD), ("-", functions.ADD), ("*", functions.MULTIPLY)])
    function = scalar(op, "big", "big big", f"{{0}} {op} {{1}}", level=level)
    return Select(
        items(column(relation, "rid"), Call(function, [value, g.literal("big")], "big")), source
    )


def minimum_of_wild(g):
    """min and max per group of doubles with NaN and -0.0, and how many differ."""
    source, relation = g.table(g.choose(g.world.tables))
    wild = relation.of("wild")
    if not wild:
        return None
    value = g.choose(wild)
    keys = [c for c in relation.columns if c.type in ORDERED and c.name != "rid"]
    key = g.choose(keys)
    found = [aggregate(n, value) for n in ("min", "max")]
    found.append(aggregate("count", value, distinct=True))
    if g.chance(0.5):
        found = [aggregate("count", value, distinct=True), aggregate("count", value)]
    if g.chance(0.3):
        return Select(items(*found), source)
    return Select(items(key, *found), source, group=Group([key]))


SHAPES = [
    (5, users_of_experiment),
    (4, variants),
    (2, filtered_users),
    (3, union_of_joins),
    (1, grouped_union),
    (2, count_of_count),
    (2, constant_of_outer_join),
    (2, using),
    (0.7, long_list),
    (1, pairs_of_groups),
    (0.3, from_first),
    (1, star),
    (0.7, bare_names),
    (0.3, volatile),
    (1, group_by_primary_key),
    (1, numbered_by_equality),
    (0.7, case_of_truths),
    (1.5, latest_per_group),
    (1, top_of_groups),
    (1, several_variants),
    (1.5, users_by_groups),
    (1, cohorts),
    (1.5, funnel),
    (2, anti_join),
    (1.5, minimum_of_wild),
    (0.4, overflow),
]
