// How the report page behaves in Chromium. Run: make browser-test
//
// What the page says is tested as text by crates/experiment/tests/pages.rs. Here: switches show
// the engine's numbers, drawings stand where they say, keys reach everything, nothing is fetched.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Browser, find } from "./browser.mjs";

const command = find();
if (!command) {
  console.error("SKIPPED: no Chromium. Install it (apt-get install chromium) or set CHROMIUM=/its/path");
  process.exit(0);
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "uplake-page-"));
/** Writes the example's page, with more lines in its definition or of so many metrics, and returns its address. */
function make(name, more = "", ...metrics) {
  const file = join(folder, name);
  const options = ["--quiet", "--release", "--package", "uplake-experiment", "--example", "report"];
  const args = ["run", ...options, "--", "html", more, ...metrics];
  writeFileSync(file, execFileSync("cargo", args, { cwd: root, maxBuffer: 64 << 20 }));
  return pathToFileURL(file).href;
}
const rich = make("report.html");
const bayesian = make("bayesian.html", 'inference = "bayesian"');
const delta = make("delta.html", 'lift = "delta"');
const many = make("many.html", "planned_users = 50000", "200");
const browser = new Browser(command);
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Runs `check` on a page of its own; afterwards nothing may have been fetched or complained of. */
function onPage(name, options, check) {
  const { url = rich } = options;
  test(name, async () => {
    const page = await browser.open(url, options);
    await check(page);
    assert.deepEqual(page.requests, [url], "the page itself and nothing else");
    assert.deepEqual(page.complaints, []);
    await page.close();
  });
}

/** Chooses in a switch as a click does. */
const choose = (page, name, value) =>
  page.run((name, value) => document.querySelector(`[name=${name}][value="${value}"]`).click(), name, value);

/** What each row of the scorecard shows and draws. */
const rows = (page) =>
  page.run(() =>
    [...document.querySelectorAll("#scores tbody[data-m]")].flatMap((body) =>
      [...body.rows].map((row, index) => {
        const text = (name) => row.querySelector(`.${name}`)?.innerText.replace(/\s+/g, " ").trim();
        const svg = row.querySelector(".g svg");
        const table = Number(document.getElementById("scores").dataset.reach);
        const path = svg?.querySelector("path:not([class])").getAttribute("d");
        return {
          metric: Number(body.dataset.m), index, call: row.className, effect: text("e"), p: text("p"),
          arm: text("a"), value: text("v"), control: text("c"),
          claims: svg && svg.dataset.ci.split(" ").map(Number),
          reach: svg && Number(svg.dataset.reach ?? table),
          drawn: svg && [
            Number(path.match(/^M([\d.]+)/)[1]),
            Number(svg.querySelector("circle")?.getAttribute("cx") ?? NaN),
            Number(path.match(/H([\d.]+)/)[1]),
          ],
        };
      })));

