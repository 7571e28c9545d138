"""Power loss at seeded random moments: what a command said it did is there, the rest is wholly or not.

Commands are recorded once. For each seed a state is made that the disk may have after a cut at some
moment (`power_loss.py` says which those are), and uplake is asked about it and goes on with it.
"""

import collections
import dataclasses
import json
import math
import random
import re
import subprocess
import sys

import pytest

import support
from power_loss import Disk, Recorder, tree_of, write_tree
from support import Lake

# Of each of six histories: 60 in all at a push, more than 1,000 with UPLAKE_SOAK=20.
SEEDS = 10 * support.SOAK
LAYOUT = ["--id-domain", "user_id=users", "--index", "user_id", "--cluster-by", "user_id,n"]


@dataclasses.dataclass
class Version:
    """What a table or an id set holds from a command on: None if it is not there.

    Moments are those at which its command began, when it may be there, and said that it was done.
    """

    rows: frozenset | None
    possible: int
    sure: float


class History:
    """Commands that were recorded, and what they should have made of tables and id sets."""

    def __init__(self, folder, name):
        self.folder, self.root = folder, folder / "disk"
        self.root.mkdir()
        self.recorder, self.said, self.reindexed = Recorder(folder, self.root), [], []
        self.lake, self.backup = (Lake(self.root / name, folder) for name in ["lake", "backup"])
        self.versions = collections.defaultdict(lambda: [Version(None, -1, -1)])
        self.rng, self.next_row = support.seeded(name), 0
        self.seed = self.rng.random()

    def run(self, *args, changes=None, code=0, **more):
        """Runs a command that should bring about `changes`: rows by (lake, table). Its exit code."""
        began = self.recorder.take()
        code = self.lake.run(*args, code=code, env=self.recorder.environment(**more)).code
        ended = self.recorder.take()
        said = [at for at in range(began, ended) if self.recorder.notes[at].kind == "s"]
        sure = math.inf if code else said[-1] if said else ended - 1
        self.said.append(min(sure, ended - 1))
        if "reindex" in args:
            self.reindexed.append(range(began, self.said[-1]))
        for key, rows in (changes or {}).items():
            self.versions[key].append(Version(None if rows is None else frozenset(rows), began, sure))
        return code

    def rows(self, table, lake="lake"):
        return self.versions[lake, table][-1].rows or frozenset()

    def new_rows(self, count, first=None):
        """A file of rows, and them. Some of their users are new."""
        if first is None:
            first, self.next_row = self.next_row, self.next_row + count
        rows = [(n, f"u{random.Random(n).randrange(60 + min(first, 600))}") for n in range(first, first + count)]
        path = self.folder / f"{first}.csv"
        path.write_text("n,user_id\n" + "".join(f"{n},{user}\n" for n, user in rows))
        return path, frozenset(rows)

    def load(self, table, *options, count=150, **more):
        path, new = self.new_rows(count)
        self.run("load", table, path, *options, changes={("lake", table): self.rows(table) | new}, **more)
        return path

    def sql(self, statement, **changes):
        self.run("sql", "-c", statement, changes={("lake", key): rows for key, rows in changes.items()})

    def killed(self, after, *args, rows=None):
        """A command that is killed after a call: its letter in power_loss.c, and a part of the path."""
        before, began = self.lake.version("t"), len(self.recorder.notes)
        code = self.run(*args, code=None, kill_after=after)
        assert code == -9, f"{args} does nothing like {after}"
        # Whether it gave `t` its rows is seen in the log, and that they last was not said.
        if rows is not None and self.lake.version("t") != before:
            self.versions["lake", "t"].append(Version(frozenset(rows), began, math.inf))

    def moment(self, rng):
        """Any, but as often one after a command was done, or a name was given."""
        notes = self.recorder.notes
        named = [at for at, note in enumerate(notes) if note.kind in "lru"]
        return rng.choice([rng.randrange(len(notes)), rng.choice(self.said), rng.choice(named)])

    def allowed(self, key, moment):
        """What may be there after a cut: the last that is sure, or any that is possible since."""
        versions = self.versions[key]
        sure = max(at for at, version in enumerate(versions) if version.sure <= moment)
        return [version.rows for version in versions[sure:] if version.possible <= moment]

    def allowed_all(self, moment):
        return {key: self.allowed(key, moment) for key in self.versions}

    def disk(self, moment, forgets=lambda note: False):
        """`forgets`: of a sync, that it did nothing."""
        disk = Disk()
        for note in self.recorder.notes[:moment + 1]:
            disk.apply(dataclasses.replace(note, kind="s") if forgets(note) else note)
        return disk


