"""What others must not see, and what must not reach a terminal."""

import os
import re

import pyarrow as pa
import pytest

from support import write_parquet

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
