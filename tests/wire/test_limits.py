"""What a server lets nobody do: too many connections and logins, and more than a tenant's quotas."""

import base64
import concurrent.futures
import contextlib
import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import threading
import time

import frames
import pytest
import support

psycopg = support.module("psycopg", "psycopg[binary]")
PASSWORD = "a password of tests"
# Runs for hours wherever it runs, of a table that a reader may read.
LONG = "select count(*) from numbers a, numbers b, numbers c where a.id + b.id + c.id = -1"


@pytest.fixture(autouse=True)
def _uplake_alone():
    support.only_uplake("it has other limits")


def _uplake(*words, given=None):
    done = subprocess.run([support.binary(), *words], input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _user(lake, name, *more):
    _uplake("user", "add", name, "--lake", str(lake), *more, given=PASSWORD + "\n")


def _tenant(lake, name, *more):
    _uplake("tenant", "add", name, "--lake", str(lake), *more)


@pytest.fixture
def lake(fresh, tmp_path):
    """The lake of `fresh`, with an admin `boss`."""
    lake = tmp_path / "lake"
    _user(lake, "boss", "--role", "admin")
    return lake


def _connect(server, user, password=PASSWORD, **more):
    host, port = server.pg
    words = {"host": host, "port": port, "user": user, "password": password, "dbname": support.DATABASE}
    return psycopg.connect(**(words | more), autocommit=True, connect_timeout=20)


def _code(failed):
    """The SQLSTATE of a login that failed, which psycopg tells by its words alone."""
    text = str(failed.value)
    known = {"too many": "53300", "failed logins": "53400", "no such user": "28P01"}
    return next((code for words, code in reversed(known.items()) if words in text), text)


def _http(server, user, path="/sql", body=b"select 1 as a", password=PASSWORD):
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    status, _, answer = server.ask("POST", path, body, {"Authorization": f"Basic {basic}"})
    return status, json.loads(answer)


# Connections.


def a_role_has_its_connections_whatever_they_speak(fresh, lake):
    _user(lake, "ann", "--role", "reader", "--connection-limit", "2")
    server = fresh()
    with _connect(server, "ann") as first, _connect(server, "ann"):
        assert first.execute("select 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError) as failed:
            _connect(server, "ann")
        assert "too many connections for this role" in str(failed.value)
        status, answer = _http(server, "ann")
        assert (status, answer["error"]["code"]) == (429, "53300")
        assert _http(server, "boss")[0] == 200
    support.within(5, lambda: _http(server, "ann")[0] == 200, "a place is free again")


def connections_of_all_protocols_count_together(fresh):
    server = fresh("--connections", "3")
    with contextlib.ExitStack() as held:
        calls = [held.enter_context(socket.create_connection(server.http, timeout=20)) for _ in range(2)]
        for call in calls:
            call.sendall(b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nselect 1")
            assert call.recv(100).startswith(b"HTTP/1.1 200")
        held.enter_context(server.raw())
        with pytest.raises(ConnectionRefusedError) as failed:
            server.raw()
        assert failed.value.args[0]["C"] == "53300"
        status, _, body = server.ask("POST", "/sql", b"select 1")
        assert (status, json.loads(body)["error"]["code"]) == (429, "53300")
    support.within(5, lambda: server.ask("POST", "/sql", b"select 1 as a")[0] == 200, "places are free again")


def _is_refused(server):
    with socket.create_connection(server.pg, timeout=20) as late:
        late.settimeout(1)
        try:
            return late.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


def who_says_nothing_keeps_nobody_out_for_long(fresh):
    server = fresh()
    with server.raw() as served, contextlib.ExitStack() as held:
        for _ in range(260):
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_connection(server.pg, timeout=20))
        support.within(20, lambda: _is_refused(server), "one more is refused at once")
        assert served.rows("select 1 as a") == [["1"]]
    support.within(5, lambda: _serves(server), "others are let in again")
    text = server.ask("GET", "/metrics")[2].decode()
    assert 'uplake_refused_total{limit="in_login"}' in text


def _serves(server):
    try:
        with server.raw() as wire:
            return wire.rows("select 1 as a") == [["1"]]
    except (OSError, frames.Closed):
        return False


# Logins.


@pytest.mark.parametrize("name", ["boss", "nobody"])
def who_guesses_passwords_waits_whether_there_is_the_name_or_not(fresh, lake, name):
    server = fresh()
    found = []
    for _ in range(6):
        with pytest.raises(psycopg.OperationalError) as failed:
            _connect(server, name, "a wrong one")
        found.append(_code(failed))
    assert found[:4] == ["28P01"] * 4 and "53400" in found[4:], found
    if name == "boss":
        # By HTTP it is the same name and the same address.
        status, answer = _http(server, name, password=PASSWORD)
        assert (status, answer["error"]["code"]) == (429, "53400")
        support.within(10, lambda: _http(server, name)[0] == 200, "who knows it is let in after a while")
        with _connect(server, name) as wire:
            assert wire.execute("select 1").fetchone() == (1,)


def wrong_passwords_by_http_wait_too(fresh, lake):
    server = fresh()
    found = [_http(server, "boss", password=f"wrong {n}")[1]["error"]["code"] for n in range(6)]
    assert found[:4] == ["28P01"] * 4 and "53400" in found[4:], found


# Addresses other than this machine's.


def _outer_address():
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
        except OSError:
            address = "127.0.0.1"
    if address.startswith("127."):
        support.missing("an address that is not loopback", "a network")
    return address


@pytest.fixture
def outer(fresh, lake, tmp_path):
    """Makes servers that are asked through an address of another machine's kind."""
    if not shutil.which("openssl"):
        support.missing("openssl", "apt-get install openssl")
    address, chain, key = _outer_address(), tmp_path / "chain.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", key, "-out", chain, "-days", "2", "-subj", "/CN=uplake"]
    subprocess.run(words, check=True, capture_output=True)

    def start(*options):
        return fresh("--tls-cert", str(chain), "--tls-key", str(key), *options, pg=f"{address}:0")

    return start


def an_address_that_asks_too_fast_is_slowed_down(outer):
    server = outer("--statements-per-second", "2")
    with _connect(server, "boss", sslmode="require") as wire:
        began = time.monotonic()
        for _ in range(14):
            assert wire.execute("select 1").fetchone() == (1,)
        # Ten at once, then two a second.
        assert 1.5 <= time.monotonic() - began < 20


def an_address_that_logs_in_too_fast_is_refused(outer):
    server = outer("--logins-per-second", "1")

    def log_in(_):
        try:
            _connect(server, "boss", sslmode="require").close()
            return "ok"
        except psycopg.OperationalError as error:
            return "too many logins" if "too many logins from this address" in str(error) else str(error)

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        found = list(threads.map(log_in, range(16)))
    assert set(found) == {"ok", "too many logins"} and found.count("ok") >= 5, found


def an_address_has_its_connections(outer):
    server = outer("--connections-of-address", "2")
    with _connect(server, "boss", sslmode="require"), _connect(server, "boss", sslmode="require"):
        with pytest.raises(psycopg.OperationalError, match="too many connections from this address"):
            _connect(server, "boss", sslmode="require")


# Tenants.


def _refused(wire, sql):
    with pytest.raises(psycopg.Error) as failed:
        wire.execute(sql)
    return failed.value


def a_tenant_that_has_read_its_bytes_reads_no_more_today(fresh, lake, tmp_path):
    _tenant(lake, "growth", "--scan-bytes-per-day", "1K")
    _user(lake, "ann", "--role", "reader", "--tenant", "growth")
    cache = {"UPLAKE_CACHE": str(tmp_path / "cache"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    server = fresh(env=cache)
    with _connect(server, "ann") as wire, _connect(server, "boss") as boss:
        # What it reads before anybody looks is let through.
        _until_cancelled(wire, "select sum(id), count(distinct name) from numbers")
        failed = _refused(wire, "select count(*) from numbers where id > 7")
        assert failed.sqlstate == "53400" and "scan_bytes_per_day" in str(failed) and "UTC" in str(failed)
        assert _http(server, "ann")[1]["error"]["code"] == "53400"
        assert boss.execute("select count(*) from numbers").fetchone() == (10_000,)
        listed = boss.execute("select count(*) from system.queries where sqlstate = '53400'").fetchone()
        assert listed[0] >= 1
    server.stop()
    # A restart does not give it back.
    again = fresh(env=cache)
    with _connect(again, "ann") as wire:
        assert _refused(wire, "select 1").sqlstate == "53400"


def a_statement_that_runs_is_stopped_when_a_quota_is_used_up(fresh, lake):
    _tenant(lake, "growth", "--compute-seconds-per-hour", "1")
    _user(lake, "ann", "--role", "reader", "--tenant", "growth")
    server = fresh()
    with _connect(server, "ann") as wire:
        began = time.monotonic()
        failed = _refused(wire, LONG)
        assert failed.sqlstate == "53400" and "compute_seconds_per_hour" in str(failed), failed
        assert time.monotonic() - began < 1 + 10 * support.FREE_S
        assert _refused(wire, "select 1").sqlstate == "53400"


def dollars_of_computing_are_a_quota(fresh, lake):
    _tenant(lake, "growth", "--dollars-per-day", "0.5")
    _user(lake, "ann", "--role", "reader", "--tenant", "growth")
    server = fresh("--dollars-per-core-hour", "3600")
    with _connect(server, "ann") as wire:
        failed = _refused(wire, LONG)
        assert failed.sqlstate == "53400" and "dollars_per_day" in str(failed), failed


def a_tenant_has_its_queue(fresh, lake):
    _tenant(lake, "growth", "--slots", "1", "--queue", "1")
    _user(lake, "ann", "--role", "reader", "--tenant", "growth")
    server = fresh()
    with contextlib.ExitStack() as held:
        wires = [held.enter_context(_connect(server, "ann")) for _ in range(3)]
        boss = held.enter_context(_connect(server, "boss"))
        threads = [threading.Thread(target=_until_cancelled, args=[wire, LONG]) for wire in wires[:2]]
        for thread in threads:
            thread.start()
        running = "select count(*) from system.running where role = 'ann'"
        support.within(10, lambda: boss.execute(running).fetchone() == (2,), "both are there")
        failed = _refused(wires[2], "select count(*) from numbers")
        assert failed.sqlstate == "53400" and "wait already" in str(failed)
        for wire in wires[:2]:
            wire.cancel()
        for thread in threads:
            thread.join(20)


def _until_cancelled(wire, sql):
    with contextlib.suppress(psycopg.Error):
        wire.execute(sql)


def a_tenant_has_its_memory(fresh, lake):
    _tenant(lake, "narrow", "--tenant-memory", "1M")
    _user(lake, "ann", "--role", "reader", "--tenant", "narrow")
    server = fresh("--memory", "256M")
    # Neither spills nor goes on in another way.
    large = "select length(string_agg(a.name || b.name, ',')) from numbers a, numbers b where b.id <= 100"
    with _connect(server, "ann") as wire, _connect(server, "boss") as boss:
        failed = _refused(wire, large)
        assert failed.sqlstate == "53200", failed
        assert boss.execute(large).fetchone()[0] > 1_000_000
        assert wire.execute("select count(*) from numbers").fetchone() == (10_000,)


def loads_come_no_faster_than_a_tenant_may(fresh, lake):
    _tenant(lake, "growth", "--ingest-bytes-per-second", "100K")
    _user(lake, "ann", "--role", "writer", "--tenant", "growth")
    server = fresh()
    body = b"id,name\n" + b"".join(b"%d,%s\n" % (n, b"x" * 90) for n in range(3000))
    for user, least in (("ann", 1.0), ("boss", 0)):
        began = time.monotonic()
        status, answer = _http(server, user, f"/load/slow_{user}", body)
        assert status == 200 and answer["rows"] == 3000, answer
        assert time.monotonic() - began >= least
    with _connect(server, "ann") as wire:
        began = time.monotonic()
        with wire.cursor() as cursor, cursor.copy("copy slow_ann from stdin (format csv, header)") as copy:
            copy.write(body)
        assert time.monotonic() - began >= 1.0


def loads_take_of_the_memory_what_there_is(fresh):
    server = fresh("--memory", "128M")
    body = b"id,name\n" + b"".join(b"%d,n%d\n" % (n, n) for n in range(100_000))
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        loads = threads.map(lambda n: server.ask("POST", f"/load/t{n}", body)[0], range(4))
        assert list(loads) == [200] * 4
    assert server.sql("select count(*) as n from t3") == [{"n": 100_000}]


def copies_take_of_the_memory_what_there_is(fresh, lake):
    """Beside each other and a statement that takes all that is left: no row is lost, or the client hears of it."""
    server = fresh("--memory", "64M")
    rows = 200_000
    body = b"".join(b"%d,%s\n" % (n, b"x" * 90) for n in range(rows))

    def copied(number):
        with _connect(server, "boss") as wire:
            wire.execute(f"create table copied_{number} (id bigint, name text)")
            with wire.cursor() as cursor, cursor.copy(f"copy copied_{number} from stdin (format csv)") as copy:
                for at in range(0, len(body), 1 << 20):
                    copy.write(body[at : at + (1 << 20)])
            return wire.execute(f"select count(*), sum(id), min(length(name)) from copied_{number}").fetchone()

    sorts = "select count(*) from (select x from generate_series(1, 300000) g(x) order by -x limit 290000) t"
    with concurrent.futures.ThreadPoolExecutor(5) as threads, _connect(server, "boss") as other:
        copies = [threads.submit(copied, number) for number in range(4)]
        while not all(copy.done() for copy in copies):
            assert other.execute(sorts).fetchone() == (290_000,)
        for copy in copies:
            assert copy.result() == (rows, rows * (rows - 1) // 2, 90)


def _behind(server):
    """How nice the threads are that go behind the others: what they are, and what they should be."""

    def nice(task):
        return int((task / "stat").read_text().rpartition(")")[2].split()[16])

    process, found = pathlib.Path(f"/proc/{server.process.pid}"), set()
    for task in process.glob("task/*"):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            if (task / "comm").read_text() == "behind\n":
                found.add((nice(task), min(19, nice(process) + 10)))
    return found


def a_tenant_that_floods_leaves_others_their_turn(fresh, lake):
    """Its threads go behind theirs, once there are others."""
    for tenant, user in (("flood", "ann"), ("small", "bob")):
        _tenant(lake, tenant)
        _user(lake, user, "--role", "reader", "--tenant", tenant)
    server = fresh("--threads", "2")

    def asks(wire):
        began = time.monotonic()
        assert wire.execute("select count(*) from numbers where digit = 3").fetchone() == (1000,)
        assert time.monotonic() - began < 10

    def asks_in_vain(wire):
        with contextlib.suppress(psycopg.errors.QueryCanceled):
            wire.execute("select count(*) from numbers")

    with contextlib.ExitStack() as held:
        flood = [held.enter_context(_connect(server, "ann")) for _ in range(20)]
        threads = [threading.Thread(target=_until_cancelled, args=[wire, LONG]) for wire in flood]
        for thread in threads:
            thread.start()
        before = server.cpu_seconds()
        support.within(60, lambda: server.cpu_seconds() > before + 5, "it floods")
        late = held.enter_context(_connect(server, "ann"))
        late.execute("set statement_timeout = 100")
        asks_in_vain(late)
        assert not _behind(server), "nobody else is there"
        with _connect(server, "bob") as wire:

            def goes_behind():
                asks(wire)
                asks_in_vain(late)
                return _behind(server)

            support.within(60, goes_behind, "the flood goes behind")
            assert all(nice == lower for nice, lower in _behind(server)), "their priority is lower"
            for _ in range(20):
                asks(wire)
        for wire in flood:
            wire.cancel()
        for thread in threads:
            thread.join(20)


# The disk.


def a_full_disk_fails_the_statement_that_fills_it_alone(fresh, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24M", "tmpfs", str(small)], capture_output=True
    )
    if not mounted or mounted.returncode != 0:
        support.missing("a small file system", "the right to mount one")
    try:
        server = fresh(env={"TMPDIR": str(small)})
        with server.raw(receive_buffer=65536) as slow, server.raw() as other:
            slow.send(frames.query(support.WIDE))
            assert slow.next()[0] == b"T"
            computes = lambda: "uplake_queries_running" in server.residue()
            support.within(60, lambda: not computes(), "the slot is free although nobody reads")
            assert other.rows("select count(*) from numbers") == [["10000"]]
            found = slow.until_ready()
            assert [e["C"] for e in frames.errors(found)] == ["53100"]
        server.stop()
    finally:
        subprocess.run(["umount", "-l", str(small)], capture_output=True)
