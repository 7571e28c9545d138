"""A Postgres client of bare frames: for what drivers hide, and for what no driver would send.

Not here: types. Values are the bytes of the wire.
"""

import socket
import struct

PROTOCOL_3_0 = 196_608
CANCEL = 80_877_102
SSL = 80_877_103
ANSWER_S = 20


def frame(kind, body=b""):
    return kind + struct.pack("!i", len(body) + 4) + body


def text(value):
    return value.encode() + b"\0"


def startup(user="admin", database="lake", **more):
    words = {"user": user, "database": database} | more
    body = struct.pack("!i", PROTOCOL_3_0) + b"".join(text(k) + text(v) for k, v in words.items()) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def query(sql):
    return frame(b"Q", text(sql))


def parse(sql, name="", types=()):
    body = text(name) + text(sql) + struct.pack(f"!h{len(types)}i", len(types), *types)
    return frame(b"P", body)


def bind(name="", portal="", values=(), formats=(), results=()):
    """Values are bytes or None; formats and results are 0 for text and 1 for binary."""
    body = text(portal) + text(name)
    body += struct.pack(f"!h{len(formats)}h", len(formats), *formats) + struct.pack("!h", len(values))
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return frame(b"B", body + struct.pack(f"!h{len(results)}h", len(results), *results))


def describe(kind, name=""):
    return frame(b"D", kind + text(name))


def execute(portal="", rows=0):
    return frame(b"E", text(portal) + struct.pack("!i", rows))


def close(kind, name=""):
    return frame(b"C", kind + text(name))


SYNC, FLUSH, TERMINATE = frame(b"S"), frame(b"H"), frame(b"X")


def fields_of(body):
    """The fields of an ErrorResponse or a NoticeResponse: {"C": "42P01", "M": …}."""
    return {chr(part[0]): part[1:].decode() for part in body.split(b"\0") if part}


def values_of(body):
    """The values of a DataRow."""
    count, at, values = struct.unpack_from("!h", body)[0], 2, []
    for _ in range(count):
        (size,) = struct.unpack_from("!i", body, at)
        at += 4
        values.append(None if size < 0 else body[at : at + size])
        at += max(size, 0)
    return values


class Closed(Exception):
    """The server closed the connection."""


class Connection:
    """A socket to the server; logged in, if `login`."""

    def __init__(self, address, login=True, timeout=ANSWER_S, receive_buffer=None, **more):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.at = b"", 0
        self.address, self.key, self.settings = address, None, {}
        if login:
            self.send(startup(**more))
            for kind, body in self.until_ready():
                if kind == b"E":
                    raise ConnectionRefusedError(fields_of(body))
                if kind == b"K":
                    self.key = body
                if kind == b"S":
                    name, value = body.split(b"\0")[:2]
                    self.settings[name.decode()] = value.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def take(self, count):
        """The next bytes."""
        while len(self.buffer) - self.at < count:
            more = self.socket.recv(max(1 << 16, count - len(self.buffer) + self.at))
            if not more:
                raise Closed
            self.buffer, self.at = self.buffer[self.at :] + more, 0
        self.at += count
        return self.buffer[self.at - count : self.at]

    def next(self):
        """The next message: (kind, body)."""
        head = self.take(5)
        return head[:1], self.take(struct.unpack("!i", head[1:])[0] - 4)

    def until_ready(self):
        """Messages up to ReadyForQuery, with it; up to FATAL, if that comes."""
        found = []
        while not found or found[-1][0] != b"Z":
            found.append(self.next())
            if found[-1][0] == b"E" and fields_of(found[-1][1]).get("V", "") == "FATAL":
                break
        return found

    def ask(self, *parts):
        self.send(*parts)
        return self.until_ready()

    def rows(self, sql):
        """Rows of a simple query, as text; RuntimeError with the fields if it fails."""
        found = self.ask(query(sql))
        errors = [fields_of(body) for kind, body in found if kind == b"E"]
        if errors:
            raise RuntimeError(errors[0])
        return [[v if v is None else v.decode() for v in values_of(b)] for k, b in found if k == b"D"]

    def cancel(self, key=None):
        """Asks on another connection that this one's statement be stopped; waits for its close."""
        with Connection(self.address, login=False) as other:
            body = struct.pack("!i", CANCEL) + (key or self.key)
            other.send(struct.pack("!i", len(body) + 4) + body)
            assert other.is_closed(), "a cancel connection is answered"

    def is_closed(self):
        """Whether the server closes it without another word, within the time."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


def kinds(messages):
    return b"".join(kind for kind, _ in messages).decode()


def errors(messages):
    return [fields_of(body) for kind, body in messages if kind == b"E"]
