"""Whom nodes believe: certificates, tokens, and what is done with those who have none.

Who is refused computes nothing here, is counted, and reads nothing; the coordinator that nobody believes answers all the
same, by itself, and says so.
"""

import contextlib
import os
import random
import re
import secrets
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
import support
from certificates import SERVER, Authority, options
from node_client import Capture, Client, head, resealed
from support import Server, binary, within
from test_nodes import SLOW, STATEMENTS, Asked, Nodes, Worker, _free_port, _in_background, _metric, _sorted, lake
from test_report_nodes import Reports

support.only_uplake("it is about its nodes")

READ = "of nodes were read again"
SOAK = int(os.environ.get("UPLAKE_SOAK", "1"))


def _secret(folder, name="secret"):
    (folder / name).write_bytes(secrets.token_bytes(32))
    return folder / name


class Believed(Nodes):
    """Nodes with these options, that say whom they believe."""

    def __init__(self, folder, lake, words, workers=3):
        self.words = words
        super().__init__(folder, lake, workers)

    def started(self, kind, *options):
        return super().started(kind, *options, *self.words)


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trust")


@pytest.fixture(scope="module")
def words(folder, authority):
    return [*authority.write(folder), "--node-secret", str(_secret(folder))]


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory, lake, words):
    """For tests that leave all nodes as they are."""
    nodes = Believed(tmp_path_factory.mktemp("encrypted"), lake, words)
    yield nodes
    for server in nodes.servers:
        server.free(20)
    nodes.stop()


def _refused(server, why):
    return _metric(server, f'uplake_parts_refused_total{{why="{why}"}}')


def _all_refused(server):
    return {why: _refused(server, why) for why in ("certificate", "token", "ticket", "plan")}


@pytest.mark.parametrize("sql", [STATEMENTS[at] for at in (0, 1, 2, 3, 6, 9, 14, 18)])
def parts_over_tls_answer_as_one_node_does(encrypted, sql):
    always, never = Asked(encrypted.coordinator), Asked(encrypted.coordinator, "never")
    before = encrypted.computed()
    rows, notices, errors = always.all(sql)
    assert not errors and not notices, (errors, notices)
    in_order = list if "ORDER BY" in sql.rpartition(")")[2] else _sorted
    assert in_order(rows) == in_order(never.rows(sql))
    assert [after - was for after, was in zip(encrypted.computed(), before)] == [1, 1, 1]
    for worker in encrypted.workers:
        assert not any(_all_refused(worker).values()), _all_refused(worker)


def a_report_over_tls_is_the_same_bytes(encrypted, tmp_path, lake, words):
    reports = Reports(tmp_path, lake)
    before = encrypted.computed()
    made = ("t.toml", "--format", "json")
    out, said = reports.made(*made, *words, members=encrypted.workers)
    assert out == reports.expected(*made) and not said, said
    assert all(after > was for after, was in zip(encrypted.computed(), before))


def a_statement_over_tls_that_is_stopped_runs_on_no_worker(encrypted):
    asked = Asked(encrypted.coordinator)
    answered = _in_background(asked, SLOW)
    within(20, lambda: all(worker.parts() for worker in encrypted.workers), "all workers compute")
    asked.connection.cancel()
    assert answered()[2][0]["C"] == "57014"
    for worker in encrypted.workers:
        worker.free()
        assert not any(_all_refused(worker).values()), _all_refused(worker)


def a_worker_that_is_killed_is_not_missed_over_tls(tmp_path, lake, words):
    own = Believed(tmp_path, lake, words)
    try:
        expected = Asked(own.coordinator, "never").rows(SLOW)
        answered = _in_background(Asked(own.coordinator), SLOW)
        within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
        own.workers[1].kill()
        assert answered() == (expected, [], [])
        assert _metric(own.coordinator, 'uplake_parts_total{what="lost"}') == 1
    finally:
        own.stop()


def who_watches_sees_when_the_certificate_of_nodes_ends(encrypted):
    for server in encrypted.servers:
        assert _metric(server, "uplake_node_trust_current{}") == 1
        left = _metric(server, "uplake_node_certificate_expires{}") - time.time()
        assert 29 * 86400 < left < 31 * 86400


# Names.


