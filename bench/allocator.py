#!/usr/bin/env python3
"""Which allocator keeps two cores busy while 24 statements run at once in one process?

Unit: statements/s, and the share of the cores' time that the process used. Floor: CPU at least
95 % busy and no lock of the allocator among the top frames of `perf`.

    python allocator.py DATA [--rounds 3] [--seconds 20] [--perf system] [--out FOLDER]

The allocators are preloaded into the same binary and take turns, `--rounds` times. Missing ones
are installed with apt-get, which is said. The statements are XAB's at 1 and 7 days without Q6,
whose seconds would hide the others. `--perf ALLOCATOR` runs once more under `perf record -g` and
lists the top frames with their shares.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import xab

# Name, Debian package, file name of its library. glibc's own needs neither.
ALLOCATORS = {
    "system": None,
    "jemalloc": ("libjemalloc2", "libjemalloc.so.2"),
    "mimalloc": ("libmimalloc2.0", "libmimalloc.so.2"),
    "tcmalloc": ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
}
# A binary that brings its own allocator answers no call of a preloaded one: these words give it away.
BUILT_IN = {"mimalloc": b"MIMALLOC_", "jemalloc": b"_rjem_malloc", "snmalloc": b"snmalloc"}
QUERIES = [query for query in xab.QUERIES if query != "q6"]
RANGES = [1, 7]
BUSY_FLOOR = 0.95
LOADED_WITHIN_SECONDS = 5
OVERTIME_SECONDS = 300  # Statements in flight when the time is up are finished first.
TOP_FRAMES = 25
# How the frames of the allocators begin, and what the frames that wait for a lock (anybody's) contain.
ALLOCATING = ("malloc", "free", "cfree", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc")
ALLOCATING += ("libc_malloc", "libc_free", "int_malloc", "int_free", "sysmalloc", "systrim", "arena_get")
ALLOCATING += ("unlink_chunk",)
ALLOCATING += ("mi_", "je_", "rjem", "tc_", "tcmalloc", "tcache_", "arena_", "edata_", "extent_", "pa_", "pac_")
WAITING = ("futex", "lll_lock", "spin_lock", "mutex", "SpinLock", "LockSlow")


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    data = xab.DataSet(args.data)
    facts = measure.circumstances(binary)
    print(f"# Allocators: {args.at_once} statements at once\n\n{data.summary()}.\n{measure.describe(facts)}\n")
    libraries = {name: library(name) for name in args.allocators}
    for name in [name for name, path in libraries.items() if path is None]:
        print(f"NOT MEASURED: {name}; install {ALLOCATORS[name][0]}.\n")
        del libraries[name]
    say_built_in(binary)

    with tempfile.TemporaryDirectory(prefix="uplake-bench-", dir=data.folder.parent) as scratch:
        workload = Workload(args, binary, data, Path(scratch))
        results = run_rounds(args, workload, libraries, facts)
        print(summary(results))
        failed = [result for result in results if "failed" in result or result.get("errors")]
        for result in failed:
            print(f"FAILED: {result['allocator']}: {result.get('failed') or str(result['errors']) + ' statements'}")
        if args.perf:
            print(perf(args, workload, libraries))
    sys.exit(1 if failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that `uplake generate` wrote")
    parser.add_argument("--uplake", type=Path, help="the binary (default: $UPLAKE, then target/release/uplake)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="how long one round of one allocator lasts (20)")
    parser.add_argument("--at-once", type=int, default=24)
    parser.add_argument(
        "--allocators", type=lambda text: text.split(","), default=list(ALLOCATORS), help=",".join(ALLOCATORS)
    )
    parser.add_argument("--perf", choices=list(ALLOCATORS), help="profile one more run with this allocator")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where allocator.jsonl grows")
    args = parser.parse_args()
    if not set(args.allocators) <= set(ALLOCATORS):
        parser.error(f"allocators are {', '.join(ALLOCATORS)}")
    if args.perf and args.perf not in args.allocators:
        parser.error(f"--perf {args.perf} is not among --allocators")
    return args


# Allocators


def library(name):
    """The library of an allocator, installed if need be; "" for the system's, None if there is none."""
    if ALLOCATORS[name] is None:
        return ""
    package, file_name = ALLOCATORS[name]
    found = find(file_name)
    if not found and shutil.which("apt-get"):
        sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
        command = [*sudo, "apt-get", "install", "-y", "--no-install-recommends", package]
        print(f"{file_name} is missing; installing it with `{' '.join(command)}`.\n", flush=True)
        try:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                measure.progress(done.stderr.strip()[-400:])
        except OSError as error:
            measure.progress(str(error))
        found = find(file_name)
    return found


def find(file_name):
    for folder in ("/usr/lib", "/usr/local/lib", "/lib"):
        for path in sorted(Path(folder).glob(f"**/{file_name}")):
            return str(path)
    return None


def say_built_in(binary):
    contents = binary.read_bytes()
    names = [name for name, word in BUILT_IN.items() if word in contents]
    if names:
        print(f"ATTENTION: the binary brings {', '.join(names)} with it, so preloading changes nothing")
        print("for Rust code and `system` is not the system's; build without a global allocator.\n")


# Runs


