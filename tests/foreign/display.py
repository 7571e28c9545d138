"""Values as the suites write them: Arrow arrays to text, as DataFusion or as DuckDB prints them.

Invariants:
- NULL is `NULL` and the empty string `(empty)`, at the top level.
- Whole numbers and decimals keep every digit; timestamps keep nanoseconds.

Not here: comparing (`sqllogictest`).
"""

import datetime as dt
import decimal
import math
import struct
import zoneinfo

import pyarrow as pa

SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
# The calendar repeats after 400 years; Python's has the years 1 to 9999 only.
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097


def rows(table, style):
    """A list of lists of text; None for types that Python has no values for."""
    try:
        columns = [column_text(column, style) for column in table.columns]
    except (KeyError, decimal.InvalidOperation, pa.ArrowNotImplementedError):
        return None
    return [list(row) for row in zip(*columns)] if columns else []


def column_text(column, style):
    return [style.top(value, column.type) for value in values(column)]


def values(column):
    """Python values that lose nothing: times and intervals as numbers, see `plain`."""
    return [v for chunk in column.chunks for v in plain(chunk)]


def plain(array):
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pa.compute.run_end_decode(array))
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_date64(kind):
        return array.view(pa.int64()).to_pylist()
    if pa.types.is_time64(kind):
        return array.view(pa.int64()).to_pylist()
    if pa.types.is_time32(kind) or pa.types.is_date32(kind):
        return array.view(pa.int32()).to_pylist()
    if is_list(kind):
        return [None if v is None else plain(v) for v in lists(array)]
    if pa.types.is_struct(kind):
        fields = [plain(f) for f in (array.flatten() if len(array) else [])]
        rows_of = zip(*fields) if fields else ([] for _ in range(len(array)))
        return [tuple(r) if ok else None for r, ok in zip(rows_of, array.is_valid().to_pylist())]
    if pa.types.is_map(kind):
        return [
            None if v is None else list(zip(plain(v.field(0)), plain(v.field(1))))
            for v in lists(array)
        ]
    return array.to_pylist()


def is_list(kind):
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def lists(array):
    return [scalar.values if scalar.is_valid else None for scalar in array]


def fraction(part, unit):
    """`.5`, `.000001`, or nothing: three, six or nine digits, as chrono writes them."""
    nanos = part * (10**9 // SECONDS[unit])
    if nanos == 0:
        return ""
    for digits in (3, 6):
        if nanos % 10 ** (9 - digits) == 0:
            return f".{nanos // 10 ** (9 - digits):0{digits}d}"
    return f".{nanos:09d}"


def date_text(days):
    cycles, day = divmod(days + EPOCH_DAY - 1, CYCLE_DAYS)
    date = dt.date.fromordinal(day + 1)
    year = date.year + cycles * CYCLE_YEARS
    sign = "" if 0 <= year <= 9999 else ("-" if year < 0 else "+")
    return f"{sign}{abs(year):04d}-{date.month:02d}-{date.day:02d}"


def clock_text(ticks, unit):
    seconds, part = divmod(ticks, SECONDS[unit])
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}{fraction(part, unit)}"


def zone_offset_seconds(zone, seconds):
    if zone[0] in "+-":
        sign = -1 if zone[0] == "-" else 1
        digits = zone[1:].replace(":", "").ljust(4, "0")
        return sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60)
    try:
        when = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(seconds=seconds)
        return int(when.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset().total_seconds())
    except (OverflowError, zoneinfo.ZoneInfoNotFoundError):
        return 0


def split_timestamp(ticks, kind):
    """(date, time, seconds from UTC or None)."""
    seconds, part = divmod(ticks, SECONDS[kind.unit])
    offset = zone_offset_seconds(kind.tz, seconds) if kind.tz else None
    days, second = divmod(seconds + (offset or 0), 86_400)
    clock = clock_text(second, "s") + fraction(part, kind.unit)
    return date_text(days), clock, offset


