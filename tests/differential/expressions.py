"""Random expressions with types: of rows, of groups, with subqueries.

Invariants:
- An expression has the type that was asked for, and is made of columns that its leaves give.
- Whole numbers and doubles that are added are small and exact (`values`), so sums are, too.

Not here: tables and statements. `Grammar` adds `table`, `source` and `select`, which subqueries
use.
"""

import dataclasses

import functions
import values
from functions import AND_, NOT_, OR_, named
from tree import (
    Aggregate,
    Call,
    Case,
    Cast,
    Column,
    Exists,
    InIdSet,
    InList,
    InQuery,
    Item,
    Literal,
    Order,
    Quantified,
    Scalar,
    Select,
    is_whole,
    walk_here,
)
from values import LISTS, ORDERED

AGGREGATES_BY_RESULT = functions.by_result(functions.AGGREGATES)
MORE_BY_RESULT = functions.by_result(functions.MORE_AGGREGATES)
ORDERED_BY_RESULT = functions.by_result(functions.ORDERED_AGGREGATES)


class Impossible(Exception):
    """The tables have no column for what was to be made."""


@dataclasses.dataclass
class Relation:
    """Columns that can be named, and those that tell its rows apart (None: there are none)."""

    columns: list
    keys: list
    rows: int
    primary_key: list = dataclasses.field(default_factory=list)
    unique: bool = True  # are its rows different? If not, two windows may order equal ones apart

    def of(self, kind):
        return [c for c in self.columns if c.type == kind]


class RowLeaves:
    """Expressions of the rows of a relation."""

    def __init__(self, relation, outer=None):
        self.relation, self.outer = relation, outer

    def leaf(self, grammar, kind, depth):
        found = self.relation.of(kind)
        if self.outer is not None and grammar.chance(0.25):
            found = self.outer.of(kind) or found
        return grammar.rng.choice(found) if found else None


class GroupLeaves:
    """Expressions of groups: keys and aggregates."""

    def __init__(self, keys, relation):
        self.keys, self.relation = keys, relation

    def leaf(self, grammar, kind, depth):
        keys = [k for k in self.keys if k.type == kind]
        if keys and grammar.chance(0.4):
            return grammar.rng.choice(keys)
        return grammar.aggregate(kind, self.relation, depth)