def _plain(history):
    """Tables without ids: loads, a label, INSERT, DELETE, compaction, vacuum, DROP TABLE."""
    history.load("t", "--partition-by", "n", count=3)
    history.load("u", "--index", "user_id")
    for number in range(3):
        history.load("u", "--label", f"day {number}")
    kept = frozenset(row for row in history.rows("u") if row[0] % 3)
    history.sql("DELETE FROM u WHERE n % 3 = 0", u=kept)
    history.sql("INSERT INTO u VALUES (100000, 'u1')", u=kept | {(100000, "u1")})
    history.run("table", "compact", "u")
    history.run("table", "reindex", "u", "--index", "n")
    history.run("table", "vacuum", "u", "--retain", "0s")
    history.sql("DROP TABLE t", t=None)
    history.sql("CREATE TABLE v (n BIGINT, user_id TEXT)", v=[])
    history.load("v")
    history.sql("CREATE TABLE w AS SELECT * FROM u WHERE n < 100", w=[row for row in history.rows("u") if row[0] < 100])
    history.sql("DROP TABLE u", u=None)
    history.load("u")


def _numbered(history):
    """Two tables of one id domain: loads, id sets, compaction of tables and of the domain, vacuums."""
    history.load("t", *LAYOUT)
    history.load("u", *LAYOUT)
    history.load("t")
    vips = "CREATE {} ID SET vips AS SELECT user_id FROM t WHERE n < {}"
    for create, below in [("", 40), ("OR REPLACE", 80)]:
        users = {user for n, user in history.rows("t") if n < below}
        history.sql(vips.format(create, below), vips=users)
    history.run("domain", "compact", "users")
    history.load("u")
    history.run("table", "compact", "t")
    history.run("domain", "compact", "users")
    history.run("domain", "vacuum", "users", "--retain", "0s")
    history.load("t")
    history.run("table", "reindex", "u", "--rebuild")
    history.run("table", "vacuum", "t", "--retain", "0s")
    history.load("u")
    history.sql("DROP ID SET vips", vips=None)


def _keyed(history):
    """A table with a primary key, of which loads replace rows or leave them out."""
    path, first = history.new_rows(100)
    history.run("load", "t", path, *LAYOUT, "--primary-key", "n", changes={("lake", "t"): first})
    for number in range(5):
        new = {row[0]: row for row in history.new_rows(20)[1]}
        old = {row[0]: row for row in history.rows("t")}
        again = {n: (n, f"again{number}") for n in history.rng.sample(sorted(old), 20)}
        path = history.folder / f"again{number}.csv"
        path.write_text("n,user_id\n" + "".join(f"{n},{user}\n" for n, user in [*again.values(), *new.values()]))
        options, rows = ["--on-conflict", "ignore"], again | new | old
        if number % 2:
            options, rows = [], old | new | again
        history.run("load", "t", path, *options, changes={("lake", "t"): rows.values()})
    history.run("table", "compact", "t")
    history.sql("DELETE FROM t WHERE n < 50", t=[row for row in history.rows("t") if row[0] >= 50])


