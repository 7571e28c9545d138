"""A node in Python: asks another for parts with tokens of its own making, or is asked and keeps what it hears.

The rule of tokens is written down twice, here and in crates/server/src/nodes/token.rs.
"""

import hashlib
import hmac
import json
import struct
import time

import support

support.module("pyarrow", "pyarrow")
import pyarrow.flight as flight

HEADER = "x-uplake-token"
WHAT = {"hello": 1, "part": 2, "cancel": 3}
DONE = 0


def resealed(ticket):
    """The ticket with the sum that its bytes have now."""
    return ticket[:-32] + hashlib.sha256(ticket[:-32]).digest()


def head(ticket):
    """What stands before the plan."""
    length = int.from_bytes(ticket[:4], "big")
    return json.loads(ticket[4 : 4 + length])


class Client:
    """Whoever has the secret, and asks a node."""

    def __init__(self, node, secret):
        self.secret, self.flight = secret, flight.FlightClient(f"grpc://{node}")
        said = self.hello()
        self.warehouse, self.lake = said["warehouse"], said["lake"]

    def token(self, what, ticket=b"", query=None, seconds=30, secret=None, warehouse=None, lake=None):
        part, sum_of = 0, b""
        if what == "part":
            said = head(ticket)
            query, part, sum_of = query or said["query"], said["part"], ticket[-32:]
        where = ("", "") if what == "hello" else (warehouse or self.warehouse, lake or self.lake)
        expiry = int((time.time() + seconds) * 1000)
        message = struct.pack("!BBQq", 1, WHAT[what], part, expiry)
        for text in [(query or "").encode(), where[0].encode(), where[1].encode(), sum_of]:
            message += struct.pack("!Q", len(text)) + text
        return f"{expiry}.{hmac.new(secret or self.secret, message, 'sha256').hexdigest()}"

    def _options(self, token):
        headers = [] if token is None else [(HEADER.encode(), token.encode())]
        return flight.FlightCallOptions(timeout=60, headers=headers)

    def hello(self, token=None):
        token = self.token("hello") if token is None else token
        return json.loads(next(self.flight.do_action(flight.Action("hello", b""), self._options(token))).body.to_pybytes())

    def cancel(self, query, token):
        action = flight.Action("cancel", query.encode())
        return next(self.flight.do_action(action, self._options(token))).body.to_pybytes()

    def part(self, ticket, token):
        """The rows of a part, in order of their text."""
        rows, end = [], None
        for chunk in self.flight.do_get(flight.Ticket(ticket), self._options(token)):
            if chunk.data is not None:
                rows += map(str, chunk.data.to_pylist())
            if chunk.app_metadata is not None:
                end = chunk.app_metadata.to_pybytes()
        assert end and end[0] == DONE, end
        return sorted(rows)

    def refused(self, call):
        """What is said to a call that is refused; `None` if it is answered."""
        try:
            call()
        except (flight.FlightError, OSError, ValueError, AssertionError) as error:
            return str(error)
        return None


class _Tokens(flight.ServerMiddlewareFactory):
    def start_call(self, info, headers):
        return _Token(headers)


class _Token(flight.ServerMiddleware):
    def __init__(self, headers):
        self.token = next(iter(headers.get(HEADER, [])), None)


class Capture(flight.FlightServerBase):
    """A node that says hello as another does, and takes no part: what it was sent is in `parts`."""

    def __init__(self, hello):
        super().__init__("grpc://127.0.0.1:0", middleware={"tokens": _Tokens()})
        self.said = json.dumps(hello | {"name": "played", "start": 7}).encode()
        self.address, self.parts = f"127.0.0.1:{self.port}", []

    def do_action(self, context, action):
        return iter([flight.Result(self.said if action.type == "hello" else b"")])

    def do_get(self, context, ticket):
        self.parts.append((ticket.ticket, context.get_middleware("tokens").token))
        raise flight.FlightUnavailableError("it is played")
