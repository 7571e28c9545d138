"""A lake in a bucket does what a lake in a folder does, whether the bucket is Amazon's, Google's or
Microsoft's: every test runs on each, or says loudly why not. Servers are those of tests/buckets.py;
oracles are DuckDB over the files that were loaded, the Python package `deltalake` reading the same
bucket, and the same commands on a folder."""

import concurrent.futures
import datetime
import gzip
import ipaddress
import json
import subprocess
import time
import uuid

import deltalake
import pyarrow as pa
import pytest

import support
from support import assert_same, events, rows_of, seeded, write_parquet

import buckets


@pytest.fixture(scope="module", params=buckets.KINDS)
def server(request):
    kind = request.param
    running = buckets.start(kind)
    if running is None:
        pytest.skip(f"LOUD: NO SERVER: NOTHING WAS CHECKED ON {kind}://; {buckets.INSTALL[kind]}")
    yield running
    running.stop()


class Bucket(support.Lake):
    """A lake below a prefix of its own. `cache` is what one machine keeps."""

    def __init__(self, server, cwd, url=None, cache="cache"):
        super().__init__(cwd, cwd)
        self.path = self.url = url or buckets.url(server, f"lakes/{uuid.uuid4().hex}")
        self.env = buckets.environment(server) | {"UPLAKE_CACHE": str(cwd / cache)}
        self.server = server

    def run(self, *args, code=0, stdin=None, **more):
        args = [str(a) for a in args]
        done = subprocess.run(
            [support.BINARY, *args, "--lake", self.url], cwd=self.cwd, env=self.env,
            input=stdin if stdin is not None else b"", capture_output=True,
            timeout=support.TIMEOUT_SECONDS, **more,
        )
        result = support.Result(
            args, done.returncode, done.stdout, done.stderr.decode(errors="replace")
        )
        dump = support.RUST_DUMP.search(result.err)
        assert not dump, f"a Rust value or panic in a message ({dump.group(0)!r}):\n{result}"
        assert code is None or result.code == code, f"expected exit {code}:\n{result}"
        return result

    def start(self, *args, **more):
        return super().start(*args, env=self.env, **more)

    def delta(self, table, at=None):
        env = {k.lower(): v for k, v in self.env.items() if k.startswith(buckets.PROVIDERS)}
        return deltalake.DeltaTable(f"{self.url}/{table}", version=at, storage_options=env)

    def same_as_deltalake(self, table):
        """As in a folder; the columns of ids, which only other readers see, left out."""
        ours = self.rows(f"select * from {table}")
        theirs = self.delta(table).to_pyarrow_table()
        theirs = theirs.drop_columns([c for c in theirs.column_names if c.startswith("__id_")])
        assert_same(ours, rows_of(theirs), "uplake against deltalake")
        return ours

    def key(self, below=""):
        """A name below the lake, from the bucket's root."""
        return f"{self.url.removeprefix(buckets.url(self.server, ''))}/{below}"

    def sizes(self, under=""):
        return {k.removeprefix(self.key()): n for k, n in self.server.sizes(self.key(under)).items()}

    def keys(self, under=""):
        return set(self.sizes(under))


@pytest.fixture
def bucket(server, tmp_path):
    return Bucket(server, tmp_path)


ON_S3_ALONE = pytest.mark.parametrize("server", ["s3"], indirect=True)
LAYOUT = ("--partition-by", "day", "--cluster-by", "user_id,ts")


