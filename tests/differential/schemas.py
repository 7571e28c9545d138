"""From a seed to tables: columns, rows in several pieces, and how Uplake lays them out.

Invariants:
- A world is a function of its seed alone.
- Both engines read the same Parquet files: DuckDB in place, Uplake by `uplake load`, INSERT or the
  `deltalake` package (a foreign writer).
- Each table has a column `rid` that no two rows share (in a table with a primary key, it is of the
  key): with it every order can be made total.

Not here: statements. The lake is made by `engines`.
"""

import csv
import dataclasses
import datetime as dt
import decimal
import json
import math
import random

import pyarrow as pa
import pyarrow.parquet as pq

import values

# Names that several tables share on purpose: a condition on one must not reach the other.
MENU = [
    ("event", "text", 8),
    ("value", "wild", 7),
    ("amount", "double", 8),
    ("price", "decimal", 6),
    ("n", "int", 8),
    ("big", "big", 4),
    ("flag", "bool", 6),
    ("ts", "timestamp", 8),
    ("dt", "date", 6),
    ("tz", "timestamptz", 3),
    ("tags", "ints", 3),
    ("top", "int", 3),
    ("Mixed Name", "text", 3),
    ("os", "text", 4),
    ("m", "int", 4),
    ("ok", "bool", 3),
    ("score", "double", 4),
    ("v", "wild", 3),
    ("lists", "nested", 2),
]
NAMES = ["events", "exposures", "plain", "users"]
KEY_TYPES = ("text", "int", "big", "bool", "date", "timestamp")
# Tables of more rows are not written as text.
TEXT_ROWS_MAX = 3000
BORDERS = [8191, 8192, 8193]


@dataclasses.dataclass
class Column:
    name: str
    type: str
    storage: str = ""  # bigint, integer, smallint for whole numbers; else the type's own

    def sql_type(self):
        return self.storage or values.SQL[self.type]

    def arrow(self):
        narrow = {"integer": pa.int32(), "smallint": pa.int16()}
        return narrow.get(self.storage, values.ARROW[self.type])


@dataclasses.dataclass
class Piece:
    """Rows that come to a table by one command."""

    rows: list  # of tuples, as wide as the table's columns
    left_out: tuple = ()  # columns that the file does not have: all NULL
    way: str = "load"  # load, insert, foreign
    path: str = ""


@dataclasses.dataclass
class Table:
    name: str
    columns: list
    pieces: list
    id_domains: dict = dataclasses.field(default_factory=dict)
    partitioned_by: list = dataclasses.field(default_factory=list)
    clustered_by: list = dataclasses.field(default_factory=list)
    indexed_by: list = dataclasses.field(default_factory=list)
    primary_key: list = dataclasses.field(default_factory=list)
    one_row_per_user: bool = False

    def rows(self):
        return [row for piece in self.pieces for row in piece.rows]

    def column(self, name):
        return next(c for c in self.columns if c.name == name)

    def create(self):
        """Uplake's CREATE TABLE."""
        parts = [f"{quote(c.name)} {uplake_type(c)}" for c in self.columns]
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quote, self.primary_key))})")
        clauses = [f"CREATE TABLE {self.name} ({', '.join(parts)})"]
        for words, names in (
            ("PARTITIONED BY", self.partitioned_by),
            ("CLUSTERED BY", self.clustered_by),
        ):
            if names:
                clauses.append(f"{words} ({', '.join(map(quote, names))})")
        if self.indexed_by:
            clauses.append(
                "INDEXED BY ("
                + ", ".join(f"{quote(n)} {kind}".strip() for n, kind in self.indexed_by)
                + ")"
            )
        if self.id_domains:
            clauses.append(
                "ID DOMAINS ("
                + ", ".join(f"{quote(c)} {d}" for c, d in self.id_domains.items())
                + ")"
            )
        return " ".join(clauses)


@dataclasses.dataclass
class World:
    seed: int
    tables: list
    users: list
    id_sets: dict  # name -> (type, values)

    def table(self, name):
        return next(t for t in self.tables if t.name == name)


def uplake_type(column):
    return column.sql_type()


def quote(name):
    return name if name.islower() and name.isidentifier() and name != "top" else f'"{name}"'


def make(seed):
    """The world of a seed."""
    rng = random.Random(f"world {seed}")
    users = user_pool(rng)
    names = rng.sample(NAMES, rng.choice([2, 3, 3, 4]))
    if "events" not in names:
        names[0] = "events"
    if len(names) > 1 and "exposures" not in names and rng.random() < 0.7:
        names[1 if names[0] == "events" else 0] = "exposures"
    big = rng.choice(names) if rng.random() < 0.12 else None
    with_domains = rng.random() < 0.65
    # The base of the values that several tables take keys from.
    tables = [
        make_table(rng, name, users, name == big, with_domains) for name in dict.fromkeys(names)
    ]
    texts = [u for u in rng.sample(users, min(len(users), 3))] + ["nobody"]
    id_sets = {"vips": ("text", texts), "numbers": ("int", [0, 1, 2, 5, 700])}
    return World(seed, tables, users, id_sets)


