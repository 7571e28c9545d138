"""From a seed to the tables of experiments: exposures, events, orders and players, and how they are
loaded.

Invariants:
- A world is a function of its seed alone.
- Times are whole microseconds since 1970 in UTC, whatever the column's type.
- What the model reads (`Table.rows`) is what the files hold (`Table.write`).

Not here: definitions of experiments, and what a report says of the rows.
"""
import dataclasses
import datetime
import decimal
import math
import random
import zoneinfo

import pyarrow as pa
import pyarrow.parquet as pq

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
ZONES = ["UTC", "UTC", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]
# Both clocks change within some periods: Europe on 25 October 2026, New York on 1 November.
FIRST_DAYS = ["2026-10-22", "2026-10-30", "2026-11-01", "2026-03-26", "2024-02-27"]
# What tables call their users and times.
NAMES = {
    "exposures": ("user_id", "ts"), "events": ("user_id", "ts"), "orders": ("buyer", "paid_at"),
    "players": ("user_id", "at"), "results": ("variant", "day"),
}
ARROW = {
    "text": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(),
    "decimal(12,2)": pa.decimal128(12, 2), "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


@dataclasses.dataclass
class Table:
    name: str
    columns: dict  # name -> type
    rows: list  # of dicts
    options: list = dataclasses.field(default_factory=list)  # of `uplake load`, of the first file
    cuts: list = dataclasses.field(default_factory=list)  # row numbers at which a new load begins

    def write(self, folder):
        """Writes each load's rows as a Parquet file; returns the paths."""
        paths = []
        for begin, end in zip([0, *self.cuts], [*self.cuts, len(self.rows)]):
            rows = self.rows[begin:end]
            arrays = {
                name: pa.array([stored(row[name], kind) for row in rows], ARROW[kind])
                for name, kind in self.columns.items()
            }
            path = folder / f"{self.name}-{len(paths)}.parquet"
            pq.write_table(pa.table(arrays), path)
            paths.append(path)
        return paths


def stored(value, kind):
    if value is None or not kind.startswith("timestamp"):
        return value
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value)


@dataclasses.dataclass(eq=False)
class World:
    seed: int
    tables: dict  # name -> Table
    zone: str
    first_day: datetime.date
    days: int
    arms: list  # values of the variant column that most users have
    has_nan: bool

    def instant(self, day, hour=0):
        """A local time of the period as a definition writes it, and its microseconds."""
        local = datetime.datetime.combine(
            self.first_day + datetime.timedelta(days=day), datetime.time(hour))
        return local, local_micros(local, self.zone)


def local_micros(local, zone):
    """The instant of a local time. One that the clock shows twice is the first; the caller asks for
    none that it skips."""
    utc = local.replace(tzinfo=zoneinfo.ZoneInfo(zone), fold=0).astimezone(datetime.timezone.utc)
    since = utc.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def make(seed):
    """The world of a seed."""
    rng = random.Random(f"reports {seed}")
    zone = rng.choice(ZONES)
    first_day = datetime.date.fromisoformat(rng.choice(FIRST_DAYS))
    world = World(seed, {}, zone, first_day, rng.choice([1, 2, 4, 6, 9]),
                  rng.choice([["A", "B"], ["A", "B"], ["A", "B", "C"], [0, 1], [False, True]]),
                  rng.random() < 0.12)
    people = make_people(rng, world)
    world.tables["exposures"] = make_exposures(rng, world, people)
    world.tables["events"] = make_events(rng, world, people)
    world.tables["orders"] = make_orders(rng, world, people)
    world.tables["players"] = make_players(rng, world, people)
    world.tables["results"] = make_results(rng, world)
    for table in world.tables.values():
        split(rng, table)
    lay_out(rng, world)
    return world


@dataclasses.dataclass
class Person:
    key: object
    arm: object
    country: str
    shop: str
    level: float
    grain: int  # of times: hours make ties


def make_people(rng, world):
    count = rng.choices([0, 3, 8, 20, 60, 120, 250], [1, 2, 4, 15, 40, 28, 10])[0]
    as_number = rng.random() < 0.25
    shares = rng.choice([None, None, [6, 3, 1]])
    shops = rng.choice([3, 8, 25])
    people = []
    for number in range(count):
        key = number * 7 if as_number else rng.choice(["u", "u", "ü", "U-"]) + str(number)
        people.append(Person(
            key, rng.choices(world.arms, shares and shares[:len(world.arms)])[0],
            rng.choice(["DE", "DE", "FR", "US", "", None]), f"s{rng.randrange(shops)}",
            rng.expovariate(1), rng.choice([1, MINUTE, HOUR, 6 * HOUR])))
    if people and not as_number and rng.random() < 0.3:
        people[0].key = ""
    return people


