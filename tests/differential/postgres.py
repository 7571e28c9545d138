"""PostgreSQL, the third opinion: it decides where Uplake and DuckDB differ, and says where both do
from it.

A server of our own serves a run: its cluster lies in a temporary folder, listens on a socket there
alone, and goes with the run. It sorts text by code points and knows the upper case of all letters,
as Uplake and DuckDB do.

Invariants:
- A world has its own schema, made when it is first asked about.
- No opinion is better than a wrong one: what cannot be spelt, is refused, or has a numeric for a
  double ends as `NoOpinion`, whose reason is counted.

Not here: which statements are asked (`oracles`), and how functions are spelt (`functions`).
"""

import contextlib
import dataclasses
import glob
import itertools
import math
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile
import time

import psycopg

import compare
import schemas
import tree
import values

SERVER_PROGRAMS = ("initdb", "postgres")
# The server ends with its input, also when the tester is killed. By INT it does not wait for sessions.
WITH_THE_TESTER = '"$@" & cat; kill -INT $!; wait'
START_S = 20
STATEMENT_MS = 5000
SETTINGS = {
    "listen_addresses": "",
    "timezone": "UTC",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
}
MISSING = (
    "its initdb and postgres are neither on PATH nor in /usr/lib/postgresql "
    "(apt-get install postgresql). DuckDB alone decides."
)
# Types that PostgreSQL names by numbers, as compare.kind_class() calls them. A numeric is both:
# sums of whole numbers are numerics.
CLASSES = {
    16: ("bool",),
    20: ("integer",),
    21: ("integer",),
    23: ("integer",),
    701: ("double",),
    1700: ("integer", "decimal"),
    25: ("text",),
    1043: ("text",),
    1082: ("date32[day]",),
    1114: ("timestamp",),
    1184: ("timestamptz",),
    1000: ("list",),
    1007: ("list",),
    1016: ("list",),
}


class NoOpinion(Exception):
    """PostgreSQL says nothing about a statement; `reason` is what to count."""

    def __init__(self, reason, text=""):
        super().__init__(f"{reason}: {text}")
        self.reason, self.text = reason, text


def programs():
    """The folder of initdb and postgres, the newest one; None if there is none."""

    def version(folder):
        return [int(n) for n in folder.split("/") if n.isdigit()]

    found = shutil.which("initdb")
    installed = [os.path.dirname(os.path.realpath(found))] if found else []
    installed += sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=version, reverse=True)
    whole = (f for f in installed if all(os.access(f"{f}/{p}", os.X_OK) for p in SERVER_PROGRAMS))
    return next(whole, None)




@contextlib.contextmanager
def serving(wanted=True):
    """A server for a run; None, and a line that says why, where there is none."""
    if not wanted or programs() is None:
        print(f"PostgreSQL is not asked: {MISSING if wanted else 'as told'}", flush=True)
        yield None
        return
    try:
        server = Server()
    except (OSError, KeyError, subprocess.SubprocessError, psycopg.Error) as error:
        print(f"PostgreSQL is not asked: it does not start: {error}", flush=True)
        yield None
        return
    try:
        yield server
    finally:
        server.close()