def user_pool(rng):
    count = rng.choice([3, 8, 8, 20, 60])
    users = [f"u{n}" for n in range(count)]
    if rng.random() < 0.3:
        users[0] = rng.choice(["", "U1", "😀", "ü", "it's"])
    return users


def make_table(rng, name, users, is_big, with_domains):
    columns = [Column("rid", "int")]
    if name != "plain" or rng.random() < 0.8:
        columns.append(Column("user_id", "text"))
    if name == "exposures":
        columns.append(Column("variant", "text"))
    weights = [w for *_, w in MENU]
    wanted = set()
    for _ in range(rng.randint(3, 8)):
        wanted.add(rng.choices(range(len(MENU)), weights)[0])
    if name in ("events", "exposures") and rng.random() < 0.8:
        wanted.add(7)  # ts
    for at in sorted(wanted, key=lambda _: rng.random()):
        column, kind, _ = MENU[at]
        storage = rng.choice(["", "", "integer", "smallint"]) if kind == "int" else ""
        columns.append(Column(column, kind, storage))
    if rng.random() < 0.5:
        tail = columns[1:]
        rng.shuffle(tail)
        columns = columns[:1] + tail
    table = Table(name, columns, [])
    table.one_row_per_user = name in ("users", "exposures") and rng.random() < 0.5
    lay_out(rng, table, with_domains)
    fill(rng, table, users, is_big)
    return table


def lay_out(rng, table, with_domains):
    names = {c.name: c for c in table.columns}
    if with_domains and "user_id" in names and rng.random() < 0.85:
        table.id_domains = {"user_id": "users"}
    if rng.random() < 0.12:
        table.primary_key = ["rid"]
    may_split = [
        c.name for c in table.columns if c.name in ("dt", "event", "flag", "os", "variant")
    ]
    if may_split and rng.random() < 0.4:
        table.partitioned_by = [rng.choice(may_split)]
        if table.primary_key:
            table.primary_key = ["rid", *table.partitioned_by]
    sortable = [
        c.name for c in table.columns if c.type in KEY_TYPES and c.name not in table.partitioned_by
    ]
    if rng.random() < 0.5:
        table.clustered_by = rng.sample(sortable, min(len(sortable), rng.choice([1, 1, 2])))
        if "user_id" in names and rng.random() < 0.5:
            table.clustered_by = ["user_id"]
    for column in table.columns:
        if column.name in table.partitioned_by or rng.random() > 0.25:
            continue
        if column.type in ("text", "int", "big"):
            kinds = ["", "words", "ngrams"] if column.type == "text" else [""]
            table.indexed_by.append((column.name, rng.choice(kinds)))
        elif column.type in ("double", "wild"):
            table.indexed_by.append((column.name, "zones"))


def row_count(rng, is_big):
    if is_big:
        return rng.choice([*BORDERS, *BORDERS, 20_000])
    return rng.choice(
        [
            0,
            rng.randint(1, 5),
            rng.randint(1, 30),
            rng.randint(10, 60),
            rng.randint(50, 150),
            rng.randint(100, 300),
        ]
    )