def test_what_was_loaded_is_read_by_us_by_deltalake_and_as_in_a_folder(bucket, lake, folder):
    rng = seeded("bucket load")
    first = write_parquet(folder / "a.parquet", events(3000, rng, days=3))
    second = write_parquet(folder / "b.parquet", events(2000, rng, days=3, first_id=3000))
    more = ("--id-domain", "user_id=users", "--index", "user_id,event:words")
    for where in (bucket, lake):
        where.load("events", first, *LAYOUT, *more, "--label", "a")
        where.load("events", second, "--label", "b")
        assert "loaded already" in where.load("events", second, "--label", "b").err
    ours = bucket.same_as_deltalake("events")
    assert_same(ours, lake.rows("select * from events"), "a bucket against a folder")
    for query in (
        "select count(*) as n, count(distinct user_id) as users, round(sum(value), 6) as v from events",
        "select day, count(*) as n from events where match(event, 'click') group by day",
        "select id from events where user_id in ('u00001', 'u00007') and value > 0",
        "select id from events version as of 0 where id > 2990",
        "select table_name from information_schema.tables where table_schema = 'public'",
    ):
        assert_same(bucket.rows(query), lake.rows(query), query)
    assert bucket.rows("select * from events", "--no-index") == ours
    assert "events" in bucket.run("table", "list").out
    described = bucket.run("domain", "describe", "users").out
    assert "used by:        events.user_id" in described
    assert "the domain is sound" in bucket.run("domain", "check", "users").out


