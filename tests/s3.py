"""An S3 server for tests: moto, from PyPI, in this process, on a free port of this machine.

It keeps objects in memory and does not check signatures. `make python-tools` installs it with the
other packages of requirements.txt; without it, tests say loudly that nothing was checked.
"""

import logging
import os
import urllib.request

BUCKET = "bucket"


def start():
    """A running server with an empty bucket, or None if moto is not installed."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        return None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    server.endpoint = f"http://{host}:{port}"
    request = urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request, timeout=30).close()
    return server


def environment(server):
    """The environment in which a command finds the server."""
    kept = {
        k: v for k, v in os.environ.items()
        if not k.startswith(("AWS_", "UPLAKE_STORAGE_")) and not k.lower().endswith("_proxy")
    }
    return kept | {
        "AWS_ENDPOINT": server.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret",
    }
