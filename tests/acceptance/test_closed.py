"""What others must not see, and what must not reach a terminal."""

import os
import re
import shutil
import subprocess

import pyarrow as pa
import pytest

from support import Lake, write_parquet

# Red, the bell, CSI of eight bits, right to left.
EVIL = "\x1b[31m\x07\u009b5m\u202ename"
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def names_and_values_of_others_do_not_move_the_cursor(lake, folder):
    lake.load("t", write_parquet(folder / "t.parquet", pa.table({EVIL: ["a", EVIL], "n": [1, 2]})))
    quoted = '"' + EVIL.replace('"', '""') + '"'
    said = [
        lake.run("sql", "-c", "SELECT * FROM t ORDER BY n"),
        lake.run("sql", "-c", f"SELECT '{EVIL}' AS {quoted}"),
        lake.run("sql", "-c", f"SELECT nothing('{EVIL}')", code=1),
        lake.run("sql", "-c", f"SELECT n FROM {quoted}", code=1),
        lake.run("sql", "-c", f"SELECT CAST('{EVIL}' AS INT)", code=1),
        lake.run("load", "t", folder / f"{EVIL}.csv", code=1),
    ]
    for done in said:
        text = done.out + done.err
        assert not UNSEEN.search(text), repr(text)
        assert "name" in text
    # Data is data where a program reads it.
    assert lake.json("SELECT * FROM t ORDER BY n")[1][EVIL] == EVIL


def what_is_kept_on_this_machine_is_its_users_alone(lake, folder, tmp_path):
    cache = tmp_path / "cache"
    env = {**os.environ, "UPLAKE_CACHE": str(cache)}
    before = os.umask(0o022)
    try:
        path = write_parquet(folder / "t.parquet", pa.table({"user_id": ["u1", "u2"], "n": [1, 2]}))
        lake.load("t", path, "--id-domain", "user_id=users", env=env)
        lake.run("sql", "-c", "SELECT count(DISTINCT user_id) FROM t", env=env)
    finally:
        os.umask(before)
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert {path.name for path in kept} >= {"keys.log", "index", "lock"}
    for path in kept:
        assert path.stat().st_mode & 0o077 == 0, path
        assert path.parent.stat().st_mode & 0o077 == 0, path.parent


@pytest.mark.parametrize("value", ['"S3CRET', "S3CRET", '"S3CRET" x', '["S3CRET"]', "73727", '"a" "S3CRET"',
                                   '"S3CRET"\nsecret_access_key = "S3CRET"'])
def a_broken_file_of_settings_tells_no_secret(lake, tmp_path, value):
    (tmp_path / "uplake.toml").write_text(f"[storage.provider]\nregion = \"r\"\nsecret_access_key = {value}\n")
    done = lake.run("sql", "-c", "SELECT 1", code=1)
    assert "uplake.toml, line" in done.err, done
    assert "S3CRET" not in done.err and "73727" not in done.err, done


# As part of a path: what URLs, shells and patterns read otherwise.
NAMES = ["a%41", "a%2Fb", "100%", "a\\b", "a b", "ä€", "q?m", "h#h", "s*s", "b[b]", "c:c", "../up", "x/../y", "./d//e",
         "link", "link/sub", "link/../beside"]