def test_statements_change_tables_in_a_bucket(bucket):
    bucket.run("sql", "-c", "create table t (k int, v text) indexed by (k)")
    bucket.run("sql", "-c", "insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
    bucket.run("sql", "-c", "delete from t where k = 2")
    assert bucket.json("select * from t order by k") == [{"k": 1, "v": "a"}, {"k": 3, "v": "c"}]
    bucket.run("sql", "-c", "create table copy as select * from t")
    assert bucket.count("copy") == 2
    bucket.run("sql", "-c", "create id set odd as select k from t where k = 3")
    assert bucket.json("select v from t where k in id set odd") == [{"v": "c"}]
    bucket.run("sql", "-c", "create or replace id set odd as select k from t where k = 1")
    assert bucket.json("select v from t where k in id set odd") == [{"v": "a"}]
    bucket.run("sql", "-c", "drop table t")
    assert [row["table_name"] for row in bucket.json("show tables")] == ["copy"]
    assert not {k for k in bucket.keys() if k.startswith("t/")}, "nothing is left of a dropped table"
    bucket.refused("sql", "-c", "select * from t", says=["no table `t`", "copy"])
    bucket.run("sql", "-c", "create table t (z int)")
    assert bucket.count("t") == 0


def test_rows_are_replaced_by_key(bucket, folder):
    def write(name, rows):
        return write_parquet(folder / name, pa.table({"k": [r[0] for r in rows], "v": [r[1] for r in rows]}))

    bucket.load("t", write("a.parquet", [(1, "a"), (2, "b")]), "--primary-key", "k")
    bucket.load("t", write("b.parquet", [(2, "B"), (3, "c")]))
    bucket.load("t", write("c.parquet", [(1, "no")]), "--on-conflict", "ignore")
    found = bucket.json("select * from t order by k")
    assert [(row["k"], row["v"]) for row in found] == [(1, "a"), (2, "B"), (3, "c")]
    bucket.same_as_deltalake("t")


def test_compact_vacuum_reindex_and_check(bucket, folder):
    rng = seeded("bucket tidy")
    for n in range(3):
        data = events(1000, rng, days=2, first_id=1000 * n)
        bucket.load("events", write_parquet(folder / f"{n}.parquet", data), *(LAYOUT if n == 0 else ()))
    before = bucket.rows("select * from events")
    assert "became" in bucket.run("table", "compact", "events").out
    built = bucket.run("table", "reindex", "events", "--index", "user_id").out
    assert "built" in built
    files = bucket.keys("events/")
    would = bucket.run("table", "vacuum", "events", "--retain", "0s", "--dry-run").out
    assert "would remove" in would and bucket.keys("events/") == files
    assert "removed 6 files" in bucket.run("table", "vacuum", "events", "--retain", "0s").out
    live = {u.split("/events/")[1] for u in bucket.delta("events").file_uris()}
    left = {k.removeprefix("events/") for k in bucket.keys("events/")}
    left = {k for k in left if not k.startswith("_delta_log/")}
    assert left == live | {f"_uplake_index/{f}.idx" for f in live}
    assert "the table is sound" in bucket.run("table", "check", "events").out
    assert_same(bucket.same_as_deltalake("events"), before, "after tidying")
    query = "select id from events where user_id = 'u00003'"
    assert bucket.rows(query) == bucket.rows(query, "--no-index")
    assert not {k for k in bucket.keys("_uplake/writers/")}, "every writer took its mark away"


def test_a_vacuum_leaves_alone_what_a_writer_may_commit(bucket, folder):
    rng = seeded("bucket vacuum")
    file = write_parquet(folder / "a.parquet", events(500, rng))
    bucket.load("events", file)
    mark = bucket.key("_uplake/writers/events/somebody")
    bucket.server.put(mark, b"x")
    bucket.server.put(bucket.key("events/part-of-somebody.parquet"), b"x")
    kept = bucket.run("table", "vacuum", "events", "--retain", "0s").out
    assert "removed 0 files" in kept and "kept 1 more" in kept
    bucket.server.delete(mark)
    removed = bucket.run("table", "vacuum", "events", "--retain", "0s").out
    assert "removed 1 files" in removed
    assert bucket.count("events") == 500


def test_a_vacuum_ends_uploads_that_nobody_completed(bucket, folder):
    server = bucket.server
    if server.kind == "az":
        pytest.skip("Azure forgets blocks that were not committed")
    rng = seeded("bucket uploads")
    for name in ("events", "other"):
        bucket.load(name, write_parquet(folder / "a.parquet", events(500, rng)))
    ours = ["events/part-1.parquet", "events/day=a%2Fb/part-2.parquet", "events/part-3.parquet"]
    others = ["events/notes.bin", "other/part-4.parquet", "eventsx/part-5.parquet"]
    for name in ours + others:
        server.begin_upload(bucket.key(name))

    def uploads():
        below = bucket.key()
        return sorted(key.removeprefix(below) for key in server.uploads() if key.startswith(below))

    def vacuum(*args):
        return bucket.run("table", "vacuum", "events", *args).out

    assert "removed 0 files of" in vacuum() and uploads() == sorted(ours + others)
    would = vacuum("--retain", "0s", "--dry-run")
    assert "would remove 0 files and 3 uploads" in would and "events/part-2" not in would
    assert "day=a%2Fb/part-2.parquet (an upload in parts" in would
    assert uploads() == sorted(ours + others)
    mark, late = bucket.key("_uplake/writers/events/somebody"), "events/part-6.parquet"
    server.put(mark, b"x")
    server.begin_upload(bucket.key(late))
    assert "more: a writer is at work" in vacuum("--retain", "0s") and late in uploads()
    server.delete(mark)
    vacuum("--retain", "0s")
    assert uploads() == sorted(others)
    assert bucket.count("events") == 500
    # A table that is dropped leaves none.
    server.begin_upload(bucket.key("other/part-8.parquet"))
    bucket.run("sql", "-c", "drop table other")
    assert uploads() == sorted(name for name in others if not name.startswith("other/"))


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """The shop of `uplake demo` in files, its experiment, and the report on it in a folder."""
    folder = tmp_path_factory.mktemp("shop")
    command = [support.BINARY, "demo", "demo", "--users", "10000"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=300)
    local = support.Lake(folder / "demo/lake", folder)
    files = {
        table: write_parquet(folder / f"{table}.parquet", local.arrow(f"select * from {table}"))
        for table in ("exposures", "events")
    }
    definition = local.path / "_uplake/experiments/free_shipping.toml"
    return files, definition, _report(local, definition)


def _report(lake, experiment):
    text = json.loads(lake.run("report", experiment, "--format", "json").out)
    text.pop("reproduce", None)
    return text


def test_a_report_is_the_same_as_in_a_folder(bucket, shop):
    files, definition, expected = shop
    for table, file in files.items():
        bucket.load(table, file)
    assert _report(bucket, definition) == expected
    bucket.server.put(bucket.key("_uplake/experiments/mine.toml"), definition.read_bytes())
    assert _report(bucket, "mine") == expected
    bucket.refused("report", "other", says=["the lake has mine"])


def test_explain_analyze_says_what_was_asked_of_the_store(bucket, folder):
    rng = seeded("bucket explain")
    bucket.load("events", write_parquet(folder / "a.parquet", events(5000, rng)), "--index", "user_id")
    query = "explain analyze select sum(value) from events where user_id = 'u00003'"

    def storage(text):
        rows = [json.loads(line) for line in text.splitlines()]
        plans = [row["plan"] for row in rows if row["plan_type"] == "Storage"]
        return [dict(part.split("=") for part in plan.split()) for plan in plans]

    twice = bucket.run("sql", "--format", "json", "-c", f"{query}; {query}").out
    first, second = storage(twice)
    assert int(first["requests"]) > 0 and int(first["bytes_read"]) > 0
    assert int(second["requests"]) == 0, "what was read once comes from memory"
    once_more = bucket.run("sql", "--format", "json", "-c", query).out
    assert storage(once_more)[0]["requests"] == first["requests"], "counts do not flicker"
    on_disk = ("--storage", "disk_cache=64MiB")
    bucket.run("sql", "-c", query, *on_disk)
    warm = storage(bucket.run("sql", "--format", "json", "-c", query, *on_disk).out)[0]
    assert int(warm["requests"]) == 0 and int(warm["bytes_from_disk"]) > 0


def test_what_was_warmed_up_is_read_without_a_request(bucket, folder):
    rng = seeded("bucket warm")
    data = events(5000, rng, days=3)
    bucket.load("events", write_parquet(folder / "a.parquet", data), *LAYOUT, "--index", "user_id")
    on_disk = ("--storage", "disk_cache=64MiB")
    said = bucket.run("table", "warm", "events", *on_disk).out
    assert "0 B were there" in said, said
    again = bucket.run("table", "warm", "events", *on_disk, "--columns", "user_id,value").out
    assert "0 B fetched" in again, again
    query = "explain analyze select sum(value) from events where user_id = 'u00003'"
    read = bucket.run("sql", "--format", "json", "-c", query, *on_disk).out
    assert "requests=0 " in read and "bytes_from_disk=" in read, read
    warm = "warm up table events where day = date '2026-11-01' columns (value)"
    scan = "explain analyze select sum(value) from events where day = date '2026-11-01'"
    out = bucket.run("sql", "--format", "json", "-c", f"{warm}; {scan}").out.splitlines()
    told = json.loads(out[0])
    assert told["bytes_kept"] == told["bytes_wanted"] > 0
    assert told["objects"] == 2, "a file and its index"
    assert "requests=0 " in out[-1], out[-1]
    bucket.refused("sql", "-c", "warm up table events columns (nothing)", says=["nothing"])
    bucket.refused("table", "warm", "events", "--storage", "memory_cache=0", says=["disk_cache"])


def test_a_store_is_checked_before_tables_are_kept_there(bucket, tmp_path):
    said = bucket.run("lake", "probe", "--rounds", "5", "--writers", "8").out
    assert "can hold a lake: 5 races of 8 writers had one winner each, 35 losers were told" in said
    assert not bucket.keys(), "it leaves nothing"
    said = bucket.run("lake", "probe", tmp_path / "elsewhere", "--rounds", "5").out
    assert "can hold a lake" in said


def test_an_index_that_was_built_again_is_noticed_by_other_machines(bucket, folder, server):
    rng = seeded("bucket reindex")
    bucket.load("events", write_parquet(folder / "a.parquet", events(5000, rng)), "--index", "user_id")
    here = ("--storage", "disk_cache=64MiB", "--format", "json")
    other = Bucket(server, bucket.cwd, bucket.url, cache="other")
    ask = "explain analyze select count(*) from events where user_id = 'u00003'"
    by_event = "explain analyze select count(*) from events where event = 'buy'"
    bucket.run("sql", "-c", ask, *here)
    other.run("table", "reindex", "events", "--index", "event", "--rebuild")
    found = bucket.run("sql", "-c", by_event, *here)
    assert "warning" not in found.err and "index_without_column" not in found.out, found
    assert "index_rows_selected" in found.out, found
    again = bucket.run("sql", "-c", ask, *here)
    assert "warning" not in again.err and "index_rows_selected" in again.out, again


def test_writers_of_one_table_all_succeed(bucket, folder):
    rng = seeded("bucket writers")
    bucket.load("events", write_parquet(folder / "0.parquet", events(100, rng)), "--id-domain", "user_id=users")
    files = [
        write_parquet(folder / f"{n}.parquet", events(100, rng, first_id=100 * n, users=500))
        for n in range(1, 7)
    ]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda f: bucket.load("events", f), files))
    assert bucket.count("events") == 700
    assert bucket.json("select count(distinct id) as n from events")[0]["n"] == 700
    bucket.same_as_deltalake("events")
    assert "the domain is sound" in bucket.run("domain", "check", "users").out