def members_of_a_name_have_certificates_for_it_whatever_their_addresses(tmp_path, lake, authority, folder):
    words = [*authority.write(tmp_path / "named", hosts=["localhost"]), "--node-secret", str(folder / "secret")]
    own = Believed(tmp_path, lake, words, workers=0)
    own.workers = [own.worker()]
    port = own.workers[0].node.rpartition(":")[2]
    try:
        for members, is_used in [(f"dns:localhost:{port}", True), (f"localhost:{port}", True), (own.workers[0].node, False)]:
            own.coordinates([members])
            own.usable(1 if is_used else 0)
            before = own.computed()
            rows, notices, errors = Asked(own.coordinator).all(STATEMENTS[1])
            assert not errors and _sorted(rows) == _sorted(Asked(own.coordinator, "never").rows(STATEMENTS[1]))
            assert (own.computed() != before) == is_used, members
            if is_used:
                assert not notices, notices
            else:
                assert "computed by one node: 0 of 1 nodes" in notices[0]["M"], notices
                assert "not valid for name" in notices[0]["M"] and own.workers[0].node in notices[0]["M"], notices
    finally:
        own.stop()


# Who is refused.


def _context(folder=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if folder:
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def _answered(worker, context):
    """What a node says to whoever begins to speak HTTP/2 to it."""
    host, _, port = worker.node.rpartition(":")
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        try:
            with context.wrap_socket(plain) if context else contextlib.nullcontext(plain) as talks:
                talks.sendall(hello)
                return talks.recv(1000)
        except OSError:
            return b""


@pytest.mark.parametrize("who", ["nobody", "of another authority", "expired", "not for clients", "plain"])
def who_shows_no_certificate_of_ours_is_refused_and_counted(encrypted, tmp_path, authority, who):
    worker, context = encrypted.workers[0], _context()
    if who == "of another authority":
        Authority().write(tmp_path, authority=authority)
        context = _context(tmp_path)
    if who == "expired":
        authority.write(tmp_path, days=-1)
        context = _context(tmp_path)
    if who == "not for clients":
        authority.write(tmp_path, usage=[SERVER])
        context = _context(tmp_path)
    if who == "plain":
        context = None
    refused, computed = _refused(worker, "certificate"), encrypted.computed()
    said = _answered(worker, context)
    # At most an alert: no frame of settings.
    assert not said or (who == "plain" and said[:1] == b"\x15"), said
    within(10, lambda: _refused(worker, "certificate") == refused + 1, "it is counted")
    # One of ours is answered.
    authority.write(tmp_path)
    assert _answered(worker, _context(tmp_path))[3:4] == b"\4"
    assert _refused(worker, "certificate") == refused + 1
    assert Asked(encrypted.coordinator).rows(STATEMENTS[0]) and encrypted.computed() != computed


def who_only_looks_whether_somebody_listens_is_not_counted(encrypted):
    worker = encrypted.workers[0]
    refused = _refused(worker, "certificate")
    host, _, port = worker.node.rpartition(":")
    for _ in range(5):
        socket.create_connection((host, int(port)), timeout=10).close()
    assert Asked(encrypted.coordinator).rows(STATEMENTS[0])
    assert _refused(worker, "certificate") == refused


def coordinators_that_nobody_believes_compute_themselves_and_say_why(encrypted, tmp_path, lake, authority, folder):
    """And those who do not believe their workers."""
    other, secret = Authority(), ["--node-secret", str(folder / "secret")]
    trusted = options(folder)
    plain = Believed(tmp_path, lake, [], workers=0)
    cases = [
        ("plain, TLS is asked for", encrypted.workers, [], "", "certificate"),
        ("no secret", encrypted.workers, trusted, "--node-secret", "token"),
        ("another secret", encrypted.workers, [*trusted, "--node-secret", str(_secret(tmp_path))], "another --node-secret", "token"),
        ("another authority", encrypted.workers, [*other.write(tmp_path / "other"), *secret], "UnknownIssuer", "certificate"),
        ("TLS, plain is asked for", [plain.worker()], [*trusted, *secret], "", None),
    ]
    try:
        for name, workers, words, says, counted in cases:
            mine = Believed(tmp_path / name.replace(" ", "-").replace(",", ""), lake, words, workers=0)
            mine.folder.mkdir()
            mine.coordinates([worker.node for worker in workers])
            try:
                before = [_metric(worker, "uplake_parts_computed_total") for worker in workers]
                refused = [counted and _refused(worker, counted) for worker in workers]
                rows, notices, errors = Asked(mine.coordinator).all(STATEMENTS[1])
                assert not errors and _sorted(rows) == _sorted(Asked(mine.coordinator, "never").rows(STATEMENTS[1])), name
                assert f"computed by one node: 0 of {len(workers)} nodes can be used" in notices[0]["M"], (name, notices)
                assert f"{workers[0].node} does not answer: " in notices[0]["M"], (name, notices)
                assert says in notices[0]["M"], (name, notices)
                assert [_metric(worker, "uplake_parts_computed_total") for worker in workers] == before, name
                for worker, was in zip(workers, refused):
                    if counted:
                        within(10, lambda: _refused(worker, counted) > was, f"{name} is counted")
            finally:
                mine.stop()
    finally:
        plain.stop()


def workers_with_an_expired_certificate_are_not_asked(tmp_path, lake, authority, words):
    """A worker does not begin with one, so it is played."""
    authority.write(tmp_path / "expired", days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "expired" / "cert.pem", tmp_path / "expired" / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listens:
        listens.settimeout(0.2)
        own = Believed(tmp_path, lake, words, workers=0)
        heard = []

        def play(stopped):
            while not stopped.is_set():
                with contextlib.suppress(OSError):
                    plain, _ = listens.accept()
                    plain.settimeout(5)
                    with context.wrap_socket(plain, server_side=True) as talks:
                        heard.append(talks.recv(1000))

        stopped = threading.Event()
        plays = threading.Thread(target=play, args=(stopped,))
        plays.start()
        try:
            own.coordinates([f"127.0.0.1:{listens.getsockname()[1]}"])
            rows, notices, errors = Asked(own.coordinator).all(STATEMENTS[1])
            assert rows and not errors and "expired" in notices[0]["M"], notices
            assert not any(heard), heard
        finally:
            stopped.set()
            plays.join()
            own.stop()


# Tokens. Nodes on one machine have them without TLS, too.


@pytest.fixture(scope="module")
def tokened(tmp_path_factory, lake):
    """A worker with a secret, and what a coordinator with the same one sends."""
    folder = tmp_path_factory.mktemp("tokens")
    own = Believed(folder, lake, ["--node-secret", str(_secret(folder))], workers=0)
    own.workers = [own.worker()]
    client = Client(own.workers[0].node, (folder / "secret").read_bytes())
    with Capture(client.hello()) as capture:
        own.coordinates([capture.address])
        own.usable(1)
        rows, notices, errors = Asked(own.coordinator).all(STATEMENTS[1])
        assert rows and not errors and "computed by the node that was asked" in notices[0]["M"], notices
    own.client, own.ticket, own.token = client, *capture.parts[0]
    yield own
    own.workers[0].free(20)
    own.stop()


def a_token_is_for_one_ticket_of_one_warehouse_for_half_a_minute(tokened):
    worker, client, ticket = tokened.workers[0], tokened.client, tokened.ticket
    # What the coordinator sent is answered, and so is what is made here by the same rule.
    expected = client.part(ticket, tokened.token)
    assert expected and client.part(ticket, client.token("part", ticket)) == expected
    another = resealed(ticket.replace(b'"part":1', b'"part":2'))
    assert another != ticket
    bad = {
        "none": (ticket, None),
        "empty": (ticket, ""),
        "of another ticket": (another, tokened.token),
        "of another secret": (ticket, client.token("part", ticket, secret=secrets.token_bytes(32))),
        "expired": (ticket, client.token("part", ticket, seconds=-31)),
        "of a clock that is minutes ahead": (ticket, client.token("part", ticket, seconds=120)),
        "of another warehouse": (ticket, client.token("part", ticket, warehouse="reports")),
        "of another lake": (ticket, client.token("part", ticket, lake="/another")),
        "of hello": (ticket, client.token("hello")),
        "of cancel": (ticket, client.token("cancel", query=head(ticket)["query"])),
        "changed": (ticket, tokened.token[:-1] + ("0" if tokened.token[-1] != "0" else "1")),
        "longer": (ticket, tokened.token + "0"),
    }
    for what, (sent, token) in bad.items():
        refused, computed = _refused(worker, "token"), _metric(worker, "uplake_parts_computed_total")
        says = client.refused(lambda: client.part(sent, token))
        assert says and f"{worker.node} refuses: " in says, (what, says)
        assert _refused(worker, "token") == refused + 1, what
        assert _metric(worker, "uplake_parts_computed_total") == computed, what
    assert "clocks of nodes may differ by 30 s" in client.refused(lambda: client.part(*bad["expired"]))
    # Within what clocks may differ by.
    for seconds in -25, 55:
        assert client.part(ticket, client.token("part", ticket, seconds=seconds)) == expected
    assert client.part(another, client.token("part", another)) == expected


def hello_and_cancel_have_tokens_too(tokened):
    worker, client = tokened.workers[0], tokened.client
    assert client.hello()["name"] == worker.node
    query = "0123456789abcdef"
    assert client.cancel(query, client.token("cancel", query=query)) == b""
    for call in [
        lambda: client.hello(token=""),
        lambda: client.hello(token=client.token("cancel", query="")),
        lambda: client.cancel(query, None),
        lambda: client.cancel(query, client.token("cancel", query="0123456789abcdee")),
        lambda: client.cancel(query, client.token("hello")),
    ]:
        refused = _refused(worker, "token")
        assert "refuses" in client.refused(call)
        assert _refused(worker, "token") == refused + 1


def tickets_that_are_changed_are_refused_and_the_worker_lives(tokened):
    """Some thousands: as they are, which is no ticket; and with the sum and the token of whoever has the secret, which may
    be another part, or none, and is never the end of the worker."""
    worker, client, ticket = tokened.workers[0], tokened.client, tokened.ticket
    expected = client.part(ticket, client.token("part", ticket))
    refused = _refused(worker, "ticket")
    for seed in range(1000 * SOAK):
        changed = _changed(ticket, random.Random(seed))
        if changed == ticket:
            continue
        says = client.refused(lambda: client.part(changed, tokened.token))
        assert "no ticket of a part" in says, (seed, says)
    assert _refused(worker, "ticket") >= refused + 990 * SOAK
    asked, plan = 0, 4 + int.from_bytes(ticket[:4], "big")
    for seed in range(1000 * SOAK):
        # Most of the plan alone: a head that is changed is mostly none.
        kept = 0 if seed % 4 == 0 else plan
        changed = resealed(ticket[:kept] + _changed(ticket[kept:-32], random.Random(-1 - seed)) + bytes(32))
        try:
            token = client.token("part", changed)
        except (ValueError, LookupError, TypeError, AttributeError, struct.error):
            continue  # no head
        client.refused(lambda: client.part(changed, token))
        asked += 1
    assert asked > 750 * SOAK, asked
    assert worker.process.poll() is None, worker.said()
    assert "panicked" not in worker.said(), worker.said()
    worker.free(20)
    assert client.part(ticket, client.token("part", ticket)) == expected


def _changed(ticket, rng):
    changed = bytearray(ticket)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(changed))
        how = rng.randrange(5)
        if how == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            changed[at] = rng.randrange(256)
        elif how == 2:
            del changed[at : at + rng.randrange(1, 9)]
        elif how == 3:
            changed[at:at] = changed[at : at + rng.randrange(1, 9)]
        else:
            changed.insert(at, rng.randrange(256))
    return bytes(changed)


# While nodes run.


def _told(server, current):
    server.process.send_signal(signal.SIGHUP)
    within(10, lambda: _metric(server, "uplake_node_trust_current{}") == current, f"it is {current}")


def certificates_are_replaced_while_nodes_run(tmp_path, lake):
    files, first = tmp_path / "files", Authority()
    words = [*first.write(files), "--node-secret", str(_secret(files))]
    own = Believed(tmp_path, lake, words)
    expected = _sorted(Asked(own.coordinator, "never").rows(STATEMENTS[1]))

    def is_computed_by_all():
        before = own.computed()
        rows, notices, errors = Asked(own.coordinator).all(STATEMENTS[1])
        assert _sorted(rows) == expected and not errors and not notices, (errors, notices)
        return [after - was for after, was in zip(own.computed(), before)] == [1, 1, 1]

    try:
        assert is_computed_by_all()
        old = tmp_path / "old"
        first.write(old)
        # Of another authority: nobody is believed any more whom the first has signed.
        second = Authority()
        second.write(files)
        for server in own.servers:
            server.process.send_signal(signal.SIGHUP)
            within(10, lambda: READ in server.said(), "it is read again")
        own.usable(3)
        within(15, is_computed_by_all, "all compute again")
        assert not _answered(own.workers[0], _context(old))
        second.write(old)
        assert _answered(own.workers[0], _context(old))
        # A node that begins now is one of them.
        port = own.workers[0].node.rpartition(":")[2]
        own.workers[0].kill()
        own.usable(2)
        own.workers[0] = own.worker(port)
        own.usable(3)
        assert is_computed_by_all()

        bad = {
            "gone": (lambda: (files / "ca.pem").unlink(), "ca.pem"),
            "of another authority": (lambda: Authority().write(files, authority=second), "no authority in --node-tls-ca"),
            "expired": (lambda: second.write(files, days=-1), "has expired"),
            "cut": (lambda: (files / "cert.pem").write_bytes((files / "cert.pem").read_bytes()[:200]), "cert.pem"),
            "no key": (lambda: (files / "key.pem").write_bytes(b""), "key.pem"),
            "a short secret": (lambda: (files / "secret").write_bytes(b"short"), "it has 5 bytes"),
        }
        secret = (files / "secret").read_bytes()
        for what, (break_it, says) in bad.items():
            second.write(files)
            (files / "secret").write_bytes(secret)
            for server in own.coordinator, own.workers[1]:
                _told(server, 1)
            break_it()
            for server in own.coordinator, own.workers[1]:
                _told(server, 0)
                assert says in server.said().rpartition("the old secret of nodes stay")[2], (what, server.said())
            assert is_computed_by_all(), what
        second.write(files)
        (files / "secret").write_bytes(secret)
        for server in own.coordinator, own.workers[1]:
            _told(server, 1)
    finally:
        own.stop()


def a_secret_is_replaced_on_workers_first_and_nothing_is_refused(tmp_path, lake):
    own = Believed(tmp_path, lake, [], workers=0)
    files = {name: _secret(tmp_path, name) for name in ("worker", "coordinator")}
    files["coordinator"].write_bytes(files["worker"].read_bytes())
    own.words = ["--node-secret", str(files["worker"])]
    own.workers = [own.worker() for _ in range(2)]
    own.words = ["--node-secret", str(files["coordinator"])]
    own.coordinates([worker.node for worker in own.workers])
    try:
        for change in None, "worker", "coordinator":
            if change == "worker":
                _secret(tmp_path, "worker")
            if change == "coordinator":
                files["coordinator"].write_bytes(files["worker"].read_bytes())
            for server in own.servers if change else []:
                before = server.said().count(READ)
                server.process.send_signal(signal.SIGHUP)
                within(10, lambda: server.said().count(READ) > before, "it is read again")
            before = own.computed()
            rows, notices, errors = Asked(own.coordinator).all(STATEMENTS[1])
            assert rows and not notices and not errors, (change, notices, errors)
            assert [after - was for after, was in zip(own.computed(), before)] == [1, 1], change
            assert all(_refused(worker, "token") == 0 for worker in own.workers), change
        # Who has none of both is refused.
        own.words = ["--node-secret", str(_secret(tmp_path, "third"))]
        own.coordinates([worker.node for worker in own.workers])
        rows, notices, errors = Asked(own.coordinator).all(STATEMENTS[1])
        assert rows and not errors and "another --node-secret" in notices[0]["M"], notices
    finally:
        own.stop()


# Options.


def _tried(command, folder, *words):
    done = subprocess.run([binary(), command, *words], capture_output=True, text=True, timeout=60, cwd=folder)
    return done.returncode, done.stderr


WORKS = ["--roles", "work", "--node", "127.0.0.1:0"]
TLS = ["--node-tls-cert", "cert.pem", "--node-tls-key", "key.pem", "--node-tls-ca", "ca.pem"]
SECRET = ["--node-secret", "secret"]


def _of(folder):
    """The options with files of a folder."""
    return [word if word.startswith("--") else f"{folder}/{word}" for word in TLS]


@pytest.mark.parametrize("options, says", [
    ([*WORKS, *TLS[:2]], ["--node-tls-key <FILE>", "--node-tls-ca <FILE>"]),
    ([*WORKS, *TLS[:4]], ["--node-tls-ca <FILE>"]),
    ([*WORKS, *TLS[2:]], ["--node-tls-cert <FILE>"]),
    (TLS, ["--roles"]),
    (SECRET, ["--roles"]),
    (["--roles", "work", "--node", "0.0.0.0:0"], ["--node 0.0.0.0:0", "--node-tls-cert, --node-tls-key, --node-tls-ca and --node-secret"]),
    (["--roles", "work", "--node", "0.0.0.0:0", *TLS], ["add --node-secret"]),
    (["--roles", "work", "--node", "0.0.0.0:0", *SECRET], ["add --node-tls-cert, --node-tls-key and --node-tls-ca"]),
    (["--roles", "coordinate", "--members", "10.1.2.3:1"], ["the member 10.1.2.3:1", "--node-tls-ca and --node-secret"]),
    (["--roles", "coordinate", "--members", "10.1.2.3:1", *TLS], ["add --node-secret"]),
    (["--roles", "coordinate", "--members", "a b:1", *TLS, *SECRET], ["a b", "a name that a certificate can have"]),
    ([*WORKS, *TLS, "--node-secret", "no"], ["no: ", "No such file", "/dev/urandom"]),
    ([*WORKS, *TLS, "--node-secret", "short"], ["it has 5 bytes", "at least 32 random bytes"]),
    ([*WORKS, *TLS, "--node-secret", "zeros"], ["not random"]),
    ([*WORKS, *TLS[:-1], "no.pem"], ["no.pem: ", "--node-tls-ca one of the authority"]),
    ([*WORKS, *TLS[:-1], "secret"], ["secret: ", "there is no certificate in this file"]),
    ([*WORKS, *TLS[:-1], "other/ca.pem"], ["cert.pem: ", "no authority in --node-tls-ca has signed this certificate"]),
    ([*WORKS, *TLS[:2], "--node-tls-key", "other/key.pem", *TLS[4:]], ["other/key.pem: ", "not the key of the certificate in cert.pem"]),
    ([*WORKS, *_of("expired")], ["has expired"]),
    ([*WORKS, *_of("server")], ["extendedKeyUsage = serverAuth, clientAuth"]),
])
def options_that_are_wrong_say_what_to_do(tmp_path, lake, authority, options, says):
    authority.write(tmp_path)
    Authority().write(tmp_path / "other")
    authority.write(tmp_path / "expired", days=-1)
    authority.write(tmp_path / "server", usage=[SERVER])
    _secret(tmp_path)
    (tmp_path / "short").write_bytes(b"short")
    (tmp_path / "zeros").write_bytes(bytes(64))
    code, said = _tried("serve", tmp_path, "--lake", str(lake), "--pg", "127.0.0.1:0", "--http", "127.0.0.1:0", *options)
    assert code not in (0, 101) and all(word in said for word in says), said


def options_of_reports_say_what_to_do(tmp_path, lake, authority):
    authority.write(tmp_path)
    Reports(tmp_path, lake)
    for words, says in [
        (TLS, "add --members"),
        (["--members", "10.1.2.3:1"], "add --node-tls-cert"),
        (["--members", "10.1.2.3:1", *TLS], "add --node-secret"),
        (["--members", "127.0.0.1:1", "--node-secret", "no"], "/dev/urandom"),
    ]:
        code, said = _tried("report", tmp_path, "t.toml", "--lake", str(lake), *words)
        assert code not in (0, 101) and says in said, (words, said)


def _worker_on(address):
    """A worker whose node listens on that address."""

    class There(Worker):
        def __init__(self, folder, lake, *options, **more):
            Server.__init__(self, folder, lake, "--roles", "work", "--node", address, *options, **more)
            self.node = re.match(r"node\s+(\S+)", self.process.stdout.readline().decode())[1]

    return There


def nodes_on_all_addresses_are_called_as_their_machine(tmp_path, lake, words):
    """Beyond loopback, as far as one machine goes: listening there, asked by its own name."""
    port = _free_port()
    own = Believed(tmp_path, lake, words, workers=0)
    worker = own.started(_worker_on(f"0.0.0.0:{port}"))
    own.workers = [worker]
    own.coordinates([f"127.0.0.1:{port}"])
    try:
        own.usable(1)
        name = f"{socket.gethostname()}:{port}"
        text = Asked(own.coordinator).rows(f"EXPLAIN ANALYZE {STATEMENTS[1]}")
        assert name in b"\n".join(value for row in text for value in row).decode(), text
        assert own.computed() == [1]
    finally:
        own.stop()
