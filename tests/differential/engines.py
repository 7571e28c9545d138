"""The engines that answer: Uplake in a process of its own for many statements, and DuckDB.

Uplake's interactive shell is asked over a pseudo-terminal with TERM=dumb: it reads a line, writes
the answer as an Arrow stream to its standard output, and shows its prompt again. So thousands of
statements share one process, one that fails does not keep the others from their answers, and every
type comes as it is. (`-f` would stop at the first error; `--batch` shares work, which is an oracle
of its own, `batch()`.)

Invariant: an answer belongs to the statement that was asked last; a process that ends or takes too
long is started anew at the next question.
"""

import dataclasses
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import threading
import time
import tty

import duckdb
import pyarrow as pa

import models
import schemas
import values

PROMPT = b"uplake> "
TIMEOUT_S = 60
# What a terminal's buffer surely takes at once.
FIRST_BYTES = 2048
DUCKDB_TIMEOUT_S = 20


class Refused(Exception):
    """The engine answers with an error; `text` is its message."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text


class Died(Refused):
    """The process ended or did not answer in time: never right."""


def environment(folder):
    found = {k: v for k, v in os.environ.items() if not k.startswith("UPLAKE_")}
    return found | {
        "TERM": "dumb",
        "UPLAKE_CACHE": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "RUST_BACKTRACE": "0",
    }


class Uplake:
    """A session in a process."""

    def __init__(self, binary, lake, folder, options=(), settings=()):
        self.settings = settings
        self.command = [
            binary,
            "sql",
            "--lake",
            str(lake),
            "--format",
            "arrow",
            "--timing",
            *options,
        ]
        self.folder = folder
        self.process = None
        self.unsent = b""

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.errors = open(self.folder / f"errors-{id(self)}", "w+b")
        self.master, slave = pty.openpty()
        tty.setraw(slave)
        self.process = subprocess.Popen(
            self.command,
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            bufsize=0,
            env=environment(self.folder),
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self.read_to_prompt(b"")
        for setting in self.settings:
            self.read_to_prompt(f"SET {setting};\n".encode())
        self.new_errors()  # a binary of before knows fewer settings

    def close(self):
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()
        os.close(self.master)
        self.process = None

    def read_to_prompt(self, line):
        """Sends a line, and what comes until the prompt."""
        out, found = self.process.stdout.fileno(), bytearray()
        until = time.monotonic() + TIMEOUT_S
        while True:
            wants = [self.master] if line else []
            readable, writable, _ = select.select(
                [out], wants, [], max(0, until - time.monotonic())
            )
            if writable:
                line = line[os.write(self.master, line[:FIRST_BYTES]) :]
            if readable:
                chunk = os.read(out, 1 << 20)
                if not chunk:
                    raise Died(
                        f"the process ended with {self.end_status()}: {self.new_errors()[-2000:]}"
                    )
                found += chunk
                if not line and found.endswith(PROMPT):
                    return bytes(found[: -len(PROMPT)])
            elif not writable and time.monotonic() >= until:
                raise Died(f"no answer within {TIMEOUT_S} s")

    def end_status(self):
        try:
            return self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "a closed output"

    def new_errors(self):
        """What was written to standard error since the last question."""
        # The process writes to the same open file, so this is where it goes on.
        file = self.errors.fileno()
        size = os.fstat(file).st_size
        if not size:
            return ""
        text = os.pread(file, size, 0).decode(errors="replace")
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        return text

    def ask(self, sql):
        """The answer as an Arrow table; None for a statement without rows."""
        self.begin(sql)
        return self.answer()

    def begin(self, sql):
        """Sends the statement, to be answered while something else is done."""
        try:
            if self.process is None:
                self.start()
        except Died:
            self.close()
            raise
        line = sql.replace("\n", " ").encode() + b";\n"
        try:
            self.unsent = line[os.write(self.master, line[:FIRST_BYTES]) :]
        except BlockingIOError:
            self.unsent = line

    def answer(self):
        """The answer to what `begin` has sent."""
        try:
            found = self.read_to_prompt(self.unsent)
        except Died:
            self.close()
            raise
        text = self.new_errors()
        if "panicked at" in text:
            raise Died(text.strip())
        message = re.search(r"^error: (.*)", text, re.M | re.S)
        if message:
            raise Refused(message[1].strip())
        if not found:
            return None
        return pa.ipc.open_stream(found).read_all()


def command(binary, folder, *args, check=True):
    """Runs the command once: (exit code, output, message)."""
    done = subprocess.run(
        [binary, *args], capture_output=True, timeout=TIMEOUT_S * 2, env=environment(folder)
    )
    message = done.stderr.decode(errors="replace")
    if check and done.returncode != 0:
        raise Refused(f"{' '.join(map(str, args))}: {message.strip()}")
    return done.returncode, done.stdout, message


SEPARATOR = "uplake_separator"
# A decoder for all rows: json.loads with an argument makes one for each.
ROWS = json.JSONDecoder(object_pairs_hook=list)


def batch(binary, lake, folder, statements, options=()):
    """Answers of `uplake sql --batch`, each a list of rows as JSON gives them, or Refused."""
    path = folder / "batch.sql"
    parts = []
    for number, sql in enumerate(statements):
        parts.append(f"{sql.replace(chr(10), ' ')};\nSELECT {number} AS {SEPARATOR};\n")
    path.write_text("".join(parts))
    _, out, message = command(
        binary,
        folder,
        "sql",
        "--lake",
        str(lake),
        "--format",
        "json",
        "--batch",
        str(path),
        *options,
        check=False,
    )
    errors = {}
    for part in re.split(r"^(?=error in statement )", message, flags=re.M):
        found = re.match(r"error in statement (\d+) \(line \d+\): (.*)", part, re.S)
        if found:
            errors[(int(found[1]) - 1) // 2] = Refused(found[2].strip())
    answers, rows = {}, []
    for line in out.decode().splitlines():
        # Numbers with a point stay text: as doubles, decimals would lose digits.
        row = ROWS.decode(line)
        if len(row) == 1 and row[0][0] == SEPARATOR:
            answers[row[0][1]] = rows
            rows = []
        else:
            rows.append([v for _, v in row])
    lost = Died("the batch lost its answer: " + message.strip()[-2000:])
    return [errors.get(n) or answers.get(n, lost) for n in range(len(statements))]


@dataclasses.dataclass
class Lake:
    """A world in a folder, as Uplake has it."""

    binary: str
    folder: pathlib.Path
    world: schemas.World

    @property
    def path(self):
        return self.folder / "lake"

    def session(self, *options, settings=()):
        return Uplake(self.binary, self.path, self.folder, options, settings)

    def command(self, *args, check=True):
        return command(self.binary, self.folder, *args, "--lake", str(self.path), check=check)

    def build(self, session):
        """Makes the tables and loads their pieces."""
        self.folder.mkdir(parents=True, exist_ok=True)
        schemas.write_files(self.world, self.folder)
        for table in self.world.tables:
            session.ask(table.create())
            for piece in table.pieces:
                self.add(session, table, piece)
        for name, (kind, members) in self.world.id_sets.items():
            listed = ", ".join(f"({values.literal(v, kind, 'uplake')})" for v in members)
            session.ask(f"CREATE ID SET {name} AS SELECT column1 FROM (VALUES {listed}) AS v")

    def add(self, session, table, piece):
        if piece.way == "foreign":
            import deltalake

            deltalake.write_deltalake(
                str(self.path / table.name),
                schemas.arrow_table(table, piece),
                mode="append",
                schema_mode="merge",
            )
        elif piece.way == "load":
            self.command("load", "-q", table.name, piece.path)
        else:
            there = [c.name for c in table.columns if c.name not in piece.left_out]
            names = ", ".join(map(schemas.quote, there))
            session.ask(f"INSERT INTO {table.name} ({names}) SELECT * FROM '{piece.path}'")


class Duck:
    """DuckDB over the same files."""

    def __init__(self, world):
        self.connection = duckdb.connect()
        self.watch = Watch(self.connection)
        self.tell("SET TimeZone = 'UTC'; SET integer_division = true; SET threads = 1")
        self.tell("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        self.connection.create_function(
            "window_funnel_model", models.window_funnel, ["BIGINT", "VARCHAR"], "BIGINT"
        )
        for table in world.tables:
            columns = ", ".join(f'"{c.name}" {c.sql_type()}' for c in table.columns)
            self.tell(f"CREATE TABLE {table.name} ({columns})")
            for piece in table.pieces:
                self.tell(
                    f"INSERT INTO {table.name} BY NAME SELECT * FROM read_parquet('{piece.path}')"
                )
        for name, (kind, members) in world.id_sets.items():
            listed = ", ".join(f"({values.literal(v, kind, 'duckdb')})" for v in members)
            self.tell(f"CREATE TABLE id_set_{name} AS SELECT v FROM (VALUES {listed}) AS t(v)")

    def tell(self, sql):
        try:
            self.connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise Refused(str(error)) from None

    def ask(self, sql):
        try:
            with self.watch:
                return self.connection.sql(sql).to_arrow_table()
        except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as error:
            raise Refused(str(error)) from None

    def close(self):
        self.watch.end()
        self.connection.close()


class Watch:
    """Interrupts a statement that takes DuckDB longer than a few seconds."""

    def __init__(self, connection):
        self.connection, self.until, self.ended = connection, None, threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.ended.wait(1):
            until = self.until
            if until is not None and time.monotonic() > until:
                self.connection.interrupt()

    def __enter__(self):
        self.until = time.monotonic() + DUCKDB_TIMEOUT_S

    def __exit__(self, *_):
        self.until = None

    def end(self):
        self.ended.set()
