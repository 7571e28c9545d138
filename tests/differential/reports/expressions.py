"""SQL expressions of definitions, each with what it means for a row.

A row is a dict; NULL is None. Conditions are True, False or None, as in SQL.

Not here: any other SQL. An expression is in this list only if its meaning is plain.
"""
import dataclasses
import functools
import math


@dataclasses.dataclass(frozen=True)
class Expression:
    sql: str
    of: object  # (row, world) -> value


def column(name):
    return Expression(name, lambda row, world: row[name])


def number(sql, of):
    """A number made of a row's numbers; NULL if one of them is."""
    def value(row, world):
        try:
            return of(row)
        except TypeError:  # None + 1
            return None
    return Expression(sql, value)


def _known(test):
    """A condition on values that are all there; NULL otherwise."""
    def condition(*values):
        return None if any(value is None for value in values) else test(*values)
    return condition


# NaN is above every number, as in PostgreSQL.
more = _known(lambda a, b: True if math.isnan(a) else a > b)
same = _known(lambda a, b: a == b)
other = _known(lambda a, b: a != b)


def either(a, b):
    return True if a or b else None if a is None or b is None else False


def both(a, b):
    return False if a is False or b is False else None if a is None or b is None else True


def negated(a):
    return None if a is None else not a


def of_players(country):
    @functools.lru_cache(1)
    def found(world):
        players = world.tables["players"].rows
        return {row["user_id"] for row in players if row["country"] == country}

    return Expression(
        f"user_id IN (SELECT user_id FROM players WHERE country = '{country}')",
        lambda row, world: None if row["user_id"] is None else row["user_id"] in found(world))


EVENT_FILTERS = [
    Expression("event = 'pay'", lambda r, w: same(r["event"], "pay")),
    Expression("event = 'view'", lambda r, w: same(r["event"], "view")),
    Expression("event <> 'view'", lambda r, w: other(r["event"], "view")),
    Expression("event IN ('view', 'cart')",
               lambda r, w: None if r["event"] is None else r["event"] in ("view", "cart")),
    Expression("event NOT IN ('view', 'cart')",
               lambda r, w: None if r["event"] is None else r["event"] not in ("view", "cart")),
    Expression("amount > 10", lambda r, w: more(r["amount"], 10)),
    Expression("amount IS NULL", lambda r, w: r["amount"] is None),
    Expression("item IS NOT NULL AND event = 'pay'",
               lambda r, w: both(r["item"] is not None, same(r["event"], "pay"))),
    Expression("n = 1 OR event = 'cart'",
               lambda r, w: either(same(r["n"], 1), same(r["event"], "cart"))),
    Expression("price >= 5", lambda r, w: _known(lambda v: v >= 5)(r["price"])),
    Expression("flag", lambda r, w: r["flag"]),
    Expression("NOT flag", lambda r, w: negated(r["flag"])),
    Expression("item LIKE 'a%'", lambda r, w: _known(lambda v: v.startswith("a"))(r["item"])),
    Expression("lower(item) = 'b'", lambda r, w: same(r["item"] and r["item"].lower(), "b")),
]
JOURNEY = [
    Expression(f"event = '{name}'", lambda r, w, name=name: same(r["event"], name))
    for name in ("view", "cart", "pay")
]
EVENT_VALUES = [
    column("amount"), column("amount"), column("amount"), column("price"), column("n"),
    column("flag"),
    number("1", lambda r: 1), number("2.5", lambda r: 2.5),
    number("amount * 2", lambda r: r["amount"] * 2),
    number("-amount", lambda r: -r["amount"]),
    number("amount + n", lambda r: r["amount"] + r["n"]),
    number("price + price", lambda r: r["price"] + r["price"]),
    number("abs(n)", lambda r: abs(r["n"])),
    Expression("coalesce(amount, 1)", lambda r, w: 1.0 if r["amount"] is None else r["amount"]),
    Expression("CASE WHEN event = 'pay' THEN amount ELSE 0 END",
               lambda r, w: r["amount"] if r["event"] == "pay" else 0),
]
EVENT_THINGS = [column("item"), column("item"), column("event"), column("n"), column("price"),
                Expression("lower(item)", lambda r, w: r["item"] and r["item"].lower())]
def of_metric(name):
    return Expression(f"metric = '{name}'", lambda row, world: row["metric"] == name)


def last_day(world):
    """Of figures: one row per arm and metric at most."""
    number = world.days - 1
    if world.tables["results"].columns["day"] == "bigint":
        return Expression(f"day = {number}", lambda row, w: row["day"] == number)
    micros = world.instant(number, 12)[1]
    return Expression(f"CAST(day AS BIGINT) = {micros}", lambda row, w: row["day"] == micros)


ORDER_FILTERS = [
    Expression("total > 20", lambda r, w: _known(lambda v: v > 20)(r["total"])),
    Expression("coupon IS NULL", lambda r, w: r["coupon"] is None),
    Expression("lower(coupon) = 'spring'",
               lambda r, w: same(r["coupon"] and r["coupon"].lower(), "spring")),
]
ORDER_VALUES = [column("total"), number("1", lambda r: 1),
                Expression("coalesce(total, 0)",
                           lambda r, w: 0 if r["total"] is None else r["total"])]
ORDER_THINGS = [column("coupon"), column("order_id"), column("total")]
PLAYER_FILTERS = [
    Expression("games > 3", lambda r, w: r["games"] > 3),
    Expression("back", lambda r, w: r["back"]),
    Expression("spent IS NOT NULL", lambda r, w: r["spent"] is not None),
]
PLAYER_VALUES = [column("spent"), column("games"), column("back"), number("1", lambda r: 1),
                 number("spent + games", lambda r: r["spent"] + r["games"])]
PLAYER_THINGS = [column("country"), column("games")]
EXPOSURE_FILTERS = [
    Expression("experiment = 'one'", lambda r, w: same(r["experiment"], "one")),
    Expression("experiment <> 'two'", lambda r, w: other(r["experiment"], "two")),
    Expression("country IS NOT NULL", lambda r, w: r["country"] is not None),
    Expression("city < 15", lambda r, w: _known(lambda v: v < 15)(r["city"])),
    of_players("FR"),
]
# What somebody mistyped: no row passes it.
NO_EVENT = Expression("event = 'payed'", lambda r, w: same(r["event"], "payed"))
NO_EXPOSURE = Expression("experiment = 'tow'", lambda r, w: same(r["experiment"], "tow"))
# What is cast to text is text, a whole number or a boolean, of which there is one spelling.
DIMENSIONS = {
    "country": [None, column("country")],
    "device": [None, Expression("lower(device)", lambda r, w: r["device"] and r["device"].lower())],
    "city": [None, None,
             Expression("city > 9", lambda r, w: _known(lambda v: v > 9)(r["city"]))],
}


def as_text(value):
    """A value cast to text, NULL by its name."""
    if value is None:
        return "(null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