/** The embedded numbers for a choice, read here on their own and not by the page's script. */
const embedded = (page, { baseline, cuped, look, scale }) =>
  page.run((baseline, cuped, look, scale) => {
    const { views } = JSON.parse(document.getElementById("views").textContent);
    const users = [...document.querySelectorAll("header .arms li")]
      .map((arm) => Number(arm.innerText.match(/([\d,]+) users/)[1].replaceAll(",", "")))
      .reduce((sum, users) => sum + users, 0);
    const { shapes, words, value } = JSON.parse(document.getElementById("report").textContent);
    const unpack = (v) => {
      if (!Array.isArray(v)) return v;
      if (v[0] === -2) return words[v[1]];
      const rest = v.slice(1).map(unpack);
      return v[0] < 0 ? rest : Object.fromEntries(shapes[v[0]].map((key, i) => [key, rest[i]]));
    };
    const { metrics } = unpack(value);
    /** A comparison of which one look, `1 - own`, stands beside the report's own. */
    const completed = (metric) => (comparison, index) => {
      if (comparison.length > 5 || comparison.length === 2) return comparison;
      const [own, relativeWidth, absoluteWidth, other] = comparison;
      const { relative, absolute, impact, scale, p_adjusted: adjusted, call } = metrics[metric].comparisons[index];
      const both = ({ value, low, high }, width) => {
        const widths = [[value - low, high - value], width];
        return [value, ...(own ? widths.reverse() : widths)];
      };
      const calls = ["better", "worse", "inconclusive", "unavailable", "untrusted"];
      const { p } = scale === "relative" ? relative : absolute;
      const looks = [[p, adjusted, calls.indexOf(call) + (scale === "absolute" ? 8 : 0)], other];
      const times = impact && impact.high / absolute.high;
      return [
        both(relative, relativeWidth), both(absolute, absoluteWidth), times, null,
        ...(own ? looks.reverse() : looks),
      ];
    };
    const rowOf = (b, c, metric) => {
      const found = (c) => views.find((view) => view.b === b && view.c === c).m[metric];
      return (found(c) || found(1)).map(b === 0 ? completed(metric) : (it) => it);
    };
    const at = (baseline, arm) => (arm < baseline ? arm : arm - 1);
    return views[0].m.map((_, metric) =>
      rowOf(baseline, cuped, metric).map((comparison, index) => {
        const other = () => {
          const arm = index < baseline ? index : index + 1;
          return rowOf(arm, cuped, metric)[at(arm, baseline)];
        };
        // Of what is the other way round but for its looks, p may be the same.
        const isShort = comparison.length === 2;
        const [relative, absolute, impact, , ...looks] =
          isShort ? [0, 0, other()[2], null, ...comparison] : comparison;
        const call = looks[look === "any" ? 1 : 0][isShort && looks[look === "any" ? 1 : 0].length === 2 ? 1 : 2];
        const isRelative = scale === "default" && call < 8;
        const own = isRelative ? relative : absolute;
        /** Low, value and high of an effect of `views`. */
        const ends = ([value, ...widths]) => {
          const width = widths[look === "any" ? 1 : 0];
          const [down, up] = Array.isArray(width) ? width : [width, width];
          return [value - down, value, value + up];
        };
        const otherWayRound = () => {
          const [lift, difference] = other();
          const turn = isRelative ? (v) => 1 / (1 + v) - 1 : (v) => -v;
          return ends(isRelative ? lift : difference).map(turn).reverse();
        };
        if (scale === "impact" && impact === null) return { none: true };
        const times = scale === "impact" ? (impact === 1 ? users : impact) : 1;
        const claims = own === 0 ? otherWayRound() : ends(own);
        return { call: call % 8, claims: claims.map((claim) => claim * times) };
      }));
  }, baseline, cuped, look, scale);

const near = (read, own, room, words) =>
  assert.ok(Math.abs(read - own) <= room, `${words}: ${read} for ${own}`);

/** Every row claims the embedded numbers and draws what it claims. */
async function checkRows(page, choice) {
  const expected = await embedded(page, choice);
  const shown = await rows(page);
  assert.equal(shown.length, expected.flat().length);
  for (const row of shown) {
    const own = expected[row.metric][row.index];
    const words = `${JSON.stringify(choice)}, metric ${row.metric}, row ${row.index}`;
    if (own.none) {
      assert.equal(row.effect, "–", words);
      continue;
    }
    assert.equal(row.call, ["better", "worse", "open", "none", "untrusted"][own.call], words);
    const size = Math.max(...own.claims.map(Math.abs));
    row.claims.forEach((claim, i) => near(claim, own.claims[i], 6e-4 * size, words));
    row.drawn.forEach((x, i) => {
      if (Number.isNaN(x)) return assert.ok(Math.abs(row.claims[i]) > row.reach, words);
      const read = ((x - 6) / 228) * 2 * row.reach - row.reach;
      const claimed = Math.min(row.reach, Math.max(-row.reach, row.claims[i]));
      near(read, claimed, row.reach * 1e-3, `${words}, drawn`);
    });
    checkWords(row, words);
  }
}

/** The words of the effect are the numbers claimed, to the digits shown. */
function checkWords(row, words) {
  const numbers = row.effect
    .replaceAll("−", "-")
    .replaceAll(",", (comma, at, text) => (/\d{3}/.test(text.slice(at + 1, at + 4)) ? "" : comma))
    .match(/[-+±]?\d+(\.\d+)?(e-?\d+)?/g);
  const scale = row.effect.includes("%") || row.effect.includes("pp") ? 100 : 1;
  const [low, value, high] = row.claims.map((claim) => claim * scale);
  [value, low, high].forEach((own, i) => {
    const [digits, power] = numbers[i].replace("±", "").split("e");
    const lastDigit = 10 ** (Number(power ?? 0) - (digits.split(".")[1]?.length ?? 0));
    near(Number(numbers[i].replace("±", "")), own, 0.51 * lastDigit, `${words}: ${row.effect}`);
  });
}

