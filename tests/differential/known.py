"""Differences that are known, each with its reason; what is here does not fail a run.

A difference is narrow: it looks at the tree and at the values, never at a type alone. A fault of
Uplake has no place here: it is mended, or the statement is refused and listed below.

To add one: write a function of a `Failure` whose docstring is the reason, and list it in
DIFFERENCES.
"""

import collections
import re

import compare
import tree

# Statements that Uplake refuses by choice: (statement, what the message says, reason). Each is said
# in docs/sql.md; the test asks them all, so that one that is answered one day leaves this list.
# `t` and `u` have a column x.
REFUSED = [
    ("SELECT 'a' SIMILAR TO 'a' || 'b'", "is computed", "LIKE and ~ say the same"),
]


def beyond_2262(failure):
    """Dates beyond 2262 are refused where a function makes times of them (docs/sql.md)."""
    found = (
        r"Overflow converting .* to Nanosecond|represented as nanoseconds"
        r"|exceeds the representable|Timestamp -?\d+ out of range"
    )
    return re.search(found, failure.message)


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


def subqueries_in_keys_of_totals(failure):
    """PostgreSQL before 18 computes a key with a subquery anew in totals, where it is NULL."""
    for select in tree.walk(failure.query):
        if not isinstance(select, tree.Select) or not select.group:
            continue
        if select.group.kind in ("", "ALL"):
            continue
        # Keys that are columns of a derived table become what computes them.
        below = [n.items for n in tree.walk(select.source) if isinstance(n, tree.Select)]
        computed = [select.group.keys, below]
        sets = any(isinstance(n, tree.InIdSet) for n in tree.walk(computed))
        if sets or tree.has_subquery(computed):
            return True
    return False


def halves_as_literals(failure):
    """A literal in a cast is a decimal, as in PostgreSQL, whose half goes away from zero; a double's goes to the even number,
    as in DuckDB (docs/sql.md)."""

    def is_half(node):
        is_cast = isinstance(node, tree.Call) and node.function.name == "of double"
        literal = node.args[0] if is_cast else None
        return isinstance(literal, tree.Literal) and literal.value is not None and literal.value % 1 == 0.5

    return any(map(is_half, tree.walk(failure.query)))


# By kind of failure. Each reason is the function's docstring.
REFUSALS = [beyond_2262]
# Where DuckDB gives the same, and PostgreSQL does not.
POSTGRES = [columns_of_using_in_their_place, subqueries_in_keys_of_totals]
DIFFERENCES = [halves_as_literals]


def explain(failure):
    """The reason why this failure does not fail a run, or None."""
    if failure.excuse:
        return failure.excuse
    listed = {"refused": REFUSALS, "different": DIFFERENCES}.get(failure.kind, [])
    listed = [*POSTGRES, *listed] if failure.way == "postgres" else listed
    return next((known.__doc__ for known in listed if known(failure)), None)
