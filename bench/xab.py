"""The XAB data set on disk, the stores made of it, and the statements over it.

XAB is the test data of an A/B-testing shop: `events` and `exposures`, one Parquet file a day, and
a catalogue `products`. `uplake generate` writes it and `params.json`, which names the days, one
experiment, one user and a list of shops for the statements to ask about.
"""

import json
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# How a user of uplake would lay the tables out: by day, then by what the questions ask for first.
LAYOUT = {
    "events": ["--partition-by", "dt", "--cluster-by", "user_id,ts", "--id-domain", "user_id=users"],
    "exposures": ["--partition-by", "dt", "--cluster-by", "exp_id,user_id", "--id-domain", "user_id=users"],
    "products": ["--cluster-by", "city_id,geohash,poi_id", "--index", "poi_id"],
}
TABLES = list(LAYOUT)

# The same for ClickHouse.
CLICKHOUSE = {
    "events": "(dt Date, ts DateTime64(3), user_id String, event LowCardinality(String), page String, item_id Int64,"
    " value Float64, duration_ms Int32, city LowCardinality(String), os LowCardinality(String),"
    " app_version LowCardinality(String), channel LowCardinality(String))"
    " ENGINE = MergeTree PARTITION BY dt ORDER BY (user_id, ts)",
    "exposures": "(dt Date, ts DateTime64(3), user_id String, exp_id Int32, variant Int32, city LowCardinality(String),"
    " os LowCardinality(String), app_version LowCardinality(String))"
    " ENGINE = MergeTree PARTITION BY dt ORDER BY (exp_id, user_id)",
    "products": "(city_id Int32, geohash LowCardinality(String), poi_id Int64, spu_name String, price Float64,"
    " sales Int32) ENGINE = MergeTree ORDER BY (city_id, geohash, poi_id)",
}

# Statements over a range of days, and those that always read the same rows.
RANGED = ["q1", "q2", "q3", "q4", "q5", "q6", "q7", "q9"]
FIXED = ["q5r", "q8"]
QUERIES = ["q1", "q2", "q3", "q4", "q5", "q5r", "q6", "q7", "q8", "q9"]


@dataclass
class DataSet:
    folder: Path

    def __post_init__(self):
        self.folder = Path(self.folder).resolve()
        described = self.folder / "params.json"
        if not described.is_file():
            raise SystemExit(f"{described} is missing; make the data with `uplake generate {self.folder}`")
        self.about = json.loads(described.read_text())
        self.days = self.about["days"]

    def files(self, table):
        return sorted((self.folder / table).glob("*.parquet"))

    def pattern(self, table):
        return f"{self.folder / table}/*.parquet"

    def summary(self):
        rows = ", ".join(f"{count:,} {table}" for table, count in self.about["rows"].items())
        return f"XAB, {len(self.days)} days, seed {self.about['args']['seed']}: {rows}"

    def statement(self, query, days, engine=None):
        """The SQL of `query` over the last `days` days, in the engine's own words where it has some."""
        last = len(self.days) - 1
        values = {
            "a": self.days[last - days + 1],
            "b": self.days[last],
            "d0": self.days[max(0, last - 7)],
            "d1": self.days[max(0, last - 6)],
            "d7": self.days[last],
            "exp": self.about["exp"],
            "user": self.about["point_user"],
            "ids": ",".join(map(str, self.about["poi_ids"])),
        }
        own = HERE / "queries" / f"{query}.{engine}.sql"
        file = own if own.is_file() else HERE / "queries" / f"{query}.sql"
        lines = file.read_text(encoding="utf-8").splitlines()
        # Without its comments: a `;` in one would end the statement for a simple reader of files.
        text = "\n".join(line for line in lines if not line.startswith("--"))
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        return text.strip().rstrip(";")