const START = { baseline: 0, cuped: 1, look: "once", scale: "default" };

onPage("the page as written shows the embedded numbers", {}, async (page) => {
  await checkRows(page, START);
});

onPage("every switch shows the embedded numbers of its choice", {}, async (page) => {
  for (const scale of ["default", "absolute", "impact"])
    for (const cuped of [1, 0])
      for (const look of ["once", "any"])
        for (const baseline of [0, 1, 2]) {
          await choose(page, "scale", scale);
          await choose(page, "cuped", cuped);
          await choose(page, "look", look);
          await choose(page, "baseline", baseline);
          await checkRows(page, { scale, cuped, look, baseline });
        }
});

onPage("a switch changes what is shown and its start brings everything back", {}, async (page) => {
  const start = await rows(page);
  for (const [name, value, back] of [
    ["scale", "absolute", "default"], ["cuped", "0", "1"], ["look", "any", "once"], ["baseline", "2", "0"],
  ]) {
    await choose(page, name, value);
    const changed = await rows(page);
    const different = changed.filter((row, i) => row.effect !== start[i].effect);
    assert.ok(different.length > 0, `${name} changes an effect`);
    await choose(page, name, back);
    assert.deepEqual(await rows(page), start, `${name} back at ${back}`);
  }
});

onPage("numbers written by the script read as those written by the engine", {}, async (page) => {
  const start = await rows(page);
  // Another look and back over another baseline would restore; ask the script for its own words.
  const own = await page.run(() => {
    const { comparisonsOf, shown, report, control, effectText } = Page;
    return report.metrics.map((metric, index) =>
      comparisonsOf(index, control, 1).map((comparison) => {
        const it = shown(comparison, "default", "once");
        const on = (v) => effectText(v, it.on, metric);
        return `${on(it.value)} [${on(it.low)}, ${on(it.high)}]`;
      }));
  });
  for (const row of start) assert.equal(own[row.metric][row.index], row.effect);
});

for (const [width, url] of [[360, rich], [390, many], [820, rich], [900, many], [1400, rich]])
  onPage(`nothing is wider than the page at ${width} pixels`, { width, url }, async (page) => {
    await page.run(() =>
      [...document.querySelectorAll("[data-m] button.name")].slice(0, 9).forEach((button) => button.click()));
    await page.run(() => document.querySelectorAll("details").forEach((part) => (part.open = true)));
    const excess = await page.run(() => document.documentElement.scrollWidth - innerWidth);
    assert.equal(excess, 0);
  });

for (const width of [390, 820, 900, 1400])
  onPage(`the scorecard needs no sideways scrolling at ${width} pixels`, { width }, async (page) => {
    const excess = await page.run(() => {
      const card = document.getElementById("scores").parentElement;
      return card.scrollWidth - card.clientWidth;
    });
    assert.equal(excess, 0);
  });

onPage("keys reach a switch and change it", {}, async (page) => {
  const focused = () => page.run(() => document.activeElement.name ?? "");
  for (let presses = 0; presses < 60 && (await focused()) !== "scale"; presses++) await page.press("Tab");
  assert.equal(await focused(), "scale");
  const before = await rows(page);
  await page.press("ArrowRight");
  assert.equal(await page.run(() => document.querySelector("[name=scale]:checked").value), "absolute");
  assert.notDeepEqual(await rows(page), before);
  const ring = await page.run(() => getComputedStyle(document.activeElement.nextElementSibling).outlineStyle);
  assert.equal(ring, "solid", "the focus is seen");
  await page.press("Tab");
  assert.equal(await focused(), "cuped");
});

