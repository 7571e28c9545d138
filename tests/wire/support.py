"""What the tests over connections share: a lake, its server, and looks at what it runs.

UPLAKE_BIN names the binary. With UPLAKE_WIRE_PEER=postgres the tests of Postgres clients ask a
Postgres of this machine in place of Uplake: what they expect must be what Postgres does.
"""

import contextlib
import glob
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import frames

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = os.environ.get("UPLAKE_WIRE_PEER", "")
DATABASE, USER = "lake", "admin"
START_S, STOP_S = 30, 40
# How long a slot may be held after its client has gone, or has asked for a cancel: the promise is a
# tenth of it on a free machine.
FREE_S = float(os.environ.get("UPLAKE_WIRE_FREE_S", "1"))
# What /metrics must tell to be 0 when nothing runs.
HELD = (
    "uplake_queries_running", "uplake_queries_waiting", 'uplake_memory_bytes{kind="queries"}',
    "uplake_spill_files", "uplake_storage_reads", "uplake_spool_bytes", "uplake_statements",
)
# Runs for hours wherever it runs, and holds next to nothing.
LONG = "select count(*) from generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(y) where x + y = -1"
# Rows of 200 MB.
WIDE_ROWS = 1_000_000
WIDE = f"select x, repeat('abcdefghij', 20) as filler from generate_series(1, {WIDE_ROWS}) g(x)"

TABLES = """
create table people (id bigint, name text, score double precision, born date, seen timestamp);
insert into people values
  (1, 'Ada', 1.5, date '1815-12-10', timestamp '2026-11-01 10:00:00.000001'),
  (2, 'naïve ☃ 😀', -0.25, date '2000-02-29', timestamp '1969-12-31 23:59:59.999999'),
  (3, '', 0.0, null, null),
  (4, null, null, date '2026-11-26', timestamp '2026-11-26 00:00:00');
create table every_type (id integer, b boolean, s smallint, i integer, n bigint, r real,
  d double precision, q decimal(38,10), x text, y bytea, day date, at timestamp,
  z timestamp with time zone);
create table filled (id bigint, name text, score double precision);
create table numbers as select x as id, x % 10 as digit, 'n' || x as name from generate_series(1, 10000) g(x);
"""


def missing(what, how):
    """Skips, loudly."""
    pytest.skip(f"MISSING: {what}. Get it: {how}")


def module(name, package):
    """A client's module, or a skip of the whole file that says how to install it."""
    try:
        return __import__(name)
    except ImportError:
        pytest.skip(
            f"MISSING: {package}. Get it: pip install -r tests/requirements.txt", allow_module_level=True
        )


def only_uplake(why):
    if PEER:
        pytest.skip(f"not asked of {PEER}: {why}")


def binary():
    name = os.environ.get("UPLAKE_BIN", "uplake")
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"no uplake binary: `{name}` is not there; set UPLAKE_BIN to a built one")
    return str(pathlib.Path(found).resolve())


def within(seconds, holds, what):
    """Waits until it holds; how long that took. `what` is a text, or makes one."""
    began = time.monotonic()
    while not holds():
        late = time.monotonic() - began >= seconds
        assert not late, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.005)
    return time.monotonic() - began