class Server:
    """A cluster of our own: started when it is made, gone when it is closed."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="uplake-pg-"))
        self.process = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        bin_folder = programs()
        as_user = {"cwd": self.folder}
        if os.geteuid() == 0:  # as which it refuses to run
            user = unprivileged()
            as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        data = self.folder / "data"
        locale = ["--encoding=UTF8", "--lc-collate=C", f"--lc-ctype={utf8_locale()}"]
        subprocess.run(
            [f"{bin_folder}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", *locale],
            check=True,
            capture_output=True,
            **as_user,
        )
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        server = [f"{bin_folder}/postgres", "-D", data, "-k", self.folder, *settings]
        self.process = subprocess.Popen(
            ["sh", "-c", WITH_THE_TESTER, "sh", *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the tester, which then closes the server
            **as_user,
        )
        self.wait()

    def wait(self):
        until = time.monotonic() + START_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def connect(self):
        return psycopg.connect(
            host=str(self.folder), user="postgres", dbname="postgres", autocommit=True
        )

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def unprivileged():
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise KeyError("neither a user postgres nor nobody")


def utf8_locale():
    """The locale of all letters that does not sort."""
    known = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.split()
    return next((n for n in known if n.lower() in ("c.utf-8", "c.utf8")), "C")


@dataclasses.dataclass
class Answer:
    rows: list
    classes: list  # per column, the classes of types that it can be compared with


class Postgres:
    """A world as PostgreSQL has it."""

    numbers = itertools.count()

    def __init__(self, server, world):
        self.server, self.world = server, world
        self.schema = f"w{os.getpid()}_{next(self.numbers)}"
        self.connection = None
        self.broken = None  # why the world cannot be had

    def close(self):
        if self.connection is None:
            return
        try:
            self.connection.execute(f"DROP SCHEMA {self.schema} CASCADE")
        except psycopg.Error:
            pass
        self.connection.close()
        self.connection = None

    def load(self):
        self.connection = self.server.connect()
        self.connection.execute(
            f"SET client_min_messages = error; CREATE SCHEMA {self.schema};"
            f"SET search_path = {self.schema}; SET statement_timeout = {STATEMENT_MS}"
        )
        for table in self.world.tables:
            self.load_table(table)
        for name, (kind, members) in self.world.id_sets.items():
            listed = ", ".join(f"({values.literal(v, kind, 'postgres')})" for v in members)
            self.connection.execute(
                f"CREATE TABLE id_set_{name} AS SELECT v FROM (VALUES {listed}) AS t(v)"
            )

    def load_table(self, table):
        at = [n for n, c in enumerate(table.columns) if has_type(c.type)]
        # All whole numbers are of 64 bits, as the expressions of the grammar are.
        parts = [
            f"{schemas.quote(c.name)} {values.type_name(c.type, 'postgres')}"
            for c in table.columns
            if has_type(c.type)
        ]
        if table.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(map(schemas.quote, table.primary_key))})")
        self.connection.execute(f"CREATE TABLE {table.name} ({', '.join(parts)})")
        names = ", ".join(schemas.quote(table.columns[n].name) for n in at)
        with (
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as copy,
        ):
            for row in table.rows():
                copy.write_row([row[n] for n in at])

    def ask(self, query):
        """The Answer to a statement's tree, or NoOpinion."""
        text = self.text(query)
        if self.broken is not None:
            raise NoOpinion("it has not the tables", self.broken)
        try:
            if self.connection is None:
                self.load()
        except psycopg.Error as error:
            self.broken = str(error)
            raise NoOpinion("it has not the tables", self.broken) from None
        try:
            found = self.connection.execute(text)
            rows = [tuple(map(plain, row)) for row in found.fetchall()]
        except psycopg.Error as error:
            raise NoOpinion(refusal(error), str(error)) from None
        return Answer(rows, [CLASSES.get(c.type_code, ()) for c in found.description])

    def text(self, query):
        """The statement as PostgreSQL is asked it."""
        wide = {t.name for t in self.world.tables if not all(has_type(c.type) for c in t.columns)}
        nodes = list(tree.walk(query))
        if any(not has_type(getattr(n, "type", "")) for n in nodes):
            raise NoOpinion("no spelling", "lists of lists")
        stars = any(isinstance(n, tree.Star) or getattr(n, "items", True) == [] for n in nodes)
        if stars and any(isinstance(n, tree.TableRef) and n.name in wide for n in nodes):
            raise NoOpinion("no spelling", "lists of lists")
        try:
            return tree.sql(query, "postgres")
        except tree.Unspelt as absent:
            raise NoOpinion("no spelling", str(absent)) from None


def has_type(kind):
    """Lists of lists of different lengths are no arrays."""
    return kind != "nested"


def plain(value):
    if isinstance(value, float) and value != value:
        return math.nan  # the one of all, as in compare
    return compare.plain(value)


def refusal(error):
    """A refusal's kind by its SQLSTATE; no statement fails by one."""
    state = error.sqlstate or ""
    if state.startswith(("42", "0A", "54")):
        return "refused as another dialect"
    if state == "57014":
        return "too slow"
    return "refused by its values"


def difference(answer, ours, ordered, tolerance):
    """What differs between an Arrow table and PostgreSQL's answer, or None."""
    if ours.num_columns != len(answer.classes):
        return f"{ours.num_columns} columns, expected {len(answer.classes)}"
    for column, classes in zip(ours.columns, answer.classes):
        kind = compare.kind_class(column.type)
        if kind in classes or kind == "null":
            continue
        if kind == "double" and "decimal" in classes:
            raise NoOpinion("a numeric for a double")
        return f"column of {kind}, expected {' or '.join(classes) or 'another type'}"
    return compare.row_difference(compare.rows_of(ours), answer.rows, ordered, tolerance)