onPage("Enter on a metric opens and closes its panel of charts", {}, async (page) => {
  await page.run(() => document.querySelector("[data-m] button.name").focus());
  await page.press("Enter");
  const opened = await page.run(() => ({
    expanded: document.activeElement.getAttribute("aria-expanded"),
    charts: document.querySelectorAll(".panel canvas").length,
    labels: [...document.querySelectorAll(".panel .plot")].map((plot) => plot.getAttribute("aria-label")),
    ways: document.querySelectorAll(".panel .ways tbody tr").length,
  }));
  assert.equal(opened.expanded, "true");
  assert.equal(opened.charts, 4, "a lift per arm, values, power");
  assert.ok(opened.labels.every((label) => label.includes("2026-11-01")), "charts say their last day");
  assert.ok(opened.ways >= 4);
  await page.press("Enter");
  assert.equal(await page.run(() => document.querySelectorAll(".panel").length), 0);
});

/** Contrast of the first of each kind of text against what is behind it (WCAG 2). */
const contrasts = (page) =>
  page.run(() => {
    const numbers = (color) => color.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) =>
      [r, g, b]
        .map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (element) => {
      const color = numbers(getComputedStyle(element).backgroundColor);
      return color[3] === 0 && element.parentElement ? behind(element.parentElement) : color;
    };
    const kinds = ["body", ".quiet", "#scores .better b", "#scores small", ".health .warn", "#verdict p",
      "nav a", ".progress", "#verdict .lead strong", ".group small", "#switches input:checked + span", "#switches input:not(:checked) + span", ".readout"];
    return Object.fromEntries(kinds.map((kind) => {
      const element = document.querySelector(kind);
      const pair = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
      return [kind, (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)];
    }));
  });

for (const dark of [false, true])
  onPage(`texts stand out in ${dark ? "dark" : "light"} mode`, { dark }, async (page) => {
    for (const [kind, ratio] of Object.entries(await contrasts(page)))
      assert.ok(ratio >= 4.5, `${kind}: ${ratio.toFixed(2)}`);
  });

onPage("dark mode changes page, charts and drawings", {}, async (page) => {
  const colors = () =>
    page.run(() => {
      const canvas = document.querySelector("#exposure-charts canvas");
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return {
        paper: getComputedStyle(document.body).backgroundColor,
        effect: getComputedStyle(document.querySelector("#scores .better .g path")).stroke,
        chart: pixels.reduce((sum, value) => sum + value, 0),
      };
    });
  const light = await colors();
  await page.dark(true);
  await page.run(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50))));
  const dark = await colors();
  for (const key of Object.keys(light)) assert.notEqual(dark[key], light[key], key);
});

onPage("a plan's own numbers stay until a choice that it has none for", { url: bayesian }, async (page) => {
  const start = await rows(page);
  assert.ok(start[0].p.includes("risk"), start[0].p);
  const look = () => page.run(() => document.querySelector("[name=look]:checked").value);
  await choose(page, "scale", "absolute");
  const absolute = await rows(page);
  assert.equal(await look(), "planned");
  assert.deepEqual(absolute.map((row) => row.p), start.map((row) => row.p));
  assert.notDeepEqual(absolute.map((row) => row.effect), start.map((row) => row.effect));
  await choose(page, "baseline", "1");
  assert.equal(await look(), "once");
  await checkRows(page, { scale: "absolute", cuped: 1, look: "once", baseline: 1 });
  await choose(page, "scale", "default");
  await choose(page, "look", "planned");
  assert.deepEqual(await rows(page), start);
});

onPage("the JSON of the buttons is the report with texts and six digits", {}, async (page) => {
  const json = JSON.parse(await page.run(() => Page.whole()));
  assert.equal(json.schema, "uplake.report/1");
  assert.ok(json.reproduce.definition.startsWith('name = "free_shipping"'));
  const [metric] = json.metrics;
  assert.ok(metric.comparisons[0].relative.low < metric.comparisons[0].relative.high);
  assert.equal(metric.values.length, 3);
});

test("without a script the default report is complete and no dead switch is shown", async () => {
  const page = await browser.open(rich, { script: false });
  // The page's own script is off; the tests' functions still run.
  const seen = await page.run(() => ({
    switches: document.getElementById("switches").hidden,
    rows: document.querySelectorAll("#scores tbody[data-m] .g svg").length,
    bars: document.querySelectorAll("svg.days path").length,
    buttons: document.querySelectorAll("button.name").length,
  }));
  assert.deepEqual(seen, { switches: true, rows: 18, bars: 3, buttons: 0 });
  await page.close();
});

