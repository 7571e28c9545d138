"""Random statements, with types, over a world's tables.

Invariants:
- A statement has one right answer as a multiset of rows: LIMIT comes with an order of all columns,
  and what depends on the order of rows (row_number, lag, array_agg, ROWS frames) with an order by a
  key.
- Whole numbers and doubles that are added are small and exact (`values`), so sums are, too.
- Doubles that are computed (`is_computed`) are results and conditions, never keys: of groups, of
  joins, of set operations, of an order that cuts off rows.
- A statement is a function of the world and the random state alone.

Not here: expressions and sources (`expressions`, `sources`), nor the shapes of experiments and of
known faults (`shapes`).
"""

import functions
from expressions import AGGREGATES_BY_RESULT, GroupLeaves, Impossible, RowLeaves
from functions import named
from sources import Sources
from tree import (
    EVERY,
    Aggregate,
    Column,
    Group,
    Grouping,
    Item,
    NamedWindow,
    Order,
    Over,
    Select,
    SetOperation,
    TableRef,
    Window,
    With,
    is_computed,
    is_whole,
    walk,
    walk_here,
)
from values import LISTS, ORDERED

ITEM_TYPES = [
    "int",
    "int",
    "int",
    "text",
    "text",
    "double",
    "wild",
    "decimal",
    "bool",
    "bool",
    "date",
    "timestamp",
    "big",
    "timestamptz",
    "ints",
    "nested",
]
KEY_TYPES = [
    "text",
    "text",
    "text",
    "int",
    "bool",
    "date",
    "big",
    "timestamp",
    "wild",
    "decimal",
    "double",
    "timestamptz",
]
FRAMES = [
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS UNBOUNDED PRECEDING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN 2 FOLLOWING AND 4 FOLLOWING",
    "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
]
NUMBER_RANGES = [
    "RANGE BETWEEN 2 PRECEDING AND 3 FOLLOWING",
    "RANGE BETWEEN 1 FOLLOWING AND 5 FOLLOWING",
    "RANGE BETWEEN 10 PRECEDING AND CURRENT ROW",
]
TIME_RANGES = [
    "RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND INTERVAL '1 hour' FOLLOWING",
]
SET_OPERATIONS = [
    *("UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT"),
    *("INTERSECT ALL", "EXCEPT ALL"),
]
WINDOWS_BY_RESULT = functions.by_result(functions.WINDOW_FUNCTIONS)
TOTAL_ORDER = ("row_number", "ntile", "first_value", "last_value", "nth_value", "lag", "lead")