@pytest.mark.parametrize("server", ["az"], indirect=True)
def test_a_store_that_lists_from_the_start_whatever_it_is_asked_can_hold_a_lake(bucket):
    """Azurite up to 3.35; only of an emulator does the provider's client expect it."""
    bucket.env |= {"AZURE_STORAGE_ENDPOINT": f"{bucket.server.endpoint}/{buckets.KEY}", "AZURE_ALLOW_HTTP": "true"}
    del bucket.env["AZURE_STORAGE_USE_EMULATOR"]
    assert "can hold a lake" in bucket.run("lake", "probe", "--rounds", "2").out
    bucket.run("sql", "-c", "create table t (k int); insert into t values (1), (2)")
    bucket.run("sql", "-c", "delete from t where k = 1; insert into t values (3)")
    assert bucket.json("select k from t order by k") == [{"k": 2}, {"k": 3}]


def test_what_cannot_be_reached_says_so(bucket, tmp_path):
    bad = Bucket(bucket.server, tmp_path)
    bad.url = "ftp://host/lake"
    bad.refused("table", "list", says=["s3://"])
    config = tmp_path / "wrong.toml"
    config.write_text("[storage]\ndisk_cach = 1\n")
    bucket.refused("table", "list", "--config", config, says=["disk_cach", "docs/storage.md"])
    bucket.refused("table", "list", "--storage", "disk_cach=1", says=["DISK_CACH"])
    elsewhere = "".join(f'{key} = "{value}"\n' for key, value in bucket.server.elsewhere.items())
    config.write_text(f"[storage.provider]\n{elsewhere}")
    bucket.run("table", "list", "--config", config)  # the environment wins


