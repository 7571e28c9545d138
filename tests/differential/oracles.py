"""One statement asked in many ways: what must agree with what.

    duckdb       the same statement over the same files
    again        the statement asked four times of one process, which learns (kept sides, hot files)
    no-index     --no-index
    threads 1/7  --threads
    parts 2/3    cut into parts that travel as bytes and are computed by themselves
    memory       with little memory: the same rows, or an error that says so
    batch        all statements of a world by `uplake sql --batch`
    ternary      rows where p, where NOT p and where p IS NULL are all rows
    stored       CREATE TABLE AS the statement holds the statement's rows
    view         what the statement names by WITH, or all of it, as views
    files        text files with the tables' rows, read in place
    compact, reindex, delete nothing, reload
                 the statements once more after the table was laid out anew
    postgres     PostgreSQL, where there is one: a tenth of the statements of which DuckDB gives the
                 same rows, and those that DuckDB refuses

A statement is compared with DuckDB first; the other ways must give DuckDB's rows, too, so that each
failure has an expected answer. Where DuckDB differs, and PostgreSQL gives Uplake's rows, the failure
has an excuse.

Not here: which differences are known (`known`), and what becomes of a failure (`reduce`, `run`).
"""

import collections
import copy
import dataclasses
import datetime as dt
import decimal
import re
import time
import zlib

import pyarrow as pa

import compare
import engines
import postgres
import schemas
import tree
from functions import NOT_, named
from tree import Call, Item, Select, SetOperation, Star, TableRef

SESSIONS = {
    "duckdb": ["--threads", "2"],
    "no-index": ["--threads", "2", "--no-index"],
    "threads 1": ["--threads", "1"],
    "threads 7": ["--threads", "7"],
    "memory": ["--threads", "2", "--memory", "24M"],
    "parts 2": ["--threads", "2"],
    "parts 3": ["--threads", "2"],
}
# What these sessions set.
SETTINGS = {
    "parts 2": ["uplake.elsewhere = 'here:2'"],
    "parts 3": ["uplake.elsewhere = 'here:3'"],
}
# Share of the statements that are asked in each way beside the first.
SHARES = {
    "again": 0.06,
    "no-index": 0.06,
    "threads 1": 0.04,
    "threads 7": 0.04,
    "parts 2": 0.03,
    "parts 3": 0.05,
    "memory": 0.03,
    "ternary": 0.03,
    "stored": 0.01,
    "view": 0.03,
    "files": 0.03,
}
# One in so many statements is compared with PostgreSQL, chosen by its text: the draws of a world are
# the same without one.
POSTGRES_SHARE = 10
# Answers of DuckDB that are kept to be compared with other ways: small ones of one world.
KEPT_ROWS_MAX, KEPT_ANSWERS_MAX = 1000, 1000
# What DuckDB says of a number that is too large for its type: wrapping round is no answer.
OVERFLOW = re.compile(r"Overflow in|out of range for the destination|Out of Range", re.I)
# Of a column that is added.
ADDED_TYPES = ["int", "text", "double", "bool", "date", "timestamp"]
OUT_OF_MEMORY = re.compile(r"memory|Resources exhausted|budget", re.I)


@dataclasses.dataclass
class Failure:
    """An answer that is not the expected one."""

    world: schemas.World
    way: str
    query: object  # the tree; for a statement that changes rows, a SELECT of its table
    kind: str  # different, refused, died
    message: str
    ours: list = None
    theirs: list = None
    table: str = ""  # of a statement that changes rows
    statement: str = ""  # and it
    excuse: str = ""  # who gives the same answer as Uplake


@dataclasses.dataclass
class Counts:
    compared: int = 0  # statements whose answer was compared with DuckDB's
    other_ways: int = 0
    theirs_refused: int = 0
    both_refused: int = 0
    rows: int = 0
    postgres: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def copy(self):
        return dataclasses.replace(self, postgres=self.postgres.copy())


