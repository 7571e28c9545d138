"""Statements that change rows: DELETE, UPDATE and MERGE, with random conditions and values.

Invariants:
- What joins a row with others finds at most one: the other side is grouped by the key. Several would
  be an error of Uplake and PostgreSQL, and any of them in DuckDB.
- Of several WHEN clauses of a kind all but the last have conditions: PostgreSQL refuses what cannot be
  reached, and DuckDB goes there all the same.
- No two rows have one `rid` afterwards, so that orders by it stay total.
- No column of a primary key is changed, and no row is added to a table that has one: DuckDB's tables
  have none.
"""

import dataclasses
from typing import Any, Optional

import schemas
import tree
from expressions import Impossible, Relation, RowLeaves
from functions import AND_, named, scalar
from shapes import aggregate, column, equal
from tree import Call, Column, Derived, Group, Item, Literal, Select, TableRef
from values import DEFAULTS, ORDERED

ALIAS, SOURCE, NUMBER = "x", "s", "number"


@dataclasses.dataclass
class Delete:
    table: schemas.Table
    condition: Any
    source: Optional[Derived] = None
    way = "delete"

    def parts(self):
        return [self.condition, self.source]

    def text(self, dialect):
        r = tree.Renderer(dialect)
        using = f" USING {r.source(self.source)}" if self.source else ""
        target = f"{self.table.name} AS {ALIAS}"
        return f"DELETE FROM {target}{using} WHERE {r.expression(self.condition)}"


@dataclasses.dataclass
class Update:
    table: schemas.Table
    sets: list  # of (column's name, value)
    condition: Any
    source: Optional[Derived] = None
    way = "update"

    def parts(self):
        return [self.sets, self.condition, self.source]

    def text(self, dialect):
        r = tree.Renderer(dialect)
        source = f" FROM {r.source(self.source)}" if self.source else ""
        where = f" WHERE {r.expression(self.condition)}" if self.condition is not None else ""
        return f"UPDATE {self.table.name} AS {ALIAS} SET {assignments(r, self.sets)}{source}{where}"


@dataclasses.dataclass
class Clause:
    """WHEN [NOT] MATCHED …: sets is None for a DELETE, the values of all columns for an INSERT."""

    matched: bool
    condition: Any
    sets: Any


@dataclasses.dataclass
class Merge:
    table: schemas.Table
    source: Derived
    on: Any
    clauses: list
    way = "merge"

    def parts(self):
        return [self.source, self.on, self.clauses]

    def text(self, dialect):
        r = tree.Renderer(dialect)
        target = f"{self.table.name} AS {ALIAS}"
        parts = [f"MERGE INTO {target} USING {r.source(self.source)} ON {r.expression(self.on)}"]
        for clause in self.clauses:
            when = "WHEN MATCHED" if clause.matched else "WHEN NOT MATCHED"
            if clause.condition is not None:
                when += f" AND {r.expression(clause.condition)}"
            if clause.sets is None:
                then = "DELETE"
            elif clause.matched:
                then = f"UPDATE SET {assignments(r, clause.sets)}"
            else:
                names = ", ".join(tree.spelled(name) for name, _ in clause.sets)
                then = f"INSERT ({names}) VALUES ({r.list([v for _, v in clause.sets])})"
            parts.append(f"{when} THEN {then}")
        return " ".join(parts)


def assignments(r, sets):
    return ", ".join(f"{tree.spelled(name)} = {r.expression(value)}" for name, value in sets)


def make(g, table):
    """A random statement that changes the table's rows."""
    return g.until_made(lambda: g.pick((3, delete), (4, update), (4, merge))(g, table))


def target(table):
    return Relation([Column(ALIAS, c.name, c.type) for c in table.columns], None, 0)


def delete(g, table):
    relation = target(table)
    if table.partitioned_by and g.chance(0.4):
        c = column(relation, table.partitioned_by[0])
        if c.type in ORDERED and c.type != "bool":
            words = g.choose(["coalesce", "nullif", "greatest"])
            filled = Call(named(words, c.type, c.type), [c, g.literal(c.type)], c.type)
            return Delete(table, equal(filled, g.literal(c.type)))
    if g.chance(0.25):
        source, on, both = joined(g, relation)
        return Delete(table, conjunction(g, on, both), source)
    return Delete(table, g.condition(2, RowLeaves(relation), g.choose([0, 1])))


