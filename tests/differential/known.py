"""Differences that are known, each with its reason; what is here does not fail a run.

A difference is narrow: it looks at the tree and at the values, never at a type alone. A fault of
Uplake has no place here: it is mended, or the statement is refused and listed below.

To add one: write a function of a `Failure` whose docstring is the reason, and list it in
DIFFERENCES.
"""

import collections
import itertools
import math
import re

import compare
import functions
import tree
from tree import Call, Over, Select, Window

# Statements that Uplake refuses by choice: (statement, what the message says, reason). Each is said
# in docs/sql.md; the test asks them all, so that one that is answered one day leaves this list.
# `t` and `u` have a column x.
REFUSED = [
    (
        "UPDATE t SET x = 1",
        "not supported",
        "rows are deleted and inserted; files are never changed",
    ),
    (
        "MERGE INTO t USING u ON t.x = u.x WHEN MATCHED THEN UPDATE SET x = 1",
        "not supported",
        "as UPDATE; a table with a primary key replaces rows by INSERT",
    ),
    ("CREATE VIEW v AS SELECT 1", "not supported", "a lake holds tables only"),
    (
        "DELETE FROM t WHERE x IN (SELECT x FROM u)",
        "not supported",
        "the values are selected first, so that what is deleted can be seen",
    ),
    (
        "SELECT x FROM t EXCEPT ALL SELECT x FROM u",
        "not supported",
        "DataFusion computes it without counting; row_number() does it",
    ),
    ("SELECT x FROM t INTERSECT ALL SELECT x FROM u", "not supported", "as EXCEPT ALL"),
    ("SELECT 'a' SIMILAR TO 'a'", "not supported", "LIKE and ~ say the same"),
]


def beyond_2262(failure):
    """Dates beyond 2262 are refused where a function makes times of them (docs/sql.md)."""
    found = (
        r"Overflow converting .* to Nanosecond|represented as nanoseconds"
        r"|exceeds the representable|Timestamp -?\d+ out of range"
    )
    return re.search(found, failure.message)


def same_expression_twice(failure):
    """Two columns of a SELECT list are one expression without a name of its own (docs/sql.md)."""
    lists = [n.items for n in tree.walk(failure.query) if isinstance(n, Select)]
    twice = any(
        repr(without_cast(a.value)) == repr(without_cast(b.value)) and not (a.name and b.name)
        for items in lists
        for a, b in itertools.combinations(items, 2)
    )
    return twice and "require unique expression names" in failure.message


def without_cast(node):
    """What gives the column its name: a cast does not change it."""
    if isinstance(node, tree.Cast):
        return without_cast(node.inner)
    if isinstance(node, Call) and node.function in CASTS:
        return without_cast(node.args[0])
    return node


def sliding_bits(failure):
    """bit_and, bit_or, bool_and and bool_or have no sliding frames (docs/sql.md)."""
    names = {n.function.name for n in tree.walk(failure.query) if isinstance(n, Window)}
    names &= {"bit_and", "bit_or", "bool_and", "bool_or"}
    return names and "`retract_batch` is not implemented" in failure.message


def partition_by_ordered_function(failure):
    """PARTITION BY of a function that keeps an order, such as sqrt(x), is refused (docs/sql.md)."""
    keys = [k for n in tree.walk(failure.query) if isinstance(n, Over) for k in n.partition]
    calls = {n.function.name for n in tree.walk(keys) if isinstance(n, Call)}
    sanity = r"^Plan: \[|Expects PARTITION BY expression to be ordered"
    return calls & ORDER_KEEPING and re.search(sanity, failure.message)


def same_key_twice(failure):
    """OPEN, wrong rows: the same key twice in the ORDER BY of an aggregate."""
    return any(
        len({repr(o.key) for o in n.order}) < len(n.order)
        for n in tree.walk(failure.query)
        if isinstance(n, tree.Aggregate)
    )


def columns_of_using_in_their_place(failure):
    """* above JOIN … USING: PostgreSQL puts the joined columns first, Uplake and DuckDB leave them."""
    nodes = list(tree.walk(failure.query))
    every = any(isinstance(n, tree.Star) or getattr(n, "items", True) == [] for n in nodes)
    if not every or not any(isinstance(n, tree.Join) and n.using for n in nodes):
        return False
    sides = [
        collections.Counter(tuple(sorted(row, key=compare.key)) for row in rows)
        for rows in (failure.ours, failure.theirs)
    ]
    return sides[0] == sides[1]


