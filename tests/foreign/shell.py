"""One `uplake sql` shell, asked statement by statement.

A shell answers thousands of statements in one process and goes on after one that fails, so a
suite costs milliseconds a record. It is run on a pseudo-terminal, because with a pipe the command
takes a whole script and stops at its first error. Rows come as Arrow, so types are exact.

Invariants:
- `ask` returns when the statement is over: the shell has printed its next prompt, or has ended.
- A shell that has ended (a panic) or hangs is replaced before the next statement; the lake stays.

Not here: what an answer should be.
"""

import dataclasses
import os
import pty
import re
import select
import subprocess
import time
import tty

import pyarrow as pa

PROMPT = b"uplake> "
DONE = re.compile(rb"[0-9]+\.[0-9]{3} s\nuplake> \Z")
LAST_LINE_BYTES = 64
# What the shell prints before each further line of an input; Arrow's bytes begin otherwise.
CONTINUED = re.compile(rb"\A(?: +\S+> )+")
# Text that only a bug prints.
BUG = re.compile(
    r"panicked at|Internal error|caused by a bug in DataFusion|Assertion failed|"
    r"column types must match schema types|is declared as non-nullable but|ListArray expected|"
    r"does not satisfy order requirements|must either specify a row count",
    re.IGNORECASE,
)
# A statement may take so long before the shell is killed; --timeout should end it long before.
GRACE_SECONDS = 10
OUTPUT_BYTES_MAX = 256 << 20
# What a pipe holds; more costs page faults at every read.
CHUNK_BYTES = 64 << 10


@dataclasses.dataclass
class Answer:
    """`table` for rows, `message` for what was done, `error` for what was not.

    `bug` says that the error is one of ours: a panic, an internal error, no answer in time.
    """

    table: pa.Table | None = None
    message: str = ""
    error: str | None = None
    bug: bool = False


class Shell:
    def __init__(self, binary, lake, cwd, timeout_seconds=30, options=()):
        self.command = [binary, "sql", "--lake", lake, "--format", "arrow", *options]
        self.command += ["--timeout", f"{timeout_seconds}s"]
        self.limit_seconds = timeout_seconds + GRACE_SECONDS
        self.cwd = cwd
        self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        self.keys, terminal = pty.openpty()
        tty.setraw(terminal)
        # A dumb terminal: lines are read as they are, and the prompt is the plain text.
        environment = os.environ | {"TERM": "dumb", "XDG_STATE_HOME": self.cwd}
        self.process = subprocess.Popen(
            self.command,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.cwd,
            env=environment,
            bufsize=0,
        )
        os.close(terminal)
        _, error, ended = self.read(until=PROMPT)
        if ended:
            raise OSError(f"{' '.join(self.command)} does not start: {error.decode()}")

    def close(self):
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        os.close(self.keys)
        self.process.stdout.close()
        self.process.stderr.close()
        self.process = None

    def ask(self, sql):
        """Runs one statement, without the semicolon that ends it."""
        if self.process is None:
            self.start()
        try:
            self.type(one_input(sql))
            out, err, ended = self.read()
        except BrokenPipeError:
            out, err, ended = b"", b"the shell ended", True
        text = err.decode(errors="replace").strip()
        if ended:
            code = self.process.poll()
            self.close()
            return Answer(error=f"{text or 'no answer in time'} (exit code {code})", bug=True)
        return answer(out, text)

    def type(self, text):
        """A terminal holds 4 KiB, so what the shell prints is not waited for meanwhile."""
        data = text.encode()
        while data:
            data = data[os.write(self.keys, data[:4096]) :]

    def read(self, until=None):
        """(standard output, standard error, whether the shell is over) of one statement."""
        streams = {
            self.process.stdout.fileno(): bytearray(),
            self.process.stderr.fileno(): bytearray(),
        }
        out, err = streams.values()
        open_streams = list(streams)
        ends = time.monotonic() + self.limit_seconds
        while open_streams:
            ready, _, _ = select.select(open_streams, [], [], max(0.0, ends - time.monotonic()))
            if not ready or len(out) > OUTPUT_BYTES_MAX:
                return bytes(out), bytes(err), True
            for stream in ready:
                chunk = os.read(stream, CHUNK_BYTES)
                streams[stream] += chunk
                if not chunk:
                    open_streams.remove(stream)
            # The prompt is written last: what it follows has been written before.
            if out.endswith(until or PROMPT) and len(open_streams) == 2:
                over = out == PROMPT or DONE.search(out[-LAST_LINE_BYTES:])
                if until or over or err or self.more(streams):
                    self.more(streams)
                    return bytes(out), bytes(err), False
        self.process.wait()
        return bytes(out), bytes(err), True

    @staticmethod
    def more(streams):
        """Takes what has been written already; whether there is any on standard error."""
        while ready := select.select(list(streams), [], [], 0)[0]:
            chunks = [(stream, os.read(stream, CHUNK_BYTES)) for stream in ready]
            if not any(chunk for _, chunk in chunks):
                break
            for stream, chunk in chunks:
                streams[stream] += chunk
        return bool(list(streams.values())[1])


def one_input(sql):
    """The shell takes an input as complete when a line of it ends with a semicolon."""
    lines = [line for line in sql.split("\n") if not line.lstrip().startswith("--")]
    text = "\n".join(lines).strip().rstrip(";").rstrip()
    # A line of blanks alone would be an input of its own; after a comment the end needs a line.
    end = "\n;\n" if "--" in text.rpartition("\n")[2] else ";\n"
    return re.sub(r";[ \t]*\n", "; ", text) + end


def answer(out, text):
    failed = re.search(r"(?:\A|\n)error: (.*)", text, re.DOTALL)
    if failed:
        return Answer(error=failed[1].strip(), bug=bool(BUG.search(text)))
    if BUG.search(text):
        return Answer(error=text, bug=True)
    out = CONTINUED.sub(b"", out)
    body = out[:-LAST_LINE_BYTES] + DONE.sub(b"", out[-LAST_LINE_BYTES:])
    if body in (b"", PROMPT):
        return Answer(message=text)
    try:
        return Answer(table=pa.ipc.open_stream(body).read_all(), message=text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        return Answer(error=f"the rows cannot be read: {error}", bug=True)