def test_a_wrong_secret_is_refused_and_not_told(bucket, folder):
    if not bucket.server.checks_who_asks:
        pytest.skip(f"LOUD: {bucket.server.name} CHECKS NO SIGNATURES: NOT TESTED; make s3-server")
    bucket.load("t", write_parquet(folder / "a.parquet", pa.table({"k": [1]})))
    right, wrong = bucket.env, bucket.server.wrong_settings()
    bucket.env = right | wrong
    for statement in ("select * from t", "create table u (k int)"):
        said = bucket.refused("sql", "-c", statement).err
        assert bucket.server.refusal in said, said
        assert "unknown" not in said, "the store said no, so nothing is in doubt"
        for secret in [*wrong.values(), bucket.server.secret]:
            assert secret not in said, said
    bucket.env = right
    assert bucket.count("t") == 1


def test_a_bucket_that_is_not_there_is_named(bucket, folder):
    file = write_parquet(folder / "a.parquet", pa.table({"k": [1]}))
    bucket.url = bucket.url.replace(f"//{buckets.BUCKET}/", "//nosuchbucket/")
    for command in (["sql", "-c", "create table t (k int)"], ["load", "t", file], ["lake", "probe"]):
        said = bucket.refused(*command, says=["nosuchbucket"]).err
        assert "404" in said and "unknown" not in said, said


