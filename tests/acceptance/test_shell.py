"""The shell, driven through a pseudo-terminal as a user's hands would, and its commands in scripts."""

import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import support

PATIENCE_SECONDS = 60
ENDLESS = "SELECT max(value % 7) AS m FROM generate_series(1, 1000000000000) AS g(value)"
# What moves the cursor and colours.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
READY = "uplake> "


class Terminal:
    """A process on a terminal of its own, with what it has shown since the last look."""

    def __init__(self, arguments, cwd, columns=80, lines=24, **env):
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            for name in ("COLUMNS", "LINES", "PAGER"):
                os.environ.pop(name, None)
            os.environ.update({"TERM": "xterm", "XDG_STATE_HOME": str(cwd / "state"), **env})
            os.execv(arguments[0], arguments)
        self.resize(columns, lines)
        self.unread = ""

    def resize(self, columns, lines):
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text):
        os.write(self.screen, text.encode())

    def until(self, wanted):
        """What is shown up to and with `wanted`."""
        end = time.monotonic() + PATIENCE_SECONDS
        while wanted not in (clean := ESCAPES.sub("", self.unread)):
            assert time.monotonic() < end, f"no {wanted!r} in:\n{self.unread}"
            if select.select([self.screen], [], [], 0.1)[0]:
                assert (more := self._read()), f"it ended without {wanted!r}:\n{self.unread}"
                self.unread += more
        at = clean.index(wanted) + len(wanted)
        self.unread = clean[at:]
        return clean[:at]

    def says(self, line, wanted):
        self.type(line + "\r")
        return self.until(wanted)

    def ask(self, line, prompt=READY):
        """Types a line that fits the terminal; what is shown from its echo to the next prompt."""
        self.type(line + "\r")
        # A line that does not fit is drawn again, prompt and all, as it is typed.
        return self.until("\n") + self.until(prompt)

    def computes(self):
        """Waits until a statement computes: Ctrl-C is a signal once the line editor has given the terminal back, and is
        the statement's once it has begun, which is when it takes time of the processor."""

        def until(holds):
            end = time.monotonic() + PATIENCE_SECONDS
            while not holds():
                assert time.monotonic() < end, f"nothing computes:\n{self.unread}"
                time.sleep(0.01)

        def cpu_seconds():
            with open(f"/proc/{self.pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        until(lambda: termios.tcgetattr(self.screen)[3] & termios.ISIG)
        before = cpu_seconds()
        until(lambda: cpu_seconds() > before + 0.3)

    def ends(self):
        """The exit code."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            if select.select([self.screen], [], [], 0.05)[0]:
                self.unread += self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it does not end:\n{self.unread}")

    def _read(self):
        try:
            return os.read(self.screen, 65536).decode(errors="replace")
        except OSError as error:
            # Nobody has the other end any more.
            assert error.errno == errno.EIO
            return ""

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.screen)


@pytest.fixture
def shop(lake, folder):
    (folder / "events.csv").write_text("user_id,event,amount\nu1,view,1.5\nu2,buy,2.5\nu1,buy,3.5\n")
    lake.load("events", folder / "events.csv", "--quiet", "--cluster-by", "user_id", "--index", "user_id")
    return lake


@pytest.fixture
def shell(shop, tmp_path):
    shells = []

    def begin(*options, **more):
        arguments = [support.BINARY, "sql", "--lake", str(shop.path), *options]
        terminal = Terminal(arguments, tmp_path, **more)
        shells.append(terminal)
        terminal.until(READY)
        return terminal

    yield begin
    for terminal in shells:
        terminal.kill()


def help_names_the_commands_and_each_way_out_works(shell):
    for leave in ["\\q", "exit", "quit;", "\x04"]:
        terminal = shell()
        shown = terminal.ask("help")
        assert "\\timing" in shown and "Ctrl-C" in shown
        terminal.type(leave if leave == "\x04" else leave + "\r")
        assert terminal.ends() == 0, leave


def a_command_that_is_not_there_says_what_there_is(shell):
    shown = shell().ask("\\nothing")
    assert "there is no command \\nothing; there are \\d, \\dt" in shown


def the_prompt_shows_what_is_open(shell):
    terminal = shell()
    for line, mark in [("SELECT (", "(> "), ("'it''s", "'> "), ("', \"a", "\"> "), ("b\" /* hm", "/*> ")]:
        terminal.says(line, f"{mark:>8}")
    # Ctrl-C drops it all.
    terminal.says("\x03", READY)
    terminal.says("SELECT 40 +", "     -> ")
    assert "42" in terminal.ask("2 AS n;")


def a_statement_that_is_open_says_how_to_leave(shell):
    terminal = shell()
    terminal.says("SELECT 1", "     -> ")
    assert "`;` runs it, Ctrl-C drops it, \\q quits" in terminal.ask("exit", "     -> ")
    assert "events" in terminal.ask("\\dt", "     -> ")
    terminal.type("\\q\r")
    assert terminal.ends() == 0


def tables_and_columns_are_listed(shell):
    terminal = shell()
    assert "events" in terminal.ask("\\dt") and "events" in terminal.ask("\\d")
    shown = terminal.ask("\\d events")
    assert "user_id" in shown and "double" in shown
    assert "3 rows in 1 file" in shown and "clustered by user_id" in shown and "indexed by user_id ids" in shown
    assert "error" in terminal.ask("\\d nothing_there")


def wide_rows_are_records_and_narrow_ones_a_table(shell):
    wide = "SELECT repeat('a', 50) AS first, repeat('b', 50) AS second;"
    terminal = shell(columns=80)
    shown = terminal.ask(wide)
    assert "[ row 1 ]" in shown and "first  │ " + "a" * 50 in shown and "╞" not in shown
    assert "╞" in terminal.ask("SELECT 1 AS one;")
    terminal.ask("\\x on")
    assert "one │ 1" in terminal.ask("SELECT 1 AS one;")
    terminal.ask("\\x off")
    terminal.ask("\\pset pager off")
    assert "╞" in terminal.ask(wide)


def what_does_not_fit_goes_to_the_pager(shell, tmp_path):
    terminal = shell(lines=10, PAGER=f"cat > {tmp_path}/paged")
    terminal.ask("SELECT value FROM generate_series(1, 30);")
    assert (tmp_path / "paged").read_text().count("│") == 2 * 31
    (tmp_path / "paged").unlink()
    terminal.ask("SELECT 1;")
    terminal.ask("\\pset pager off")
    assert "│    30 │" in terminal.ask("SELECT value FROM generate_series(1, 30);")
    assert not (tmp_path / "paged").exists()


def rows_go_to_a_file_and_statements_come_from_one(shell, tmp_path):
    terminal = shell()
    terminal.ask("\\o rows.txt")
    assert "│ 42 │" not in terminal.ask("SELECT 6 * 7 AS n;")
    terminal.ask("\\o")
    assert "│ 42 │" in (tmp_path / "rows.txt").read_text()
    (tmp_path / "q.sql").write_text("SELECT 1 AS a;\n\\x on\nSELECT 2 AS b;\nSELECT nothing;\nSELECT 3 AS c;\n")
    shown = terminal.ask("\\i q.sql")
    assert "│ 1 │" in shown and "b │ 2" in shown and "c │ 3" not in shown
    assert "q.sql stopped at line 4" in shown
    assert "reading none.sql" in terminal.ask("\\i none.sql")
    (tmp_path / "own.sql").write_text("\\i own.sql\n")
    assert "too many scripts within scripts" in terminal.ask("\\i own.sql")


def statements_are_timed_unless_that_is_off(shell):
    terminal = shell()
    assert re.search(r"\d\.\d{3} s", terminal.ask("SELECT 1;"))
    assert "timing is off" in terminal.ask("\\timing")
    assert not re.search(r"\d\.\d{3} s", terminal.ask("SELECT 1;"))


def a_statement_is_one_entry_of_the_history(shell):
    terminal = shell()
    terminal.says("SELECT 20 +", "     -> ")
    terminal.ask("  3 AS n;")
    terminal.type("\\q\r")
    assert terminal.ends() == 0
    again = shell()
    # Ctrl-R finds what the last shell ran, with both its lines.
    again.type("\x12SELECT 20")
    again.until("3 AS n;")
    again.says("", "│ 23 │")


def tab_completes_names(shell):
    terminal = shell()
    # The names are read beside what goes on.
    end = time.monotonic() + PATIENCE_SECONDS
    while "│ 3 │" not in terminal.ask("SELECT count(*) AS n FROM ev\t;"):
        assert time.monotonic() < end
    terminal.type("SELECT sum(amo\t")
    terminal.until("amo")
    terminal.type("\x03")
    # What is typed before the editor is back at a new line goes with the old one.
    terminal.until("\n")
    terminal.until(READY)
    # The column of the table that stands behind the place: to the line's beginning, and on to the word's end.
    terminal.says(") AS total FROM events;\x01SELECT sum(am\t", "│   7.5 │")


def ctrl_c_says_what_it_stopped(shell):
    terminal = shell()
    terminal.type(ENDLESS + ";\r")
    terminal.computes()
    terminal.type("\x03")
    shown = terminal.until("error: cancelled after ") + terminal.until(READY)
    assert re.search(r"[\d.]+ s: SELECT max\(value % 7\) AS m FROM", shown)
    assert "│   1 │" in terminal.ask("SELECT 1 AS one;")


def explain_is_a_tree_on_a_terminal_and_text_elsewhere(shell, shop):
    query = "EXPLAIN ANALYZE SELECT event, count(*) AS n FROM events GROUP BY event ORDER BY n;"
    lines = shell(columns=100).ask(query).splitlines()
    assert any(line.split() == ["rows", "time", "operator"] for line in lines)
    assert any("└─ DataSourceExec" in line and line.endswith("…") for line in lines)
    tree = [line for line in lines if "└─" in line]
    assert len(tree) > 2 and all(len(line) <= 100 for line in tree)
    assert "metrics=[" in shop.run("sql", "-c", query).out


def a_long_statement_shows_how_far_it_is(shop, tmp_path):
    for n in range(4):
        shop.run("sql", "-c", f"COPY (SELECT {n} AS a) TO '{tmp_path}/{n}.parquet'")
    query = f"SELECT count(*) FROM '{tmp_path}/*.parquet' a, generate_series(1, 100000000000) g(v) WHERE v % 7 = 9"
    arguments = [support.BINARY, "sql", "--lake", str(shop.path), "-c", query]
    terminal = Terminal(arguments, tmp_path)
    try:
        assert re.search(r"\d+ s  \d+ of 4 files  ", terminal.until(" files  "))
        terminal.type("\x03")
        terminal.until("error: cancelled after ")
        assert terminal.ends() == 130
    finally:
        terminal.kill()


def commands_work_in_scripts(shop, tmp_path):
    assert "user_id" in shop.run("sql", "-c", "\\d events").out
    assert "3 rows in 1 file" in shop.run("sql", "-c", "\\d events").out
    out = shop.run("sql", "-f", "-", stdin=b"\\x on\nSELECT 1 AS a;\n\\timing on\nSELECT 2 AS b;\n\\dt\n\\q\nSELECT 3;")
    assert "a │ 1" in out.out and "b │ 2" in out.out and "events" in out.out and "3;" not in out.out
    assert out.err.count("time: ") == 2
    (tmp_path / "inner.sql").write_text("SELECT 1 AS a;\n\nSELECT nothing;\n")
    shop.refused("sql", "-c", "\\i inner.sql", says=["in inner.sql", "line 3", "nothing"])
    shop.refused("sql", "-c", "SELECT 1;\n\\nothing\n", says=["statement 2 (line 2)", "there are \\d"])
    # An error's place is that of the whole text.
    shop.refused("sql", "-c", "SELECT 1;\n\\timing off\nSELECT nothing", says=["3 | SELECT nothing"])


def options_of_a_lake_may_stand_first(shop, tmp_path):
    run = lambda *arguments: subprocess.run(
        [support.BINARY, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    done = run("--lake", str(shop.path), "--threads=1", "sql", "-c", "SELECT count(*) AS n FROM events", "--format", "csv")
    assert (done.returncode, done.stdout) == (0, "n\n3\n"), done.stderr
    assert "events" in run(f"--lake={shop.path}", "table", "list").stdout
    refused = run("--lake", "x", "generate", "out")
    assert refused.returncode == 2 and "'--lake'" in refused.stderr
    assert "--lake" not in run("generate", "--help").stdout


def completions_and_manual_pages_name_every_command(shop, tmp_path):
    run = lambda *arguments: subprocess.run(
        [support.BINARY, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    for name in ["bash", "zsh", "fish"]:
        done = run("completions", name)
        assert done.returncode == 0 and "report" in done.stdout and "cluster-by" in done.stdout, name
    assert ".TH uplake 1" in run("man").stdout
    assert run("man", "--out", "pages").returncode == 0
    pages = {page.name for page in (tmp_path / "pages").iterdir()}
    assert {"uplake.1", "uplake-sql.1", "uplake-table.1"} <= pages and not any("bench" in page for page in pages)