class Workload:
    """The lake, the statements and the command that runs them, many at once, in one process."""

    def __init__(self, args, binary, data, folder):
        self.binary, self.lake, self.file = binary, folder / "lake", folder / "statements.sql"
        self.seconds = args.seconds
        for table in xab.TABLES:
            measure.progress(f"loading {table} into uplake")
            command = [binary, "load", "--lake", self.lake, "--quiet", *xab.LAYOUT[table], table, data.pattern(table)]
            measure.run(command, cap_seconds=3600)
        ranges = sorted({min(days, len(data.days)) for days in RANGES})
        statements = [data.statement(query, days) for days in ranges for query in QUERIES]
        self.file.write_text("".join(f"{sql};\n" for sql in statements), encoding="utf-8")
        self.command = [binary, "bench-concurrent", "--lake", self.lake, "--queries", self.file]
        self.command += ["--at-once", args.at_once, "--seconds", args.seconds]

    def run(self, library, before=()):
        env = {"LD_PRELOAD": library}
        watch = None
        if before:  # The profiler must not be preloaded, only what it starts.
            before, env = [*before, "env", f"LD_PRELOAD={library}"], {}
        elif library:
            watch = lambda pid: require_loaded(pid, library)
        cap = self.seconds + OVERTIME_SECONDS
        return measure.run([*before, *self.command], cap_seconds=cap, env=env, while_running=watch)


def require_loaded(pid, library):
    """Fails unless the process has mapped the library: a preload that is ignored looks like a draw."""
    wanted = os.path.realpath(library)
    until = time.monotonic() + LOADED_WITHIN_SECONDS
    while time.monotonic() < until:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return
        if wanted in maps or state == "Z":  # A process that has ended says itself what was wrong.
            return
        time.sleep(0.02)
    raise measure.Failed(f"{library} was not loaded")


def run_rounds(args, workload, libraries, facts):
    results = []
    for turn in range(args.rounds):
        for name, path in libraries.items():
            try:
                cost = workload.run(path)
                told = json.loads(cost.out)
                result = {"allocator": name, "round": turn, "peak_bytes": cost.peak_bytes, **told}
                measure.progress(f"round {turn + 1}  {name:9} {told['statements'] / told['seconds']:7.2f} statements/s")
            except (measure.Failed, measure.OverCap, ValueError) as error:
                result = {"allocator": name, "round": turn, "failed": str(error)}
                measure.progress(f"round {turn + 1}  {name:9} FAILED: {error}")
            results.append(result)
            measure.append_raw(args.out / "allocator.jsonl", {**facts, "at_once": args.at_once, **result})
    return results


def summary(results):
    rows = []
    for name in dict.fromkeys(result["allocator"] for result in results):
        here = [result for result in results if result["allocator"] == name and "failed" not in result]
        if not here:
            rows.append([name, *["failed"] * 5])
            continue
        speeds = [result["statements"] / result["seconds"] for result in here]
        busy = statistics.median(result["cpu_seconds"] / result["seconds"] / measure.cores() for result in here)
        rows.append(
            [
                name,
                f"{statistics.median(speeds):.2f}",
                f"{min(speeds):.2f} - {max(speeds):.2f}",
                f"{busy:.0%}{'' if busy >= BUSY_FLOOR else ' (below ' + format(BUSY_FLOOR, '.0%') + ')'}",
                f"{statistics.median(result['p95'] for result in here):.2f}",
                f"{max(result['peak_bytes'] for result in here) / measure.MIB:.0f}",
            ]
        )
    busy_of = f"CPU of {measure.cores()} cores"
    return measure.table(["allocator", "statements/s", "from - to", busy_of, "p95 s", "peak MiB"], rows)


# Profile


def perf(args, workload, libraries):
    title = f"## Top frames with {args.perf}\n\n"
    if args.perf not in libraries:
        return f"{title}PERF NOT RUN: {args.perf} is not installed.\n"
    if not shutil.which("perf"):
        return f"{title}PERF IS NOT USABLE: it is not installed (Debian: linux-perf). No frame was looked at.\n"
    recorded = args.out / "perf.data"
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        workload.run(libraries[args.perf], before=["perf", "record", "-g", "-F", "199", "-o", recorded, "--"])
        listed = measure.run(
            ["perf", "report", "-i", recorded, "--stdio", "--no-children", "-g", "none", "-t", "\t"]
            + ["--percent-limit", "0.01", "--sort", "symbol,dso"],
            cap_seconds=600,
        ).out
    except (measure.Failed, measure.OverCap) as error:
        return f"{title}PERF IS NOT USABLE: {error}\nNo frame was looked at.\n"
    frames = [frame for frame in map(frame_of, listed.splitlines()) if frame]
    if not frames:
        return f"{title}PERF IS NOT USABLE: it recorded no sample. No frame was looked at.\n"
    allocating = sum(share for share, symbol, where in frames if is_allocating(symbol, where))
    waiting = sum(share for share, symbol, _ in frames if any(word in symbol for word in WAITING))
    rows = [[f"`{symbol[:90]}`", f"`{where}`", f"{share:.2f} %"] for share, symbol, where in frames[:TOP_FRAMES]]
    return (
        f"{title}{measure.table(['frame', 'in', 'self'], rows)}\n"
        f"In the allocator {allocating:.1f} %, waiting for locks {waiting:.1f} % (of the time on a core, by the\n"
        "names of the frames; a thread that sleeps on a lock shows as a CPU that is not busy).\n"
        f"Callers: `perf report -i {recorded.name} --no-children`.\n"
    )


def is_allocating(symbol, where):
    return "kernel" not in where and symbol.lstrip("_").startswith(ALLOCATING)


def frame_of(line):
    """(share, symbol, library) of one line of `perf report`, or None for its comments."""
    parts = [part.strip() for part in line.split("\t")]
    if line.startswith("#") or len(parts) < 3 or not parts[0].endswith("%"):
        return None
    return float(parts[0][:-1]), parts[1].split("] ", 1)[-1], parts[2]


if __name__ == "__main__":
    main()
