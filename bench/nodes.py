#!/usr/bin/env python3
"""What do three workers give? XAB's Q1 to Q7 over three nodes of half a core each and over one such node alone.

    bench/nodes.py DATA                    DATA is what `uplake generate xab` wrote; its lake is made beside it; minutes
    bench/nodes.py DATA --days 20 --rounds 7 --only q1,q3
    bench/nodes.py DATA --only '' --reports 3
    bench/nodes.py DATA --cold 40 --rounds 3
    bench/nodes.py DATA --faults 5

Two cores cannot show three workers at once, so every process has half a core (a control group with a quota, which needs
root): three that work, one that coordinates, and one plain `uplake serve` as the baseline. Statements go over a
connection, first without being counted, until both have what they keep in memory (a worker, which reads a third of a
file each time, keeps its columns after six), then rounds in turns; medians. Beside the ratio of the times: what all processes of
the cluster needed in CPU time against the one (overhead), the longest part against the mean (balance), and the bytes of
the parts' answers. Then what a node's part adds to the smallest statement, and what having nodes adds to statements that
stay. With --reports the same of `uplake report`, a process of half a core that asks the workers or nobody: of one
experiment and of all. With --cold instead of all that the tables are in a bucket, each process has a line of so many
megabytes a second to it (tc on the loopback device, as root), and all processes begin anew for each statement: seconds from
the statement to its answer, and what came from the bucket. With --faults instead of all that, without quotas: what certificates and tokens cost, and how much
longer Q6 takes when a worker is killed meanwhile. Ends with status 1 if an answer differs.

UPLAKE names the binary.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# In place of this folder, whose `concurrent` would stand before Python's own; it comes last.
sys.path[0] = str(ROOT / "tests/wire")
sys.path += [str(ROOT / "tests"), str(ROOT / "bench")]
BINARY = os.environ["UPLAKE_BIN"] = os.environ.get("UPLAKE", str(ROOT / "target/release/uplake"))

import buckets
import experiments
import frames
import measure
import support
import xab

WORKERS = 3
# A short period, so that a short statement does not end before its quota does.
PERIOD_US = 10_000
DIVIDED = ["q1", "q2", "q3", "q4", "q5", "q6", "q7"]
STAY = ["q9", "q8"]
SMALLEST = "SELECT count(*), sum(value) FROM events WHERE dt = DATE '{day}' AND event = 'none'"


class Shares:
    """Control groups with a quota of CPU time, of either version."""

    def __init__(self):
        first, second = pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup")
        self.is_first = (first / "cpu.cfs_quota_us").is_file() or (first / "tasks").is_file()
        self.root = first if self.is_first else second
        self.made = []

    def put(self, pid, cores):
        """Bounds a process and all its threads."""
        folder = self.root / f"uplake-bench-{os.getpid()}-{len(self.made)}"
        quota = int(cores * PERIOD_US)
        try:
            folder.mkdir()
            self.made.append(folder)
            if self.is_first:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            (folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            sys.exit(f"cannot give a process {cores} cores: {error} (control groups of CPU time, as root)")

    def remove(self):
        for folder in self.made:
            with contextlib.suppress(OSError):
                folder.rmdir()


class Lines:
    """Addresses of loopback from each of which at most so many megabytes come in a second."""

    def __init__(self, megabytes, count):
        self.addresses = [f"127.0.7.{n + 1}" for n in range(count)]
        # What is of no class is not slowed.
        self.tc("qdisc add dev lo root handle 1: htb")
        for n, address in enumerate(self.addresses, 1):
            self.tc(f"class add dev lo parent 1: classid 1:{n} htb rate {megabytes * 8}mbit burst 128k cburst 128k")
            self.tc(f"filter add dev lo parent 1: protocol ip prio 1 u32 match ip src {address}/32 flowid 1:{n}")

    @staticmethod
    def tc(words):
        done = subprocess.run(["tc", *words.split()], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"cannot slow loopback: tc {words}: {done.stderr.strip()} (tc of iproute2, as root)")

    def remove(self):
        self.tc("qdisc del dev lo root")


class Asked:
    """A connection whose statements are timed."""

    def __init__(self, server, *settings):
        self.wire = server.raw(timeout=600)
        for setting in settings:
            self.ask(setting)

    def ask(self, sql):
        """Seconds, and the rows."""
        began = time.perf_counter()
        messages = self.wire.ask(frames.query(sql))
        took = time.perf_counter() - began
        assert not frames.errors(messages), (sql, frames.errors(messages))
        return took, [tuple(frames.values_of(body)) for kind, body in messages if kind == b"D"]


def cpu_seconds(servers):
    return sum(server.cpu_seconds() for server in servers)


def read_from_store(server):
    text = server.ask("GET", "/metrics")[2].decode()
    return sum(float(count) for count in re.findall(r'^uplake_storage_bytes_total\{[^}]*kind="read"[^}]*\} (\S+)$', text, re.MULTILINE))


def metric(server, name):
    text = server.ask("GET", "/metrics")[2].decode()
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)[1])


def same(one, other):
    """Are the rows the same, in any order, fractions to nine digits? Sums of floats depend on the order of their terms, so
    one may be whole and the other hardly."""

    def number(text):
        try:
            return None if text is None else float(text)
        except ValueError:
            return None

    def key(row):
        return repr([text if number(text) is None else f"{number(text):.6g}" for text in row])

    def alike(a, b):
        numbers = number(a), number(b)
        if None in numbers or not (b"." in a or b"." in b):
            return a == b
        return math.isclose(*numbers, rel_tol=1e-9)

    rows = [sorted(rows, key=key) for rows in (one, other)]
    return len(one) == len(other) and all(
        len(a) == len(b) and all(map(alike, a, b)) for a, b in zip(*rows)
    )


def part_ms(asked, sql):
    """What each part takes."""
    _, rows = asked.ask(f"EXPLAIN ANALYZE {sql}")
    return [float(ms) for ms in re.findall(r"rows?, \d+ bytes, ([\d.]+) ms", " ".join(str(row) for row in rows))]


def balance(asked, sql):
    """The longest part against the mean, medians of five, and how many parts; `None` if it stayed."""
    times = list(map(statistics.median, zip(*(part_ms(asked, sql) for _ in range(5)))))
    return (round(max(times) / statistics.mean(times), 2), len(times)) if times else None


def compare(one, many, cluster, alone, statements, warm, rounds):
    """What each statement takes in turns; the first `warm` rounds do not count."""
    found, equal = {}, True
    coordinator = cluster[0]
    for name, sql in statements.items():
        times, cpu = {"one": [], "many": []}, {"one": 0.0, "many": 0.0}
        sent = 0
        for turn in range(warm + rounds):
            answers = {}
            for way, asked, processes in ("one", one, [alone]), ("many", many, cluster):
                before, bytes_before = cpu_seconds(processes), metric(coordinator, "uplake_part_bytes_total")
                took, answers[way] = asked.ask(sql)
                if turn >= warm:
                    times[way].append(took)
                    cpu[way] += cpu_seconds(processes) - before
                    sent += metric(coordinator, "uplake_part_bytes_total") - bytes_before
            equal &= same(answers["one"], answers["many"])
        medians = {way: statistics.median(took) for way, took in times.items()}
        found[name] = {
            "one_ms": round(medians["one"] * 1000, 1), "three_ms": round(medians["many"] * 1000, 1),
            "ratio": round(medians["one"] / medians["many"], 2),
            "cpu_overhead": round(cpu["many"] / cpu["one"], 2) if cpu["one"] else None,
            "balance, parts": balance(many, sql), "bytes": int(sent / rounds),
        }
        measure.progress(f"{name}: {json.dumps(found[name])}")
    return found, equal


def p50_ms(asked, sql, count):
    return statistics.median(asked.ask(sql)[0] for _ in range(count)) * 1000


def added(data, cluster, alone, rounds):
    """What parts on nodes add to the smallest statement, and nodes to statements that stay; without quotas it is the same
    machine, so here everybody has them."""
    smallest = SMALLEST.format(day=data.days[-1])
    always, never = Asked(cluster[0], "SET uplake.elsewhere = always"), Asked(cluster[0], "SET uplake.elsewhere = never")
    auto, plain = Asked(cluster[0], "SET uplake.elsewhere = auto"), Asked(alone)
    for asked in always, never:
        p50_ms(asked, smallest, 5)
    parts, whole = [], []
    for _ in range(rounds):
        parts.append(p50_ms(always, smallest, 40))
        whole.append(p50_ms(never, smallest, 40))
    told = {"smallest_ms": {
        "always": round(statistics.median(parts), 2), "never": round(statistics.median(whole), 2),
        "added": round(statistics.median(parts) - statistics.median(whole), 2),
    }}
    for name in STAY:
        sql = data.statement(name, 1)
        with_nodes, without = [], []
        for _ in range(rounds + 1):
            with_nodes.append(p50_ms(auto, sql, 20))
            without.append(p50_ms(plain, sql, 20))
        medians = statistics.median(with_nodes[1:]), statistics.median(without[1:])
        told[f"{name}_stays"] = {"with_nodes_ms": round(medians[0], 2), "plain_ms": round(medians[1], 2),
                                 "ratio": round(medians[0] / medians[1], 3)}
    return told


def reports(data, cluster, shares, cores, warm, rounds):
    """What reports take in turns; the first `warm` rounds of one experiment do not count, and one of all."""
    _, *workers = cluster
    uplake = experiments.Uplake(BINARY, data.folder / "lake", 1200)
    bounded = lambda pid: shares.put(pid, cores)
    ways = {"one": [], "many": ["--members", ",".join(worker.node for worker in workers)]}
    found, equal = {}, True
    with tempfile.TemporaryDirectory() as folder:
        paths = uplake.definitions(folder)
        for asked, unmeasured in (paths[:1], warm), (paths, 1):
            seconds, cpu = {way: [] for way in ways}, dict.fromkeys(ways, 0.0)
            for turn in range(unmeasured + rounds):
                made = {}
                for way, options in ways.items():
                    before = cpu_seconds(workers)
                    cost, made[way] = uplake.report(asked, "--threads", "1", *options, while_running=bounded)
                    if turn >= unmeasured:
                        seconds[way].append(cost.seconds)
                        cpu[way] += cost.cpu_seconds + cpu_seconds(workers) - before
                equal &= made["one"] == made["many"]
            medians = {way: statistics.median(took) for way, took in seconds.items()}
            name = f"{len(asked)} experiment{'s' if len(asked) > 1 else ''}"
            found[name] = {
                "one_s": round(medians["one"], 2), "three_s": round(medians["many"], 2),
                "ratio": round(medians["one"] / medians["many"], 2), "cpu_overhead": round(cpu["many"] / cpu["one"], 2),
            }
            measure.progress(f"{name}: {json.dumps(found[name])}")
    return found, equal


def lake_of(data):
    lake = data.folder / "lake"
    if lake.is_dir():
        return lake
    for table in xab.TABLES:
        command = [BINARY, "load", table, *data.files(table), "--lake", lake, *xab.LAYOUT[table]]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return lake


class Worker(support.Server):
    def __init__(self, folder, lake, *options, env=None):
        super().__init__(folder, lake, "--roles", "work", "--node", "127.0.0.1:0", *options, env=env)
        self.node = re.match(r"node\s+(\S+)", self.process.stdout.readline().decode())[1]


def cluster_of(lake, folder, *options, env_of=lambda number: None):
    """A coordinator, whose number is 0, and its workers, with a thread each."""
    place = lambda name: pathlib.Path(folder, name)
    for name in ["coordinator", *(f"worker{n}" for n in range(WORKERS))]:
        place(name).mkdir(parents=True)
    servers = []
    try:
        for n in range(WORKERS):
            servers.append(Worker(place(f"worker{n}"), lake, "--threads", "1", *options, env=env_of(n + 1)))
        members = ",".join(worker.node for worker in servers)
        roles = ["--roles", "coordinate", "--members", members, "--threads", "1"]
        servers.insert(0, support.Server(place("coordinator"), lake, *roles, *options, env=env_of(0)))
        support.within(30, lambda: metric(servers[0], "uplake_nodes") == WORKERS, "the coordinator knows its workers")
    except BaseException:
        stop(servers)
        raise
    return servers


def stop(servers):
    for server in reversed(servers):
        server.stop()


def cold(lake, folder, statements, shares, args):
    """What each statement takes of processes that have read nothing, over lines of `args.cold` megabytes a second."""
    storage = [word for setting in args.storage for word in ("--storage", setting)]
    gateway = buckets.gateway() or str(support.tools().parent / "bin/versitygw")
    store, lines = buckets.Gateway(gateway, host=""), None
    found, equal = {}, True
    try:
        store.client().create_bucket(Bucket=buckets.BUCKET)
        shutil.copytree(lake, store.folder / "data" / buckets.BUCKET / "lake", copy_function=os.link)
        lines = Lines(args.cold, WORKERS + 2)
        port = store.endpoint.rpartition(":")[2]

        def asked(way, name, sql, turn):
            """Seconds, the rows, and the bytes from the bucket."""
            place = pathlib.Path(folder, f"{name}-{way}-{turn}")

            def env_of(number):
                line = {"AWS_ENDPOINT": f"http://{lines.addresses[number]}:{port}"}
                return store.settings() | line | {"UPLAKE_CACHE": str(place / f"cache{number}")}

            url = f"s3://{buckets.BUCKET}/lake"
            if way == "one":
                place.mkdir()
                servers = [support.Server(place, url, "--threads", "1", *storage, env=env_of(WORKERS + 1))]
            else:
                servers = cluster_of(url, place, *storage, env_of=env_of)
            try:
                for server in servers:
                    shares.put(server.process.pid, args.cores)
                took, rows = Asked(servers[0], f"SET uplake.elsewhere = {args.elsewhere}").ask(sql)
                return took, rows, sum(read_from_store(server) for server in servers)
            finally:
                stop(servers)

        for name, sql in statements.items():
            seconds, read = {"one": [], "many": []}, {"one": [], "many": []}
            for turn in range(args.rounds):
                answers = {}
                for way in seconds:
                    took, answers[way], count = asked(way, name, sql, turn)
                    seconds[way].append(took)
                    read[way].append(count)
                equal &= same(answers["one"], answers["many"])
            medians = {way: statistics.median(took) for way, took in seconds.items()}
            found[name] = {
                "one_s": round(medians["one"], 2), "three_s": round(medians["many"], 2),
                "ratio": round(medians["one"] / medians["many"], 2),
                "read_mb": {way: round(statistics.median(read[way]) / 1e6, 1) for way in read},
            }
            measure.progress(f"{name}: {json.dumps(found[name])}")
    finally:
        if lines:
            lines.remove()
        store.stop()
    return found, equal


def trusted(data, lake, folder, days):
    """What certificates and tokens between nodes cost: p50 and CPU time of all nodes, ms."""
    from certificates import Authority

    secret = pathlib.Path(folder, "secret")
    secret.write_bytes(os.urandom(32))
    words = [*Authority().write(pathlib.Path(folder, "certificates")), "--node-secret", str(secret)]
    found, clusters = {}, {}
    try:
        for way, options in ("plain", []), ("trusted", words):
            clusters[way] = cluster_of(lake, pathlib.Path(folder, way), *options)
        asked = {way: Asked(servers[0], "SET uplake.elsewhere = always") for way, servers in clusters.items()}
        for name, sql, count in (
            ("smallest", SMALLEST.format(day=data.days[-1]), 300), ("q5", data.statement("q5", days), 40),
        ):
            times, cpu = {way: [] for way in asked}, dict.fromkeys(asked, 0.0)
            for turn in range(count // 10 + 1):
                for way in asked if turn % 2 else reversed(asked):
                    before = cpu_seconds(clusters[way])
                    took = [asked[way].ask(sql)[0] for _ in range(10)]
                    if turn:
                        times[way] += took
                        cpu[way] += cpu_seconds(clusters[way]) - before
            p50 = {way: round(statistics.median(took) * 1000, 2) for way, took in times.items()}
            found[name] = {"p50_ms": p50, "cpu_ms": {way: round(cpu[way] * 1000 / len(times[way]), 1) for way in asked}}
            measure.progress(f"{name}: {json.dumps(found[name])}")
    finally:
        for servers in clusters.values():
            stop(servers)
    return found


def killed(lake, sql, folder, rounds):
    """How much longer a statement takes when a worker is killed at some moment of it, and its longest part, in seconds."""
    found, equal = [], True
    for turn in range(rounds):
        servers = cluster_of(lake, pathlib.Path(folder, f"killed{turn}"))
        try:
            asked = Asked(servers[0])
            # Text is kept by all after some rounds.
            usual = [asked.ask(sql) for _ in range(12)][9:]
            took = statistics.median(seconds for seconds, _ in usual)
            part = max(part_ms(asked, sql)) / 1000
            victim = servers[1 + turn % WORKERS].process
            timer = threading.Timer(took * (turn + 1) / (rounds + 1), victim.kill)
            timer.start()
            seconds, rows = asked.ask(sql)
            timer.join()
            victim.wait()
            equal &= same(usual[-1][1], rows)
        finally:
            stop(servers)
        found.append({"usual_s": round(took, 2), "longest_part_s": round(part, 2), "more_s": round(seconds - took, 2)})
        measure.progress(f"killed: {json.dumps(found[-1])}")
    return found, equal


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=pathlib.Path)
    options.add_argument("--days", type=int, default=20)
    options.add_argument("--warm", type=int, default=8, help="rounds that do not count")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--reports", type=int, default=0, metavar="ROUNDS", help="rounds of reports")
    options.add_argument("--cold", type=int, default=0, metavar="MB", help="megabytes a second of each line to a bucket")
    options.add_argument("--storage", action="append", default=[], metavar="KEY=VALUE", help="with --cold, of all processes")
    options.add_argument("--faults", type=int, default=0, metavar="ROUNDS", help="certificates, and so many kills")
    options.add_argument("--cores", type=float, default=0.5, help="of each process")
    options.add_argument("--only", default=",".join(DIVIDED), metavar="Q,…")
    options.add_argument("--elsewhere", default="auto", choices=["auto", "always"])
    args = options.parse_args()
    data = xab.DataSet(args.data)
    lake = lake_of(data)
    if args.faults:
        with tempfile.TemporaryDirectory() as folder:
            costs = trusted(data, lake, folder, args.days)
            kills, equal = killed(lake, data.statement("q6", args.days), folder, args.faults)
        print(json.dumps({"data": data.summary(), "days": args.days, "trust": costs, "killed": kills}, indent=1))
        sys.exit(None if equal else "answers differ")
    statements = {name: data.statement(name, args.days) for name in args.only.split(",") if name}
    shares, servers = Shares(), []
    if args.cold:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found, equal = cold(lake, folder, statements, shares, args)
            finally:
                shares.remove()
        print(json.dumps({"data": data.summary(), "days": args.days, "cold_mb_per_s": args.cold, "statements": found}, indent=1))
        sys.exit(None if equal else "answers differ")
    with tempfile.TemporaryDirectory() as folder:
        try:
            servers += cluster_of(lake, folder)
            coordinator, cluster = servers[0], servers[:]
            pathlib.Path(folder, "alone").mkdir()
            alone = support.Server(pathlib.Path(folder, "alone"), lake, "--threads", "1")
            servers.append(alone)
            for server in servers:
                shares.put(server.process.pid, args.cores)
            load = os.getloadavg()[0]
            many = Asked(coordinator, f"SET uplake.elsewhere = {args.elsewhere}")
            found, equal = compare(Asked(alone), many, cluster, alone, statements, args.warm, args.rounds)
            told = added(data, cluster, alone, args.rounds) if statements or not args.reports else {}
            if args.reports:
                told["reports"], same_reports = reports(data, cluster, shares, args.cores, args.warm, args.reports)
                equal &= same_reports
        finally:
            stop(servers)
            shares.remove()
    print(json.dumps({"data": data.summary(), "days": args.days, "cores_each": args.cores, "load_before": load,
                      "statements": found, **told}, indent=1))
    if not equal:
        sys.exit("answers differ")


if __name__ == "__main__":
    main()