@pytest.mark.parametrize("name", NAMES)
def a_lake_is_where_its_path_says(tmp_path, name):
    here = tmp_path / "deep" / "work"
    here.mkdir(parents=True)
    (tmp_path / "deep" / "real").mkdir()
    (here / "link").symlink_to(tmp_path / "deep" / "real")
    lake = Lake(name, here)
    lake.path = name
    path = write_parquet(tmp_path / "t.parquet", pa.table({"user_id": ["u1", "u2"], "n": [1, 2]}))
    for _ in range(2):
        lake.load("t", path, "--id-domain", "user_id=users", "--index", "n")
    assert lake.json("SELECT count(*) AS n, count(DISTINCT user_id) AS u, sum(n) AS s FROM t") == [
        {"n": 4, "u": 2, "s": 6}]
    lake.run("sql", "-c", "DELETE FROM t WHERE n = 2")
    lake.run("table", "compact", "t")
    lake.run("table", "vacuum", "t", "--retain", "0s")
    assert lake.json("SELECT count(*) AS n FROM t WHERE n = 1") == [{"n": 2}]
    lake.run("lake", "check")
    # It is there, and nowhere else.
    real = os.path.realpath(here / name) if os.path.lexists(here / name) else os.path.normpath(here / name)
    logs = [str(found.parent.parent) for found in tmp_path.rglob("_delta_log") if found.is_dir()]
    assert {os.path.realpath(log) for log in logs} == {real}, logs


DEFINITION = """
name = "evil\\u001b[31m\\u202e"
start = "2026-11-01"
end = "2026-11-03"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
[[variant]]
name = "a"
share = 0.5
control = true
[[variant]]
name = "b\\u001b[2J"
share = 0.5
[[metric]]
name = "spend\\u0007"
type = "mean"
table = "exposures"
value = "n"
{more}
"""


def _exposures(lake, folder):
    variants = ["a", "b\x1b[2J"]
    table = pa.table({"user_id": [f"u{n}" for n in range(200)], "variant": [variants[n % 2] for n in range(200)],
                      "n": list(range(200))})
    lake.load("exposures", write_parquet(folder / "e.parquet", table))


def a_report_moves_no_cursor(lake, folder):
    _exposures(lake, folder)
    (folder / "t.toml").write_text(DEFINITION.format(more=""))
    page = folder / "page.html"
    text = lake.run("report", folder / "t.toml")
    lake.run("report", folder / "t.toml", "--format", "html", "-o", page)
    for said in (text.out + text.err, page.read_text().split("<script")[0]):
        assert "evil" in said and "spend" in said
        assert not UNSEEN.search(said), repr(UNSEEN.search(said))


def a_definition_reads_no_files(lake, folder):
    _exposures(lake, folder)
    secret = folder / "secret.csv"
    secret.write_text("s\n1\n")
    for condition in (f"n IN (SELECT s FROM '{secret}')", f"EXISTS (SELECT 1 FROM '{folder}/*.csv')"):
        (folder / "t.toml").write_text(DEFINITION.format(more=f'where = """{condition}"""'))
        lake.refused("report", folder / "t.toml", says=["may not read the file"])
    # Tables of the lake are what definitions are about.
    (folder / "t.toml").write_text(DEFINITION.format(more='where = "n IN (SELECT n FROM exposures WHERE n < 50)"'))
    lake.run("report", folder / "t.toml")


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *time) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(which, time);
    if (which == CLOCK_REALTIME) time->tv_sec = SECONDS;
    return code;
}
"""


@pytest.mark.parametrize("seconds", [-1, -86400 * 365, 0, 1])
def a_clock_before_1970_is_an_error_and_one_after_it_is_none(lake, folder, seconds):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("LOUD: clocks are not checked: no C compiler named `cc`")
    library = folder / "clock.so"
    build = [compiler, "-shared", "-fPIC", f"-DSECONDS={seconds}", "-x", "c", "-", "-o", library, "-ldl"]
    subprocess.run(build, input=CLOCK.encode(), check=True)
    data = folder / "a.csv"
    data.write_text("n\n1\n")
    lake.load("t", data)
    env = os.environ | {"LD_PRELOAD": str(library)}
    for command in (["load", "t", data], ["sql", "-c", "select now() < now() + interval '1 day', n from t"]):
        done = lake.run(*command, code=None, env=env)
        if seconds < 0:
            assert done.code == 1 and "the clock of this machine says that it is before 1970" in done.err, done
        else:
            assert done.code == 0, done
    assert lake.count("t") == (1 if seconds < 0 else 2)
