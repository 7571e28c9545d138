"""Where rows come from: tables, subqueries, CTEs, and joins of them.

Invariants:
- A relation's `keys` tell its rows apart, or are None: with them an order is total.
- Joins are kept small by an estimate, so that a statement takes milliseconds.
- A double that a subquery computes is no column above it: two means that differ in their last
  digits in one engine and not in the other would be two keys or one.
"""

from expressions import Expressions, Impossible, Relation, RowLeaves
from functions import AND_, named
from tree import Call, Column, Derived, Join, SetOperation, TableRef, is_computed
from values import LISTS, ORDERED, TYPES

# Share of tables whose columns are named without their table.
BARE = 0.06
JOINED_ROWS_MAX = 12_000


class Sources(Expressions):
    """Relations to select from."""

    def source(self, depth):
        node, relation = self.relation(depth)
        for _ in range(self.pick((10, 0), (8, 1), (2, 2))):
            node, relation = self.join(node, relation, depth)
        return node, relation

    def relation(self, depth):
        if self.ctes and self.chance(0.6):
            name, query = self.choose(self.ctes)
            alias = self.name("t")
            return TableRef(name, alias), self.derived(query, alias)
        if depth > 0 and self.chance(0.2):
            query = self.query(depth - 1, None, None)
            alias = self.name("q")
            return Derived(query, alias), self.derived(query, alias)
        return self.table(self.choose(self.world.tables))

    def table(self, table, alias=None):
        alias = alias or self.name("t")
        # Now and then the columns are named without their table.
        prefix = None if self.chance(BARE) else alias
        columns = [Column(prefix, c.name, c.type) for c in table.columns]
        return TableRef(table.name, alias), Relation(
            columns, columns[:1], len(table.rows()), table.primary_key
        )

    def derived(self, query, alias):
        while isinstance(query, SetOperation):
            query = query.left
        exact = [i for i in query.items if not is_computed(i.value)]
        if not exact:
            raise Impossible
        columns = [Column(alias, i.name, i.value.type) for i in exact if i.value.type in TYPES]
        keyed = all(i.value.type not in (*LISTS, "wild", "averages") for i in query.items)
        columns = columns or [Column(alias, exact[0].name, "decimal")]
        return Relation(columns, list(columns) if keyed else None, 200, unique=False)

    def join(self, left, relation, depth):
        right, other = self.relation(depth)
        for one, two in ((relation, other), (other, relation)):
            bare = {c.name for c in one.columns if c.alias is None}
            if bare & {c.name for c in two.columns}:
                return left, relation  # the name would mean two columns
        kind = self.pick((5, "INNER"), (5, "LEFT"), (2, "RIGHT"), (2, "FULL"), (0.5, "CROSS"))
        both = Relation([*relation.columns, *other.columns], None, 0)
        both.unique = relation.unique and other.unique
        if relation.keys is not None and other.keys is not None:
            both.keys = [*relation.keys, *other.keys]
        if kind == "CROSS":
            both.rows = relation.rows * other.rows
            if both.rows <= JOINED_ROWS_MAX // 10:
                return Join(kind, left, right), both
            kind = "INNER"
        pairs = [
            (a, b)
            for a in relation.columns
            for b in other.columns
            if a.type == b.type and a.type in ORDERED
        ]
        pairs = [
            (a, b) for a, b in pairs if self.join_rows(relation, other, a, b) <= JOINED_ROWS_MAX
        ]
        if not pairs:
            return left, relation
        users = [(a, b) for a, b in pairs if a.name == b.name == "user_id"]
        a, b = self.choose(users) if users and self.chance(0.65) else self.choose(pairs)
        both.rows = max(1, self.join_rows(relation, other, a, b))
        if a.name == b.name and self.chance(0.15):
            found = self.using(kind, left, right, a, both)
            if found is not None:
                return found
        on = Call(named("=", a.type, a.type), [a, b], "bool")
        small = relation.rows * other.rows <= JOINED_ROWS_MAX // 2
        if small and self.chance(0.1):
            op = self.choose(["<", "<>", ">=", "IS NOT DISTINCT FROM"])
            on = Call(named(op, a.type, a.type), [a, b], "bool")
        elif self.chance(0.06) and a.type == "text":
            lower = named("lower", "text")
            on = Call(named("=", "text", "text"), [a, Call(lower, [b], "text")], "bool")
        elif self.chance(0.06):
            on = Call(named("IS NOT DISTINCT FROM", a.type, a.type), [a, b], "bool")
        if self.chance(0.2):
            more = self.boolean(1, RowLeaves(both), 0)
            on = Call(AND_, [on, more], "bool")
        return Join(kind, left, right, on), both

    def using(self, kind, left, right, column, both):
        """JOIN … USING (column), a column of both sides; None if a third has one of its name."""
        name = column.name
        if [c.name for c in both.columns].count(name) != 2:
            return None
        merged = Column(None, name, column.type)
        others = [c for c in both.columns if c.name != name]
        keys = both.keys
        if keys is not None and any(k.name == name for k in keys):
            keys = [k for k in keys if k.name != name] + [merged]
        return Join(kind, left, right, using=[name]), Relation(
            [merged, *others], keys, both.rows, unique=both.unique
        )

    def join_of_users_or_rids(self):
        """Two tables and a pair of columns to join them by, users first; None if there is none."""
        a, x = self.table(self.choose(self.world.tables))
        b, y = self.table(self.choose(self.world.tables))
        pairs = [
            (p, q)
            for p in x.columns
            for q in y.columns
            if p.name == q.name
            and p.type == q.type
            and p.type in ORDERED
            and self.join_rows(x, y, p, q) <= JOINED_ROWS_MAX
        ]
        users = [p for p in pairs if p[0].name == "user_id"]
        if not pairs:
            return None
        p, q = self.choose(users) if users and self.chance(0.6) else self.choose(pairs)
        return (a, x), (b, y), p, q

    def join_rows(self, left, right, a, b):
        if a.name == "rid" or b.name == "rid":
            return max(left.rows, right.rows) if a.type == b.type else 0
        different = len(self.world.users) if a.name == "user_id" else 2
        return left.rows * right.rows // different