class Expressions:
    """Choices, and the expressions made of them."""

    def __init__(self, rng, world):
        self.rng, self.world = rng, world
        self.names = 0
        self.subqueries = 0
        self.ctes = []  # of (name, relation)

    def chance(self, share):
        return self.rng.random() < share

    def pick(self, *weighted):
        """One of (weight, thing)."""
        return self.rng.choices([t for _, t in weighted], [w for w, _ in weighted])[0]

    def name(self, letter):
        self.names += 1
        return f"{letter}{self.names}"

    def choose(self, things):
        """One of them; without any there is no such statement."""
        if not things:
            raise Impossible
        return self.rng.choice(things)

    def until_made(self, attempt):
        """The first attempt that gives a statement."""
        while True:
            self.names, self.subqueries, self.ctes = 0, 0, []
            try:
                found = attempt()
            except Impossible:
                continue
            if found is not None and is_whole(found):
                return found

    def nulls(self):
        return self.pick((6, ""), (1, "FIRST"), (1, "LAST"))

    # Expressions

    def expression(self, kind, depth, leaves, queries=0):
        """An expression of that type; `queries` > 0 lets it hold subqueries."""
        if kind == "bool" and depth > 0:
            return self.boolean(depth, leaves, queries)
        if depth <= 0:
            found = leaves.leaf(self, kind, depth) if self.chance(0.93) else None
            return found if found is not None else self.converted(kind, leaves)
        way = self.rng.random()
        if way < 0.25:
            return self.expression(kind, 0, leaves)
        if way < 0.37:
            return self.case(kind, depth, leaves, queries)
        if way < 0.42 and queries > 0 and self.subqueries < 2:
            found = self.scalar_query(kind, leaves, queries)
            if found is not None:
                return found
        if way < 0.44 and kind in ("int", "date", "decimal", "double"):
            text = Cast(self.expression(kind, 0, leaves), "text")
            if kind != "double":
                return Cast(text, kind, tries=self.chance(0.5))
        choices = functions.SCALARS_BY_RESULT.get(kind, [])
        function = self.choose(choices)
        args = [self.expression(a, depth - 1, leaves, queries) for a in function.args]
        return Call(function, args, kind)

    def converted(self, kind, leaves):
        """A literal, or a column of another type made to fit."""
        if self.chance(0.6):
            conversions = [
                f
                for f in functions.SCALARS_BY_RESULT.get(kind, [])
                if len(f.args) == 1 and f.args[0] != kind
            ]
            self.rng.shuffle(conversions)
            for function in conversions[:4]:
                found = leaves.leaf(self, function.args[0], 0)
                if found is not None:
                    return Call(function, [found], kind)
        return self.literal(kind)

    def literal(self, kind):
        if self.chance(0.08) and kind not in LISTS:
            return Literal(None, kind)
        if kind == "text" and self.chance(0.4):
            return Literal(self.choose(self.world.users), kind)
        return Literal(values.value(self.rng, kind), kind)

    def case(self, kind, depth, leaves, queries):
        def result():
            if self.chance(0.4):
                return self.literal(kind)
            return self.expression(kind, depth - 1, leaves, queries)

        operand = None
        if self.chance(0.2):
            operand_kind = self.choose(["text", "int", "bool"])
            operand = self.expression(operand_kind, 0, leaves)
        whens = []
        for _ in range(self.pick((3, 1), (1, 2))):
            condition = (
                self.literal(operand.type)
                if operand is not None
                else self.boolean(1, leaves, queries)
            )
            whens.append((condition, result()))
        otherwise = result() if self.chance(0.6) else None
        return Case(operand, whens, otherwise, kind)

    def condition(self, depth, leaves, queries):
        return self.boolean(self.pick((3, 1), (3, 2)) if depth > 1 else 1, leaves, queries)

    def boolean(self, depth, leaves, queries):
        if depth > 1 and self.chance(0.55):
            if self.chance(0.25):
                return Call(NOT_, [self.boolean(depth - 1, leaves, queries)], "bool")
            joined = self.pick((3, AND_), (2, OR_))
            return Call(
                joined, [self.boolean(depth - 1, leaves, queries) for _ in range(2)], "bool"
            )
        way = self.pick(
            (9, self.comparison),
            (2, self.null_test),
            (3, self.in_list),
            (2, self.like),
            (1, self.truth_test),
            (1, self.between),
            (1.5, self.id_set),
            (1, self.bool_column),
            (1, self.bool_function),
            (4 if queries > 0 and self.subqueries < 2 else 0, self.in_query),
            (2 if queries > 0 and self.subqueries < 2 else 0, self.exists),
        )
        return way(depth, leaves, queries) or self.comparison(depth, leaves, queries)

    def kind_of(self, leaves, ordered=True):
        """A type of which the relation has a column."""
        kinds = [c.type for c in leaves.relation.columns if c.type in ORDERED or not ordered]
        return self.choose(kinds) if kinds else "int"

    def comparison(self, depth, leaves, queries):
        kind = self.kind_of(leaves)
        ops = ["=", "=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
        function = named(self.choose(ops), kind, kind)
        left = self.expression(kind, depth - 1, leaves, queries)
        right = self.literal(kind) if self.chance(0.6) else self.expression(kind, 0, leaves)
        if self.chance(0.1):
            left, right = right, left
        return Call(function, [left, right], "bool")

    def null_test(self, depth, leaves, queries):
        kind = self.kind_of(leaves, ordered=False)
        inner = self.expression(kind, depth - 1, leaves, queries)
        return Call(named(self.choose(["is NULL", "is NOT NULL"]), kind), [inner], "bool")

    def truth_test(self, depth, leaves, queries):
        test = self.choose(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE", "NULL", "NOT NULL"])
        return Call(named(f"is {test}", "bool"), [self.boolean(1, leaves, queries)], "bool")

    def between(self, depth, leaves, queries):
        kind = self.kind_of(leaves)
        if kind == "bool":
            return None
        word = self.choose(["BETWEEN", "BETWEEN", "NOT BETWEEN"])
        args = [self.expression(kind, 0, leaves), self.literal(kind), self.literal(kind)]
        return Call(named(word, kind, kind, kind), args, "bool")

    def bool_column(self, depth, leaves, queries):
        return leaves.leaf(self, "bool", 0)

    def bool_function(self, depth, leaves, queries):
        function = self.choose(functions.SCALARS_BY_RESULT["bool"])
        return Call(function, [self.expression(a, 0, leaves) for a in function.args], "bool")

    def like(self, depth, leaves, queries):
        found = [f for f in functions.SCALARS_BY_RESULT["bool"] if f.name.endswith("like")]
        function = self.choose(found)
        return Call(function, [self.expression(a, 0, leaves) for a in function.args], "bool")

    def in_list(self, depth, leaves, queries):
        kind = self.kind_of(leaves)
        if self.chance(0.5) and leaves.relation.of("text"):
            kind = "text"
        inner = self.expression(kind, 0, leaves)
        items = [self.literal(kind) for _ in range(self.choose([1, 2, 3, 3, 5]))]
        if kind in ("text", "int") and self.chance(0.12):
            many = [f"u{n}" for n in range(0, 220, 2)] if kind == "text" else range(0, 330, 3)
            items = [Literal(v, kind) for v in many]
        return InList(inner, items, self.chance(0.35))

    def id_set(self, depth, leaves, queries):
        name = self.choose(list(self.world.id_sets))
        kind, _ = self.world.id_sets[name]
        inner = leaves.leaf(self, kind, 0)
        return InIdSet(inner, name, self.chance(0.35)) if isinstance(inner, Column) else None

    # Subqueries

    def in_query(self, depth, leaves, queries):
        self.subqueries += 1
        kind = self.kind_of(leaves)
        users = [c for c in leaves.relation.columns if c.name == "user_id"]
        inner = self.expression(kind, 0, leaves)
        if isinstance(leaves, RowLeaves) and users and self.chance(0.4):
            inner, kind = self.choose(users), "text"
        if self.chance(0.06):
            inner = self.literal(kind)
        if self.chance(0.15) and isinstance(leaves, RowLeaves):
            query = self.correlated(leaves.relation, kind)
            if query is not None:
                return InQuery(inner, query, self.chance(0.4))
        made = self.quantified if self.chance(0.2) else self.is_in
        query = self.select(queries - 1, [kind], None)
        same = [
            (t, c)
            for t in self.world.tables
            for c in t.columns
            if isinstance(inner, Column) and c.name == inner.name and c.type == kind
        ]
        if same and self.chance(0.6):
            table, column = self.choose(same)
            source, relation = self.table(table)
            value = next(c for c in relation.columns if c.name == column.name)
            query = Select([Item(value, "c0")], source)
            if self.chance(0.5):
                query.where = self.boolean(1, RowLeaves(relation), 0)
        return made(inner, query)

    def is_in(self, inner, query):
        return InQuery(inner, query, self.chance(0.4))

    def quantified(self, inner, query):
        op = self.choose(["=", "<>", "<", "<=", ">", ">="])
        return Quantified(inner, op, self.choose(["ANY", "ANY", "ALL"]), query)

    def correlated(self, outer, kind, aggregate=False):
        """A subquery tied to the outer rows by an equality; None if there is none to tie."""
        # A column without its table's name would be the inner one.
        outer = Relation([c for c in outer.columns if c.alias], None, 0)
        table = self.choose(self.world.tables)
        source, relation = self.table(table)
        pairs = [
            (a, b)
            for a in relation.columns
            for b in outer.columns
            if a.type == b.type and a.name == b.name and a.type in ORDERED
        ]
        if not pairs:
            return None
        users = [p for p in pairs if p[0].name == "user_id"]
        a, b = self.choose(users) if users and self.chance(0.7) else self.choose(pairs)
        where = Call(named("=", a.type, a.type), [a, b], "bool")
        if self.chance(0.4):
            where = Call(AND_, [where, self.boolean(1, RowLeaves(relation), 0)], "bool")
        leaves = GroupLeaves([], relation) if aggregate else RowLeaves(relation)
        value = self.expression(kind, 0, leaves)
        if aggregate and not any(isinstance(n, Aggregate) for n in walk_here(value)):
            return None
        return Select([Item(value, "c0")], source, where)

    def exists(self, depth, leaves, queries):
        if not isinstance(leaves, RowLeaves):
            return None
        self.subqueries += 1
        query = self.correlated(leaves.relation, "int")
        if query is None:
            query = self.select(0, ["int"], None)
        return Exists(query, self.chance(0.4))

    def scalar_query(self, kind, leaves, queries):
        if kind in LISTS:
            return None
        self.subqueries += 1
        query = None
        if isinstance(leaves, RowLeaves) and self.chance(0.5):
            query = self.correlated(leaves.relation, kind, aggregate=True)
        if query is None:
            source, relation = self.source(queries - 1)
            value = self.aggregate(kind, relation, 0)
            if value is None:
                return None
            query = Select([Item(value, "c0")], source)
            if self.chance(0.5):
                query.where = self.boolean(1, RowLeaves(relation), 0)
        return Scalar(query, kind)

    # Aggregates

    def aggregate(self, kind, relation, depth):
        leaves = RowLeaves(relation)
        ways = [(8, AGGREGATES_BY_RESULT), (3, MORE_BY_RESULT)]
        if relation.keys:
            ways.append((1.5, ORDERED_BY_RESULT))
        found = self.pick(*ways).get(kind) or AGGREGATES_BY_RESULT.get(kind)
        if not found:
            return None
        if kind == "int" and self.chance(0.35):
            return self.count(relation, leaves)
        function = self.choose(found)
        args = [self.expression(a, self.pick((5, 0), (2, 1)), leaves) for a in function.args]
        node = Aggregate(function, args, kind)
        if function in functions.ORDERED_AGGREGATES:
            node.order = [Order(k, self.chance(0.3), "") for k in relation.keys]
            if self.chance(0.4):
                first = self.choose([c for c in relation.columns if c.type in ORDERED])
                if first.type != "wild":
                    node.order.insert(0, Order(first, self.chance(0.4), self.nulls()))
        elif args and function in functions.AGGREGATES and self.chance(0.12):
            if function.name != "exact_sum" and args[0].type in ORDERED:
                node.distinct = True
        if self.chance(0.12):
            node.where = self.boolean(1, leaves, 0)
        return node

    def count(self, relation, leaves):
        """count(*), count(x), count(DISTINCT x), most of them of users."""
        users = [c for c in relation.columns if c.name == "user_id"]
        if self.chance(0.3):
            node = Aggregate(named("count(*)"), [], "int")
        else:
            kind = self.kind_of(leaves)
            value = self.expression(kind, 0, leaves)
            if users and self.chance(0.4):
                value = self.choose(users)
            node = Aggregate(named("count", value.type), [value], "int", distinct=self.chance(0.45))
        if self.chance(0.15):
            node.where = self.boolean(1, leaves, 0)
        return node
