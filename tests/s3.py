"""An S3 server for tests, on a free port of this machine, with one empty bucket.

versitygw, a real server that keeps objects in a folder and checks signatures, if it is installed
(`make s3-server`, on PATH, or named by VERSITYGW); else moto, from PyPI, in this process, which does
not. Without either, tests say loudly that nothing was checked.
"""

import logging
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

BUCKET = "bucket"
KEY, SECRET = "tester", "a secret of tests"
START_SECONDS = 30


def gateway():
    """Where versitygw is, or None."""
    return os.environ.get("VERSITYGW") or shutil.which("versitygw")


def start():
    """A running server, or None if none is installed. `stop()` ends it."""
    binary = gateway()
    server = Gateway(binary) if binary else start_moto()
    if server is not None:
        client(server).create_bucket(Bucket=BUCKET)
    return server


class Gateway:
    """versitygw over a folder that is deleted in the end; `options` are those of its command line."""

    def __init__(self, binary, *options):
        self.name, self.checks_signatures = "versitygw", True
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="uplake-s3-"))
        (self.folder / "data").mkdir()
        port = free_port()
        self.endpoint = f"{'https' if '--cert' in options else 'http'}://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [binary, "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive", *options, "posix", self.folder / "data"],
            env={"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=(self.folder / "log").open("wb"),
        )
        until = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
        said = (self.folder / "log").read_text(errors="replace")
        self.stop()
        raise RuntimeError(f"{binary} did not start: {said}")

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start_moto():
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        return None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    server.name, server.checks_signatures = "moto", False
    server.endpoint = f"http://{host}:{port}"
    return server


def client(server, **more):
    """A client of Amazon's own."""
    import boto3

    return boto3.client(
        "s3", endpoint_url=server.endpoint, region_name="us-east-1",
        aws_access_key_id=KEY, aws_secret_access_key=SECRET, **more,
    )


def environment(server):
    """The environment in which a command finds the server."""
    kept = {
        k: v for k, v in os.environ.items()
        if not k.startswith(("AWS_", "UPLAKE_STORAGE_")) and not k.lower().endswith("_proxy")
    }
    return kept | {
        "AWS_ENDPOINT": server.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
    }