class Court:
    """A world in both engines, and the ways to ask."""

    def __init__(self, world, binary, folder, server=None):
        self.world, self.folder = world, folder
        self.server = server  # PostgreSQL's; None: there is none
        self.postgres = postgres.Postgres(server, world) if server else None
        self.lake = engines.Lake(binary, folder, world)
        self.sessions = {}
        self.counts = Counts()
        self.until = float("inf")  # after it nothing is looked into more closely
        self.known_answers = {}  # of DuckDB, by statement, until a change of rows
        self.last_theirs = None  # DuckDB's answer to the statement checked last
        self.files = {}  # text files of tables, by their names
        self.changes = []  # statements after which the rows are other than the world says
        self.lake.build(self.session("duckdb"))
        self.duck = engines.Duck(world)

    def session(self, way):
        name = way if way in SESSIONS else "duckdb"
        if name not in self.sessions:
            self.sessions[name] = self.lake.session(
                *SESSIONS[name], settings=SETTINGS.get(name, ())
            )
        return self.sessions[name]

    def close(self):
        for session in self.sessions.values():
            session.close()
        self.duck.close()
        if self.postgres is not None:
            self.postgres.close()

    def expected(self, query):
        """DuckDB's answer, or Refused."""
        text = tree.sql(query, "duckdb")
        found = self.known_answers.get(text)
        if found is None:
            try:
                found = self.duck.ask(text)
            except engines.Refused as refused:
                return refused
            if found.num_rows <= KEPT_ROWS_MAX and len(self.known_answers) < KEPT_ANSWERS_MAX:
                self.known_answers[text] = found
        return found

    def ask(self, query, way="duckdb"):
        try:
            return self.session(way).ask(tree.sql(query, "uplake"))
        except engines.Refused as refused:
            return refused

    def ask_both(self, query, way):
        """Both answers; the engines work at the same time."""
        session = self.session(way)
        try:
            session.begin(tree.sql(query, "uplake"))
        except engines.Refused as refused:
            return refused, self.expected(query)
        theirs = self.expected(query)
        try:
            return session.answer(), theirs
        except engines.Refused as refused:
            return refused, theirs

    def judge(self, query, ours, theirs, way="duckdb"):
        """A Failure, or None; `theirs` is an answer."""
        if isinstance(ours, engines.Refused):
            if way == "memory" and OUT_OF_MEMORY.search(ours.text):
                return None
            kind = "died" if isinstance(ours, engines.Died) else "refused"
            return Failure(self.world, way, query, kind, ours.text)
        if ours is None:
            return Failure(self.world, way, query, "different", "no rows came")
        tolerance = compare.TOLERANCE if tree.is_computed(query) else 0
        found = compare.difference(ours, theirs, tree.has_one_order(query), tolerance)
        if found is None:
            return None
        return Failure(
            self.world,
            way,
            query,
            "different",
            found,
            compare.rows_of(ours),
            compare.rows_of(theirs),
        )

    def check(self, query, way="duckdb"):
        """Asks both engines once: a Failure, or None."""
        if way == "batch":
            return self.check_batch([query])[0]
        if way == "ternary":
            return self.check_ternary(query)
        if way in ("stored", "view", "files"):
            return getattr(self, f"check_{way}")(query, self.expected(query))
        if way == "postgres":
            return self.check_postgres(query, self.ask(query))
        ours, theirs = self.ask_both(query, way)
        self.last_theirs = None
        if isinstance(theirs, engines.Refused):
            if isinstance(ours, engines.Died):
                return Failure(self.world, way, query, "died", ours.text)
            if isinstance(ours, engines.Refused):
                self.counts.both_refused += 1
                return None
            self.counts.theirs_refused += 1
            if OVERFLOW.search(theirs.text):
                found = Failure(
                    self.world,
                    way,
                    query,
                    "different",
                    f"answered, though DuckDB says: {theirs.text.splitlines()[0]}",
                )
                return self.with_excuse(self.without_dropped(found, ours), ours)
            return self.check_postgres(query, ours)
        self.counts.compared += way == "duckdb"
        self.counts.other_ways += way != "duckdb"
        self.counts.rows += theirs.num_rows
        self.last_theirs = theirs
        return self.with_excuse(self.judge(query, ours, theirs, way), ours)

    def without_dropped(self, failure, ours):
        """The failure, excused if its number overflows in rows that are dropped: which condition is
        asked first nobody promises. DuckDB's rows are ours then, with NULL for such numbers."""
        try:
            theirs = self.duck.ask(tree.sql(failure.query, "duckdb", tries=True))
        except engines.Refused:
            return failure
        if self.judge(failure.query, ours, theirs) is None:
            failure.excuse = "the number that overflows is of a row that is dropped"
        return failure

    # PostgreSQL

    def third_opinion(self, query, ours):
        """(its rows, what differs between them and `ours` or None), or None: it says nothing."""
        if self.postgres is None or self.changes or not isinstance(ours, pa.Table):
            return None
        tolerance = compare.TOLERANCE if tree.is_computed(query) else 0
        try:
            answer = self.postgres.ask(query)
            found = postgres.difference(answer, ours, tree.has_one_order(query), tolerance)
        except postgres.NoOpinion as none:
            self.counts.postgres[none.reason] += 1
            return None
        self.counts.postgres["other" if found else "the same"] += 1
        return answer.rows, found

    def with_excuse(self, failure, ours):
        """The failure, excused if other rows than DuckDB's are PostgreSQL's."""
        if failure is not None and failure.kind == "different" and not failure.excuse:
            opinion = self.third_opinion(failure.query, ours)
            if opinion is not None and opinion[1] is None:
                failure.excuse = "DuckDB differs, PostgreSQL gives the same"
        return failure

    def check_postgres(self, query, ours):
        """Is the answer PostgreSQL's? Also for one of DuckDB, which is Uplake's."""
        opinion = self.third_opinion(query, ours)
        if opinion is None or opinion[1] is None:
            return None
        rows, found = opinion
        return Failure(
            self.world, "postgres", query, "different", found, compare.rows_of(ours), rows
        )

    def check_more(self, query, theirs, rng):
        """The other ways, now and then."""
        if zlib.crc32(tree.sql(query, "uplake").encode()) % POSTGRES_SHARE == 0:
            found = self.check_postgres(query, theirs)
            if found:
                yield found
        for way, share in SHARES.items():
            if rng.random() >= share:
                continue
            self.counts.other_ways += 1
            if way == "ternary":
                found = self.check_ternary(query)
            elif way in ("stored", "view", "files"):
                found = getattr(self, f"check_{way}")(query, theirs)
            elif way == "again":
                found = None
                for _ in range(3):
                    found = found or self.judge(query, self.ask(query), theirs, way)
            else:
                found = self.judge(query, self.ask(query, way), theirs, way)
            if found:
                yield found

    def check_batch(self, queries):
        """All the queries by one `uplake sql --batch`: a Failure or None of each."""
        theirs = [self.expected(q) for q in queries]
        texts = [tree.sql(q, "uplake") for q in queries]
        answers = engines.batch(self.lake.binary, self.lake.path, self.folder, texts)
        died = any(isinstance(a, engines.Died) for a in answers)
        if died and len(queries) > 1 and time.monotonic() < self.until:
            return self.check_halves(queries, answers)
        found = []
        for query, expected, answer in zip(queries, theirs, answers):
            if isinstance(expected, engines.Refused):
                found.append(None)
                continue
            self.counts.other_ways += 1
            if isinstance(answer, engines.Refused):
                found.append(self.judge(query, answer, expected, "batch"))
                continue
            rows = compare.rows_of(expected)
            kinds = [c.type for c in expected.columns]
            ours = [tuple(from_json(v, k) for v, k in zip(row, kinds)) for row in answer]
            tolerance = compare.TOLERANCE if tree.is_computed(query) else 0
            message = compare.row_difference(ours, rows, tree.has_one_order(query), tolerance)
            failure = Failure(self.world, "batch", query, "different", message, ours, rows)
            found.append(failure if message else None)
        return found

    def check_halves(self, queries, answers):
        """Which of the statements end the batch that they are in."""
        half = len(queries) // 2
        found = self.check_batch(queries[:half]) + self.check_batch(queries[half:])
        if not any(f and f.kind == "died" for f in found):
            lost = next(a for a in answers if isinstance(a, engines.Died))
            together = "; ".join(tree.sql(q, "uplake") for q in queries[:4])
            found[0] = Failure(
                self.world,
                "batch",
                queries[0],
                "died",
                f"{lost.text} (of {len(queries)} statements together: {together})",
            )
        return found

    def check_ternary(self, query):
        parts = ternary(query)
        if parts is None:
            return None
        whole, three = parts
        theirs, ours = self.ask(whole), self.ask(three)
        if isinstance(theirs, engines.Refused) or isinstance(ours, engines.Refused):
            return None
        found = self.judge(three, ours, theirs, "ternary")
        if found:
            found.query = query
        return found

    def check_stored(self, query, theirs):
        """The rows of a table made of the statement, where its types can be stored."""
        if (
            isinstance(theirs, engines.Refused)
            or not all(i.name for i in getattr(query, "items", []))
            or isinstance(query, SetOperation)
        ):
            return None
        session = self.session("duckdb")
        plain = dataclasses.replace(query, order=[], limit=None, offset=None)
        theirs = self.expected(plain)
        if isinstance(theirs, engines.Refused):
            return None
        try:
            session.ask("DROP TABLE IF EXISTS stored_answer")
            session.ask("CREATE TABLE stored_answer AS " + tree.sql(plain, "uplake"))
            ours = session.ask("SELECT * FROM stored_answer")
        except engines.Refused as refused:
            ours = refused
        found = self.judge(plain, ours, theirs, "stored")
        return found

    def check_view(self, query, theirs):
        """What the statement names by WITH, or all of it, as views of these names."""
        if isinstance(theirs, engines.Refused):
            return None
        named = query.ctes or [tree.With("asked", dataclasses.replace(query, order=[], limit=None))]
        if not all(has_names(cte.query) for cte in named):
            return None
        asked = dataclasses.replace(query, ctes=[])
        if not query.ctes:
            # With its limit it would be another statement.
            if query.limit is not None or getattr(query, "offset", None):
                return None
            asked = Select([Item(Star())], TableRef("asked", "asked"))
        session = self.session("duckdb")
        try:
            for cte in named:
                text = tree.sql(cte.query, "uplake")
                session.ask(f"CREATE OR REPLACE VIEW {cte.name} AS {text}")
            ours = session.ask(tree.sql(asked, "uplake"))
            for cte in reversed(named):
                session.ask(f"DROP VIEW {cte.name}")
        except engines.Refused as refused:
            ours = refused
        if not query.ctes:
            query = dataclasses.replace(query, order=[])
        return self.judge(query, ours, theirs, "view")

    def check_files(self, query, theirs):
        """The statement of text files with the rows of its tables."""
        nodes = list(tree.walk(query))
        names = {n.name for n in nodes if isinstance(n, TableRef) and n.version is None}
        used = [t for t in self.world.tables if t.name in names]
        if isinstance(theirs, engines.Refused) or not used or self.changes:
            return None
        # They have no key, and the columns of * would be those of one another.
        if any(isinstance(n, (tree.AnyOfGroup, Star)) for n in nodes):
            return None
        if any(getattr(n, "items", True) == [] for n in nodes):
            return None
        files = {}
        for table in used:
            files[table.name] = self.file_of(table)
            if files[table.name] is None:
                return None
        try:
            ours = self.session("duckdb").ask(tree.sql(query, "uplake", files=files))
        except engines.Refused as refused:
            ours = refused
        return self.judge(query, ours, theirs, "files")

    def file_of(self, table):
        """A query of a text file with the table's rows, its columns cast; None if they cannot be text."""
        found = self.files.get(table.name)
        if found is None:
            found = self.files[table.name] = schemas.text_file(self.world.seed, table, self.folder)
        if not found:
            return None
        names = [(schemas.quote(c.name), c.sql_type()) for c in table.columns]
        items = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in names)
        return f"SELECT {items} FROM '{found}'"

    # Changes

    def change(self, rng):
        """Lays a table out anew without changing its rows, or adds a column to it; says how."""
        table = rng.choice(self.world.tables)
        how = rng.choice(["compact", "reindex", "delete nothing", "compact", "add column"])
        if how == "add column":
            return self.add_column(table, rng)
        if how == "compact":
            self.lake.command("table", "compact", table.name)
        elif how == "reindex":
            columns = [
                c.name
                for c in table.columns
                if c.type in ("text", "int", "big")
                and re.fullmatch(r"\w+", c.name)
                and c.name not in table.partitioned_by
            ]
            name = rng.choice(columns)
            self.lake.command("table", "reindex", table.name, "--index", name)
        else:
            self.session("duckdb").ask(f"DELETE FROM {table.name} WHERE false")
        return f"{how} {table.name}"

    def add_column(self, table, rng):
        """A column more, in both engines, which the rows that are there do not have."""
        column = schemas.Column(f"added{len(table.columns)}", rng.choice(ADDED_TYPES))
        text = f"ALTER TABLE {table.name} ADD COLUMN {column.name} {column.sql_type()}"
        self.session("duckdb").ask(text)
        self.duck.tell(text)
        table.columns.append(column)
        for piece in table.pieces:
            piece.rows = [(*row, None) for row in piece.rows]
            piece.left_out = (*piece.left_out, column.name)
        self.known_answers.clear()
        self.files.clear()
        if self.postgres is not None:
            self.postgres.close()  # the next question loads the tables again
        return f"add column {table.name}"

    def check_change(self, change):
        """A statement that changes rows by both engines: a Failure if the table's rows are others."""
        name = change.table.name
        query = Select([Item(Star())], TableRef(name, name))
        try:
            self.duck.tell(change.text("duckdb"))
        except engines.Refused:
            return None
        self.counts.compared += 1
        self.known_answers.clear()
        theirs = self.duck.ask(tree.sql(query, "duckdb"))
        text = change.text("uplake")
        try:
            self.session("duckdb").ask(text)
            ours = self.ask(query)
        except engines.Refused as refused:
            ours = refused
        found = self.judge(query, ours, theirs, change.way)
        if found and change.way == "delete" and not self.changes:
            # The rows that stay are those of a SELECT, which PostgreSQL can be asked.
            stay = Call(named("is NOT TRUE", "bool"), [change.condition], "bool")
            found.query = dataclasses.replace(query, where=stay)
            found = self.with_excuse(found, ours)
        if found:
            found.query, found.table, found.statement = change.parts(), name, text
        self.changes.append(text)
        return found