test("without a script all of many metrics stand under their headings and nothing dead is shown", async () => {
  const page = await browser.open(many, { script: false });
  const seen = await page.run(() => ({
    find: document.getElementById("find").hidden,
    rows: [...document.querySelectorAll("#scores tbody[data-m]")].filter((body) => body.offsetHeight).length,
    headings: [...document.querySelectorAll("#scores .group")].map((group) => group.innerText.trim()),
  }));
  const areas = ["search", "basket", "checkout", "engagement", "loyalty"];
  const headings = ["Primary metric", ...areas.map((area) => `Secondary metrics: ${area}`), "Guardrails"];
  assert.deepEqual(seen, { find: true, rows: 200, headings });
  await page.close();
});

/** Metrics of the scorecard that are seen, as indices in the order of the page. */
const seen = (page) =>
  page.run(() =>
    [...document.querySelectorAll("#scores tbody[data-m]")]
      .filter((body) => body.offsetHeight)
      .map((body) => Number(body.dataset.m)));
/** Names, roles and first lifts as the page's JSON has them. */
const known = (page) =>
  page.run(() => JSON.parse(Page.whole()).metrics.map(({ name, group, role, direction, comparisons }) => ({
    name, group, role,
    gains: comparisons.flatMap((c) => ("value" in c.relative ? c.relative.value * (direction === "increase" ? 1 : -1) : [])),
    p: Math.min(...comparisons.map((c) => c[c.scale].p ?? 1e9)), calls: comparisons.map((c) => c.call),
  })));
const set = (page, selector, value, event) =>
  page.run((selector, value, event) => {
    const element = document.querySelector(`#find ${selector}`);
    if (element.type === "checkbox") element.checked = value;
    else element.value = value;
    element.dispatchEvent(new Event(event, { bubbles: true }));
  }, selector, value, event);

onPage("words find metrics by name and group", { url: many }, async (page) => {
  const metrics = await known(page);
  const has = (...words) => (metric) => words.every((word) => `${metric.name} ${metric.group ?? ""}`.includes(word));
  const places = (test) => metrics.map((metric, i) => (test(metric) ? i : -1)).filter((i) => i >= 0);
  for (const [typed, ...words] of [["Toys", "toys"], ["spent  LOYALTY", "spent", "loyalty"], ["no such thing", "no such"]]) {
    await set(page, "[type=search]", typed, "input");
    const expected = places(has(...words));
    assert.deepEqual((await seen(page)).sort((a, b) => a - b), expected, typed);
    const said = await page.run(() => document.querySelector("#find [role=status]").textContent);
    assert.equal(said, `${expected.length} of 200`);
    const empty = await page.run(() =>
      [...document.querySelectorAll("#scores .group")].filter((group) => {
        if (!group.offsetHeight) return false;
        const next = (body) => (body?.offsetHeight === 0 ? next(body.nextElementSibling) : body);
        return next(group.nextElementSibling)?.className !== "";
      }).length);
    assert.equal(empty, 0, "a heading without a metric is not shown");
  }
  await set(page, "[type=search]", "", "input");
  assert.equal((await seen(page)).length, 200);
});

onPage("an order holds for all metrics, and the definition's comes back", { url: many }, async (page) => {
  const metrics = await known(page);
  const start = await seen(page);
  const [, , third] = start;
  // A panel goes with its metric.
  await page.run((third) => document.querySelector(`[data-m="${third}"] button`).click(), third);
  const keys = {
    best: ({ gains }) => (gains.length ? -Math.max(...gains) : 1e9),
    worst: ({ gains }) => (gains.length ? Math.min(...gains) : 1e9),
    p: ({ p }) => p,
  };
  for (const [order, key] of Object.entries(keys)) {
    await set(page, "select", order, "change");
    const shown = (await seen(page)).map((index) => key(metrics[index]));
    assert.equal(shown.length, 200);
    shown.slice(1).forEach((own, i) => assert.ok(own >= shown[i] - 1e-4 * Math.abs(own), `${order} at ${i}`));
    const after = await page.run(() => document.querySelector(".panel").previousElementSibling.dataset.m);
    assert.equal(Number(after), third);
  }
  await set(page, "select", "name", "change");
  const names = (await seen(page)).map((index) => metrics[index].name);
  assert.deepEqual(names, [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true })));
  await set(page, "select", "", "change");
  assert.deepEqual(await seen(page), start);
});

