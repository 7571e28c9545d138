"""A failure as a shell script to paste: tables by SQL, the definition, the report, what was
expected.

The reduction builds its lakes by the same statements, so that what is printed is what failed.
"""
import math

from reports.data import stored
from reports.definitions import to_toml

ROWS_PRINTED = 200


def literal(value, kind):
    if value is None:
        return "NULL"
    if kind.startswith("timestamp"):
        zone = "Z" if kind == "timestamptz" else ""
        word = "TIMESTAMPTZ" if zone else "TIMESTAMP"
        return f"{word} '{stored(value, kind).isoformat(sep=' ')}{zone}'"
    if kind == "text":
        return "'" + value.replace("'", "''") + "'"
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "double":
        return f"CAST('{value}' AS DOUBLE)" if not math.isfinite(value) else repr(value)
    return str(value)


def clauses(table):
    """CREATE TABLE's, from the options of `uplake load`."""
    words = {"--partition-by": "PARTITIONED BY", "--cluster-by": "CLUSTERED BY"}
    found, indexed = [], []
    for key, value in zip(table.options[::2], table.options[1::2]):
        if key in words:
            found.append(f"{words[key]} ({value.replace(',', ', ')})")
        elif key == "--index":
            indexed.append(value)
        elif key == "--id-domain":
            found.append(f"ID DOMAINS ({value.replace('=', ' ')})")
    if indexed:
        found.insert(-1 if "ID DOMAINS" in "".join(found[-1:]) else len(found),
                     f"INDEXED BY ({', '.join(indexed)})")
    return " ".join(found)


def statements(world):
    """The SQL that makes the tables."""
    for table in world.tables.values():
        columns = ", ".join(f"{name} {kind}" for name, kind in table.columns.items())
        yield f"CREATE TABLE {table.name} ({columns}) {clauses(table)}".strip() + ";"
        for begin, end in zip([0, *table.cuts], [*table.cuts, len(table.rows)]):
            rows = [
                "(" + ", ".join(literal(row[n], k) for n, k in table.columns.items()) + ")"
                for row in table.rows[begin:end]
            ]
            if rows:
                yield f"INSERT INTO {table.name} VALUES\n  " + ",\n  ".join(rows) + ";"


def text(world, definition, asked, options, differences, hint):
    """What to paste, and what it should print."""
    lines = ["", "-" * 78, f"# {hint}"]
    if sum(len(table.rows) for table in world.tables.values()) <= ROWS_PRINTED:
        lines += ["export UPLAKE_LAKE=$(mktemp -d)/lake", "uplake sql -f - <<'SQL'",
                  *statements(world), "SQL", "cat > experiment.toml <<'TOML'",
                  to_toml(definition).rstrip(), "TOML"]
        words = ["uplake report experiment.toml --format json", *options]
        if asked:
            words += ["--dimension", ",".join(asked)]
        lines.append(" ".join(words))
    else:
        lines += [to_toml(definition)]
    for path, expected, found in differences[:6]:
        lines.append(f"# {path}: expected {str(expected)[:400]}, got {str(found)[:400]}")
    return "\n".join(lines)