@ON_S3_ALONE
def test_a_wrong_region_is_named(bucket, folder):
    if bucket.server.name == "moto":
        pytest.skip("LOUD: moto KNOWS NO REGIONS: NOT TESTED; make s3-server")
    bucket.load("t", write_parquet(folder / "a.parquet", pa.table({"k": [1]})))
    bucket.env["AWS_REGION"] = "eu-north-1"
    for statement in ("select * from t", "create table u (k int)"):
        said = bucket.refused("sql", "-c", statement, says=["eu-north-1", "us-east-1"]).err
        assert "unknown" not in said, "the store said no, so nothing is in doubt"
    bucket.env["AWS_REGION"] = "us-east-1"
    assert bucket.count("t") == 1


def test_files_are_read_where_they_lie(bucket, folder):
    """One by its name, and a folder."""
    names = ["in/2026/0 é+%.csv", "in/2026/1.csv", "in/2027/2.csv"]
    for n, name in enumerate(names):
        bucket.server.put(bucket.key(name), f"k,v\n{n},a\n{n + 10},b\n".encode())
    rows = pa.table({"k": [5, 6]})
    bucket.server.put(bucket.key("in/rows.parquet"), write_parquet(folder / "rows.parquet", rows).read_bytes())
    for files, total in [(names[0], 10), ("in/2026/", 22), (names[2], 14), ("in/rows.parquet", 11)]:
        assert bucket.json(f"select sum(k) as n from '{bucket.url}/{files}'") == [{"n": total}], files
    bucket.run("sql", "-c", f"create table t as select * from '{bucket.url}/in/2026/'")
    assert bucket.json("select sum(k) as n, count(*) as c from t") == [{"n": 22, "c": 4}]
    none = f"{bucket.url}/in/none.csv"
    bucket.refused("sql", "-c", f"select * from '{none}'", says=[none])


# Files, their bytes, and where an error is.
TEXTS = {
    "a.csv": b"a;b\n1;x,1\n2;\n", "z.csv.gz": gzip.compress(b"a\tb\n1\tx\n"), "none.csv": b"1,x\n2,y\n3,z\n",
    "j.json": b'[{"a":1,"l":[1,2]},\n{"a":2,\n "l":null}]', "l.jsonl": b'{"a":1.5}\n{"a":2}\n',
    "ts.csv": b"ts\n2026-01-01T10:00:00Z\n2026-01-01T10:00:00+02:00\n",
}
WRONG = {
    "late.csv": (b"n\n" + b"1\n" * 30_000 + b"x\n", 'line 30002, column `n`: "x" is not a bigint'),
    "open.csv": (b'a,b\n1,"x\n2,y\n', "opens a quote that is never closed"), "empty.csv": (b"", "is empty"),
    "cut.json": (b'[{"a":1},\n{"a":2}', "is not closed"),
}


def test_text_in_a_bucket_is_read_as_text_of_this_machine(bucket, folder, tmp_path):
    """In place and in loads, from a lake in the bucket and from one in a folder."""
    here = Bucket(bucket.server, tmp_path, url=str(tmp_path / "lake"))
    for number, (name, content) in enumerate(TEXTS.items()):
        bucket.server.put(bucket.key(f"text/{number}/{name}"), content)
        (folder / name).write_bytes(content)
        expected = here.arrow(f"SELECT * FROM '{folder / name}'")
        address = f"{bucket.url}/text/{number}/{name}"
        for lake in (here, bucket):
            assert lake.arrow(f"SELECT * FROM '{address}'").equals(expected), address
            lake.load(f"t{number}", address)
            assert lake.arrow(f"SELECT * FROM t{number}").to_pylist() == expected.to_pylist(), address
    for name, (content, says) in WRONG.items():
        bucket.server.put(bucket.key(f"text/{name}"), content)
        address = f"{bucket.url}/text/{name}"
        here.refused("sql", "-c", f"SELECT * FROM '{address}'", says=[address, says])
        here.refused("load", "t", address, says=[address, says])
    here.refused("sql", "-c", "SELECT * FROM t", says=["there is no table `t`"])


