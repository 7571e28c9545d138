"""Data made up for tests, for whoever has not the real data (real_data.py).

    python tests/made_up.py FOLDER

writes files with the same names, columns, types and oddities
(names with quotes, commas and backslashes, `\\N` for NULL, prices with halves, spaces at the ends
of text), a tenth of the rows. One seed, so the files are the same everywhere.

Every query of tests/duckdb must find something: what one asks for by name (a vendor, a country, a
flight from Keflavik) is put in on purpose. Values mean nothing, and no expected answer is kept of
them.
"""
import datetime as dt
import gzip
import pathlib
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20_261_123

# Country and how much of a shop's or an airline's business is there.
SHOP_COUNTRIES = {
    "United Kingdom": 600, "EIRE": 70, "Germany": 60, "France": 60, "Netherlands": 40, "Spain": 40,
    "Switzerland": 20, "Portugal": 15, "Belgium": 15, "Channel Islands": 10, "Italy": 10,
    "Poland": 6, "Japan": 6, "USA": 6, "Hong Kong": 4, "Malta": 4, "Finland": 4, "Thailand": 3,
    "Lebanon": 2, "Nigeria": 2,
}
FLIGHT_COUNTRIES = {
    "United States": 200, "Germany": 90, "United Kingdom": 90, "Spain": 70, "Canada": 60,
    "Brazil": 60, "Russia": 60, "Australia": 50, "Papua New Guinea": 40, "New Zealand": 30,
    "Peru": 30, "Japan": 30, "Argentina": 30, "Nepal": 20, "Kenya": 20, "Kazakhstan": 15,
    "Fiji": 12, "Iceland": 12,
    "Cote d'Ivoire": 8, "Côte d'Ivoire": 4, "Jordan": 6, "Jamaica": 6, "Albania": 5, "Bhutan": 4,
    "Malta": 3,
}


def pick(rng, weights):
    return rng.choices(list(weights), weights.values())[0]


def reviews(rng, rows=60_000):
    start = dt.datetime(2006, 3, 1)
    made = []
    for _ in range(rows):
        # Few vendors have most reviews; some have bad ones only.
        vendor = int(18_600 * rng.random() ** 4)
        good = 2 + (vendor % 5) * 0.8
        rating = max(0, min(5, round(rng.gauss(good, 1))))
        moment = start + dt.timedelta(minutes=rng.randrange(3 * 365 * 24 * 60))
        made.append((int(60_000 * rng.random() ** 2), vendor, rating, f"{moment:%Y-%m-%d %H:%M}"))
    # Two vendors with reviewers in common.
    shared = [(reviewer, 1 + reviewer % 5, "2006-04-07 17:08") for reviewer in range(40)]
    made += [(reviewer, vendor, *rest) for reviewer, *rest in shared for vendor in (17, 26)]
    names = ["reviewerId", "vendorId", "rating", "date"]
    return columns(made, names, [pa.int64()] * 3 + [pa.string()])