def has_names(query):
    """Has every column of the query a name that no other has?"""
    names = [item.name for item in tree.first_select(query).items]
    return all(names) and len(set(names)) == len(names) > 0


def from_json(value, kind):
    """A value of JSON as the column's type has it; what cannot be one stays text, and differs."""
    try:
        return typed(value, kind)
    except (ValueError, TypeError, ArithmeticError):
        return f"not {kind}: {value}"


def typed(value, kind):
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        found = decimal.Decimal(str(value))
        return compare.plain(found)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return compare.plain(dt.datetime.fromisoformat(value))
    return compare.plain(value)


def ternary(query):
    """(the statement without its condition, its three parts together), or None."""
    if not isinstance(query, Select) or query.where is None or query.group or query.having:
        return None
    if query.distinct or query.windows or query.ctes or query.source is None or not query.items:
        return None
    kinds = (tree.Aggregate, tree.Window, tree.Grouping)
    if any(isinstance(n, kinds) for i in query.items for n in tree.walk_here(i.value)):
        return None
    named_items = [Item(i.value, f"c{n}") for n, i in enumerate(query.items)]
    plain = dataclasses.replace(query, items=named_items, order=[], limit=None, offset=None)
    whole = dataclasses.replace(plain, where=None)
    p = query.where
    parts = [
        dataclasses.replace(plain, where=w)
        for w in (p, Call(NOT_, [p], "bool"), Call(named("is NULL", "bool"), [p], "bool"))
    ]
    three = SetOperation("UNION ALL", SetOperation("UNION ALL", parts[0], parts[1]), parts[2])
    return whole, three


def relaid(world, rng):
    """The world's rows in other pieces and with another layout."""
    found = copy.copy(world)
    found.tables = []
    for table in world.tables:
        new = dataclasses.replace(
            table,
            pieces=[],
            partitioned_by=[],
            clustered_by=[],
            indexed_by=[],
            id_domains={},
            primary_key=[],
        )
        schemas.lay_out(rng, new, rng.random() < 0.6)
        # Statements may rely on a key that the table had.
        if new.primary_key or table.primary_key:
            new.primary_key, new.partitioned_by = ["rid"], []
        at = [new.columns.index(new.column(name)) for name in new.partitioned_by]
        if any(row[i] == "" for row in table.rows() for i in at):
            new.partitioned_by = []  # Delta cannot tell an empty text from NULL there
        new.pieces = schemas.pieces(rng, new, [r for r in table.rows()])
        # What an earlier file left out must stay NULL, and so it is: the rows say so.
        found.tables.append(new)
    return found
