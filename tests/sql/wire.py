"""The records of a .slt file over the Postgres wire: a server for each file, a connection for each record.

Answers come by the simple protocol, as text. They are made the values that the command's Arrow gives,
so that both are compared by the same rules.

Not here: records that name files of the server's disk, which nobody may read or write over a
connection unless told; what is compared (`run`).
"""
import datetime as dt
import decimal
import json
import pathlib
import struct
import sys

from psycopg import pq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "wire"))
import support

LETTERS = {20: "I", 21: "I", 23: "I", 700: "R", 701: "R", 1700: "N"}
NUMBERS = {20: int, 21: int, 23: int, 26: int}
ELEMENTS = {
    1000: 16, 1005: 21, 1007: 23, 1016: 20, 1021: 700, 1022: 701, 1231: 1700, 1009: 25, 1182: 1082, 1115: 1114,
    1185: 1184, 1183: 1083, 1001: 17, 1187: 1186, 199: 114, 3807: 114,
}


def server(folder):
    folder = pathlib.Path(folder)
    (folder / "server").mkdir()
    return support.Server(folder / "server", folder / "lake")


def ask(server, sql):
    """(columns, rows, count, message): columns are oids, rows texts; message is an error's or None."""
    words = server.words | {"dbname": support.DATABASE}
    connection = pq.PGconn.connect(" ".join(f"{k}={v}" for k, v in words.items()).encode())
    if connection.status != pq.ConnStatus.OK:
        return [], [], None, connection.get_error_message()
    connection.send_query(sql.encode())
    last = None
    while (answer := connection.get_result()) is not None:
        if answer.status == pq.ExecStatus.FATAL_ERROR:
            connection.finish()
            return [], [], None, message_of(answer)
        last = answer
    connection.finish()
    if last is None:
        return [], [], None, "the connection is lost"
    columns = [last.ftype(n) for n in range(last.nfields)]
    rows = [[last.get_value(r, c) for c in range(last.nfields)] for r in range(last.ntuples)]
    return columns, [[v if v is None else v.decode() for v in row] for row in rows], last.command_tuples, None


def message_of(answer):
    fields = (pq.DiagnosticField.MESSAGE_PRIMARY, pq.DiagnosticField.MESSAGE_DETAIL, pq.DiagnosticField.MESSAGE_HINT)
    found = [answer.error_field(field) for field in fields]
    return "; ".join(part.decode() for part in found if part)


def list_of(text):
    """The texts of a list, nested as it is; None for NULL."""
    at = 0

    def element():
        nonlocal at
        if text[at] == "{":
            at += 1
            found = []
            while text[at] != "}":
                found.append(element())
                if text[at] == ",":
                    at += 1
            at += 1
            return found
        if text[at] == '"':
            at, out = at + 1, []
            while text[at] != '"':
                at += text[at] == "\\"
                out.append(text[at])
                at += 1
            at += 1
            return "".join(out)
        start = at
        while text[at] not in ",}":
            at += 1
        word = text[start:at]
        return None if word == "NULL" else word

    at = text.index("{")  # after the bounds, if it has any
    return element()


def value(text, oid):
    """The value of a text of the wire, as the command's Arrow has it in Python."""
    if text is None:
        return None
    if isinstance(text, list):
        return [value(t, oid) for t in text]
    if oid in ELEMENTS:
        return value(list_of(text), ELEMENTS[oid])
    if oid == 16:
        return text == "t"
    if oid in NUMBERS:
        return int(text)
    if oid == 700:
        return struct.unpack("f", struct.pack("f", float(text)))[0]
    if oid == 701:
        return float(text)
    if oid == 1700:
        return decimal.Decimal(text)
    if oid == 17:
        return bytes.fromhex(text[2:])
    if oid in (114, 3802):
        return json.loads(text)
    if oid in (1114, 1184):
        return dt.datetime.fromisoformat(text).replace(tzinfo=None)
    if oid == 1083:
        return dt.time.fromisoformat(text)
    return text