class Server:
    """`uplake serve` of a lake, on free ports of loopback."""

    def __init__(self, folder, lake, *options, env=None, pg="127.0.0.1:0"):
        self.folder = pathlib.Path(folder)
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.errors = open(self.folder / "server.err", "ab")
        # Tests ask faster than anybody may.
        usual = {"--pg": pg, "--http": "127.0.0.1:0", "--logins-per-second": "0", "--statements-per-second": "0"}
        command = [binary(), "serve", "--lake", str(lake)]
        command += [word for name, value in usual.items() if name not in options for word in (name, value)]
        self.process = subprocess.Popen(
            [*command, *options], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self.errors,
            # Panics are kept quiet otherwise; no fault may be one.
            env=os.environ | {"TMPDIR": str(self.scratch), "RUST_BACKTRACE": "1"} | (env or {}),
        )
        self.pg = self.http = None
        try:
            self._read_addresses()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _read_addresses(self):
        until = time.monotonic() + START_S
        while self.pg is None or self.http is None:
            line = self.process.stdout.readline().decode()
            assert line and time.monotonic() < until, f"it does not serve: {self.said()}"
            found = re.match(r"(postgres|http)\s+(?:\w+://)?(\S+):(\d+)", line)
            if found:
                setattr(self, {"postgres": "pg", "http": "http"}[found[1]], (found[2], int(found[3])))

    def said(self):
        return (self.folder / "server.err").read_text(errors="replace")[-3000:]

    # Words that drivers want.

    @property
    def url(self):
        return f"postgresql://{USER}@{self.pg[0]}:{self.pg[1]}/{DATABASE}"

    @property
    def words(self):
        return {"host": self.pg[0], "port": self.pg[1], "user": USER}

    def raw(self, **more):
        return frames.Connection(self.pg, **({"user": USER, "database": DATABASE} | more))

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, bytes) of a call over HTTP."""
        with contextlib.closing(http.client.HTTPConnection(*self.http, timeout=timeout)) as call:
            call.request(method, path, body=body, headers=headers or {})
            answer = call.getresponse()
            return answer.status, answer.headers, answer.read()

    def sql(self, text):
        """Rows over HTTP: a list of dicts."""
        status, _, body = self.ask("POST", "/sql?format=jsonl", text.encode())
        assert status == 200, body
        return [json.loads(line) for line in body.splitlines()]

    def running(self):
        """The statements that run now."""
        status, _, body = self.ask("GET", "/queries")
        assert status == 200, body
        return json.loads(body)["running"]

    def residue(self):
        """What is held though nothing runs, of /metrics: {name: amount}."""
        text = self.ask("GET", "/metrics")[2].decode()
        found = re.findall(r"^(uplake_[^ ]+) (\S+)$", text, re.MULTILINE)
        held = {name: float(value) for name, value in found if name in HELD}
        assert len(held) == len(HELD), f"not told of: {set(HELD) - set(held)}"
        return {name: value for name, value in held.items() if value}

    def cpu_seconds(self):
        """What its threads have had of processors."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def runs(self, seconds=10):
        """Waits until a statement runs."""
        within(seconds, lambda: self.running(), "a statement runs")

    def free(self, seconds=None):
        """Waits until nothing runs and nothing is held; how long that took."""
        took = within(seconds or FREE_S, lambda: not self.running(), "no statement is left")
        within(seconds or FREE_S, lambda: not self.residue(), lambda: f"nothing is held, but {self.residue()}")
        return took

    # Its end.

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def ends(self, seconds=STOP_S):
        """Waits for its end and gives its exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"it does not end within {seconds} s of SIGTERM: {self.said()}") from None
        self.process.stdout.close()
        self.errors.close()
        return code

    def stop(self):
        """Ends it as an operator does, and looks at what is left."""
        if self.process.returncode is not None:
            return
        self.terminate()
        code = self.ends()
        assert code == 0, f"exit code {code}: {self.said()}"
        # A thread that waits for a log when its runtime ends is told of by the library that reads it, with RUST_BACKTRACE.
        panics = [line for line in self.said().splitlines() if "panicked" in line and "/buoyant_kernel_engine-" not in line]
        assert not panics, self.said()
        left = [str(p.relative_to(self.scratch)) for p in self.scratch.rglob("*") if not p.is_dir()]
        assert not left, f"files are left in the folder for spills: {left}"


def locks(lake):
    """Files of a lake that nobody but a running server may hold."""
    # Those of tables stay, as the command's do: what is locked is their content.
    found = (p for p in pathlib.Path(lake).rglob("*") if p.suffix in (".lock", ".tmp", ".partial"))
    return [str(p) for p in found if p.parent.name != "locks"]


def make_lake(folder, statements=TABLES):
    lake = pathlib.Path(folder) / "lake"
    done = subprocess.run(
        [binary(), "sql", "--lake", str(lake), "-c", statements], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return lake


class Postgres:
    """The peer: a cluster of our own with the same tables, on a free port of loopback."""

    http = None

    def __init__(self, folder, settings=()):
        self.folder = pathlib.Path(folder)
        self.bin = postgres_programs()
        assert self.bin, "no initdb and postgres (apt-get install postgresql)"
        as_user = {"cwd": self.folder}
        if os.geteuid() == 0:  # as which it refuses to run
            user = pwd.getpwnam("postgres")
            as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            for above in self.folder.parents:  # it must reach its own folder
                with contextlib.suppress(OSError):
                    above.chmod(above.stat().st_mode | 0o011)
        data = self.folder / "data"
        made = [f"{self.bin}/initdb", "-D", data, "-U", USER, "-A", "trust", "-N", "--encoding=UTF8", "--locale=C"]
        subprocess.run(made, check=True, capture_output=True, **as_user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.pg = probe.getsockname()
        words = ["-h", "127.0.0.1", "-p", str(self.pg[1]), "-k", str(self.folder)]
        words += ["-c", "timezone=UTC", "-c", "max_connections=1100", "-c", "fsync=off", *settings]
        self.process = subprocess.Popen(
            [f"{self.bin}/postgres", "-D", data, *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user,
        )
        within(START_S, self._answers, "Postgres starts")
        with self.raw(database="postgres") as first:
            first.rows(f"create database {DATABASE}")

    def _answers(self):
        try:
            self.raw(database="postgres").close()
            return True
        except OSError:
            return False

    def raw(self, **more):
        return frames.Connection(self.pg, **({"user": USER, "database": DATABASE} | more))

    url, words = Server.url, Server.words

    def running(self):
        with self.raw() as look:
            return look.rows(
                "select query from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()"
                " and backend_type = 'client backend'"
            )

    def residue(self):
        return {}

    runs, free = Server.runs, Server.free

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(STOP_S)


def postgres_programs():
    """The folder of initdb and postgres, the newest one; None if there is none."""
    found = [os.path.dirname(os.path.realpath(p)) for p in [shutil.which("initdb")] if p]
    found += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    whole = (f for f in found if all(os.access(f"{f}/{p}", os.X_OK) for p in ("initdb", "postgres")))
    return next(whole, None)


def tools():
    """Where `make wire-tools` puts what comes of other registries than Python's."""
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "wire"