def _copied(history):
    """A backup, brought up to date, and restored."""
    for table in ["t", "u"]:
        history.load(table, *LAYOUT)

    def copy(verb, place, source):
        """One that was stopped is an older version of a table."""
        began = len(history.recorder.notes)
        before = {table: history.versions[source, table][1:] for table in ["t", "u"]}
        history.run("lake", verb, history.backup.path)
        for table, versions in before.items():
            here = history.versions[place, table]
            here += [Version(version.rows, began, math.inf) for version in versions]
            here.append(Version(history.rows(table, source), began, history.said[-1]))

    copy("backup", "backup", "lake")
    history.load("t")
    history.run("domain", "compact", "users")
    history.load("u")
    history.run("table", "compact", "t")
    copy("backup", "backup", "lake")
    for table in ["t", "u"]:
        history.sql(f"DROP TABLE {table}", **{table: None})
    copy("restore", "lake", "backup")
    history.load("t")


def _killed_loads(history):
    """Loads that are killed, and others of their labels, which say that it is done."""
    history.load("t", *LAYOUT)
    for after in ["c.run", "l.run", "r.parquet", "c.json", "f.json", "l.json", "f_delta_log"]:
        path, new = history.new_rows(20)
        rows, label = history.rows("t") | new, ["--label", after]
        history.killed(after, "load", "t", path, *label, rows=rows)
        history.run("load", "t", path, *label, changes={("lake", "t"): rows})


def _killed_maintenance(history):
    """Commands that are killed, and others that remove what is superfluous since."""
    history.load("t", *LAYOUT)
    history.load("u", *LAYOUT)
    for after in ["r.parquet", "l.json", "u.json"]:
        history.load("t", count=20)
        history.killed(after, "table", "compact", "t")
        history.run("table", "vacuum", "t", "--retain", "0s")
    for after in ["cbase-", "lbase-"]:
        history.killed(after, "domain", "compact", "users")
        history.run("domain", "vacuum", "users", "--retain", "0s")
        history.load("u", count=20)
    for after in ["u.json", "u.parquet"]:
        began = len(history.recorder.notes)
        history.killed(after, "sql", "-c", "DROP TABLE u")
        history.versions["lake", "u"].append(Version(None, began, math.inf))
        history.sql("DROP TABLE IF EXISTS u", u=None)
        history.load("u", *LAYOUT)


HISTORIES = [_plain, _numbered, _keyed, _copied, _killed_loads, _killed_maintenance]


def _found(lake, names):
    """Rows of what is there of tables, and of id sets."""
    found, queries = {}, []
    for name in names:
        found[name] = None
        if name == "vips":
            if "vips" in lake.run("sql", "-c", "SHOW ID SETS").out:
                queries.append("SELECT DISTINCT 'vips' AS name, user_id FROM t WHERE user_id IN ID SET vips")
        elif lake.version(name) is not None:
            queries.append(f"SELECT '{name}' AS name, n, user_id FROM {name}")
            found[name] = []
    if queries:
        out = lake.run("sql", "-c", "; ".join(queries), "--format", "json").out
        for row in map(json.loads, out.splitlines()):
            found[row["name"]] = found[row["name"]] or []
            found[row["name"]].append(row["user_id"] if row["name"] == "vips" else (row["n"], row["user_id"]))
    for name, rows in found.items():
        assert rows is None or len(set(rows)) == len(rows), f"{name} has rows twice"
    return {name: None if rows is None else frozenset(rows) for name, rows in found.items()}


def _differences(rows, allowed):
    def size(some):
        return "nothing" if some is None else f"{len(some)} rows"

    return f"{size(rows)}, and allowed are {', '.join(map(size, allowed))}"


# A table may say that it has an index before there is one: reindex goes on where it was stopped.
LACKS_INDEX = re.compile(r"- the rows are sound, but .*; mend them with: uplake (table reindex \w+)")


LACKS_RUNS = re.compile(r"domains/\w+/\d+\.run is missing")


def _mend_indexes(lake):
    said = lake.run("lake", "check", code=None).out
    for command in LACKS_INDEX.findall(said):
        lake.run(*command.split())