def some_time(rng, world, person, low_days, high_days):
    """A time from so many days after the period's start; now and then on a border."""
    start, end = world.instant(0)[1], world.instant(world.days)[1]
    if rng.random() < 0.04:
        day = world.instant(rng.randrange(world.days))[1]
        return rng.choice([start, end, start - 1, end - 1, day])
    moment = start + rng.randrange(int(low_days * DAY), int(high_days * DAY))
    return moment - moment % person.grain


def make_exposures(rng, world, people):
    kind = {str: "text", bool: "boolean", int: "bigint"}[type(world.arms[0])]
    columns = {"user_id": user_type(people), "variant": kind, "experiment": "text",
               "ts": "timestamp", "country": "text", "device": "text", "city": "bigint",
               "shop": "text"}
    if rng.random() < 0.3:
        columns["ts"] = "timestamptz"
    crossing = rng.choice([0, 0, 0.02, 0.1])
    strange = rng.choice([0, 0, 0.03]) if kind != "boolean" else 0
    missing = rng.choice([0, 0, 0.03])
    cities = rng.choice([3, 19, 20, 21, 26])
    rows = []
    for person in people:
        if rng.random() < 0.08:
            continue  # has events only
        for number in range(rng.choice([1, 1, 1, 2, 4])):
            arm = person.arm
            if number and rng.random() < crossing:
                arm = rng.choice(world.arms)
            if rng.random() < strange:
                arm = rng.choice([None, "X" if kind == "text" else 9])
            row = {
                "user_id": None if rng.random() < missing / 2 else person.key,
                "variant": arm,
                "experiment": rng.choice(["one", "one", "two"]) if rng.random() > missing else None,
                "ts": some_time(rng, world, person, -0.5, world.days + 0.5),
                "country": person.country if rng.random() < 0.9 else rng.choice(["FR", None]),
                "device": rng.choice(["ios", "Ios", "web", None]),
                "city": rng.choice([None, *range(cities)]),
                "shop": person.shop if rng.random() < 0.95 else None,
            }
            if rng.random() < missing:
                row["ts"] = None
            rows += [row] * rng.choice([1, 1, 1, 1, 2])  # doubled by the client
    rng.shuffle(rows)
    return Table("exposures", columns, rows)


def make_results(rng, world):
    """Figures of arms that somebody else computed: per metric, arm and day, of all users so far."""
    columns = {"metric": "text", "variant": "text", "day": rng.choice(["timestamp", "bigint"]),
               "users": "bigint", "mean": "double", "spread": "double"}
    rows = []
    for metric in ("revenue", "paid"):
        for arm in ["A", "B", "C", "X"]:
            if rng.random() < 0.15:
                continue
            users = rng.choice([0, 1, 30, 400])
            for day in range(world.days):
                if rng.random() < 0.15:
                    continue  # the day before still holds
                users += rng.randrange(50)
                hits = rng.randrange(users + 1)
                moment = world.instant(day, 12)[1] if columns["day"] == "timestamp" else day
                rows.append({
                    "metric": metric, "variant": arm, "day": moment, "users": users,
                    "mean": hits / users if metric == "paid" and users else rng.gauss(5, 2),
                    "spread": rng.choice([0.0, 4.0, rng.uniform(1, 90)]),
                })
    rng.shuffle(rows)
    return Table("results", columns, rows)


def user_type(people):
    return "bigint" if people and isinstance(people[0].key, int) else "text"


def amount(rng, style, person):
    if style == "whole":
        return float(rng.randrange(20))
    if style == "cents":
        return rng.randrange(5000) / 100
    if style == "heavy":
        return rng.paretovariate(0.9) * person.level
    if style == "far":
        return 1e9 + rng.randrange(10)
    if style == "signed":
        return rng.gauss(0, 30)
    return 5.0


def around(rng, person, first):
    """A time near a first exposure, often after it, now and then on the border of a window."""
    if rng.random() < 0.15:
        return first + rng.choice([0, 0, -1, DAY, 2 * DAY, HOUR])
    when = first + rng.randrange(int(-2 * DAY), int(4 * DAY))
    return when - when % person.grain


