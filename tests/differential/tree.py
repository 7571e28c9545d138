"""Statements as trees, and their text in each dialect.

One tree gives both texts, so a difference of dialects is said once, in `functions`. Brackets are
written only where PostgreSQL's precedence asks for them (or everywhere, `brackets=True`): a parser
that reads `a IS DISTINCT FROM b AND c` wrongly is found by that.

Nodes are dataclasses whose fields hold nodes, lists of nodes or plain values: `walk` and the
reducer go through any of them without knowing which it is.
"""

import dataclasses
from typing import Any, Optional

import values
from schemas import quote

ATOM = 20
OR, AND, NOT, IS, COMPARE, IN, OTHER = 1, 2, 3, 4, 5, 6, 7
NON_ASSOCIATIVE = (IS, COMPARE, IN)
# Types whose arithmetic may overflow.
WHOLE = ("int", "big")
# The key of ORDER BY ALL.
EVERY = "ALL"
# The spelling of a function that a dialect does not have.
ABSENT = "absent"


class Unspelt(Exception):
    """The dialect has no words for a part of the statement."""


@dataclasses.dataclass(frozen=True)
class Function:
    """A function or operator: templates with {0}, {1}, … for the arguments."""

    name: str
    result: str
    args: tuple
    uplake: str
    duckdb: Optional[str] = None
    level: int = 0  # precedence of an operator; 0 is a call
    computed: bool = False  # a double that depends on the order of rows or on a math library
    postgres: Optional[str] = None

    def template(self, dialect):
        """The dialect's own spelling; None where it is Uplake's."""
        found = {"duckdb": self.duckdb, "postgres": self.postgres}.get(dialect)
        if found == ABSENT:
            raise Unspelt(self.name)
        return found


@dataclasses.dataclass
class Column:
    alias: Optional[str]
    name: str
    type: str


@dataclasses.dataclass
class Literal:
    value: Any
    type: str


@dataclasses.dataclass
class Call:
    function: Function
    args: list
    type: str


@dataclasses.dataclass
class Case:
    operand: Any
    whens: list  # of (condition, result)
    otherwise: Any
    type: str


@dataclasses.dataclass
class Cast:
    inner: Any
    type: str
    tries: bool = False


@dataclasses.dataclass
class InList:
    inner: Any
    items: list
    negated: bool
    type: str = "bool"


@dataclasses.dataclass
class InIdSet:
    inner: Any
    name: str
    negated: bool
    type: str = "bool"


@dataclasses.dataclass
class InQuery:
    inner: Any
    query: Any
    negated: bool
    type: str = "bool"


@dataclasses.dataclass
class Quantified:
    """A comparison with ANY or ALL of a subquery."""

    inner: Any
    op: str
    word: str
    query: Any
    type: str = "bool"


@dataclasses.dataclass
class Exists:
    query: Any
    negated: bool
    type: str = "bool"


@dataclasses.dataclass
class Scalar:
    query: Any
    type: str


@dataclasses.dataclass
class Order:
    key: Any  # an expression, the number of a column of the result, or EVERY column of it
    descending: bool = False
    nulls: str = ""


@dataclasses.dataclass
class Aggregate:
    function: Function
    args: list
    type: str
    distinct: bool = False
    where: Any = None
    order: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Grouping:
    of: Any
    type: str = "int"


@dataclasses.dataclass
class Over:
    partition: list
    order: list
    frame: str = ""
    base: str = ""  # a window's name


@dataclasses.dataclass
class Window:
    function: Function
    args: list
    over: Over
    type: str
    where: Any = None


@dataclasses.dataclass
class AnyOfGroup:
    """A column that the primary key among the group's columns decides."""

    column: Column
    type: str


@dataclasses.dataclass
class TableRef:
    name: str
    alias: str
    version: Optional[int] = None


@dataclasses.dataclass
class Derived:
    query: Any
    alias: str


@dataclasses.dataclass
class Join:
    kind: str
    left: Any
    right: Any
    on: Any = None
    using: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Star:
    type: str = ""


@dataclasses.dataclass
class Item:
    value: Any
    name: Optional[str] = None


