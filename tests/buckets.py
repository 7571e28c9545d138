"""Stores for tests, each on a free port of this machine, with one empty bucket.

- `s3`: versitygw, a real server that keeps objects in a folder and checks signatures (on PATH, or named by
  VERSITYGW); else moto, from PyPI, in this process, which does not check them.
- `gs`: fake-gcs-server behind tests/gcs_front.py (on PATH, or named by FAKE_GCS_SERVER).
- `az`: Azurite, Microsoft's (on PATH, or named by AZURITE_BLOB).

`make bucket-servers` installs them. Where there is none, tests say loudly that nothing was checked.
"""

import json
import logging
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

KINDS = ["s3", "gs", "az"]
BUCKET = "bucket"
KEY, SECRET = "tester", "a secret of tests"
START_SECONDS = 120
PROVIDERS = ("AWS_", "GOOGLE_", "AZURE_")
INSTALL = {
    "s3": "make s3-server, or pip install -r tests/requirements.txt",
    "gs": "make bucket-servers (needs go)",
    "az": "make bucket-servers (needs npm), and pip install -r tests/requirements.txt",
}


def gateway():
    """Where versitygw is, or None."""
    return os.environ.get("VERSITYGW") or shutil.which("versitygw")


def start(kind="s3"):
    """A running server, or None if none is installed. `stop()` ends it."""
    if kind == "gs":
        binary = os.environ.get("FAKE_GCS_SERVER") or shutil.which("fake-gcs-server")
        return FakeGcs(binary) if binary else None
    if kind == "az":
        binary = os.environ.get("AZURITE_BLOB") or shutil.which("azurite-blob")
        return Azurite(binary) if binary else None
    binary = gateway()
    server = Gateway(binary) if binary else start_moto()
    if server is not None:
        server.client().create_bucket(Bucket=BUCKET)
    return server


class Served:
    """What all have in common: a process with a folder that is deleted in the end."""

    checks_who_asks = True

    def launch(self, command, port, env=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="uplake-bucket-"))
        (self.folder / "data").mkdir()
        self.process = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"]} | dict(env), cwd=self.folder,
            stdout=subprocess.DEVNULL, stderr=(self.folder / "log").open("wb"),
        )
        until = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
        said = (self.folder / "log").read_text(errors="replace")
        Served.stop(self)
        raise RuntimeError(f"{command[0]} did not start: {said}")

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Amazon:
    """How an S3 server is spoken to."""

    kind, refusal, secret = "s3", "403", SECRET
    # What would lead elsewhere if it stood in uplake.toml alone.
    elsewhere = {"region": "eu-central-1", "endpoint": "http://127.0.0.1:9"}

    def client(self, **more):
        """A client of Amazon's own."""
        import boto3

        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1",
            aws_access_key_id=KEY, aws_secret_access_key=SECRET, **more,
        )

    def settings(self):
        return {
            "AWS_ENDPOINT": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def wrong_settings(self):
        return {"AWS_SECRET_ACCESS_KEY": "some wrong secret"}

    def sizes(self, prefix):
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return {o["Key"]: o["Size"] for page in pages for o in page.get("Contents", [])}

    def put(self, key, body):
        self.client().put_object(Bucket=BUCKET, Key=key, Body=body)

    def delete(self, key):
        self.client().delete_object(Bucket=BUCKET, Key=key)

    def begin_upload(self, key):
        self.client().create_multipart_upload(Bucket=BUCKET, Key=key)

    def uploads(self):
        pages = self.client().get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET)
        return [upload["Key"] for page in pages for upload in page.get("Uploads", [])]


class Gateway(Amazon, Served):
    """versitygw; `options` are those of its command line. Without a `host` it hears all addresses."""

    name = "versitygw"

    def __init__(self, binary, *options, host="127.0.0.1"):
        port = free_port()
        self.endpoint = f"{'https' if '--cert' in options else 'http'}://127.0.0.1:{port}"
        command = [binary, "--port", f"{host}:{port}", "--quiet", "--keep-alive", *options, "posix", "data"]
        self.launch(command, port, {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET})