def _check(history, allowed):
    """All is sound and holds what it may. The rows of the lake's tables."""
    found = {}
    for lake in [history.lake, history.backup]:
        names = [name for place, name in allowed if place == lake.path.name]
        if not names:
            continue
        said = lake.run("lake", "check", code=None).out
        # Of a domain a base is copied before its runs: a copy that was stopped has keys that no run there has.
        is_stopped = lake is history.backup and any(len(allowed[lake.path.name, name]) > 1 for name in names)
        assert "the lake is sound" in said or is_stopped and LACKS_RUNS.search(said), said
        for name, rows in _found(lake, names).items():
            of = allowed[lake.path.name, name]
            assert rows in of, f"{lake.path.name}, {name}: {_differences(rows, of)}"
            found[lake.path.name, name] = rows or frozenset()
    return {name: rows for (place, name), rows in found.items() if place == "lake" and name != "vips"}


def _back_up_again(history, tables):
    """What a copy that was stopped left is no obstacle to the next one."""
    versions = [(history.backup.version(table) or 0, history.lake.version(table)) for table in tables]
    if all(here is not None and there <= here for there, here in versions):
        history.lake.run("lake", "backup", history.backup.path)
        _check(history, {("backup", table): [rows] for table, rows in tables.items()})


def _next_load(history, table, number, **more):
    """Rows that no table has; the options are of a table that is not there."""
    path, rows = history.new_rows(30, first=(number + 1) * 1_000_000)
    history.lake.load(table, path, *(LAYOUT if history.lake.version(table) is None else []), **more)
    return rows


def _cut_again(history, tables, rng):
    """Another load, and another cut while it runs."""
    recorder, disk, table = history.recorder, Disk(history.root), rng.choice(list(tables))
    began = recorder.take()
    old, new = tables[table], _next_load(history, table, 9, env=recorder.environment())
    recorder.take()
    notes, recorder.notes = recorder.notes[began:], recorder.notes[:began]
    moment = rng.randrange(len(notes))
    for note in notes[:moment + 1]:
        disk.apply(note)
    tree, lost = disk.after_loss(rng)
    write_tree(tree, history.root)
    is_sure = moment >= max(at for at, note in enumerate(notes) if note.kind == "s")
    of = [old | new] if is_sure else [old or None, old, old | new]
    try:
        others = {name: [rows or None, rows] for name, rows in tables.items()}
        return _check(history, {("lake", name): rows for name, rows in {**others, table: of}.items()})
    except AssertionError as error:
        told = [f"power lost again, after {moment} more, and with it", *(f"{at:6} {notes[at]}" for at in lost)]
        raise AssertionError("\n".join([*told, str(error)])) from error


def _go_on(history, tables):
    """Loads into each table, and users counted by id and by key."""
    queries, wanted = [], []
    for number, (table, old) in enumerate(tables.items()):
        tables[table] = rows = old | _next_load(history, table, number)
        queries.append(f"SELECT count(*) AS rows, count(DISTINCT user_id) AS users FROM {table}")
        wanted.append({"rows": len(rows), "users": len({user for _, user in rows})})
    first, *_, last = *tables, *tables
    users = [collections.Counter(user for _, user in tables[table]) for table in [first, last]]
    queries.append(f"SELECT count(*) AS pairs FROM {first} a JOIN {last} b ON a.user_id = b.user_id")
    wanted.append({"pairs": sum(count * users[1][user] for user, count in users[0].items())})
    for options in [[], ["--no-index"]]:
        found = history.lake.json("; ".join(queries), *options)
        assert found == wanted, f"{found} and not {wanted} {options}"
    _check(history, {("lake", table): [rows] for table, rows in tables.items()})


def _failure(history, number, forgets=lambda note: False, spared=frozenset()):
    """What is wrong after a cut, or None; and its moment, and what was lost."""
    rng = random.Random(f"{history.seed} {number}")
    at = history.moment(rng)
    tree, lost = history.disk(at, forgets).after_loss(rng, spared)
    write_tree(tree, history.root)
    try:
        if any(at in moments for moments in history.reindexed):
            _mend_indexes(history.lake)
        tables = _check(history, history.allowed_all(at))
        if ("backup", "t") in history.versions:
            _back_up_again(history, tables)
        if number % 4 == 0:
            tables = _cut_again(history, tables, rng)
        _go_on(history, tables)
    except AssertionError as error:
        return error, at, lost
    return None, at, lost


