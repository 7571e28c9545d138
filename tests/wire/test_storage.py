"""What fails under the server: a full disk, too little memory, a bucket that is gone, a damaged lake, another server."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import frames
import pytest
import support
from frames import errors, parse, query

sys.path.append(str(support.ROOT / "tests"))
import buckets

# More than a small disk holds, in order.
SORTED = "select x, repeat('a', 200) || x as filler from generate_series(1, 1000000) g(x) order by filler"
# More than a small budget holds, of what cannot be spilled.
LISTED = "select cardinality(array_agg(repeat('a', 200) || x)) from generate_series(1, 3000000) g(x)"
MISSING = "a small disk (mount needs root)"


@pytest.fixture(autouse=True)
def _uplake_alone():
    support.only_uplake("its disk and its lake are its own")


def _serves(server):
    with server.raw() as other:
        assert other.rows("select count(*) from people") == [["4"]]


@pytest.fixture
def small_disk(tmp_path):
    """A folder for a server's scratch, on 24 MiB."""
    scratch = tmp_path / "small"
    scratch.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "uplake-test", str(scratch)], capture_output=True)
    if done.returncode:
        support.missing(MISSING, "run the tests as root, in a container for example")
    yield scratch
    subprocess.run(["umount", "-l", str(scratch)], check=True)


def a_full_disk_ends_the_statement_of_the_slow_reader_alone(fresh, small_disk):
    server = fresh(env={"TMPDIR": str(small_disk)})
    with server.raw(receive_buffer=65536, timeout=60) as wire:
        wire.send(query(support.WIDE))
        assert wire.next()[0] == b"T"
        # Who reads has its rows all the while.
        _serves(server)
        support.within(30, lambda: not server.residue().get("uplake_queries_running"), "its slot is free")
        _serves(server)
        found = wire.until_ready()
        assert [e["C"] for e in errors(found)] == ["53100"], found[-2:]
        assert wire.rows("select 1 as a") == [["1"]]
    server.free(5)


def a_full_disk_ends_the_statement_that_spills_alone(fresh, small_disk):
    server = fresh("--memory", "64M", env={"TMPDIR": str(small_disk)})
    with server.raw(timeout=60) as wire, server.raw() as other:
        wire.send(query(SORTED))
        assert other.rows("select count(*) from people") == [["4"]]
        assert [e["C"] for e in errors(wire.until_ready())] == ["53100"]
        assert wire.rows("select 1 as a") == [["1"]]
        server.free(5)
        assert not [p for p in small_disk.rglob("*") if p.is_file() and p.stat().st_size > 0], "what was spilled is left"
        # There is room again.
        found = wire.ask(query("select count(*) from (select x from generate_series(1, 100000) g(x) order by -x) t"))
        assert not errors(found)


def too_little_memory_ends_what_needs_it_and_the_server_lives(fresh):
    server = fresh("--memory", "100M")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wires = [server.raw(timeout=60) for _ in range(4)]
        asked = [pool.submit(wire.ask, query(LISTED)) for wire in wires]
        while not all(a.done() for a in asked):
            _serves(server)
        assert [[e["C"] for e in errors(a.result())] for a in asked] == [["53200"]] * 4
        for wire in wires:
            assert wire.rows("select 1 as a") == [["1"]]
            wire.close()
    server.free(5)


class Between:
    """A way to a store on which commits can be held up: the store never sees them, or its answers are lost."""

    def __init__(self, store):
        self.to = store.endpoint.rpartition("/")[2].split(":")
        # None, "before" or "after" the store has taken the commit.
        self.holds, self.held, self.release = None, threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client):
        """A request and its answer after the other, as long as both keep the connection."""
        with contextlib.suppress(OSError), client, socket.create_connection(self.to) as store:
            swallows = threading.Event()
            back = threading.Thread(target=self._back, args=(client, store, swallows), daemon=True)
            back.start()
            while data := client.recv(1 << 16):
                if self.holds and data.startswith(b"PUT ") and b"_delta_log/0" in data.split(b"\r\n")[0]:
                    if self.holds == "after":
                        swallows.set()
                        store.sendall(data)
                    self.held.set()
                    self.release.wait(60)
                    return
                store.sendall(data)

    def _back(self, client, store, swallows):
        with contextlib.suppress(OSError):
            while data := store.recv(1 << 16):
                if not swallows.is_set():
                    client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def hold(self, when):
        self.held, self.release, self.holds = threading.Event(), threading.Event(), when

    def go_on(self):
        self.holds = None
        self.release.set()

    def stop(self):
        self.go_on()
        self.listener.close()


