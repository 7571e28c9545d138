"""Reports in parts: `uplake report` and three workers, as processes on loopback.

Every report is compared with the one that `uplake report` makes alone, byte by byte.
"""

import json
import re
import signal
import subprocess

import pytest
import support
from support import binary, within
from test_nodes import Asked, Nodes, Worker, _metric, lake, nodes, own

support.only_uplake("it is about its nodes")

EXPERIMENT = """
name = "t"
start = "2026-11-01"
end = "2026-11-21"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "seen"
[[variant]]
name = "a"
share = 0.5
[[variant]]
name = "b"
share = 0.5
[[dimension]]
name = "country"
[[metric]]
name = "n"
type = "mean"
table = "events"
time = "ts"
value = "VALUE"
cap = "99 %"
[[metric]]
name = "bought"
type = "proportion"
table = "events"
time = "ts"
where = "kind = 'buy'"
cuped = { pre = "3 days" }
"""
QUANTILE = """
[[metric]]
name = "median"
type = "quantile"
table = "events"
time = "ts"
value = "n"
level = 0.5
"""
# Of each row some 100 microseconds.
SLOW_VALUE = "n + levenshtein(repeat(kind, 80), repeat(user_id, 80))"


class Reports:
    """`uplake report` of two experiments, which read the same rows; each takes seconds if it is slow."""

    def __init__(self, folder, lake):
        self.folder, self.lake = folder, lake
        for name, value, more in [("t", "n", QUANTILE), ("u", "n * 0.1", ""), ("slow", SLOW_VALUE, "")]:
            text = EXPERIMENT.replace('"t"', f'"{name}"').replace("VALUE", value) + more
            if name == "slow":
                # What is asked of nodes is then the report's parts alone, no statement about all numbers.
                text = text.replace('cap = "99 %"', "")
            (folder / f"{name}.toml").write_text(text)
        self.alone = {}

    def begin(self, *words, members=(), elsewhere="always"):
        if members:
            nodes = ",".join(worker.node for worker in members)
            words = [*words, "--members", nodes, "--elsewhere", elsewhere]
        command = [binary(), "report", *words, "--lake", str(self.lake), "--dimension", "country"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)

    def end(self, process, seconds=120):
        """What it printed, and said."""
        out, said = process.communicate(timeout=seconds)
        assert process.returncode == 0, said
        return out, said

    def made(self, *words, **options):
        return self.end(self.begin(*words, **options))

    def expected(self, *words):
        if words not in self.alone:
            out, said = self.made(*words)
            assert not said, said
            self.alone[words] = out
        return self.alone[words]


@pytest.fixture(scope="module")
def reports(tmp_path_factory, lake):
    return Reports(tmp_path_factory.mktemp("reports"), lake)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("form", ["text", "json", "html", "csv"])
def a_report_of_nodes_is_the_same_bytes(nodes, reports, form, count):
    words = ("t.toml", "--format", form)
    before = nodes.computed()
    out, said = reports.made(*words, members=nodes.workers[:count])
    assert out == reports.expected(*words) and len(out) > 500 and not said, said
    parts = [after - was for after, was in zip(nodes.computed(), before)]
    # Those of the cap and of the quantile, too.
    assert all(parts[:count]) and not any(parts[count:]), parts


def reports_of_several_experiments_travel_together(nodes, reports):
    words = ("t.toml", "u.toml", "--format", "json")
    out, said = reports.made(*words, members=nodes.workers)
    assert out == reports.expected(*words) and not said, said
    assert len(json.loads(out)) == 2


def a_report_that_reads_little_is_made_alone_if_nobody_says_always(nodes, reports):
    before = nodes.computed()
    out, said = reports.made("t.toml", members=nodes.workers, elsewhere="auto")
    assert out == reports.expected("t.toml") and not said, said
    assert nodes.computed() == before


def a_report_that_reads_much_is_divided_by_itself(nodes, reports):
    never = Asked(nodes.coordinator, "never")
    columns = "user_id TEXT, n BIGINT, seen TIMESTAMP"
    never.rows(f"CREATE TABLE big ({columns}) CLUSTERED BY (user_id) ID DOMAINS (user_id users)")
    try:
        rows = "SELECT 'u' || (x % 2000), x % 1000, TIMESTAMP '2026-11-15 12:00:00'"
        never.rows(f"INSERT INTO big {rows} FROM generate_series(1, 4200000) g(x)")
        text = EXPERIMENT.replace('table = "events"\ntime = "ts"', 'table = "big"').replace("VALUE", "n")
        (reports.folder / "big.toml").write_text(text.replace("kind = 'buy'", "n = 77"))
        before = nodes.computed()
        out, said = reports.made("big.toml", members=nodes.workers, elsewhere="auto")
        assert out == reports.expected("big.toml") and not said, said
        assert all(after > was for after, was in zip(nodes.computed(), before))
    finally:
        never.rows("DROP TABLE big")