def retail(rng, rows=50_000):
    words = ["LIGHTS", "Light bulb", "CHRISTMAS", "T-LIGHT", "T LIGHT", "HEART", "BOWL", 'FRAME 7"']
    colours = ["PINK", " WHITE", "RED", "blue", "GREEN", "silver", ""]
    codes = ["22423", "POST", "M", "D", "C2", "gift_0001_20"]
    codes += [str(rng.randrange(20_000, 24_000)) for _ in range(400)]
    codes += [f"{85_000 + n}{rng.choice(['', 'A', 'B', 'c'])}" for n in range(150)]
    goods = {}
    for code in dict.fromkeys(codes):
        parts = [rng.choice(of) for of in (colours, words, words)]
        text = " ".join(parts) + rng.choice(["", " "])
        description = rng.choice([text, text, text, "POSTAGE", "Damaged", None])
        goods[code] = (description, rng.randrange(5, 1500) / 100)
    customers = {
        country: [float(12_346 + rng.randrange(6_000)) for _ in range(1 + weight)]
        for country, weight in SHOP_COUNTRIES.items()
    }
    made, invoice, moment = [], 489_434, dt.datetime(2009, 12, 1, 7, 45)
    while len(made) < rows:
        invoice += 1
        moment += dt.timedelta(minutes=rng.randrange(1, 2 * rows // 520))
        country = pick(rng, SHOP_COUNTRIES)
        customer = rng.choice(customers[country]) if rng.random() > 0.2 else None
        for _ in range(1 + int(30 * rng.random() ** 2)):
            code = rng.choice(list(goods)) if rng.random() > 0.03 else "22423"
            description, price = goods[code]
            quantity = rng.choice([1, 1, 2, 3, 6, 12, 24, 48, 144])
            if rng.random() < 0.001:
                quantity *= 1000
            if rng.random() < 0.002:
                price *= 1000
            who = (price, customer, country)
            made.append((str(invoice), code, description, quantity, str(moment), *who))
            if rng.random() < 0.03 and code.isdigit():
                back = str(moment + dt.timedelta(minutes=5))
                made.append((f"C{invoice}", code, description, -quantity, back, *who))
    names = ["Invoice", "StockCode", "Description", "Quantity", "InvoiceDate", "Price"]
    text, number = pa.string(), pa.float64()
    kinds = [text, text, text, pa.int64(), text, number, number, text]
    return columns(made, [*names, "Customer ID", "Country"], kinds)


def asos(rng, experiments=40):
    made = []
    for number in range(experiments):
        experiment = f"{number * 6 + 3:02x}{rng.randrange(1 << 16):04x}"
        for variant in range(1, 2 + number % 3):
            for metric in (1, 2, 3, 4):
                users = rng.randrange(500, 20_000)
                mean = rng.uniform(0.01, 2) if metric != 3 else 0.0
                for step in range(1, 20 + number):
                    arms = [float(users * step + rng.randrange(200)) for _ in "ct"]
                    means = [mean * (1 + rng.gauss(0, 0.01)) for _ in "ct"]
                    known = metric != 4 or step > 3
                    spread = [abs(m) * (1 + rng.random()) if known else None for m in means]
                    made.append((experiment, variant, metric, step * 0.5, *arms, *means, *spread))
    names = ["experiment_id", "variant_id", "metric_id", "time_since_start"]
    names += [f"{what}_{arm}" for what in ("count", "mean", "variance") for arm in "ct"]
    return columns(made, names, [pa.string(), pa.int64(), pa.int64()] + [pa.float64()] * 7)


def users_and_latencies(rng, users=1_200):
    names = ["user_id", "variant", "country", "day", "converted", "orders", "sessions", "revenue"]
    people = [[*names, "pre_orders", "pre_sessions", "pre_revenue"]]
    latencies = [["user_id", "variant", "latency_ms"]]
    for user in range(users):
        variant, country = rng.choice("ABC"), rng.choice(["BR", "DE", "FR", "JP", "US"])
        taste = rng.random()
        orders, before = int(3 * taste * rng.random()), int(3 * taste * rng.random())
        spent = [round(sum(rng.expovariate(0.05) for _ in range(n)), 2) for n in (orders, before)]
        sessions, earlier = orders + rng.randrange(1, 8), before + rng.randrange(1, 6)
        made = [user, variant, country, rng.randrange(14), min(orders, 1), orders, sessions]
        people.append([*made, spent[0], before, earlier, spent[1]])
        waits = [int(rng.lognormvariate(5.5, 0.5)) for _ in range(rng.randrange(13))]
        latencies += [[user, variant, wait] for wait in waits]
    return people, latencies


def airports(rng, rows=2_500):
    """Lines of airports; the first is Keflavik."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    odd = ['The "Old" Field', "O'Hare", "Bay, South", "Back\\slash", "Ilha d'Água", "Žilina"]
    made = []
    for number, place in enumerate(rng.sample(range(1, 14_000), rows)):
        first = number == 0
        country = "Iceland" if first else pick(rng, FLIGHT_COUNTRIES)
        code = "".join(letters[number // step % 26] for step in (676, 26, 1))
        name = rng.choice(odd) if rng.random() < 0.05 else f"{country} {number}"
        city = name if rng.random() > 0.02 else None
        iata = "KEF" if first else code if rng.random() > 0.2 else None
        icao = f"X{code}" if rng.random() > 0.2 else None
        where = [round(rng.uniform(-60, 75), 6), round(rng.uniform(-179, 179), 9)]
        high = rng.randrange(-200, 3_000) if rng.random() > 0.2 else rng.randrange(3_000, 14_000)
        zone = rng.randrange(-10, 12) if rng.random() > 0.1 else None
        zone_name = None if zone is None else f"Zone/{country}"
        rest = [zone, rng.choice("EASONU"), zone_name, "airport", "made up"]
        made.append([place, f"{name} Airport", city, country, iata, icao, *where, high, *rest])
    return made


def routes(rng, places, rows=12_000):
    """Lines of flights between `places`, most of them there and back."""
    codes = {place: iata or icao or "ZZZ" for place, _, _, _, iata, icao, *_ in places}
    served, keflavik = {}, places[0][0]
    for place, _, _, country, *_ in places[: len(places) * 2 // 3]:
        served.setdefault(country, []).append(place)
    airlines = {"FI": 60, "BA": 600, "LH": 600, "2B": 100, "AA": 900, "QF": 300, None: 20}
    made, seen = [], set()
    while len(made) < rows:
        airline = pick(rng, airlines)
        source, target = (rng.choice(served[pick(rng, FLIGHT_COUNTRIES)]) for _ in range(2))
        if airline == "FI" and rng.random() < 0.7:
            source = keflavik
        there_and_back = [(source, target), (target, source)]
        for flight in there_and_back if rng.random() < 0.7 else rng.sample(there_and_back, 1):
            if source == target or (airline, flight) in seen:
                continue
            seen.add((airline, flight))
            ends = [(codes[end], end if rng.random() > 0.02 else None) for end in flight]
            planes = rng.sample(["319", "320", "321", "738", "744", "77W", "CR2"], rng.randrange(4))
            shared, stops = rng.choice(["", "", "", "Y"]), int(rng.random() < 0.01)
            number = 100 + ord(airline[0]) if airline else None
            made.append([airline, number, *ends[0], *ends[1], shared, stops, " ".join(planes)])
    return made


def logs(rng, lines=6_000):
    agents = [
        "Mozilla/5.0 (X11; Linux x86_64; rv:27.0) Gecko/20100101 Firefox/27.0",
        "Mozilla/5.0 (Macintosh) AppleWebKit/537.36 Chrome/32.0.1700.77 Safari/537.36",
        "Mozilla/4.0 (compatible; MSIE 8.0)",
        "Googlebot/2.1 (a robot)",
        "-",
    ]
    paths = [
        "/presentations/logstash-2013/images/kibana-{}.png", "/presentations/logstash-2013/{}",
        "/favicon.ico", "/blog/", "/a%20file-{}.txt", "/projects/xdotool/", "/blog/tags/{}",
        "/?page={}",
    ]
    hosts = ["83.149.9.216", "9x.example"]
    hosts += [".".join(str(rng.randrange(1, 256)) for _ in range(4)) for _ in range(300)]
    moment, made = dt.datetime(2015, 5, 17, 10, 5, 3), []
    for _ in range(lines):
        moment += dt.timedelta(seconds=rng.randrange(60))
        path = rng.choice(paths).format(rng.randrange(100))
        verb, status = rng.choice(["GET"] * 9 + ["POST"]), rng.choice([200] * 8 + [304, 404])
        size = rng.randrange(200_000) if status == 200 else "-"
        host = hosts[int(len(hosts) * rng.random() ** 2)]
        asked = f'"{verb} {path} HTTP/1.{rng.randrange(2)}" {status} {size}'
        when = f"{moment:%d/%b/%Y:%H:%M:%S} +0000"
        made.append(f'{host} - - [{when}] {asked} "-" "{rng.choice(agents)}"')
    return made


def columns(rows, names, kinds):
    found = zip(names, kinds, zip(*rows))
    return pa.table({name: pa.array(values, kind) for name, kind, values in found})


def write_csv(path, rows, quoted=False, null=""):
    """Lines of values. Text is in quotes if `quoted`, NULL never is."""
    def spelled(value):
        if value is None:
            return null
        if quoted and isinstance(value, str):
            return '"' + value.replace('"', '""') + '"'
        return str(value)

    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as out:
        out.writelines(",".join(map(spelled, row)) + "\n" for row in rows)


def write(folder):
    """All files below `folder`."""
    folder = pathlib.Path(folder)
    (folder / "golden" / "inputs").mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    pq.write_table(reviews(rng), folder / "anonreviews.parquet")
    pq.write_table(retail(rng), folder / "online_retail_II_2009_2010.parquet")
    pq.write_table(asos(rng), folder / "asos_digital_experiments.parquet")
    users, latencies = users_and_latencies(rng)
    write_csv(folder / "golden/inputs/users.csv", users)
    write_csv(folder / "golden/inputs/events.csv", latencies)
    places = airports(rng)
    write_csv(folder / "airports.dat.gz", places, quoted=True, null="\\N")
    write_csv(folder / "routes.dat.gz", routes(rng, places), null="\\N")
    with gzip.open(folder / "apache_logs.gz", "wt", encoding="utf-8") as out:
        out.writelines(line + "\n" for line in logs(rng))


if __name__ == "__main__":
    write(sys.argv[1])