def make_events(rng, world, people):
    columns = {"user_id": user_type(people), "ts": "timestamp", "event": "text", "amount": "double",
               "price": "decimal(12,2)", "n": "bigint", "item": "text", "flag": "boolean",
               "shop": "text"}
    if rng.random() < 0.3:
        columns["ts"] = "timestamptz"
    first = {}
    for row in world.tables["exposures"].rows:
        if row["ts"] is not None and row["user_id"] is not None:
            first[row["user_id"]] = min(row["ts"], first.get(row["user_id"], row["ts"]))
    style = rng.choice(["whole", "whole", "cents", "cents", "heavy", "far", "signed", "same"])
    missing = rng.choice([0, 0.05, 0.3])
    busy = rng.choice([2, 8, 8, 16])
    quiet = rng.choice([0.1, 0.4])
    effect = rng.choice([1, 1, 1.5, 3])  # of the second arm
    rows = []
    for person in people:
        if rng.random() < quiet:
            continue  # was exposed only
        is_better = person.arm == world.arms[1]
        for _ in range(int((rng.randrange(busy) + 1) * (effect if is_better else 1))):
            when = some_time(rng, world, person, -4, world.days + 2)
            if person.key in first and rng.random() < 0.7:
                when = around(rng, person, first[person.key])
            sum_of = amount(rng, style, person) * (effect if is_better else 1)
            if world.has_nan and rng.random() < 0.03:
                sum_of = rng.choice([math.nan, math.inf, -math.inf])
            row = {
                "user_id": None if rng.random() < 0.01 else person.key, "ts": when,
                "event": rng.choice(["view", "view", "cart", "pay", None]),
                "amount": sum_of,
                "price": decimal.Decimal(rng.randrange(-100, 3000)) / 100,
                "n": rng.choice([0, 1, 2, 3, 7, -4]),
                "item": rng.choice(["a1", "a2", "B", "b", "ü", ""]),
                "flag": rng.random() < 0.5,
                "shop": person.shop,
            }
            for name in ("amount", "price", "n", "item", "flag", "shop"):
                if rng.random() < missing:
                    row[name] = None
            if rng.random() < missing / 10:
                row["ts"] = None
            rows += [row] * rng.choice([1] * 9 + [2])
    if world.days > 2 and rng.random() < 0.3:
        # A day that a pipeline lost.
        day = rng.randrange(1, world.days - 1)
        begin, end = world.instant(day)[1], world.instant(day + 1)[1]
        rows = [row for row in rows if row["ts"] is None or not begin <= row["ts"] < end]
    rng.shuffle(rows)
    return Table("events", columns, rows)


def make_orders(rng, world, people):
    """A table that calls users and times otherwise, and has its users in another order."""
    columns = {"order_id": "bigint", "buyer": user_type(people), "paid_at": "timestamp",
               "total": "decimal(12,2)", "coupon": "text", "shop": "text"}
    rows = []
    for person in reversed(people):
        if rng.random() < 0.5:
            continue
        for _ in range(rng.choice([1, 1, 2, 5])):
            rows.append({
                "order_id": len(rows), "buyer": person.key,
                "paid_at": some_time(rng, world, person, -2, world.days + 1),
                "total": rng.choice([None, decimal.Decimal(rng.randrange(0, 9000)) / 100]),
                "coupon": rng.choice([None, "spring", "Spring", "10%"]), "shop": person.shop,
            })
    return Table("orders", columns, rows)


def make_players(rng, world, people):
    variant = world.tables["exposures"].columns["variant"]
    columns = {"user_id": user_type(people), "version": variant, "country": "text",
               "back": "boolean", "spent": "double", "games": "bigint", "at": "timestamp"}
    rows = []
    for person in people:
        if rng.random() < 0.1:
            continue
        rows.append({
            "user_id": person.key, "version": person.arm, "country": person.country,
            "back": rng.choice([True, False, None]),
            "spent": rng.choice([None, 0.0, rng.randrange(1000) / 8]),
            "games": rng.randrange(-2, 40),
            "at": some_time(rng, world, person, 0, world.days),
        })
    return Table("players", columns, rows)


def split(rng, table):
    loads = rng.choice([1, 1, 2, 3])
    order = rng.random()
    user, time = NAMES[table.name]
    if order < 0.3:
        table.rows.sort(key=lambda row: str(row[user]))
    elif order < 0.5:
        table.rows.sort(key=lambda row: row[time] or 0)
    table.cuts = sorted(rng.randint(0, len(table.rows)) for _ in range(loads - 1))


def lay_out(rng, world):
    """Ids, partitions, order and indexes of the tables."""
    with_ids = rng.random() < 0.6
    for table in world.tables.values():
        options = table.options
        schema = ", ".join(f"{name} {kind}" for name, kind in table.columns.items())
        options += ["--schema", schema]
        user, time = NAMES[table.name]
        if with_ids and user != "variant" and table.columns[user] == "text" and rng.random() < 0.9:
            options += ["--id-domain", f"{user}=users"]
        split_by = {"exposures": ["experiment", "device"], "events": ["event", "flag"]}
        if table.name in split_by and rng.random() < 0.25:
            options += ["--partition-by", rng.choice(split_by[table.name])]
        if rng.random() < 0.5:
            options += ["--cluster-by", rng.choice([user, f"{user},{time}", time])]
        if rng.random() < 0.3:
            options += ["--index", user]
        if table.name == "events" and "--partition-by" not in options and rng.random() < 0.2:
            options += ["--index", "event"]