class FakeGcs(Served):
    """fake-gcs-server, whose JSON interface tests use, and our XML interface before it."""

    name, kind, refusal, secret = "fake-gcs-server", "gs", "401", "PRIVATE KEY"
    elsewhere = {"base_url": "http://127.0.0.1:9"}

    def __init__(self, binary):
        from gcs_front import Front

        port = free_port()
        self.json = f"http://127.0.0.1:{port}"
        host = f"127.0.0.1:{port}"
        self.launch(
            [binary, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port),
             "-public-host", host, "-external-url", self.json, "-log-level", "error"],
            port,
        )
        self.key, public = account_key()
        self.front = Front(("127.0.0.1", port), public)
        self.endpoint = f"http://127.0.0.1:{self.front.server_port}"
        self.ask("POST", "/storage/v1/b", json.dumps({"name": BUCKET}).encode())

    def stop(self):
        self.front.stop()
        super().stop()

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.json + path, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return answer.read()

    def settings(self):
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": self.key, "GOOGLE_BASE_URL": self.endpoint}

    def wrong_settings(self):
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": account_key()[0]}

    def sizes(self, prefix):
        found = json.loads(self.ask("GET", f"/storage/v1/b/{BUCKET}/o?prefix={quoted(prefix)}"))
        return {o["name"]: int(o["size"]) for o in found.get("items", [])}

    def put(self, key, body):
        self.ask("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quoted(key)}", body)

    def delete(self, key):
        self.ask("DELETE", f"/storage/v1/b/{BUCKET}/o/{quoted(key)}")

    def begin_upload(self, key):
        self.front.begin_upload(key)

    def uploads(self):
        return [upload.name for upload in self.front.uploads.values()]


class Azurite(Served):
    """Azurite's blob service."""

    name, kind, refusal, secret = "Azurite", "az", "403", "YSBzZWNyZXQgb2YgdGVzdHM="
    elsewhere = {"account_name": "nobody"}

    def __init__(self, binary):
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self.launch(
            [binary, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent",
             "--blobHost", "127.0.0.1", "--blobPort", str(port)],
            port, {"AZURITE_ACCOUNTS": f"{KEY}:{self.secret}", "HOME": os.environ.get("HOME", "/")},
        )
        self.client().create_container()
        # deltalake is told nowhere else.
        os.environ["AZURITE_BLOB_STORAGE_URL"] = self.endpoint

    def client(self):
        """A client of Microsoft's own."""
        from azure.storage.blob import ContainerClient

        who = {"account_name": KEY, "account_key": self.secret}
        return ContainerClient(f"{self.endpoint}/{KEY}", BUCKET, credential=who)

    def settings(self):
        """As an emulator, because Azurite 3.35 ignores from where a listing shall start."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": KEY, "AZURE_STORAGE_ACCOUNT_KEY": self.secret,
            "AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": self.endpoint,
        }

    def wrong_settings(self):
        return {"AZURE_STORAGE_ACCOUNT_KEY": "c29tZSB3cm9uZyBzZWNyZXQ="}

    def sizes(self, prefix):
        return {b.name: b.size for b in self.client().list_blobs(name_starts_with=prefix)}

    def put(self, key, body):
        self.client().upload_blob(key, body, overwrite=True)

    def delete(self, key):
        self.client().delete_blob(key)


def account_key():
    """A service account's key as Google hands it out, and its public half."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key = {"private_key": text.decode(), "private_key_id": "tests", "client_email": "tester@tests"}
    return json.dumps(key), private.public_key()


def quoted(text):
    return urllib.parse.quote(text, safe="")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Moto(Amazon):
    """moto, in this process."""

    name, checks_who_asks = "moto", False

    def __init__(self, server):
        self.server = server
        self.endpoint = "http://%s:%d" % server.get_host_and_port()
        self.stop = server.stop


def start_moto():
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        return None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    return Moto(server)


def environment(server):
    """The environment in which a command finds the server."""
    kept = {
        k: v for k, v in os.environ.items()
        if not k.startswith((*PROVIDERS, "UPLAKE_STORAGE_")) and not k.lower().endswith("_proxy")
    }
    return kept | server.settings()


def url(server, path):
    return f"{server.kind}://{BUCKET}/{path}"