@contextlib.contextmanager
def _in_a_bucket(tmp_path, way=None):
    """(store, server): a server of a lake in a bucket, and the store's process, or the way to it."""
    gateway = buckets.gateway() or str(support.tools().parent / "bin/versitygw")
    if not os.access(gateway, os.X_OK):
        support.missing("versitygw", "make s3-server")
    store = buckets.Gateway(gateway)
    try:
        store.client().create_bucket(Bucket=buckets.BUCKET)
        lake, environment = buckets.url(store, "lakes/gone"), buckets.environment(store)
        environment |= {"UPLAKE_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(
            [support.binary(), "sql", "--lake", lake, "-c", support.TABLES], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        folder = tmp_path / "server"
        folder.mkdir()
        if way is not None:
            way = way(store)
            environment |= {"AWS_ENDPOINT": way.endpoint}
        server = support.Server(folder, lake, env=environment)
        yield (way or store), server
        server.free(5)
        server.stop()
    finally:
        if isinstance(way, Between):
            way.stop()
        store.stop()


def a_bucket_that_is_gone_and_comes_back(tmp_path):
    """Gone for 35 s: statements are told after their retries, logins and system tables go on, and all comes back."""
    words = {"ROOT_ACCESS_KEY": buckets.KEY, "ROOT_SECRET_KEY": buckets.SECRET, "PATH": os.environ["PATH"]}
    with _in_a_bucket(tmp_path) as (store, server), server.raw(timeout=60) as wire:
        assert wire.rows("select count(*) from people") == [["4"]]
        assert server.ask("GET", "/ready")[0] == 200
        store.process.kill()
        store.process.wait()
        gone = time.monotonic()
        wire.send(query("select count(*) from numbers where digit = 3"))
        # Who logs in meanwhile, and asks what is not the lake's, is answered.
        with server.raw() as other:
            assert other.rows("select 1 as a") == [["1"]]
            running = other.rows("select text from system.running where text like '%digit = 3%' and text not like '%running%'")
            assert len(running) == 1
            assert other.rows("select count(*) from pg_catalog.pg_class where relname = 'people'") == [["1"]]
        found = wire.until_ready()
        print(f"told after {time.monotonic() - gone:.1f} s")
        assert [e["C"] for e in errors(found)] == ["58030"], errors(found)
        support.within(45, lambda: server.ask("GET", "/ready")[0] == 503, "it says that it is not ready")
        assert server.ask("GET", "/health")[0] == 200
        store.process = subprocess.Popen(
            store.process.args, env=words, cwd=store.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        support.within(30, lambda: server.ask("GET", "/ready")[0] == 200, "it is ready again")
        assert wire.rows("select count(*) from numbers where digit = 3") == [["1000"]]


# Each asks the store, at another point: a snapshot that is known, one that is not, data files, names, a write.
HANGING = [
    "select count(*) from people", "select count(*) from every_type", "select count(*) from numbers where digit = 3",
    "explain select * from filled", "show tables", "insert into filled values (1, 'a', 1.0)",
    "create table hung as select 1 as a", "delete from filled where id = 7", "copy people to stdout",
    "select count(*) from system.statements",
]
# What a statement may take beyond its deadline, and beyond a cancel.
LATE_S = max(1, support.FREE_S / 4)


def _slots_free(server, seconds=LATE_S):
    """Whatever the server itself waits for: its looks at the lake hang, too."""
    held = set(support.HELD) - {"uplake_storage_reads"}
    left = lambda: (server.running(), {name: amount for name, amount in server.residue().items() if name in held})
    support.within(seconds, lambda: not any(left()), lambda: f"nothing is held, but {left()}")


def _storage_reads(server):
    return server.residue().get("uplake_storage_reads", 0)


def _hangs(server, reads):
    """Until one more read of the store hangs than before. Looks of the server's own hang and end, too, so that this is not
    waited for longer than half a second: what comes next holds at any time, and is hardest then."""
    until = time.monotonic() + 0.5
    while _storage_reads(server) <= reads and time.monotonic() < until:
        time.sleep(0.005)


def _begins(wire, rest):
    """A transaction, again if it is to be asked again: while the gateway does what it was asked before it was stopped, it
    removes folders that are empty, and calls a name in one of them a folder."""
    for _ in range(10):
        found = errors(wire.ask(query(f"begin; {rest}")))
        if not found:
            return
        assert [e["C"] for e in found] == ["40001"], found
        wire.rows("rollback")
    raise AssertionError(found)


def a_bucket_that_takes_connections_and_never_answers(tmp_path):
    """Its process is stopped: the system goes on taking connections for it."""
    with _in_a_bucket(tmp_path) as (store, server), server.raw(timeout=60) as wire:
        assert wire.rows("select count(*) from people") == [["4"]]
        store.process.send_signal(signal.SIGSTOP)
        try:
            for text in HANGING:
                wire.rows("set statement_timeout = 700")
                began = time.monotonic()
                found = wire.ask(query(text))
                took = time.monotonic() - began
                print(f"{took:.2f} s: {text}")
                assert [e["C"] for e in errors(found)] == ["57014"], (text, found)
                assert took < 0.7 + LATE_S, text
                _slots_free(server)
                wire.rows("reset statement_timeout")
                # Who asks without a deadline may stop it.
                reads = _storage_reads(server)
                wire.send(query(text))
                server.runs()
                _hangs(server, reads)
                began = time.monotonic()
                wire.cancel()
                assert [e["C"] for e in errors(wire.until_ready())] == ["57014"], text
                assert time.monotonic() - began < LATE_S, text
                _slots_free(server)
                assert server.ask("GET", "/health", timeout=5)[0] == 200
            # What a transaction has written was not sent: the wait for its commit ends, and nothing is committed. One that
            # is given up is given up, though its file is there for a while.
            for ends in ("timeout", "cancel"):
                for end, codes in (("commit", ["57014"]), ("rollback", [])):
                    store.process.send_signal(signal.SIGCONT)
                    _begins(wire, "insert into filled values (77, 'never', 0.0); savepoint a")
                    store.process.send_signal(signal.SIGSTOP)
                    if ends == "timeout":
                        wire.rows("set statement_timeout = 700")
                    reads = _storage_reads(server)
                    began = time.monotonic()
                    wire.send(query(end))
                    if ends == "cancel":
                        server.runs()
                        _hangs(server, reads)
                        wire.cancel()
                    assert [e["C"] for e in errors(wire.until_ready())] == codes, (ends, end)
                    assert time.monotonic() - began < 0.7 + LATE_S, (ends, end)
                    _slots_free(server)
                    wire.rows("reset statement_timeout")
            # What is planned before it is run has the same time for it, and so has who asks by another door.
            wire.rows("set statement_timeout = 700")
            began = time.monotonic()
            found = wire.ask(parse("select count(*) from every_type where i = $1", "", [23]), frames.SYNC)
            assert [e["C"] for e in errors(found)] == ["57014"], found
            status, _, body = server.ask("POST", "/sql?timeout=700ms", b"select count(*) from every_type")
            assert status >= 400 and b"57014" in body, (status, body)
            assert time.monotonic() - began < 1.4 + 2 * LATE_S
            wire.rows("reset statement_timeout")
            wire.send(parse("select count(*) from every_type where i = $1", "", [23]), frames.SYNC)
            server.runs()
            wire.cancel()
            assert [e["C"] for e in errors(wire.until_ready())] == ["57014"]
            _slots_free(server)
            # As many as there are slots, and more that wait behind them, go with their clients.
            wires = [server.raw() for _ in range(24)]
            for one in wires:
                one.send(query("select count(*) from people"))
            support.within(10, lambda: len(server.running()) == 24, "all are listed")
            assert server.ask("GET", "/health", timeout=5)[0] == 200
            for one in wires:
                one.close()
            _slots_free(server, 3)
            # Of the dozens of requests that hung none is left, but the server's own: its looks at users, at tables, and
            # those of /ready.
            reads = _storage_reads(server)
            assert reads <= 10, reads
            # And who needs nothing of the store is answered.
            with server.raw(timeout=5) as other:
                assert other.rows("select 1 as a") == [["1"]]
                assert other.rows("select count(*) from pg_catalog.pg_class where relname = 'people'") == [["1"]]
            support.within(60, lambda: server.ask("GET", "/ready")[0] == 503, "it says that it is not ready")
        finally:
            store.process.send_signal(signal.SIGCONT)
        support.within(30, lambda: server.ask("GET", "/ready")[0] == 200, "it is ready again")
        assert wire.rows("select count(*) from numbers where digit = 3") == [["1000"]]
        wire.rows("create table after_it as select 1 as a; insert into after_it values (2)")
        assert wire.rows("select sum(a) from after_it") == [["3"]]
        assert wire.rows("select count(*) from filled where id = 77") == [["0"]]


def _commits(wire, what, row, timeout_s=None):
    """Begins what commits one row, to the point at which the client waits for it, which may take so long; when that
    is."""
    if what == "commit":
        wire.rows(f"begin; insert into filled values ({row}, '{what}', 0.0)")
    if timeout_s:
        wire.rows(f"set statement_timeout = {round(1000 * timeout_s)}")
    began = time.monotonic()
    if what == "commit":
        wire.send(query("commit"))
    elif what == "insert":
        wire.send(query(f"insert into filled values ({row}, '{what}', 0.0)"))
    elif what == "copy":
        rows = frames.frame(b"d", f"{row}\t{what}\t0\n".encode())
        wire.send(query("copy filled from stdin"), rows, frames.frame(b"c"))
    else:
        assert what == "delete"
        wire.send(query(f"delete from filled where id = {row}"))
    return began


def _held_until_it_times_out(way, wire, what, row):
    """Has a commit held up that times out after it was sent; its time-out, and when it began. On a machine that is busy
    the time may be over before: then nothing was committed, and it is given more."""
    for timeout_s in (1.5, 3, 6, 12, 24):
        began = _commits(wire, what, row, timeout_s)
        found = errors(wire.until_ready())
        if [e["C"] for e in found] != ["57014"]:
            assert way.held.is_set(), (what, found)
            return timeout_s, began, found
        assert not way.held.is_set(), f"{what}: told as stopped, and its commit was sent"
        wire.rows("rollback")
        wire.rows("reset statement_timeout")
    raise AssertionError(f"{what}: 24 s are not enough for a commit to be sent")


@pytest.mark.parametrize("takes_effect", [False, True])
def a_commit_that_was_sent_and_has_no_answer_is_told_as_unknown(tmp_path, takes_effect):
    """Not as stopped: it may have taken effect. Its files stay, and what it came to is seen afterwards."""
    with _in_a_bucket(tmp_path, Between) as (way, server), server.raw(timeout=60) as wire:
        row = 100
        for what in ("commit", "insert", "copy", "delete"):
            for ends in ("timeout", "cancel", "gone"):
                row += 1
                mine = server.raw(timeout=60)
                if what == "delete":
                    mine.rows(f"insert into filled values ({row}, '{what}', 0.0)")
                way.hold("after" if takes_effect else "before")
                if ends == "timeout":
                    took_s, began, found = _held_until_it_times_out(way, mine, what, row)
                else:
                    _commits(mine, what, row)
                    assert way.held.wait(30), (what, ends)
                    took_s, began = 0, time.monotonic()
                    if ends == "cancel":
                        mine.cancel()
                        found = errors(mine.until_ready())
                    else:
                        mine.close()
                if ends != "gone":
                    assert [e["C"] for e in found] == ["40003"], (what, ends, found)
                    assert "`filled`" in found[0]["M"] and "not known" in found[0]["M"], found
                    assert time.monotonic() - began < took_s + LATE_S, (what, ends)
                _slots_free(server)
                way.go_on()
                is_there = takes_effect != (what == "delete")
                counted = f"select count(*) from filled where id = {row}"
                told = f"{what}, {ends}: it {'is' if is_there else 'is not'} there"
                support.within(5, lambda: wire.rows(counted) == [[str(int(is_there))]], told)
                if ends != "gone":
                    # The session goes on, and its next transaction is a new one.
                    mine.rows("reset statement_timeout")
                    mine.rows("begin")
                    assert mine.rows(counted) == [[str(int(is_there))]], (what, ends)
                    mine.rows(f"insert into filled values ({row}, 'again', 1.0); commit")
                    assert mine.rows(counted) == [[str(int(is_there) + 1)]], (what, ends)
                    mine.close()


# Users that are changed while servers run.


def _user(lake, *words):
    done = subprocess.run(
        [support.binary(), "user", *words, "--lake", str(lake)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _connect(server, name, password):
    psycopg = support.module("psycopg", "psycopg")
    words = server.words | {"user": name, "password": password, "dbname": "lake"}
    return psycopg.connect(autocommit=True, connect_timeout=10, **words)


def _gets_in(server, name, password):
    psycopg = support.module("psycopg", "psycopg")
    try:
        _connect(server, name, password).close()
        return True
    except psycopg.OperationalError as error:
        return error


def an_access_document_that_is_damaged_or_gone_lets_nobody_new_in(fresh, tmp_path):
    lake = tmp_path / "lake"
    password = _user(lake, "add", "ann", "--role", "admin", "--generate")
    server = fresh()
    documents = lake / "_uplake/access"
    newest = sorted(documents.iterdir())[-1]
    whole = newest.read_bytes()
    with _connect(server, "ann", password) as ann:
        for damage in ("damaged", "gone"):
            broken = newest
            if damage == "gone":
                newest.rename(tmp_path / "kept.json")
            else:
                # A server reads a document once, so the damage is in one that is new to it.
                broken = documents / f"{int(newest.stem) + 1:08}.json"
                broken.write_bytes(whole.replace(b"ann", b"bob"))
            support.within(15, lambda: _gets_in(server, "ann", password) is not True, f"{damage}: nobody new gets in")
            said = str(_gets_in(server, "ann", password))
            assert "who may connect cannot be read" in said, said
            # Who is in stays, with what counted.
            assert ann.execute("select count(*) from people").fetchone() == (4,)
            if damage == "gone":
                (tmp_path / "kept.json").rename(newest)
            else:
                broken.unlink()
            support.within(15, lambda: _gets_in(server, "ann", password) is True, f"{damage}: mended")


def two_servers_of_a_lake_see_what_the_other_writes(fresh, tmp_path):
    lake = tmp_path / "lake"
    boss = _user(lake, "add", "boss", "--role", "admin", "--generate")
    one, two = fresh(), fresh()
    with _connect(one, "boss", boss) as first, _connect(two, "boss", boss) as second:
        first.execute("create table both (id bigint)")
        for n in range(10):
            (first, second)[n % 2].execute(f"insert into both values ({n})")
            for side in (first, second):
                assert side.execute("select count(*) from both").fetchone() == (n + 1,)

        def write(side, n):
            side.execute(f"insert into both values ({n})")

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for side in (first, second):
                pool.submit(lambda side=side: [write(side, n) for n in range(10, 20)])
        assert second.execute("select count(*) from both").fetchone() == (30,)
        # A user of both, and of neither any more: at most 5 s apart.
        ann = _user(lake, "add", "ann", "--role", "reader", "--generate")
        for server in (one, two):
            support.within(15, lambda server=server: _gets_in(server, "ann", ann) is True, "she gets in")
        _user(lake, "remove", "ann")
        for server in (one, two):
            support.within(15, lambda server=server: _gets_in(server, "ann", ann) is not True, "she gets in no more")


def rights_that_are_lost_end_no_open_cursor_and_count_for_the_next_statement(fresh, tmp_path):
    psycopg = support.module("psycopg", "psycopg")
    lake = tmp_path / "lake"
    _user(lake, "add", "boss", "--role", "admin", "--generate")
    ann = _user(lake, "add", "ann", "--role", "reader", "--generate")
    server = fresh()
    with _connect(server, "ann", ann) as wire:
        wire.execute("begin")
        wire.execute("declare c cursor for select id from numbers")
        assert len(wire.execute("fetch 10 from c").fetchall()) == 10
        _user(lake, "remove", "ann")
        support.within(15, lambda: _gets_in(server, "ann", ann) is not True, "the server knows")
        assert len(wire.execute("fetch all from c").fetchall()) == 9990
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            wire.execute("select count(*) from numbers")