@dataclasses.dataclass
class Group:
    keys: list
    kind: str = ""  # "", ROLLUP, CUBE, GROUPING SETS, ALL
    sets: list = dataclasses.field(default_factory=list)  # lists of indexes into keys


@dataclasses.dataclass
class With:
    name: str
    query: Any


@dataclasses.dataclass
class NamedWindow:
    name: str
    over: Over


@dataclasses.dataclass
class Select:
    items: list
    source: Any = None
    where: Any = None
    group: Optional[Group] = None
    having: Any = None
    windows: list = dataclasses.field(default_factory=list)
    order: list = dataclasses.field(default_factory=list)
    limit: Optional[int] = None
    offset: Optional[int] = None
    distinct: bool = False
    ctes: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class SetOperation:
    kind: str  # UNION, INTERSECT, EXCEPT, each also with ALL
    left: Any
    right: Any
    order: list = dataclasses.field(default_factory=list)
    limit: Optional[int] = None
    ctes: list = dataclasses.field(default_factory=list)


def spelled(name):
    """A column's name in a statement: `top` is no keyword of ours, so it stands without quotes."""
    return name if name == "top" else quote(name)


def is_node(thing):
    return dataclasses.is_dataclass(thing) and not isinstance(thing, (Function, type))


def walk(thing):
    """Every node of a tree."""
    if is_node(thing):
        yield thing
        for field in dataclasses.fields(thing):
            yield from walk(getattr(thing, field.name))
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from walk(part)


def walk_here(thing):
    """The nodes of an expression outside its subqueries."""
    if isinstance(thing, (Select, SetOperation)):
        return
    if is_node(thing):
        yield thing
        for field in dataclasses.fields(thing):
            yield from walk_here(getattr(thing, field.name))
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from walk_here(part)


def is_whole(query):
    """Has every item a value? A generator that found no fitting column leaves None."""
    return all(n.value is not None for n in walk(query) if isinstance(n, Item))


def is_ordered(query):
    """Does its ORDER BY name every column of the result, so that the order of rows is one?"""
    if [order.key for order in query.order] == [EVERY]:
        return True
    places = {order.key for order in query.order if isinstance(order.key, int)}
    return bool(places) and places >= set(range(1, width(query) + 1))


def has_one_order(query):
    """Does every right answer have its rows in one order? Doubles that are computed may tie, or not."""
    return is_ordered(query) and not any(is_computed(item.value) for item in results(query))


def results(query):
    """The items of the result, of both sides of a set operation."""
    if isinstance(query, SetOperation):
        return [*results(query.left), *results(query.right)]
    return query.items


def has_one_answer(query):
    """Are rows cut off only in a total order?"""
    return all(
        is_ordered(n)
        for n in walk(query)
        if isinstance(n, (Select, SetOperation)) and n.limit is not None
    )


def is_computed(tree):
    """Does it hold doubles that two right answers may have in different last digits?"""
    return any(getattr(getattr(n, "function", None), "computed", False) for n in walk(tree))


def first_select(query):
    """The Select that gives the columns their names and types."""
    while isinstance(query, SetOperation):
        query = query.left
    return query


def width(query):
    return len(first_select(query).items)