class Grammar(Sources):
    """Statements of a world."""

    def statement(self):
        return self.until_made(self.attempt)

    def attempt(self):
        ctes = []
        if self.chance(0.12):
            for _ in range(self.pick((3, 1), (1, 2))):
                name = self.name("w")
                query = self.query(1, None, None)
                ctes.append(With(name, query))
                self.ctes.append((name, query))
        query = self.query(2, None, None, top=True)
        # DuckDB does not look at a CTE that nobody names.
        for cte in reversed(ctes):
            kept = [query, *query.ctes]
            if any(isinstance(n, TableRef) and n.name == cte.name for n in walk(kept)):
                query.ctes.insert(0, cte)
        return query

    def query(self, depth, kinds, outer, top=False):
        """A Select or a set operation with columns of these types, named c0, c1, …"""
        if self.chance(0.1 if depth > 0 else 0):
            return self.set_operation(depth, kinds, outer, top)
        return self.select(depth, kinds, outer, top)

    def set_operation(self, depth, kinds, outer, top):
        kinds = kinds or self.kinds()
        kind = self.choose(SET_OPERATIONS)
        if kind != "UNION ALL":
            kinds = [k if k in ORDERED else "int" for k in kinds]
        left = self.select(depth - 1, kinds, outer)
        right = self.select(depth - 1, kinds, outer)
        if kind == "UNION ALL" and self.chance(0.2):
            left = SetOperation(kind, left, self.select(depth - 1, kinds, outer))
        found = SetOperation(kind, left, right)
        if kind != "UNION ALL" and is_computed(found):
            raise Impossible
        if top and self.chance(0.2):
            found.order = [Order(n + 1, self.chance(0.4), self.nulls()) for n in range(len(kinds))]
            if self.chance(0.2):
                found.order = [Order(EVERY, self.chance(0.4), self.nulls())]
            found.limit = None if is_computed(found) else self.choose([None, 3, 10])
        return found

    def kinds(self):
        return [self.choose(ITEM_TYPES) for _ in range(self.choose([1, 2, 2, 3, 4]))]

    def select(self, depth, kinds, outer, top=False):
        source, relation = self.source(depth)
        kinds = kinds or self.kinds()
        ways = [(5, self.plain), (6, self.grouped), (2, self.whole), (1, self.distinct)]
        if top:
            ways.append((3, self.windowed))
        elif outer is None:
            ways.append((0.7, self.windowed))
        query = Select([], source)
        if self.chance(0.5):
            query.where = self.condition(2, RowLeaves(relation, outer), depth)
        self.pick(*ways)(query, kinds, relation, outer, depth)
        if not is_whole(query):
            raise Impossible
        if not top or self.chance(0.85):
            for number, item in enumerate(query.items):
                item.name = f"c{number}"
        if top or (outer is None and self.chance(0.1)):
            self.order(query, relation)
        return query

    def order(self, query, relation):
        """A total order, now and then with LIMIT."""
        if not self.chance(0.4) or any(i.value.type in LISTS for i in query.items):
            return
        places = list(range(1, len(query.items) + 1))
        self.rng.shuffle(places)
        query.order = [Order(n, self.chance(0.4), self.nulls()) for n in places]
        if self.chance(0.1):
            query.order = [Order(EVERY, self.chance(0.4), self.nulls())]
        if self.chance(0.5) and not any(is_computed(i.value) for i in query.items):
            query.limit = self.choose([1, 2, 3, 5, 10, 10, 100])
            if self.chance(0.2):
                query.offset = self.choose([1, 2, 7])

    # Kinds of Select

    def plain(self, query, kinds, relation, outer, depth):
        leaves = RowLeaves(relation, outer)
        query.items = [Item(self.item(k, leaves, depth)) for k in kinds]

    def item(self, kind, leaves, depth):
        """An expression for a result: constants are rare, but there are some."""
        if self.chance(0.04) and kind in ("int", "text", "bool"):
            return self.literal(kind)
        return self.expression(kind, self.pick((4, 0), (3, 1), (2, 2)), leaves, depth)

    def distinct(self, query, kinds, relation, outer, depth):
        self.plain(query, kinds, relation, outer, depth)
        query.distinct = not any(k in LISTS for k in kinds)

    def whole(self, query, kinds, relation, outer, depth):
        leaves = GroupLeaves([], relation)
        query.items = [Item(self.group_item(k, leaves, depth)) for k in kinds]
        if self.chance(0.1):
            query.having = self.condition(1, leaves, depth)

    def grouped(self, query, kinds, relation, outer, depth):
        keys = self.group_keys(relation, outer, depth)
        kind = self.pick((12, ""), (1, "ROLLUP"), (1, "CUBE"), (1, "GROUPING SETS"))
        query.group = Group(keys, kind)
        if kind == "GROUPING SETS":
            everything = range(len(keys))
            query.group.sets = [
                [i for i in everything if self.chance(0.5)] for _ in range(self.choose([1, 2, 3]))
            ]
            # A key outside every set is none.
            query.group.sets.append(list(everything))
        if not kind and self.chance(0.1):
            return self.grouped_by_all(query, keys, kinds, relation)
        leaves = GroupLeaves(keys, relation)
        query.items = []
        for k in kinds:
            mine = [key for key in keys if key.type == k]
            if mine and self.chance(0.5):
                query.items.append(Item(self.choose(mine)))
            elif kind and k == "int" and self.chance(0.3):
                query.items.append(Item(Grouping(self.choose(keys))))
            else:
                query.items.append(Item(self.group_item(k, leaves, depth)))
        if self.chance(0.2):
            query.having = self.condition(1, leaves, depth)

    def grouped_by_all(self, query, keys, kinds, relation):
        """GROUP BY ALL: the items without an aggregate are the keys."""
        query.group = Group([], "ALL")
        query.items = []
        for k in kinds:
            mine = [key for key in keys if key.type == k]
            value = self.choose(mine) if mine and self.chance(0.6) else None
            if value is not None and value not in query.group.keys:
                query.group.keys.append(value)
            query.items.append(Item(value or self.aggregate(k, relation, 0)))
        if not query.group.keys:
            raise Impossible

    def group_item(self, kind, leaves, depth):
        if kind == "decimal" and self.chance(0.6):
            name, result = self.pick((3, ("sum", "decimals")), (1, ("avg", "averages")))
            args = [self.expression("decimal", 0, RowLeaves(leaves.relation), 0)]
            found = Aggregate(named(name, "decimal"), args, result)
            if depth >= 2:  # only as a result: the engines' types differ
                return found
        return self.expression(kind, self.pick((4, 0), (2, 1)), leaves, depth)

    def group_keys(self, relation, outer, depth):
        users = [c for c in relation.columns if c.name == "user_id"]
        keys = [self.choose(users)] if users and self.chance(0.4) else []
        for _ in range(self.pick((3, 0 if keys else 1), (3, 1), (2, 2))):
            kind = self.choose(KEY_TYPES)
            leaves = RowLeaves(relation, outer)
            key = self.expression(kind, self.pick((5, 0), (2, 1)), leaves, 0)
            if not any(isinstance(n, Column) for n in walk_here(key)):
                continue
            if all(key != k for k in keys):
                keys.append(key)
        return keys or [self.choose([c for c in relation.columns if c.type in ORDERED])]

    def windowed(self, query, kinds, relation, outer, depth):
        leaves = RowLeaves(relation, outer)
        if self.chance(0.3):
            base = Over(self.window_partition(leaves), [], "")
            query.windows.append(NamedWindow(self.name("win"), base))
        made = 0
        for kind in kinds:
            may = self.chance(0.7) and (relation.unique or not made)
            window = self.window(kind, relation, query.windows) if may else None
            made += window is not None
            query.items.append(Item(window or self.item(kind, leaves, 0)))
        if not made:
            query.windows = []

    def window_partition(self, leaves):
        return [
            self.expression(self.choose(KEY_TYPES), 0, leaves, 0)
            for _ in range(self.pick((2, 0), (4, 1), (1, 2)))
        ]

    def window(self, kind, relation, named_windows):
        leaves = RowLeaves(relation)
        candidates = list(WINDOWS_BY_RESULT.get(kind, [])) + 2 * [
            f for f in AGGREGATES_BY_RESULT.get(kind, [])
        ]
        candidates = [f for f in candidates if f.name not in ("exact_sum",)]
        if not candidates:
            return None
        function = self.choose(candidates)
        total = function.name in TOTAL_ORDER
        if total and not relation.keys:
            return None
        over = Over([], [], "")
        if named_windows and self.chance(0.7):
            over.base = self.choose(named_windows).name
        else:
            over.partition = self.window_partition(leaves)
        args = [self.expression(a, 0, leaves, 0) for a in function.args]
        is_aggregate = function in functions.AGGREGATES
        if total or self.chance(0.6):
            over.order = self.window_order(relation, leaves, total or bool(relation.keys))
        if is_aggregate or function.name in ("first_value", "last_value", "nth_value"):
            over.frame = self.frame(over, relation, total)
        elif (
            function.name in ("rank", "dense_rank", "percent_rank", "cume_dist") and not over.order
        ):
            over.order = self.window_order(relation, leaves, False)
        found = Window(function, args, over, kind)
        if is_aggregate and self.chance(0.15):
            found.where = self.condition(1, leaves, 0)
        return found

    def window_order(self, relation, leaves, total):
        orders = []
        for _ in range(self.pick((1, 0), (3, 1)) if total else 1):
            kind = self.choose([k for k in KEY_TYPES if k != "wild"])
            orders.append(
                Order(
                    self.expression(kind, self.pick((5, 0), (1, 1)), leaves, 0),
                    self.chance(0.3),
                    self.nulls(),
                )
            )
        if total:
            keys = list(relation.keys)
            self.rng.shuffle(keys)
            orders += [Order(key, self.chance(0.2), self.nulls()) for key in keys]
        return orders

    def frame(self, over, relation, total):
        if not over.order or self.chance(0.3):
            return ""
        # A frame of rows needs a total order, one of peers does not.
        is_total = (
            bool(relation.keys)
            and len(over.order) >= len(relation.keys)
            and any(o.key is relation.keys[0] for o in over.order)
        )
        frames = [f for f in FRAMES if is_total or not f.startswith("ROWS")]
        if total:
            return self.choose(frames)
        if self.chance(0.25):
            kind = self.choose(["int", "timestamp"])
            key = self.expression(kind, 0, RowLeaves(relation), 0)
            if isinstance(key, Column):
                over.order = [Order(key, self.chance(0.3), self.nulls())]
                return self.choose(NUMBER_RANGES if kind == "int" else TIME_RANGES)
        return self.choose(frames)