def test_folders_and_patterns_in_a_bucket_are_those_of_this_machine(bucket, folder, tmp_path):
    here = Bucket(bucket.server, tmp_path, url=str(tmp_path / "lake"))
    local = folder / "in"
    for name in ("0.csv", "1.csv", "2.txt", ".3.csv", "_4.csv", "deeper/5.csv", "deeper/6.csv"):
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_text(f"n\n{name.strip('./_csvtxdeepr')}\n")
        bucket.server.put(bucket.key(f"in/{name}"), (local / name).read_bytes())
    for pattern in ("*.csv", "[01].csv", "?.csv", "*", "**/*.csv", "*/*.csv", "deeper/", "deeper", "0.csv", "", "{0}.csv", "7*"):
        for command in (lambda place: ("sql", "-c", f"SELECT sum(n) AS s FROM '{place}'", "--format", "csv"),
                        lambda place: ("load", "t", place, "--quiet")):
            local_told = here.run(*command(f"{local}/{pattern}"), code=None)
            told = here.run(*command(f"{bucket.url}/in/{pattern}"), code=None)
            assert (told.code, told.out) == (local_told.code, local_told.out), f"{pattern}\n{local_told}\n{told}"
    rows = write_parquet(folder / "rows.parquet", pa.table({"k": [5, 6]})).read_bytes()
    for name in ("p/a.parquet", "p/b.parquet", "q/a.bin", "q/b.bin"):
        bucket.server.put(bucket.key(name), rows)
    for lake in (here, bucket):
        for pattern in ("p/*.parquet", "p/", "q/*.bin", "q/", "q/?.bin"):
            found = lake.json(f"SELECT sum(k) AS n FROM '{bucket.url}/{pattern}'")
            assert found == [{"n": 22}], pattern
    here.load("p", f"{bucket.url}/p/")
    assert here.count("p") == 4


def test_what_is_wrong_with_an_address_is_said(bucket, tmp_path):
    here = Bucket(bucket.server, tmp_path, url=str(tmp_path / "lake"))
    bucket.server.put(bucket.key("a.csv"), b"a\n1\n")
    for command in (lambda address: ("sql", "-c", f"SELECT * FROM '{address}'"), lambda address: ("load", "t", address)):
        for name in ("none.csv", "none/", "none/*.csv"):
            here.refused(*command(f"{bucket.url}/{name}"), says=[f"{bucket.url}/{name}"])
        scheme = bucket.url.split(":")[0]
        for address in (f"{scheme}:///a.csv", f"{scheme}://u@{buckets.BUCKET}/a.csv", f"{bucket.url}//a.csv"):
            here.refused(*command(address), says=[address])
        here.refused(*command("ftp://host/a.csv"), says=["ftp://host/a.csv"])
    if not bucket.server.checks_who_asks:
        pytest.skip(f"LOUD: {bucket.server.name} CHECKS NO SIGNATURES: NOT TESTED; make s3-server")
    here.env |= bucket.server.wrong_settings()
    told = here.refused("load", "t", f"{bucket.url}/a.csv", says=[f"{bucket.url}/a.csv", bucket.server.refusal])
    assert bucket.server.secret not in told.err


def test_a_load_that_is_killed_is_in_the_table_as_a_whole_or_not_at_all(bucket, folder):
    rng = seeded("bucket kills")
    file = write_parquet(folder / "a.parquet", events(500, rng))
    began = time.monotonic()
    bucket.load("events", file, "--id-domain", "user_id=users", "--index", "user_id")
    longest, loads = time.monotonic() - began, 1
    for _ in range(6 * support.SOAK):
        process = bucket.start("load", "events", file)
        time.sleep(rng.uniform(0, 1.2 * longest))
        process.kill()
        process.communicate()
        found = bucket.count("events")
        assert found in (500 * loads, 500 * (loads + 1))
        loads = found // 500
    bucket.load("events", file)
    assert bucket.count("events") == 500 * (loads + 1)
    assert "the table is sound" in bucket.run("table", "check", "events").out
    assert "the domain is sound" in bucket.run("domain", "check", "users").out
    bucket.same_as_deltalake("events")