def _lose_power(history, number):
    """A cut at a moment. An error tells the least losses that bring it about."""
    error, moment, lost = _failure(history, number)
    if error is None:
        return
    spared, step = set(), len(lost)
    while step:
        for at in range(0, len(lost), step):
            more = spared | set(lost[at:at + step])
            spared = more if _failure(history, number, spared=more)[0] else spared
        lost, step = [at for at in lost if at not in spared], step // 2
    error = _failure(history, number, spared=spared)[0] or error
    notes = [f"{at:6} {history.recorder.notes[at]}" for at in lost]
    raise AssertionError("\n".join([f"seed {number}: power lost after {moment}, and with it", *notes, str(error)]))


def _recorded(folder, monkeypatch, commands):
    monkeypatch.setenv("UPLAKE_CACHE", str(folder / "disk" / "cache"))
    history = History(folder, commands.__name__)
    commands(history)
    assert history.disk(len(history.recorder.notes)).now() == tree_of(history.root), "the recorder missed a call"
    return history


@pytest.mark.parametrize("commands", HISTORIES, ids=lambda commands: commands.__name__[1:])
def what_a_command_said_it_did_outlives_a_power_cut(tmp_path, monkeypatch, commands):
    history = _recorded(tmp_path, monkeypatch, commands)
    for number in range(SEEDS):
        _lose_power(history, number)


@pytest.mark.parametrize("forgets", ["[.]parquet$", "[.]json#", "_delta_log$", "/t$"])
def syncs_that_did_nothing_are_found(tmp_path, monkeypatch, forgets):
    """The checks find what they are for."""
    history = _recorded(tmp_path, monkeypatch, _keyed)
    for number in range(200):
        found = _failure(history, number, lambda note: note.kind == "f" and re.search(forgets, note.path))[0]
        if found and not _failure(history, number)[0]:
            return
    raise AssertionError("nothing was lost")


# What makes a file `a`, and whether it may be lost, or half there, when the program says that it is done or before.
PROGRAMS = [
    ("put('a')", True),
    ("put('a'); sync('a')", True),
    ("put('a'); sync('.')", True),
    ("put('a'); sync('a'); sync('.')", True),
    ("put('b'); os.rename('b', 'a'); sync('.')", True),
    ("put('b'); os.rename('b', 'a'); sync('a'); sync('.')", True),
    ("put('b'); sync('b'); os.rename('b', 'a')", True),
    ("put('b'); sync('b'); os.rename('b', 'a'); sync('.')", False),
    ("put('b'); sync('b'); os.link('b', 'a'); os.unlink('b'); sync('.')", False),
    ("put('b'); sync('b'); os.mkdir('f'); os.rename('b', 'f/b'); os.link('f/b', 'a'); sync('f')", True),
    ("os.mkdir('f'); put('f/b'); sync('f/b'); os.link('f/b', 'a'); sync('.')", False),
]
PRELUDE = """
import os
def put(path):
    with open(path, 'wb') as file:
        file.write(b'x' * 9000)
def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)
"""


@pytest.mark.parametrize("program,is_lost", PROGRAMS, ids=[program for program, _ in PROGRAMS])
def the_model_loses_what_a_disk_may_lose_and_nothing_else(tmp_path, program, is_lost):
    root = tmp_path / "disk"
    root.mkdir()
    recorder = Recorder(tmp_path, root)
    script = f"{PRELUDE}{program}\nprint('done', flush=True)"
    command = [sys.executable, "-c", script]
    subprocess.run(command, cwd=root, env=recorder.environment(), check=True, capture_output=True)
    count, states = recorder.take(), collections.Counter()
    for seed in range(300):
        rng, disk = random.Random(seed), Disk()
        moment = rng.randrange(count)
        for note in recorder.notes[:moment + 1]:
            disk.apply(note)
        content = disk.after_loss(rng)[0].get("a")
        is_whole = content == b"x" * 9000 or content is None and moment < count - 1
        states["whole" if is_whole else "lost"] += 1
    assert (states["lost"] > 0) == is_lost, states
    assert states["whole"] > 0