class Renderer:
    def __init__(self, dialect, brackets=False, tries=False, files=None):
        self.dialect = dialect
        self.files = files or {}  # of tables: what is read in their place
        self.brackets = brackets
        self.tries = tries  # DuckDB's TRY: what overflows is NULL

    # Expressions

    def expression(self, node, level=0):
        text, own = getattr(self, "on_" + type(node).__name__.lower())(node)
        if own < level or (self.brackets and own < ATOM and level > 0):
            return f"({text})"
        return text

    def list(self, nodes):
        return ", ".join(self.expression(n) for n in nodes)

    def on_column(self, node):
        name = spelled(node.name)
        return (f"{node.alias}.{name}" if node.alias else name), ATOM

    def on_star(self, node):
        return "*", ATOM

    def on_literal(self, node):
        return values.literal(node.value, node.type, self.dialect), ATOM

    def fill(self, function, args):
        theirs = function.template(self.dialect)
        if theirs is not None:
            return theirs.format(*[self.expression(a, ATOM) for a in args]), ATOM
        level = function.level
        if not level:
            return function.uplake.format(*[self.expression(a) for a in args]), ATOM
        left = level + 1 if level in NON_ASSOCIATIVE else level
        texts = [self.expression(a, left if n == 0 else level + 1) for n, a in enumerate(args)]
        return function.uplake.format(*texts), level

    def on_call(self, node):
        text, level = self.fill(node.function, node.args)
        if self.tries and node.type in WHOLE and not has_subquery(node):
            return f"TRY({text})", ATOM
        return text, level

    def on_case(self, node):
        operand = f" {self.expression(node.operand)}" if node.operand is not None else ""
        whens = "".join(
            f" WHEN {self.expression(c)} THEN {self.expression(r)}" for c, r in node.whens
        )
        otherwise = f" ELSE {self.expression(node.otherwise)}" if node.otherwise is not None else ""
        return f"CASE{operand}{whens}{otherwise} END", ATOM

    def on_cast(self, node):
        # What is cast was made of such a value, so that trying is for nothing: PostgreSQL cannot.
        word = "TRY_CAST" if node.tries and self.dialect != "postgres" else "CAST"
        kind = values.type_name(node.type, self.dialect)
        return f"{word}({self.expression(node.inner)} AS {kind})", ATOM

    def on_inlist(self, node):
        word = "NOT IN" if node.negated else "IN"
        return f"{self.expression(node.inner, IN + 1)} {word} ({self.list(node.items)})", IN

    def on_inidset(self, node):
        word = "NOT IN" if node.negated else "IN"
        inner = self.expression(node.inner, IN + 1)
        if self.dialect != "uplake":
            return f"{inner} {word} (SELECT v FROM id_set_{node.name})", IN
        return f"{inner} {word} ID SET {node.name}", IN

    def on_inquery(self, node):
        word = "NOT IN" if node.negated else "IN"
        return f"{self.expression(node.inner, IN + 1)} {word} ({self.query(node.query)})", IN

    def on_quantified(self, node):
        inner = self.expression(node.inner, COMPARE + 1)
        return f"{inner} {node.op} {node.word} ({self.query(node.query)})", COMPARE

    def on_exists(self, node):
        text = f"EXISTS ({self.query(node.query)})"
        return (f"NOT {text}", NOT) if node.negated else (text, ATOM)

    def on_scalar(self, node):
        return f"({self.query(node.query)})", ATOM

    def on_grouping(self, node):
        text = f"grouping({self.expression(node.of)})"
        return (f"CAST({text} AS BIGINT)" if self.dialect == "duckdb" else text), ATOM

    def on_anyofgroup(self, node):
        text = self.expression(node.column)
        return (f"any_value({text})" if self.dialect == "duckdb" else text), ATOM

    def on_aggregate(self, node):
        """The template's {a} is for the arguments, {o} for ORDER BY, {f} for FILTER."""
        args = [self.expression(a) for a in node.args]
        order = f" ORDER BY {self.orders(node.order)}" if node.order else ""
        where = f" FILTER (WHERE {self.expression(node.where)})" if node.where is not None else ""
        return self.aggregate(node.function, args, node.distinct, order, where), ATOM

    def aggregate(self, function, args, distinct, order, after):
        template = function.template(self.dialect) or function.uplake
        word = "DISTINCT " if distinct else ""
        text = template.format(*args, d=word, o=order, f=after)
        return text

    def on_window(self, node):
        args = [self.expression(a) for a in node.args]
        where = f" FILTER (WHERE {self.expression(node.where)})" if node.where is not None else ""
        over = node.over
        named_only = over.base and not (over.partition or over.order or over.frame)
        spec = over.base if named_only else f"({self.over(over)})"
        return self.aggregate(node.function, args, False, "", f"{where} OVER {spec}"), ATOM

    def over(self, over):
        parts = [over.base] if over.base else []
        if over.partition:
            parts.append("PARTITION BY " + self.list(over.partition))
        if over.order:
            parts.append("ORDER BY " + self.orders(over.order))
        if over.frame:
            parts.append(over.frame)
        return " ".join(parts)

    def orders(self, orders):
        return ", ".join(self.order(o) for o in orders)

    def order(self, order):
        is_place = isinstance(order.key, (int, str))
        key = str(order.key) if is_place else self.expression(order.key)
        nulls = f" NULLS {order.nulls}" if order.nulls else ""
        return f"{key}{' DESC' if order.descending else ''}{nulls}"

    # Sources

    def source(self, node):
        if isinstance(node, TableRef):
            if node.name in self.files:
                return f"({self.files[node.name]}) AS {node.alias}"
            version = ""
            if node.version is not None and self.dialect == "uplake":
                version = f" VERSION AS OF {node.version}"
            return f"{node.name}{version}" + (
                f" AS {node.alias}" if node.alias != node.name else ""
            )
        if isinstance(node, Derived):
            return f"({self.query(node.query)}) AS {node.alias}"
        right = self.source(node.right)
        if isinstance(node.right, Join):
            right = f"({right})"
        text = f"{self.source(node.left)} {node.kind} JOIN {right}"
        if node.using:
            return f"{text} USING ({', '.join(map(spelled, node.using))})"
        return text if node.on is None else f"{text} ON {self.expression(node.on)}"

    # Queries

    def query(self, node):
        ctes = ""
        if node.ctes:
            ctes = (
                "WITH " + ", ".join(f"{c.name} AS ({self.query(c.query)})" for c in node.ctes) + " "
            )
        body = self.set_operation(node) if isinstance(node, SetOperation) else self.select(node)
        order = node.order
        if self.dialect == "postgres" and order and order[0].key == EVERY:
            every = range(1, width(node) + 1)
            order = [dataclasses.replace(order[0], key=place) for place in every]
        if order:
            body += f" ORDER BY {self.orders(order)}"
        if node.limit is not None:
            body += f" LIMIT {node.limit}"
        if getattr(node, "offset", None):
            body += f" OFFSET {node.offset}"
        return ctes + body

    def set_operation(self, node):
        def side(query, right):
            plain = isinstance(query, Select) and not (query.order or query.limit or query.ctes)
            plain = plain or (
                isinstance(query, SetOperation)
                and not right
                and not self.brackets
                and query.kind == node.kind
                and not (query.order or query.limit)
            )
            return self.query(query) if plain else f"({self.query(query)})"

        return f"{side(node.left, False)} {node.kind} {side(node.right, True)}"

    def select(self, node):
        parts = []
        if node.items or self.dialect == "postgres":
            parts.append(
                "SELECT "
                + ("DISTINCT " if node.distinct else "")
                + (", ".join(self.item(i) for i in node.items) or "*")
            )
        if node.source is not None:
            parts.append("FROM " + self.source(node.source))
        if node.where is not None:
            parts.append("WHERE " + self.expression(node.where))
        if node.group is not None:
            parts.append("GROUP BY " + self.group(node.group))
        if node.having is not None:
            parts.append("HAVING " + self.expression(node.having))
        if node.windows:
            parts.append(
                "WINDOW " + ", ".join(f"{w.name} AS ({self.over(w.over)})" for w in node.windows)
            )
        return " ".join(parts)

    def item(self, item):
        text = self.expression(item.value)
        return f"{text} AS {spelled(item.name)}" if item.name else text

    def group(self, group):
        keys = [self.expression(k) for k in group.keys]
        if group.kind in ("ROLLUP", "CUBE"):
            return f"{group.kind} ({', '.join(keys)})"
        if group.kind == "ALL":
            return ", ".join(keys) if self.dialect == "postgres" else "ALL"
        if group.kind:
            sets = ", ".join(
                "(" + ", ".join(keys[i] for i in s if i < len(keys)) + ")" for s in group.sets
            )
            return f"GROUPING SETS ({sets})"
        return ", ".join(keys)


def has_subquery(node):
    return any(isinstance(n, (Scalar, InQuery, Quantified, Exists)) for n in walk(node))


def sql(query, dialect, brackets=False, tries=False, files=None):
    return Renderer(dialect, brackets, tries, files).query(query)
