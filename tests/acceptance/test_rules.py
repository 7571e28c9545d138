"""Rules of the optimizer that can be left out change no answer."""

import json

import support

STATEMENTS = [
    "SELECT count(DISTINCT user_id) AS users, count(DISTINCT event) AS events, sum(n) AS n FROM e",
    "SELECT event, count(*) AS n, count(DISTINCT user_id) AS users FROM e GROUP BY event ORDER BY event",
    "SELECT user_id, sum(n) AS s FROM e GROUP BY user_id ORDER BY s DESC, user_id LIMIT 7",
    "SELECT n FROM e WHERE user_id IN ('u3', 'u11', 'nobody') ORDER BY n",
    """SELECT first.arm, count(*) AS n, sum(CASE WHEN e.event = 'pay' THEN e.n ELSE 0 END) AS s
       FROM e JOIN (SELECT user_id, min(n) % 2 AS arm FROM e GROUP BY user_id) first ON e.user_id = first.user_id
       GROUP BY first.arm ORDER BY 1""",
    """SELECT user_id, window_funnel(INTERVAL '1 hour', ts, event = 'see', event = 'pay') AS reached
       FROM e GROUP BY user_id ORDER BY user_id""",
    """SELECT user_id, n FROM (SELECT user_id, n, row_number() OVER (PARTITION BY user_id ORDER BY n DESC) AS place FROM e)
       WHERE place <= 2 ORDER BY user_id, n""",
    """SELECT e.n FROM e JOIN (SELECT user_id, max(n) AS last FROM e GROUP BY user_id) l ON e.user_id = l.user_id
       WHERE l.last IN (SELECT n FROM e WHERE event = 'pay') ORDER BY n""",
    "SELECT min(ts) AS first, max(ts) AS last, max(event) AS event FROM e",
]


def _lake(lake, folder):
    rows = folder / "e.csv"
    events = ["see", "click", "pay"]
    text = "user_id,ts,event,n\n" + "".join(
        f"u{n % 37},2026-11-{1 + n // 700:02} {n % 24:02}:{n % 60:02}:00,{events[n * n % 3]},{n}\n" for n in range(4000)
    )
    rows.write_text(text)
    lake.load("e", rows, "--id-domain", "user_id=users", "--cluster-by", "user_id,ts", "--index", "user_id")


def each_rule_that_is_left_out_leaves_the_answers(lake, folder):
    _lake(lake, folder)
    asked = ";\n".join(2 * STATEMENTS) + ";\n"
    ask = lambda before: lake.run("sql", "--format", "json", "-f", "-", stdin=(before + asked).encode()).out
    expected = ask("")
    assert len(expected.splitlines()) > 100
    refused = lake.refused("sql", "-c", "SET uplake.disabled_rules = 'nothing'", says=["`nothing`", "count_ids"])
    rules = refused.err.strip().rsplit("those are ", 1)[1].split(", ")
    assert len(rules) > 10
    for rule in [*rules, ",".join(rules), "no_index"]:
        assert ask(f"SET uplake.disabled_rules = '{rule}';\n") == expected, rule


def a_rule_that_is_left_out_changes_the_plan_until_it_is_back(lake, folder):
    _lake(lake, folder)
    explained = lambda rules: lake.run(
        "sql", "--format", "json", "-f", "-", stdin=f"SET uplake.disabled_rules = '{rules}';\nEXPLAIN {STATEMENTS[1]};\n".encode()
    ).out
    assert "ArrayAggregateExec" in explained("") and "ArrayAggregateExec" not in explained("array_aggregates")
    statements = f"SET uplake.disabled_rules = 'array_aggregates';\nSET uplake.disabled_rules = '';\nEXPLAIN {STATEMENTS[1]};\n".encode()
    assert "ArrayAggregateExec" in lake.run("sql", "--format", "json", "-f", "-", stdin=statements).out


def explain_names_the_rules_that_changed_the_plan(lake, folder):
    _lake(lake, folder)

    def rules(statement, disabled=""):
        text = f"SET uplake.disabled_rules = '{disabled}';\nEXPLAIN {statement};\n".encode()
        rows = [json.loads(line) for line in lake.run("sql", "--format", "json", "-f", "-", stdin=text).out.splitlines()]
        return [row["plan"].split(", ") for row in rows if row["plan_type"] == "rules"][0]

    named = rules(STATEMENTS[0])
    assert "count_ids" in named and "EnsureRequirements" in named and "top_candidates" not in named
    assert "top_candidates" in rules(STATEMENTS[2]) and "filter_ids" in rules(STATEMENTS[3])
    assert "array_aggregates" in rules(STATEMENTS[1]) and "array_aggregates" not in rules(STATEMENTS[1], "no_index")
    # A process without indexes has left out the same.
    left_out = lake.run("sql", "--no-index", "--format", "json", "-c", "SHOW uplake.disabled_rules").out
    assert "array_aggregates" in left_out and "split_distinct" not in left_out


def every_rule_that_can_be_left_out_is_described():
    described = (support.ROOT / "docs" / "optimizer.md").read_text()
    pipeline = (support.ROOT / "crates" / "engine" / "src" / "optimizer" / "pipeline.rs").read_text()
    names = pipeline.split("const SPEED", 1)[1].split("];", 1)[0].split('"')[1::2]
    assert len(names) > 10 and all(f"| `{name}` |" in described for name in names), names