def plain_number(value):
    """A double without an exponent, at most twelve digits after the point."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    exact = decimal.Decimal(repr(value))
    with decimal.localcontext(prec=400, rounding=decimal.ROUND_HALF_EVEN):
        text = f"{exact.quantize(decimal.Decimal(1).scaleb(-12)):f}"
    text = text.rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def shortest(value, kind):
    """The double with the fewest digits that is this value in 32 bits."""
    if kind.bit_width == 64 or not math.isfinite(value):
        return value
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.unpack("<f", struct.pack("<f", short))[0] == value:
            return short
    return value


def parts_of_nanos(nanos, second_digits=9):
    """` 1 hours 2 mins 3.000000000 secs` of an Arrow interval."""
    sign = "-" if nanos < 0 else ""
    seconds, part = divmod(abs(nanos), 10**9)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    found = [f"{sign}{hours} hours"] if hours else []
    found += [f"{sign}{minutes} mins"] if minutes else []
    if seconds or part:
        digits = f"{part:09d}"[:second_digits]
        found.append(f"{sign}{seconds}.{digits} secs")
    return found


class DataFusion:
    """As DataFusion's own runner prints."""

    @classmethod
    def top(cls, value, kind):
        if value is None:
            return "NULL"
        if pa.types.is_floating(kind):
            return plain_number(shortest(value, kind))
        if pa.types.is_decimal(kind):
            text = f"{value:f}"
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return "0" if text == "-0" else text
        if value == "":
            return "(empty)"
        if isinstance(value, str):
            return value.rstrip("\n").replace("\0", "\\0")
        return cls.nested(value, kind)

    @classmethod
    def nested(cls, value, kind):
        if value is None:
            return "NULL"
        if pa.types.is_boolean(kind):
            return str(value).lower()
        if pa.types.is_floating(kind):
            return cls.float(shortest(value, kind))
        if pa.types.is_timestamp(kind):
            day, clock, offset = split_timestamp(value, kind)
            return f"{day}T{clock}{'' if offset is None else cls.zone(offset)}"
        if pa.types.is_date32(kind):
            return date_text(value)
        if pa.types.is_date64(kind):
            return "T".join(split_timestamp(value, pa.timestamp("ms"))[:2])
        if pa.types.is_time(kind):
            return clock_text(value, kind.unit)
        if pa.types.is_duration(kind):
            return cls.duration(value, kind.unit)
        if pa.types.is_interval(kind):
            return cls.interval(*value)
        if (
            pa.types.is_binary(kind)
            or pa.types.is_fixed_size_binary(kind)
            or isinstance(value, bytes)
        ):
            return value.hex()
        return cls.container(value, kind)

    @classmethod
    def container(cls, value, kind):
        if is_list(kind):
            return "[" + ", ".join(cls.nested(v, kind.value_type) for v in value) + "]"
        if pa.types.is_map(kind):
            pairs = (
                f"{cls.nested(k, kind.key_type)}: {cls.nested(v, kind.item_type)}" for k, v in value
            )
            return "{" + ", ".join(pairs) + "}"
        if pa.types.is_struct(kind):
            pairs = (f"{f.name}: {cls.nested(v, f.type)}" for v, f in zip(value, kind))
            return "{" + ", ".join(pairs) + "}"
        return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)

    @staticmethod
    def float(value):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
        text = repr(value)
        mantissa, _, exponent = text.partition("e")
        if not exponent:
            return text
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"

    @staticmethod
    def zone(offset):
        if offset == 0:
            return "Z"
        minutes = abs(offset) // 60
        return f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"

    @staticmethod
    def interval(months, days, nanos):
        found = [f"{months} mons"] if months else []
        found += [f"{days} days"] if days else []
        return " ".join(found + parts_of_nanos(nanos)) or "0 secs"

    @staticmethod
    def duration(ticks, unit):
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
        sign = "-" if ticks < 0 else ""
        seconds, part = divmod(abs(ticks), SECONDS[unit])
        days, hours = seconds // 86_400, seconds // 3600 % 24
        tail = f".{part:0{digits}d}" if digits else ""
        return (
            f"{sign}{days} days {sign}{hours} hours {sign}{seconds // 60 % 60} mins "
            f"{sign}{seconds % 60}{tail} secs"
        )


class DuckDB(DataFusion):
    """As DuckDB casts to text."""

    @classmethod
    def top(cls, value, kind):
        if value is None:
            return "NULL"
        if value == "":
            return "(empty)"
        return cls.nested(value, kind)

    @classmethod
    def nested(cls, value, kind):
        if pa.types.is_decimal(kind) and value is not None:
            return f"{value:f}"
        if isinstance(value, bytes):
            return "".join(
                chr(b) if 32 <= b < 127 and b not in b"\\'\"" else f"\\x{b:02X}" for b in value
            )
        if value is not None and pa.types.is_timestamp(kind):
            day, clock, offset = split_timestamp(value, kind)
            clock = clock.rstrip("0") if "." in clock else clock
            return f"{day} {clock}{'' if offset is None else cls.zone(offset)}"
        if value is not None and pa.types.is_time(kind):
            clock = clock_text(value, kind.unit)
            return clock.rstrip("0") if "." in clock else clock
        return super().nested(value, kind)

    @classmethod
    def container(cls, value, kind):
        if pa.types.is_map(kind):
            pairs = (
                f"{cls.nested(k, kind.key_type)}={cls.nested(v, kind.item_type)}" for k, v in value
            )
            return "{" + ", ".join(pairs) + "}"
        if pa.types.is_struct(kind):
            pairs = (f"'{f.name}': {cls.nested(v, f.type)}" for v, f in zip(value, kind))
            return "{" + ", ".join(pairs) + "}"
        return super().container(value, kind)

    @staticmethod
    def float(value):
        if not math.isfinite(value):
            return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
        text = repr(value)
        mantissa, _, exponent = text.partition("e")
        if not exponent:
            return text
        return f"{mantissa}e{'-' if exponent[0] == '-' else '+'}{int(exponent.lstrip('+-')):02d}"

    @staticmethod
    def zone(offset):
        minutes = abs(offset) // 60
        tail = f":{minutes % 60:02d}" if minutes % 60 else ""
        return f"{'-' if offset < 0 else '+'}{minutes // 60:02d}{tail}"

    @staticmethod
    def interval(months, days, nanos):
        def part(n, name):
            return [f"{n} {name}{'' if abs(n) == 1 else 's'}"] if n else []

        years, months = int(months / 12), int(math.fmod(months, 12))
        found = part(years, "year") + part(months, "month") + part(days, "day")
        if nanos or not found:
            clock = clock_text(abs(nanos), "ns")
            clock = clock.rstrip("0") if "." in clock else clock
            found.append(("-" if nanos < 0 else "") + clock)
        return " ".join(found)
