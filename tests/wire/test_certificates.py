"""TLS while the server runs: a certificate that is replaced, wrong, expired or gone."""

import datetime
import signal
import socket
import ssl
import struct
import subprocess

import frames
import pytest
import support

x509 = pytest.importorskip(
    "cryptography.x509", reason="MISSING: cryptography. Get it: pip install -r tests/requirements.txt"
)
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def _write(folder, name, days=30):
    """Writes a certificate of that name and its key; the name of its file, and when it ends."""
    key = ec.generate_private_key(ec.SECP256R1())
    words = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    until = now + datetime.timedelta(days=days)
    made = (
        x509.CertificateBuilder().subject_name(words).issuer_name(words).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=60))
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ))
    return int(until.timestamp())


def _shown(address, is_postgres):
    """The common name of the certificate that a client gets."""
    words = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    words.check_hostname, words.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address, timeout=10) as plain:
        if is_postgres:
            plain.sendall(struct.pack("!ii", 8, frames.SSL))
            assert plain.recv(1) == b"S", "it falls back to plain text"
        with words.wrap_socket(plain, server_hostname="localhost") as secret:
            found = x509.load_der_x509_certificate(secret.getpeercert(binary_form=True))
    return found.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)[0].value


def _metric(server, name):
    words = ssl._create_unverified_context()
    import http.client

    call = http.client.HTTPSConnection(*server.http, timeout=10, context=words)
    call.request("GET", "/metrics", headers={"Host": f"127.0.0.1:{server.http[1]}"})
    text = call.getresponse().read().decode()
    call.close()
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith(name + "{} ")]


def a_certificate_is_replaced_and_a_bad_one_is_not_taken(fresh, tmp_path):
    until = _write(tmp_path, "first")
    words = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    server = fresh(*words)

    def shown():
        return _shown(server.pg, True), _shown(server.http, False)

    def told(current):
        server.process.send_signal(signal.SIGHUP)
        support.within(10, lambda: _metric(server, "uplake_tls_certificate_current") == [current], f"metric {current}")

    assert shown() == ("first", "first")
    at = ":".join(map(str, server.http))
    for words, says in ([], "ok\n"), (["--ready"], "ready\n"):
        done = subprocess.run([support.binary(), "health", at, *words], capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stdout) == (0, says), done.stderr
    assert _metric(server, "uplake_tls_certificate_current") == [1]
    assert _metric(server, "uplake_tls_certificate_expires") == [until]

    until = _write(tmp_path, "second", days=40)
    server.process.send_signal(signal.SIGHUP)
    support.within(10, lambda: shown() == ("second", "second"), "the new one is shown")
    assert _metric(server, "uplake_tls_certificate_expires") == [until]

    key = (tmp_path / "key.pem").read_bytes()
    bad = {
        "gone": lambda: (tmp_path / "cert.pem").unlink(),
        "of another key": lambda: (_write(tmp_path, "other"), (tmp_path / "key.pem").write_bytes(key)),
        "expired": lambda: _write(tmp_path, "expired", days=-1),
        "cut": lambda: (tmp_path / "cert.pem").write_bytes((tmp_path / "cert.pem").read_bytes()[:200]),
        "empty": lambda: (tmp_path / "key.pem").write_bytes(b""),
    }
    for what, break_it in bad.items():
        _write(tmp_path, "third")
        told(1)
        assert shown() == ("third", "third")
        break_it()
        told(0)
        assert shown() == ("third", "third"), what
    assert server.said().count("the old certificate stays") == len(bad), server.said()

    # What was whole again is taken without a word, in its time.
    _write(tmp_path, "fourth")
    told(1)
    assert shown() == ("fourth", "fourth")


def files_that_are_not_there_are_told_with_what_they_should_be(tmp_path):
    support.only_uplake("it is about the command")
    lake = support.make_lake(tmp_path)
    command = [support.binary(), "serve", "--lake", str(lake), "--pg", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    words = ["--tls-cert", str(tmp_path / "no.pem"), "--tls-key", str(tmp_path / "no.key")]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "no.pem" in done.stderr and "--tls-cert names a PEM file" in done.stderr, done
