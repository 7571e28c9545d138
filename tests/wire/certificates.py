"""Authorities of a test's own, and certificates that they sign."""

import datetime
import ipaddress
import secrets

import pytest

x509 = pytest.importorskip(
    "cryptography.x509", reason="MISSING: cryptography. Get it: pip install -r tests/requirements.txt"
)
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PEM = serialization.Encoding.PEM
SERVER, CLIENT = x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH


def _named(name):
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])


def _begun(subject, issuer, key, days):
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    return (
        x509.CertificateBuilder().subject_name(_named(subject)).issuer_name(_named(issuer)).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=60))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


class Authority:
    """Signs certificates."""

    def __init__(self):
        self.name, self.key = f"nodes of {secrets.token_hex(4)}", ec.generate_private_key(ec.SECP256R1())
        made = _begun(self.name, self.name, self.key, 30)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = made.sign(self.key, hashes.SHA256()).public_bytes(PEM)

    def write(self, folder, hosts=("127.0.0.1", "localhost"), days=30, usage=(SERVER, CLIENT), authority=None):
        """Writes cert.pem, key.pem and ca.pem for a node on these hosts; the options that name them."""
        folder.mkdir(exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
        ]
        made = _begun("a node", self.name, key, days)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        # Each whole: whoever reads a file now has the old one or the new one.
        for name, text in [
            ("cert.pem", made.sign(self.key, hashes.SHA256()).public_bytes(PEM)),
            ("key.pem", key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())),
            ("ca.pem", (authority or self).pem),
        ]:
            (folder / f"{name}.new").write_bytes(text)
            (folder / f"{name}.new").rename(folder / name)
        return options(folder)


def options(folder):
    words = {"--node-tls-cert": "cert.pem", "--node-tls-key": "key.pem", "--node-tls-ca": "ca.pem"}
    return [word for option, name in words.items() for word in (option, str(folder / name))]