def holds_minus_zero(failure):
    literals = [n.value for n in tree.walk(failure.query) if isinstance(n, tree.Literal)]
    rows = [row for table in failure.world.tables for row in table.rows()]
    return any(
        v == 0 and isinstance(v, float) and math.copysign(1, v) < 0
        for v in itertools.chain(literals, *rows)
    )


ORDER_KEEPING = {
    "sqrt",
    "ln",
    "power",
    "floor",
    "ceil",
    "date_trunc month",
    "date_trunc day",
    "date_trunc hour",
    "date_trunc week",
    "date_bin",
    "cast int",
    "of timestamp",
}
CASTS = [f for f in functions.SCALARS if re.fullmatch(r"CAST\(\{0\} AS \w+\)", f.uplake)]
# By kind of failure. Each reason is the function's docstring.
REFUSALS = [
    beyond_2262,
    same_expression_twice,
    sliding_bits,
    partition_by_ordered_function,
]
# Where DuckDB gives the same, and PostgreSQL does not.
POSTGRES = [columns_of_using_in_their_place]
DIFFERENCES = [same_key_twice]


# Faults that are open: statements that ought to be answered and end with an error or a panic. They
# are counted under their own name so that new ones stand out; a mend takes its entry away. Those that
# give wrong rows are among DIFFERENCES. (what it is, what the message says, is the tree of that form?)
OPEN = [
    (
        "the same key twice in the ORDER BY of an aggregate",
        r"first_last\.rs|must match number of fields|expected List\(Struct|left == right",
        lambda nodes: any(
            len({repr(o.key) for o in n.order}) < len(n.order)
            for n in nodes
            if isinstance(n, tree.Aggregate)
        ),
    ),
    (
        "LIKE, IN or BETWEEN as an operand of a comparison, without brackets",
        r"incompatible types; has type",
        lambda nodes: any(
            isinstance(n, Call)
            and n.function.level in (tree.COMPARE, tree.IS)
            and any(binds_as_in(arg) for arg in n.args)
            for n in nodes
        ),
    ),
    (
        "ORDER BY a column of groups that has no name of its own",
        r"must appear in GROUP BY clause",
        lambda nodes: any(
            isinstance(n, Select) and n.order and not all(item.name for item in n.items)
            for n in nodes
        ),
    ),
    (
        "ROLLUP, CUBE or GROUPING SETS of a key that is constant in an empty input",
        r"Aggregate schema has wrong number of fields",
        lambda nodes: any(isinstance(n, tree.Group) and n.kind for n in nodes),
    ),
    (
        "min or max of a column and of its cast to another time or precision",
        r"duplicate unqualified field name \"(min|max)",
        lambda nodes: sum(is_min_or_max(n) for n in nodes) > 1,
    ),
    (
        "IN of a subquery whose type is cast to the other side's",
        r"unique expression names but the expression \"__correlated_sq",
        lambda nodes: any(isinstance(n, tree.InQuery) for n in nodes),
    ),
    (
        "a subquery that holds JOIN … USING",
        r"Physical plan does not support logical expression",
        lambda nodes: any(isinstance(n, tree.Join) and n.using for n in nodes),
    ),
    (
        "an expression over the column of JOIN … USING",
        r"Ambiguous reference to unqualified field|column '[^']*' is ambiguous",
        lambda nodes: any(isinstance(n, tree.Join) and n.using for n in nodes),
    ),
    (
        "FROM first, with WHERE",
        r"did not expect `WHERE` here",
        lambda nodes: any(isinstance(n, Select) and not n.items for n in nodes),
    ),
    (
        "the first groups of doubles by ORDER BY and LIMIT",
        r"topk/hash_table\.rs",
        lambda nodes: any(getattr(n, "limit", None) is not None for n in nodes),
    ),
]


def binds_as_in(node):
    is_operator = isinstance(node, Call) and node.function.level == tree.IN
    return is_operator or isinstance(node, (tree.InList, tree.InIdSet, tree.InQuery))


def is_min_or_max(node):
    return isinstance(node, tree.Aggregate) and node.function.name in ("min", "max")


def explain(failure):
    """The reason why this failure does not fail a run, or None."""
    if failure.excuse:
        return failure.excuse
    listed = {"refused": REFUSALS, "different": DIFFERENCES}.get(failure.kind, [])
    listed = [*POSTGRES, *listed] if failure.way == "postgres" else listed
    reason = next((known.__doc__ for known in listed if known(failure)), None)
    if reason is None and failure.kind != "different":
        nodes = list(tree.walk(failure.query))
        found = (w for w, says, form in OPEN if re.search(says, failure.message) and form(nodes))
        reason = next((f"open fault: {what}" for what in found), None)
    return reason
