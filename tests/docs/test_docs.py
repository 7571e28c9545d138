"""Docs are tests: every command, statement and definition of README and docs runs, and says what they show.

Each page starts in a folder of its own with what `uplake generate shop` writes. See pages.py for the form of
pages. Servers that a page starts listen on free ports, and end with the page.
"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import buckets
import pages

ROOT = pages.ROOT
BINARY = pathlib.Path(os.environ.get("UPLAKE_BIN") or ROOT / "target/release/uplake").resolve()
PAGES = [path for path in pages.pages() if pages.steps(path)]
# A command takes at most this. The unoptimized command loads the shop in some seconds.
PATIENCE_S = 180
# A server is told to end and drains; what does not end is killed.
DRAIN_S = 40


LOADS = """
uplake load -q events 'events/*.csv' --partition-by dt --cluster-by user_id,ts --id-domain user_id=users
uplake load -q exposures exposures.csv --partition-by dt --cluster-by user_id --id-domain user_id=users
"""


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """The shop's files, and beside them its lake."""
    folder = tmp_path_factory.mktemp("docs")
    script = f"set -e; uplake() {{ {shlex.quote(str(BINARY))} \"$@\"; }}; uplake generate shop; cd shop; {LOADS} mv lake .."
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return folder / "shop"


class Page:
    """A page that is being followed: its folder, its shell's variables, its servers."""

    def __init__(self, path, folder, shop):
        self.path, self.folder = path, folder / "page"
        shutil.copytree(shop, self.folder)
        binaries = folder / "bin"
        binaries.mkdir()
        (binaries / "uplake").symlink_to(BINARY)
        (binaries / "load-shop").write_text(f"#!/bin/sh\ncp -r {shop.parent}/lake .\n")
        (binaries / "load-shop").chmod(0o755)
        home = folder / "home"
        home.mkdir()
        kept = ("LANG", "TMPDIR", "USER", "LOGNAME")
        self.variables = {name: os.environ[name] for name in kept if name in os.environ}
        self.variables |= {
            "PATH": f"{binaries}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home), "COLUMNS": "100", "NO_COLOR": "1", "TZ": "UTC", "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self.state, self.servers, self.bucket = folder / "state", [], None
        self.ports = {"5433": _free_port(), "8440": _free_port()}

    def follow(self, step):
        if step.kind == "file":
            (self.folder / step.name).write_text(step.text + "\n")
            return None
        if step.kind == "merge":
            return self.report(step)
        if step.kind == "sql":
            return self.run("uplake sql -f -", step.text + ("" if step.text.rstrip().endswith(";") else ";"))
        if step.kind == "served":
            return self.run("psql -h 127.0.0.1 -p 5433 -U admin lake -v ON_ERROR_STOP=1 -f -", step.text + ";")
        if step.kind == "python":
            return self.run("python -", step.text)
        if step.text == "bucket":
            return self.give_bucket()
        if step.text.startswith("uplake serve"):
            return self.serve(step.text)
        return self.run(step.text)

    def run(self, command, typed=""):
        """One command in the shell that the ones before have left."""
        for usual, free in self.ports.items():
            command, typed = (re.sub(rf"\b{usual}\b", free, text) for text in (command, typed))
        script = f"trap 'export -p > {self.state}; pwd >> {self.state}.cwd' EXIT\n"
        if self.state.exists():
            script += f"source {self.state}; cd \"$(tail -n 1 {self.state}.cwd)\"\n"
        script += "set -o pipefail\n" + command
        done = subprocess.run(
            ["bash", "-c", script], input=typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.folder, env=self.variables, timeout=PATIENCE_S)
        return done.returncode, done.stdout

    def give_bucket(self):
        self.bucket = buckets.start("s3")
        assert self.bucket, f"there is no S3 server; {buckets.INSTALL['s3']}"
        self.variables |= self.bucket.settings()
        return 0, ""

    def serve(self, command):
        command, _, _ = command.partition("#")
        pg, http = self.ports["5433"], self.ports["8440"]
        command = f"{command} --pg 127.0.0.1:{pg} --http 127.0.0.1:{http} --drain 1s"
        log = self.folder.parent / "server.log"
        with log.open("w") as written:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], stdout=written, stderr=subprocess.STDOUT,
                cwd=self.folder, env=self.variables)
        self.servers.append(server)
        end = time.monotonic() + PATIENCE_S
        while not _listens(int(pg)) or not _listens(int(http)):
            if server.poll() is not None or time.monotonic() > end:
                return 1, log.read_text()
            time.sleep(0.05)
        return 0, log.read_text()

    def report(self, step):
        """The block over a definition that is complete: tables key by key, `[[metric]]` and the like in their place."""
        whole = tomllib.loads((self.folder / step.name).read_text())
        part = tomllib.loads(step.text)
        # A part of a metric is one of the first metric, if no other is named.
        if part.keys() & METRIC_KEYS and not part.keys() & whole.keys():
            metric = next(one for one in whole["metric"] if step.metric in (None, one["name"]))
            part = {"metric": [_without_others(metric, part) | part]}
        whole |= part
        (self.folder / "merged.toml").write_text(_toml(whole))
        if not (self.folder / "lake").exists():
            self.run("load-shop")
        return self.run("uplake report merged.toml")

    def end(self):
        if self.bucket:
            self.bucket.stop()
        for server in self.servers:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
        for server in self.servers:
            try:
                server.wait(DRAIN_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


METRIC_KEYS = {"type", "value", "cap", "cuped", "margin", "guardrail", "equivalence", "transform", "level"}


def _without_others(metric, part):
    return {key: metric[key] for key in ("name", "table")} if "type" in part else metric


def _toml(table):
    """A definition as TOML: values of tables are inline, so nesting is no matter."""
    def value(of):
        if isinstance(of, dict):
            return "{ " + ", ".join(f"{key} = {value(item)}" for key, item in of.items()) + " }"
        if isinstance(of, list):
            return "[" + ", ".join(map(value, of)) + "]"
        if isinstance(of, bool):
            return str(of).lower()
        return '"' + of.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(of, str) else str(of)
    return "".join(f"{key} = {value(of)}\n" for key, of in table.items())


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def _listens(port):
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def _missing(command):
    """A program that is not installed here, of those that a page's commands begin with or need."""
    # moto tells two writers that each created an object, now and then, and the probe finds that out.
    if "lake probe s3:" in command and buckets.gateway() is None:
        return "versitygw (make s3-server)"
    found = re.match(r"\s*(?:\w+=\S+\s+)*([\w.-]+)", command)
    builtin = ("export", "cd", "source")
    return found[1] if found and found[1] not in (*builtin, "uplake") and not shutil.which(found[1]) else None


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def what_a_page_says_works(path, shop, tmp_path):
    page, wrong, missing = Page(path, tmp_path, shop), [], set()
    try:
        for step in pages.steps(path):
            if isinstance(step, pages.NotRun):
                continue
            gone = step.kind == "command" and _missing(step.text)
            if gone:
                missing.add(gone)
                continue
            code, output = page.follow(step) or (0, "")
            where = f"{path.relative_to(ROOT)}:{step.line}: {step.text}\n"
            if (code != 0) != step.fails:
                wrong.append(f"{where}exit code {code}\n{output[-3000:]}")
            elif step.expected is not None and not pages.is_as_shown(step.expected, output):
                wrong.append(f"{where}--- shown\n{step.expected}\n--- written\n{output[-6000:]}")
    finally:
        page.end()
    assert not wrong, "\n\n".join(wrong)
    if missing:
        pytest.skip(f"MISSING: {', '.join(sorted(missing))}; all else on the page works. Get it: apt-get install, or as it says")


def the_shop_is_the_same_each_time(tmp_path):
    for name in ("one", "two"):
        done = subprocess.run([BINARY, "generate", "shop", tmp_path / name, "--users", "1000"], capture_output=True)
        assert done.returncode == 0, done.stderr
    files = [path.relative_to(tmp_path / "one") for path in sorted((tmp_path / "one").rglob("*")) if path.is_file()]
    assert len(files) == 28 + 4
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)


