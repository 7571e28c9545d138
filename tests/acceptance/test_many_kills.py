"""kill -9 again and again on one lake, in a folder and in a bucket, whatever command is at work: each is done as a
whole or not at all, what was said to be done stays, and the next command goes on with it. The oracle is a model
of the rows."""

import time

import pytest

import buckets
import support
import test_buckets
from support import write_parquet

# Each way. UPLAKE_SOAK=20: 10,000.
KILLS = 12 if support.SOAK == 1 else 250 * support.SOAK
ROWS = 300
# Rows, then, are deleted but for these: a lake as large as it is interesting.
MOST_ROWS = 6_000
CHECKED_EVERY = 25


@pytest.fixture(params=["folder", "s3"])
def place(request, tmp_path):
    if request.param == "folder":
        yield support.Lake(tmp_path / "lake", tmp_path)
        return
    server = buckets.start("s3")
    if server is None:
        pytest.skip(f"LOUD: NO SERVER: NO KILLS IN A BUCKET; {buckets.INSTALL['s3']}")
    yield test_buckets.Bucket(server, tmp_path)
    server.stop()


VERBS = ["load", "load", "load", "label", "insert", "delete", "compact", "vacuum", "reindex", "domain"]


def _figures(rows):
    return len(rows), sum(rows), len(set(rows.values()))


class _History:
    """The rows that a table has, users by id, and what comes next."""

    def __init__(self, lake, folder, rng):
        self.lake, self.folder, self.rng = lake, folder, rng
        self.rows, self.next_id, self.seconds, self.labels = {}, 0, {}, 0

    def data(self):
        """A file of new rows, of users old and new."""
        data = support.events(ROWS, self.rng, days=3, users=50 + self.next_id // 10, first_id=self.next_id)
        self.next_id += ROWS
        return write_parquet(self.folder / "new.parquet", data), dict(zip(*(data[c].to_pylist() for c in ["id", "user_id"])))

    def command(self, verb):
        """Words of a command, and the rows when it is done."""
        if verb in ("load", "label", "insert"):
            path, new = self.data()
            done = self.rows | new
            if verb == "insert":
                return ["sql", "-c", f"insert into t select * from '{path}'"], done
            self.labels += 1
            label = ["--label", f"L{self.labels}"] if verb == "label" else []
            return ["load", "t", path, *label], done
        if verb == "delete":
            rest = self.rng.randrange(11)
            done = {id: user for id, user in self.rows.items() if id % 11 != rest}
            return ["sql", "-c", f"delete from t where id % 11 = {rest}"], done
        words = {
            "compact": ["table", "compact", "t"],
            "vacuum": ["table", "vacuum", "t", "--retain", "0s"],
            "reindex": ["table", "reindex", "t", "--rebuild"],
            "domain": ["domain", "compact", "users"],
        }
        return words[verb], self.rows

    def asked(self):
        found = self.lake.json("select count(*) n, sum(id) s, count(distinct user_id) u from t")[0]
        return found["n"], found["s"] or 0, found["u"]

    def step(self, verb, fraction):
        """A command, killed after a fraction of the time it took last. True if it was still at work."""
        words, done = self.command(verb)
        began = time.monotonic()
        process = self.lake.start(*words)
        until = began + (fraction * self.seconds[verb] if verb in self.seconds else support.TIMEOUT_SECONDS)
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        is_killed = process.poll() is None
        if is_killed:
            process.kill()
        else:
            self.seconds[verb] = time.monotonic() - began
        _, error = process.communicate()
        what = f"{words}, killed: {is_killed}, {error.decode(errors='replace')[-300:]}"
        assert is_killed or process.returncode == 0, what
        found = self.asked()
        assert found in [_figures(rows) for rows in ([self.rows] if is_killed else []) + [done]], (what, found)
        if found == _figures(done):
            self.rows = done
        if verb == "label":
            # Again: a load with a label is loaded once.
            self.lake.run(*words)
            self.rows = done
            assert self.asked() == _figures(done), what
        return is_killed

    def check(self):
        self.lake.run("table", "check", "t")
        self.lake.run("domain", "check", "users")
        found = {row["id"]: row["user_id"] for row in self.lake.json("select id, user_id from t")}
        assert found == self.rows
        if len(self.rows) > MOST_ROWS:
            first = self.next_id - 2 * ROWS
            self.lake.run("sql", "-c", f"delete from t where id < {first}")
            self.rows = {id: user for id, user in self.rows.items() if id >= first}
            self.lake.run("table", "compact", "t")
            self.lake.run("table", "vacuum", "t", "--retain", "0s")


def whatever_is_killed_is_done_as_a_whole_or_not_at_all(place, folder):
    rng = support.seeded(f"many kills {type(place).__name__}")
    history = _History(place, folder, rng)
    path, history.rows = history.data()
    place.run("load", "t", path, "--partition-by", "day", "--id-domain", "user_id=users", "--index", "user_id")
    for verb in dict.fromkeys(VERBS):
        history.step(verb, 1)
    killed = 0
    for number in range(KILLS):
        # More at the end, where files are finished and commits are made.
        fraction = rng.uniform(0.1, 1.05) if number % 2 else rng.uniform(0.6, 1.05)
        killed += history.step(rng.choice(VERBS), fraction)
        if number % CHECKED_EVERY == 0:
            history.check()
    history.check()
    print(f"{killed} of {KILLS} killed at work")
    assert killed >= KILLS // 3, "the moments miss the commands"