def a_worker_that_is_killed_is_not_missed_by_a_report(own, reports):
    expected = reports.expected("slow.toml", "--format", "json")
    process = reports.begin("slow.toml", "--format", "json", members=own.workers)
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    own.workers[1].kill()
    assert reports.end(process) == (expected, "")
    # The next one does not ask it.
    words = ("t.toml", "--format", "json")
    assert reports.made(*words, members=own.workers) == (reports.expected(*words), "")


def without_workers_a_report_is_made_alone_with_a_warning(own, reports):
    expected = reports.expected("slow.toml", "--format", "json")
    process = reports.begin("slow.toml", "--format", "json", members=own.workers)
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    for worker in own.workers:
        worker.process.kill()
    for worker in own.workers:
        worker.kill()
    out, said = reports.end(process)
    assert out == expected and "computed by the node that was asked" in said, said
    words = ("t.toml", "--format", "json")
    out, said = reports.made(*words, members=own.workers)
    assert out == reports.expected(*words)
    assert re.search("^warning: the (report|statement) was computed by one node: 0 of 3 nodes can be used", said), said
    assert f"{own.workers[0].node} does not answer" in said, said
    # What is not worth it is not told of.
    assert reports.made(*words, members=own.workers, elsewhere="auto") == (reports.expected(*words), "")


def a_report_that_takes_two_nodes_with_it_is_an_error(own, reports):
    process = reports.begin("slow.toml", members=own.workers)
    within(20, lambda: all(worker.parts() for worker in own.workers), "all workers compute")
    own.workers[0].kill()
    left = own.workers[1:]
    within(20, lambda: any(len(worker.parts()) > 1 for worker in left), "the part is computed again")
    second = next(worker for worker in left if len(worker.parts()) > 1)
    second.kill()
    out, said = process.communicate(timeout=60)
    assert process.returncode != 0 and out == "" and "lost twice" in said, said
    for worker in own.workers[0], second:
        assert worker.node in said, said
    # The third is not asked for what the others were lost with.
    next(worker for worker in left if worker is not second).free(20)


def a_report_that_is_stopped_runs_on_no_worker(nodes, reports):
    for how in signal.SIGINT, signal.SIGKILL:
        process = reports.begin("slow.toml", members=nodes.workers)
        within(20, lambda: all(worker.parts() for worker in nodes.workers), "all workers compute")
        process.send_signal(how)
        process.communicate(timeout=20)
        assert process.returncode != 0
        for worker in nodes.workers:
            worker.free()


def members_of_other_lakes_make_no_report(tmp_path, lake, reports):
    own = Nodes(tmp_path, lake, workers=0)
    other = support.make_lake(tmp_path)
    (tmp_path / "other").mkdir()
    stranger = Worker(tmp_path / "other", other)
    own.servers.append(stranger)
    right, elsewhere = own.worker(), own.worker(0, "--warehouse", "reports")
    words = ("t.toml", "--format", "json")
    try:
        def parts(*members, more=()):
            before = [_metric(member, "uplake_parts_computed_total") for member in members]
            out, said = reports.made(*words, *more, members=members)
            assert out == reports.expected(*words)
            after = [_metric(member, "uplake_parts_computed_total") for member in members]
            return [now > was for now, was in zip(after, before)], said

        assert parts(stranger, right, elsewhere) == ([False, True, False], "")
        assert parts(stranger, right, elsewhere, more=("--warehouse", "reports")) == ([False, False, True], "")
        used, said = parts(stranger)
        assert used == [False] and f"{stranger.node} serves another lake" in said, said
    finally:
        own.stop()


@pytest.mark.parametrize("options, says", [
    (["--warehouse", "reports"], "--members"),
    (["--elsewhere", "always"], "--members"),
    (["--members", "127.0.0.1:1", "--remember"], "--remember"),
    (["--members", "10.1.2.3:1"], "not encrypted"),
    (["--members", "127.0.0.1"], "no port"),
    (["--members", "127.0.0.1:1", "--warehouse", "a b"], "letters"),
])
def options_of_reports_that_mean_nothing_are_refused(reports, options, says):
    out, said = (process := reports.begin("t.toml", *options)).communicate(timeout=60)
    assert process.returncode != 0 and out == "" and says in said, said