def test_files_of_many_parts_arrive_whole(bucket, folder):
    """Some tens of MiB in one file: uploaded in parts, read back in pieces."""
    rng = seeded("bucket parts")
    rows = 600_000
    data = pa.table({"k": list(range(rows)), "t": [rng.randbytes(40).hex() for _ in range(rows)]})
    path = write_parquet(folder / "big.parquet", data)
    bucket.load("t", path)
    sizes = bucket.sizes("t/")
    assert max(sizes.values()) > 24 << 20, sizes
    assert "the table is sound" in bucket.run("table", "check", "t").out
    assert bucket.arrow("select * from t order by k").equals(data)


def _certificate_of(address, folder):
    """A certificate that signs itself, and its key, as files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a server of tests")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1)).add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ))
    return paths


@pytest.mark.parametrize("connections", ["true", "false"], ids=["ours", "stock"])
def test_a_server_with_a_certificate(folder, tmp_path, connections):
    if buckets.gateway() is None:
        pytest.skip("LOUD: NO versitygw: TLS IS NOT TESTED; make s3-server")
    certificate, key = _certificate_of("127.0.0.1", tmp_path)
    server = buckets.Gateway(buckets.gateway(), "--cert", certificate, "--key", key)
    try:
        server.client(verify=certificate).create_bucket(Bucket=buckets.BUCKET)
        bucket = Bucket(server, tmp_path)
        bucket.env["UPLAKE_STORAGE_CONNECTIONS"] = connections
        source = write_parquet(folder / "a.parquet", pa.table({"k": [1, 2]}))
        said = bucket.refused("table", "list").err
        assert "invalid peer certificate" in said, said
        if connections == "true":
            bucket.refused("sql", "-c", "create table t (k bigint)", says=["invalid peer certificate"])
        bucket.env["SSL_CERT_FILE"] = str(certificate)
        bucket.load("t", source)
        assert bucket.count("t") == 2
    finally:
        server.stop()


@ON_S3_ALONE
def test_a_bucket_behind_a_proxy(bucket, folder):
    """Nobody knows the store's name but the proxy, which here is the server itself."""
    if buckets.gateway() is None:
        pytest.skip("LOUD: NO versitygw: PROXIES ARE NOT TESTED; make s3-server")
    bucket.env |= {"AWS_ENDPOINT": "http://store.invalid", "http_proxy": bucket.server.endpoint}
    bucket.load("t", write_parquet(folder / "a.parquet", pa.table({"k": [1, 2]})))
    assert bucket.count("t") == 2
    del bucket.env["http_proxy"]
    bucket.refused("sql", "-c", "select * from t", says=["no connection to store.invalid:80"])
    unknown = bucket.refused("sql", "-c", "create table u (k int)", says=["no connection to store.invalid:80"])
    assert "unknown" not in unknown.err, "nothing was sent, so nothing is in doubt"


def test_a_lake_is_copied_to_a_bucket_and_back(bucket, tmp_path):
    local = support.Lake(tmp_path / "local", tmp_path)
    back = support.Lake(tmp_path / "back", tmp_path)
    path = write_parquet(tmp_path / "e.parquet", events(3000, seeded("copied")))
    local.load("e", path, "--index", "user_id", "--id-domain", "user_id=users")
    query = "SELECT count(*) AS n, count(DISTINCT user_id) AS users FROM e"
    local.run("lake", "backup", bucket.url, env=bucket.env)
    assert bucket.json(query) == local.json(query)
    local.run("sql", "-c", "INSERT INTO e SELECT * FROM e LIMIT 10")
    assert "were there already" in local.run("lake", "backup", bucket.url, env=bucket.env).out
    back.run("lake", "restore", bucket.url, env=bucket.env)
    assert back.json(query) == local.json(query)
    assert "the lake is sound" in back.run("lake", "check").out
    assert "the lake is sound" in bucket.run("lake", "check").out