def update(g, table):
    relation = target(table)
    if g.chance(0.35):
        source, on, both = joined(g, relation)
        return Update(table, sets(g, table, both), conjunction(g, on, both), source)
    condition = g.condition(2, RowLeaves(relation), g.choose([0, 1])) if g.chance(0.9) else None
    return Update(table, sets(g, table, relation), condition)


def merge(g, table):
    relation = target(table)
    source, on, both = joined(g, relation)
    clauses = []
    for more in reversed(range(g.choose([0, 1, 1, 2]))):
        condition = g.boolean(1, RowLeaves(both), 0) if more or g.chance(0.6) else None
        changed = None if g.chance(0.3) else sets(g, table, both)
        clauses.append(Clause(True, condition, changed))
    theirs = Relation([c for c in both.columns if c.alias == SOURCE], None, 0)
    for more in reversed(range(0 if table.primary_key else g.choose([0, 1, 1, 2]))):
        condition = g.boolean(1, RowLeaves(theirs), 0) if more or g.chance(0.5) else None
        values = [(c.name, value_of(g, table, c, theirs)) for c in table.columns]
        if g.chance(0.3):
            values = [pair for pair in values if pair[0] == "rid" or g.chance(0.6)]
            lacks = set(table.partitioned_by) - {name for name, _ in values}
            values += [(n, value_of(g, table, table.column(n), theirs)) for n in lacks]
        clauses.append(Clause(False, condition, values))
    if not clauses:
        raise Impossible
    return Merge(table, source, on, clauses)


def joined(g, relation):
    """(a source with one row of each key, the condition, the columns of both sides)"""
    table = g.choose(g.world.tables)
    from_, rows = g.table(table)
    pairs = [
        (a, b)
        for a in relation.columns
        for b in rows.columns
        if a.type == b.type and a.type in ORDERED
    ]
    same = [(a, b) for a, b in pairs if a.name == b.name]
    a, b = g.choose(same if same and g.chance(0.8) else pairs)
    others = [c for c in rows.columns if c.type in ORDERED and c is not b]
    # A number that no row has, for the rids of new rows.
    first = g.rng.randint(1, 10**6) * 1000
    number = scalar("number", "int", b.type, f"{first} + row_number() OVER (ORDER BY {{0}})")
    items = [Item(b, "k"), Item(Call(number, [b], "int"), NUMBER)]
    if g.chance(0.3):
        items[0], items[1] = items[1], items[0]
    for n, c in enumerate(g.rng.sample(others, min(len(others), 2))):
        items.append(Item(aggregate(g.choose(["min", "max"]), c), f"v{n}"))
    query = Select(items, from_, group=Group([b]))
    if g.chance(0.3):
        query.where = g.boolean(1, RowLeaves(rows), 0)
    columns = [Column(SOURCE, i.name, i.value.type) for i in items]
    key = next(c for c in columns if c.name == "k")
    both = Relation([*relation.columns, *columns], None, 0)
    return Derived(query, SOURCE), equal(a, key), both


def conjunction(g, on, both):
    if g.chance(0.5):
        return on
    return Call(AND_, [on, g.boolean(1, RowLeaves(both), 0)], "bool")


def sets(g, table, relation):
    names = [c for c in table.columns if c.name not in table.primary_key and c.name != "rid"]
    if not names:
        raise Impossible
    picked = g.rng.sample(names, min(len(names), g.choose([1, 1, 2, 3])))
    return [(c.name, value_of(g, table, c, relation)) for c in picked]


def value_of(g, table, column, relation):
    if column.name in table.partitioned_by and column.type == "text":
        return Literal(g.choose([*DEFAULTS.values(), "x=y", "ÄÖ"]), "text")  # '' would be NULL
    if column.name == "rid":
        return Column(SOURCE, NUMBER, "int")
    value = g.expression(column.type, g.choose([0, 0, 1]), RowLeaves(relation), 0)
    if value is None:
        raise Impossible
    return value