@pytest.mark.parametrize("name", [[], ["xab"]])
def the_benchmark_is_written_with_its_name_and_without(name, tmp_path):
    sizes = ["--users", "500", "--events-per-day", "1000", "--days", "2", "--products", "1000"]
    done = subprocess.run([BINARY, "generate", *name, tmp_path / "data", *sizes], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data/params.json").exists()


def what_to_generate_has_to_be_said():
    done = subprocess.run([BINARY, "generate"], capture_output=True, text=True)
    assert done.returncode == 2 and "  shop  " in done.stderr, done.stderr


def what_is_not_run_is_little_and_has_a_reason():
    kinds, not_run = pages.count()
    print(dict(kinds))
    assert len(not_run) <= NOT_RUN, "more of the docs is not run than before; run it, or raise NOT_RUN and say why"


# What builds for a quarter of an hour, needs a bench's data, others' checkouts, a daemon of containers or a cluster (seven
# lines of operations.md, see tests/deploy), or stays: four nodes and a client, which tests/wire/test_nodes.py starts, and
# two of other machines, as in test_node_tls.py.
NOT_RUN = 27


@pytest.mark.parametrize("shown, output, same", [
    ("a\nb", "a\nb\n", True),
    ("a\n…\nd", "a\nb\nc\nd\n", True),
    ("a\n…\nd", "a\nd", True),
    ("took … s", "took 1.5 s", True),
    ("took … s\nx", "took 1.5 s\ny", False),
    ("a.c", "abc", False),
    ("…", "", True),
])
def an_ellipsis_stands_for_what_varies(shown, output, same):
    assert pages.is_as_shown(shown, output) is same
