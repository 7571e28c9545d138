"""A failure made small: the statement by its tree, the tables by their rows, printed as a test.

`variants` gives every tree that is one step smaller; one that still fails the same way takes the
place of the larger. A variant that is no statement fails in both engines, and so is left out by
itself.

Not here: what counts as failing, which is the caller's question (`fails`).
"""

import dataclasses
import re
import time

import engines
import oracles
import schemas
import tree
import values
from tree import (
    Aggregate,
    Call,
    Case,
    Derived,
    Group,
    Join,
    Literal,
    Select,
    SetOperation,
    Window,
)

EXPRESSIONS = (
    tree.Column,
    Literal,
    Call,
    Case,
    tree.Cast,
    tree.InList,
    tree.InIdSet,
    tree.InQuery,
    tree.Quantified,
    tree.Exists,
    tree.Scalar,
    Aggregate,
    Window,
    tree.Grouping,
)


def variants(node):
    """Trees one step smaller than this one, the boldest first."""
    yield from here(node)
    if not tree.is_node(node):
        return
    for field in dataclasses.fields(node):
        for smaller in of_field(node, field.name, getattr(node, field.name)):
            yield dataclasses.replace(node, **{field.name: smaller})


def of_field(node, name, value):
    if name == "order" and isinstance(node, (Aggregate, tree.Over)):
        return  # without it the answer would hang on the order of rows
    if isinstance(value, list):
        keep_one = name in ("items", "args", "whens", "keys") and not isinstance(node, Group)
        yield from of_list(value, keep_one, drops=name not in ("args",))
    elif tree.is_node(value):
        if name in ("where", "having", "otherwise", "group", "on"):
            yield None
        yield from variants(value)
    elif name in ("limit", "offset") and value is not None:
        yield None
    elif name in ("distinct", "descending", "negated", "tries") and value:
        yield False
    elif name in ("nulls", "frame", "base") and value:
        yield ""
    elif name == "kind" and isinstance(node, Join) and value not in ("INNER", "LEFT"):
        yield "LEFT"
        yield "INNER"
    elif name == "kind" and isinstance(node, Group) and value:
        yield ""


def of_list(nodes, keep_one, drops=True):
    if drops and len(nodes) > 8:
        for half in (nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]):
            yield half
    if drops:
        for at in range(len(nodes)):
            if len(nodes) > 1 or not keep_one:
                yield nodes[:at] + nodes[at + 1 :]
    for at, part in enumerate(nodes):
        inner = (
            of_list(list(part), True, drops=False) if isinstance(part, tuple) else variants(part)
        )
        for smaller in inner:
            yield nodes[:at] + [tuple(smaller) if isinstance(part, tuple) else smaller] + nodes[
                at + 1 :
            ]


def here(node):
    """What may stand in this node's place."""
    if isinstance(node, Select):
        if isinstance(node.source, Derived):
            yield dataclasses.replace(node.source.query, ctes=node.ctes)
        for item in node.items:
            if isinstance(item.value, tree.Scalar):
                yield item.value.query
    elif isinstance(node, SetOperation):
        for side in (node.left, node.right):
            yield dataclasses.replace(side, ctes=[*node.ctes, *side.ctes])
    elif isinstance(node, Join):
        yield node.left
        yield node.right
    elif isinstance(node, EXPRESSIONS) and not isinstance(node, (Literal, tree.Column)):
        for child in children(node):
            if child.type == node.type:
                yield child
        if node.type in values.TYPES:
            yield Literal(simplest(node.type), node.type)
        if node.type == "bool":
            yield Literal(True, "bool")
    elif isinstance(node, Literal) and node.value is not None:
        simple = simplest(node.type)
        if node.value != simple and not isinstance(node.value, float):
            yield Literal(simple, node.type)


def children(node):
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        for part in value if isinstance(value, list) else [value]:
            for child in part if isinstance(part, tuple) else [part]:
                if isinstance(child, EXPRESSIONS):
                    yield child