onPage("only what changed is what was called, for each choice", { url: many }, async (page) => {
  const metrics = await known(page);
  await set(page, "[type=checkbox]", true, "change");
  const changed = await seen(page);
  const called = (metric) => metric.calls.some((call) => ["better", "worse"].includes(call));
  assert.deepEqual(changed.map((i) => metrics[i]).filter((metric) => !called(metric)), []);
  assert.equal(changed.length, metrics.filter(called).length);
  assert.ok(changed.length > 5 && changed.length < 100, `${changed.length}`);
  await choose(page, "look", "any");
  const cautious = await seen(page);
  assert.ok(cautious.length < changed.length, `${cautious.length} of ${changed.length}`);
  await choose(page, "look", "once");
  assert.deepEqual(await seen(page), changed);
});

onPage("a heading folds its metrics and says what they did", { url: many }, async (page) => {
  const metrics = await known(page);
  const press = () => page.run(() => document.querySelectorAll("#scores .group button")[1].click());
  await press();
  const rest = await seen(page);
  const away = metrics.map((_, i) => i).filter((i) => !rest.includes(i));
  assert.ok(away.length > 10 && away.every((i) => metrics[i].group === "search"));
  const words = await page.run(() => document.querySelectorAll("#scores .group small")[1].textContent);
  const better = away.filter((i) => metrics[i].calls.includes("better")).length;
  assert.ok(words.startsWith(`${away.length} metrics`) && (better === 0 || words.includes(`${better} ▲ better`)), words);
  await press();
  assert.equal((await seen(page)).length, 200);
});

onPage("finding among 200 metrics takes no time", { url: many }, async (page) => {
  // The least of ten: what else the machine does is not the page's.
  const took = await page.run(() => {
    const bar = document.getElementById("find");
    const [words, order, changed] = bar.querySelectorAll("[type=search], select, [type=checkbox]");
    const least = (act) => Math.min(...Array.from({ length: 10 }, (_, i) => {
      const start = performance.now();
      act(i);
      return performance.now() - start;
    }));
    const event = (element, name) => element.dispatchEvent(new Event(name, { bubbles: true }));
    return {
      search: least((i) => ((words.value = i % 2 ? "toys" : ""), event(words, "input"))),
      sort: least((i) => ((order.value = i % 2 ? "p" : "best"), event(order, "change"))),
      filter: least((i) => ((changed.checked = i % 2 === 1), event(changed, "change"))),
    };
  });
  for (const [what, ms] of Object.entries(took)) assert.ok(ms < 50, `${what}: ${ms.toFixed(1)} ms`);
});

