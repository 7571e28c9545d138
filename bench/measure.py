"""Runs a child process and reports what it cost; writes tables and raw results.

This module and the programs that use it import no engine: Linux counts the memory of the parent
at the moment of the start into a child's peak, so the parent stays small (about 20 MiB).
"""

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass
class Cost:
    """What one process needed, from its start to its end."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    out: str
    err: str


class OverCap(Exception):
    """The process was ended because it needed longer than its cap."""


class Failed(Exception):
    """The process ended with an error; the message is the end of what it wrote to stderr."""


def run(command, *, cap_seconds, stdin="", env=None, while_running=None):
    """Runs `command` to its end and returns its Cost; `while_running(pid)` may look at it."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        started = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command], stdin=given, stdout=out, stderr=err, env={**os.environ, **(env or {})}
        )
        over_cap = threading.Event()

        def stop():
            over_cap.set()
            child.kill()

        timer = threading.Timer(cap_seconds, stop)
        timer.start()
        try:
            if while_running:
                while_running(child.pid)
            # wait4 and not wait: it gives the usage of this child alone.
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            raise
        finally:
            timer.cancel()
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    if over_cap.is_set():
        raise OverCap(f"> {cap_seconds:g} s")
    if child.returncode != 0:
        raise Failed(f"status {child.returncode}: {texts[1].strip()[-600:]}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, *texts)


def bytes_under(folder):
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def seconds_to_disk(folder):
    """How long it takes until every file under `folder` is on disk, not only in the page cache."""
    started = time.perf_counter()
    for path in Path(folder).rglob("*"):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return time.perf_counter() - started


def read_once(files):
    """Brings `files` into the page cache, so that no run pays for being the first."""
    for file in files:
        with open(file, "rb") as stream:
            while stream.read(8 * MIB):
                pass


def uplake_binary(given):
    """The binary to measure: --uplake, then $UPLAKE, then the release build of this checkout."""
    here = Path(__file__).resolve().parent
    path = Path(given or os.environ.get("UPLAKE") or here.parent / "target" / "release" / "uplake")
    if not path.is_file():
        sys.exit(f"{path} is missing; build it, or name one with --uplake or $UPLAKE")
    return path.resolve()


def circumstances(binary):
    """What a figure needs beside it to be worth keeping."""
    version = subprocess.run([str(binary), "--version"], capture_output=True, text=True).stdout.strip()
    return {
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "uplake": version,
        "binary_built": datetime.datetime.fromtimestamp(binary.stat().st_mtime, datetime.timezone.utc).isoformat(),
        "cpu": cpu_name(),
        "cores": cores(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def describe(facts):
    """One line under a table."""
    return (
        f"{facts['at']}, {facts['uplake']}, {facts['cores']} cores of {facts['cpu']}, "
        f"load average at the start {facts['load_average']}."
    )


def cores():
    return len(os.sched_getaffinity(0))


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def append_raw(file, record):
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def table(header, rows):
    """A Markdown table; columns after the first are aligned right."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def progress(text):
    print(text, file=sys.stderr, flush=True)