def simplest(kind):
    simple = {
        "int": 0,
        "big": 0,
        "double": 0.0,
        "wild": 0.0,
        "text": "",
        "bool": False,
        "ints": [1],
        "nested": [[1]],
        "date": values.DAY,
    }
    return simple.get(kind)


def statement(query, fails, until):
    """The smallest tree found that still fails."""
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for smaller in variants(query):
            if time.monotonic() >= until:
                break
            if fails(smaller):
                query, changed = smaller, True
                break
    return query


def used_tables(query):
    return {n.name for n in tree.walk(query) if isinstance(n, tree.TableRef)}


def smaller_worlds(world, query):
    """Worlds with fewer tables, pieces, rows, columns or clauses."""
    used = used_tables(query) | {t.name for t in world.tables if t.name in str(query)}
    if any(t.name not in used for t in world.tables) and used:
        yield dataclasses.replace(world, tables=[t for t in world.tables if t.name in used])
    for at, table in enumerate(world.tables):
        for smaller in smaller_tables(table, query):
            tables = list(world.tables)
            tables[at] = smaller
            yield dataclasses.replace(world, tables=tables)


def smaller_tables(table, query):
    pieces = table.pieces
    for at in range(len(pieces)):
        if len(pieces) > 1:
            yield dataclasses.replace(table, pieces=pieces[:at] + pieces[at + 1 :])
    named = {n.name for n in tree.walk(query) if isinstance(n, tree.Column)}
    named |= {k for n in tree.walk(query) if isinstance(n, Join) for k in n.using}
    gone = [c.name for c in table.columns if c.name not in named]
    keep = [c for c in table.columns if c.name in named or not gone]
    if gone and keep and not table.primary_key:
        yield without_columns(table, keep)
    for at, piece in enumerate(pieces):
        chunk = max(1, len(piece.rows) // 2)
        while chunk:
            for start in range(0, len(piece.rows), chunk):
                rows = piece.rows[:start] + piece.rows[start + chunk :]
                new = dataclasses.replace(piece, rows=rows)
                yield dataclasses.replace(table, pieces=pieces[:at] + [new] + pieces[at + 1 :])
            chunk //= 2 if len(piece.rows) < 2000 else 8
        if piece.way != "insert":
            new = dataclasses.replace(piece, way="insert")
            yield dataclasses.replace(table, pieces=pieces[:at] + [new] + pieces[at + 1 :])
    if len(pieces) > 1:
        whole = schemas.Piece(table.rows(), way="insert")
        yield dataclasses.replace(table, pieces=[whole])
    for clause in ("indexed_by", "clustered_by", "partitioned_by", "primary_key"):
        if getattr(table, clause):
            yield dataclasses.replace(table, **{clause: []})
    if table.id_domains:
        yield dataclasses.replace(table, id_domains={})


def without_columns(table, keep):
    at = [table.columns.index(c) for c in keep]
    names = {c.name for c in keep}
    pieces = [
        dataclasses.replace(
            p,
            rows=[tuple(r[i] for i in at) for r in p.rows],
            left_out=tuple(n for n in p.left_out if n in names),
        )
        for p in table.pieces
    ]
    inside = lambda columns: [c for c in columns if c in names]
    return dataclasses.replace(
        table,
        columns=list(keep),
        pieces=pieces,
        partitioned_by=inside(table.partitioned_by),
        clustered_by=inside(table.clustered_by),
        indexed_by=[(c, k) for c, k in table.indexed_by if c in names],
        id_domains={c: d for c, d in table.id_domains.items() if c in names},
    )


def tables(world, query, fails, until):
    """The smallest world found in which the statement still fails."""
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for smaller in smaller_worlds(world, query):
            if time.monotonic() >= until:
                break
            if fails(smaller):
                world, changed = smaller, True
                break
    return world


def signature(message):
    """A message without what differs from case to case."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", message.split("\n")[0])
    text = re.sub(r"\b[a-z]+\d+(\.[\w\"]+)?", "x", text)
    return re.sub(r"-?\d+(\.\d+)?", "n", text)[:110]


def alike(failure, other):
    """Is the other failure the same one?"""
    if other is None or other.kind != failure.kind:
        return False
    return failure.kind != "refused" or signature(other.message) == signature(failure.message)


def reduce(failure, court, binary, folder, accept, seconds):
    """A smaller failure; `accept` says whether a failure counts (it is not a known one)."""
    begun = time.monotonic()
    if failure.table:
        return failure
    way = failure.way if failure.way != "again" else "duckdb"

    def fails_in(this_court, query):
        for _ in range(3 if failure.kind == "different" else 1):
            try:
                found = this_court.check(query, way)
            except engines.Refused:
                return None
            if alike(failure, found) and accept(found):
                return found
        return None

    once = ("duckdb", "batch", "ternary", "stored", "view", "files", "postgres")
    if way not in (*once, *oracles.SESSIONS):
        return failure
    if fails_in(court, failure.query) is None:
        failure.message += " (not seen again when it was asked once more)"
        return failure
    query = statement(
        failure.query,
        lambda q: tree.has_one_answer(q) and fails_in(court, q) is not None,
        begun + seconds * 0.6,
    )
    last = [fails_in(court, query) or failure]
    number = [0]

    def fails_over(world):
        number[0] += 1
        try:
            smaller = oracles.Court(
                world, binary, folder / f"reduced-{number[0]}", court.server
            )
        except engines.Refused:
            return False
        try:
            found = fails_in(smaller, query)
            last[0] = found or last[0]
            return found is not None
        finally:
            smaller.close()

    world = tables(court.world, query, fails_over, begun + seconds)
    return dataclasses.replace(last[0], world=world, query=query, way=failure.way)


# A test to paste


def rows_text(table, piece):
    columns = [c for c in table.columns if c.name not in piece.left_out]
    at = [table.columns.index(c) for c in columns]
    rows = ", ".join(
        "(" + ", ".join(value_text(row[i], table.columns[i].type) for i in at) + ")"
        for row in piece.rows
    )
    names = ", ".join(schemas.quote(c.name) for c in columns)
    return f"INSERT INTO {table.name} ({names}) VALUES {rows}"


def value_text(value, kind):
    return "NULL" if value is None else values.literal(value, kind, "uplake")


def slt_value(value):
    if value is None:
        return "NULL"
    if value == "":
        return "(empty)"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def statement_text(failure):
    """The statement that failed, as Uplake was asked it."""
    if failure.table:
        return failure.statement
    return tree.sql(failure.query, "uplake")


def test_text(failure):
    """The failure as records of sqllogictest, with what differs said above."""
    used = used_tables(failure.query) | ({failure.table} if failure.table else set())
    parts = [
        f"# world {failure.world.seed}, asked by: {failure.way}; {failure.kind}: "
        f"{failure.message.splitlines()[0][:300]}"
    ]
    for table in failure.world.tables:
        if used and table.name not in used:
            continue
        parts.append(f"statement ok\n{table.create()}")
        if sum(len(p.rows) for p in table.pieces) > 60:
            parts.append(f"# {len(table.rows())} rows of world {failure.world.seed}")
            continue
        for piece in table.pieces:
            if piece.rows:
                note = f"# this piece comes by: {piece.way}\n" if piece.way != "insert" else ""
                parts.append(f"{note}statement ok\n{rows_text(table, piece)}")
    text = statement_text(failure)
    if failure.table:
        parts.append(f"statement ok\n{text}")
        text = f"SELECT * FROM {failure.table}"
    expected = "\n".join(
        "\t".join(slt_value(v) for v in row) for row in (failure.theirs or [])[:20]
    )
    record = f"query ? rowsort\n{text}\n----\n{expected}"
    parts.append(record)
    if failure.ours is not None:
        got = "\n# ".join("\t".join(slt_value(v) for v in row) for row in failure.ours[:20])
        parts.append(f"# got:\n# {got}")
    if failure.table == "":
        name, dialect = (
            ("PostgreSQL", "postgres") if failure.way == "postgres" else ("DuckDB", "duckdb")
        )
        theirs = tree.sql(failure.query, dialect)
        if theirs != text:
            parts.append(f"# {name} was asked: {theirs}")
    return "\n\n".join(parts)