/** Keeps each chart of the page in `charts`. Runs before the page's script. */
const keepCharts = () => {
  let library;
  window.charts = [];
  Object.defineProperty(window, "uPlot", {
    get: () => library,
    set: (own) => {
      library = class extends own {
        constructor(...args) {
          super(...args);
          window.charts.push(this);
        }
      };
    },
  });
};
const chartsOf = (page) =>
  page.run(async () => {
    [...document.querySelectorAll("[data-m] button.name")].slice(0, 9).forEach((button) => button.click());
    await new Promise((done) => setTimeout(done, 300));
    const ruler = document.createElement("canvas").getContext("2d");
    const rgb = (hex) => `rgb(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(", ")})`;
    return charts.filter((chart) => chart.root.isConnected).map((chart) => {
      const figure = chart.root.closest("figure");
      const axes = chart.axes.map((axis) => {
        ruler.font = "12px system-ui, sans-serif";
        return axis._values.map((label, i) => ({
          label, width: ruler.measureText(label).width, at: chart.valToPos(axis._splits[i], axis.scale),
        }));
      });
      return {
        title: figure.querySelector("figcaption").textContent,
        axes,
        range: [chart.scales.y.min, chart.scales.y.max],
        lines: chart.data.slice(1),
        strokes: chart.series.slice(1).map((series) => series._stroke).filter((color) => /^#[0-9a-f]{6}$/.test(color)).map(rgb),
        legend: [...figure.querySelectorAll(".readout i")].map((sign) => getComputedStyle(sign, "::before").color),
        ink: getComputedStyle(document.body).color,
      };
    });
  });

for (const [width, dark, url] of [[390, true, rich], [900, false, bayesian], [1400, false, rich]])
  onPage(`charts keep what they promise at ${width} pixels`, { width, dark, url, before: keepCharts }, async (page) => {
    const charts = await chartsOf(page);
    assert.ok(charts.length > 20, `${charts.length} charts`);
    for (const { title, axes, range, lines, strokes, legend, ink } of charts) {
      for (const [place, labels] of axes.entries()) {
        assert.equal(new Set(labels.map(({ label }) => label)).size, labels.length, `${title}: ${JSON.stringify(labels)}`);
        labels.slice(1).forEach((one, i) => {
          const room = place === 0 ? (one.width + labels[i].width) / 2 : 12;
          assert.ok(Math.abs(one.at - labels[i].at) >= room, `${title}: ${labels[i].label} over ${one.label}`);
        });
      }
      // Users are counts: none is beyond an end.
      if (title.startsWith("Users"))
        lines.flat().forEach((v) => assert.ok(v >= range[0] && v <= range[1], `${title}: ${v} beyond ${range}`));
      if (legend.length && strokes[0] !== ink) {
        const named = title.includes("less that of") ? legend.slice(1) : legend;
        assert.deepEqual(strokes, named, `${title}: legend as lines`);
      }
      // Lines that lie on each other are not drawn as several.
      const late = (line) => line.slice(Math.floor(line.length / 5));
      const arms = lines.map(late).filter((line) => line.every((v) => v !== null));
      if (arms.length > 1 && !title.startsWith("Cumulative")) {
        const apart = Math.max(...arms[0].map((_, i) => {
          const values = arms.map((line) => line[i]);
          return Math.max(...values) - Math.min(...values);
        }));
        assert.ok(apart > (range[1] - range[0]) / 21, `${title}: ${apart} on ${range}`);
      }
    }
    const titles = charts.map(({ title }) => title);
    assert.ok(titles.some((title) => title.includes("all arms together")), "shares are equal here");
    assert.ok(titles.some((title) => title.startsWith("Users more or fewer than planned")));
  });

onPage("a path over the days ends in a dot and with its value", {}, async (page) => {
  const paths = await page.run(() =>
    [...document.querySelectorAll("#scores td.s")].filter((cell) => cell.querySelector("svg")).map((cell) => {
      const numbers = cell.querySelector("path").getAttribute("d").match(/-?\d+/g).map(Number);
      const ys = numbers.filter((_, i) => i % 2 === 1);
      return { end: ys.reduce((sum, y) => sum + y), dot: Number(cell.querySelector("circle").getAttribute("cy")), words: cell.innerText.trim() };
    }));
  assert.equal(paths.length, 18);
  for (const { end, dot } of paths) assert.equal(dot, end);
  const [first] = await rows(page);
  assert.ok(first.effect.startsWith(paths[0].words) || first.effect.includes(paths[0].words), first.effect);
});

onPage("absolute effects have the difference's p where lifts have their own", { url: delta }, async (page) => {
  const start = (await rows(page)).map((row) => row.p);
  await choose(page, "scale", "absolute");
  const absolute = (await rows(page)).map((row) => row.p);
  const own = await page.run(() => JSON.parse(Page.whole()).metrics.flatMap(({ comparisons }) =>
    comparisons.map(({ absolute, scale }) => [absolute.p, scale])));
  own.forEach(([p, scale], i) => {
    const shown = Number(absolute[i].split(" ")[0].replace("−", "-"));
    assert.ok(Math.abs(shown - p) <= 0.06 * p, `${absolute[i]} for ${p}`);
    if (scale === "relative" && p < 0.01) assert.notEqual(absolute[i], start[i]);
  });
});

onPage("the decision, the primary metric and its interval are one large line", {}, async (page) => {
  const found = await page.run(() => {
    const lead = document.querySelector("#verdict .lead");
    const size = (element) => Number.parseFloat(getComputedStyle(element).fontSize);
    return {
      words: lead.innerText.replace(/\s+/g, " "), height: lead.offsetHeight, size: size(lead), body: size(document.body),
      folded: !document.querySelector("#verdict details").open,
    };
  });
  assert.match(found.words, /^Ship .*always free conversion \+[\d.]+ % \[\+[\d.]+ %, \+[\d.]+ %\]$/);
  assert.ok(found.size > 1.5 * found.body && found.height < 2 * found.size, "large, and one line");
  assert.ok(found.folded, "the primary metric says why");
});