def fill(rng, table, users, is_big):
    known = [u for u in users if rng.random() < 0.75] or users[:1]
    if table.one_row_per_user:
        count = len(known)
    else:
        count = row_count(rng, is_big)
    if is_big:
        known = known + [f"v{n}" for n in range(count // 3)]
        count = max(count, len(known)) if table.one_row_per_user else count
    null_share = {
        c.name: rng.choice([0, 0, 0.1, 0.3, 1 if rng.random() < 0.2 else 0.1])
        for c in table.columns
    }
    # NULLs by user, too: a user all of whose values are NULL.
    dark = {u for u in known if rng.random() < 0.2}
    narrow = rng.random() < 0.5
    menus = (
        {
            c.name: [
                split_value(rng, c) if c.name in table.partitioned_by else values.value(rng, c.type)
                for _ in range(rng.choice([2, 4, 8]))
            ]
            for c in table.columns
        }
        if narrow
        else {}
    )
    long_text = rng.random() < 0.06
    rows = []
    for number in range(count):
        user = known[number % len(known)] if table.one_row_per_user else rng.choice(known)
        if not table.one_row_per_user and rng.random() < 0.03:
            user = None
        row = []
        for column in table.columns:
            name = column.name
            if name == "rid":
                row.append(number)
            elif name == "user_id":
                row.append(user)
            elif name in table.partitioned_by and name in table.primary_key:
                row.append(rng.choice(menus[name]) if narrow else split_value(rng, column))
            elif rng.random() < null_share[name] or (user in dark and rng.random() < 0.9):
                row.append(None)
            elif name == "variant":
                row.append(rng.choice(["control", "treat"]))
            elif long_text and column.type == "text" and rng.random() < 0.02:
                row.append(values.LONG_TEXT)
            elif narrow:
                row.append(rng.choice(menus[name]))
            elif name in table.partitioned_by:
                row.append(split_value(rng, column))
            else:
                row.append(values.value(rng, column.type))
        rows.append(tuple(row))
    table.pieces = pieces(rng, table, rows)


def split_value(rng, column):
    """A value for a partition column: Delta cannot tell an empty text from NULL."""
    return values.value(rng, column.type) or values.DEFAULTS.get(column.type, False)


def pieces(rng, table, rows):
    count = rng.choice([1, 1, 2, 3]) if len(rows) > 1 else 1
    how = rng.random()
    if how < 0.4 and "user_id" in [c.name for c in table.columns]:
        # Files by user: some files hold none of a user's rows.
        at = [c.name for c in table.columns].index("user_id")
        rows = sorted(rows, key=lambda r: r[at] or "")
    elif how < 0.7:
        rng.shuffle(rows)
    cuts = sorted(rng.randint(0, len(rows)) for _ in range(count - 1))
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(rows)]):
        piece = Piece(rows[begin:end], way=rng.choice(["load", "insert", "insert"]))
        optional = [
            c.name
            for c in table.columns
            if c.name
            not in (
                "rid",
                "user_id",
                *table.primary_key,
                *table.partitioned_by,
                *table.clustered_by,
            )
        ]
        if found and optional and rng.random() < 0.25:
            piece.left_out = tuple(rng.sample(optional, min(len(optional), rng.randint(1, 2))))
            gone = [c.name in piece.left_out for c in table.columns]
            piece.rows = [tuple(None if g else v for v, g in zip(row, gone)) for row in piece.rows]
        found.append(piece)
    can_be_foreign = not table.primary_key and not table.indexed_by
    if can_be_foreign and len(found) > 1 and rng.random() < 0.15:
        found[-1].way = "foreign"
        found[-1].left_out = ()
    return found


def arrow_table(table, piece):
    columns = [c for c in table.columns if c.name not in piece.left_out]
    at = [table.columns.index(c) for c in columns]
    arrays = [pa.array([row[i] for row in piece.rows], c.arrow()) for i, c in zip(at, columns)]
    schema = pa.schema([pa.field(c.name, c.arrow()) for c in columns])
    return pa.Table.from_arrays(arrays, schema=schema)


def text_file(seed, table, folder):
    """Writes the table's rows as a text file that loses nothing of them; None if there is none."""
    rows = table.rows()
    kinds = [c.type for c in table.columns]
    found = [(v, k) for row in rows for v, k in zip(row, kinds) if v is not None]
    odd = any(k == "wild" and not math.isfinite(v) for v, k in found)
    # CSV has no lists and no empty text, JSON neither NaN nor infinities.
    as_csv = not any(k in values.LISTS or v == "" for v, k in found)
    if not 0 < len(rows) <= TEXT_ROWS_MAX or not (as_csv or not odd):
        return None
    rng = random.Random(f"text file {seed} {table.name}")
    is_csv = as_csv and (odd or rng.random() < 0.5)
    path = folder / f"{table.name}.{'csv' if is_csv else 'json'}"
    names = [c.name for c in table.columns]
    with path.open("w", newline="") as file:
        if is_csv:
            writer = csv.writer(file, lineterminator="\n", delimiter=rng.choice(",;\t|"))
            writer.writerow(names)
            writer.writerows([text_value(v, True) for v in row] for row in rows)
        else:
            for number, row in enumerate(rows):
                line = {n: text_value(v, False) for n, v in zip(names, row)}
                # The first line has every column: one that no line names is not there.
                if rng.random() < 0.3 and number:
                    line = {n: v for n, v in line.items() if v is not None or n == names[0]}
                file.write(json.dumps(line, ensure_ascii=rng.random() < 0.5) + "\n")
    return str(path)


def text_value(value, is_csv):
    if isinstance(value, bool):
        return str(value).lower() if is_csv else value
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, (dt.date, decimal.Decimal)):
        return str(value)
    if is_csv and isinstance(value, float):
        return repr(value)
    return value


def write_files(world, folder):
    """Writes each piece as a Parquet file."""
    for table in world.tables:
        for number, piece in enumerate(table.pieces):
            piece.path = str(folder / f"{table.name}-{number}.parquet")
            pq.write_table(arrow_table(table, piece), piece.path)
