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
/** Writes the example's page, with more lines in its definition, and returns its address. */
function make(name, more = "") {
  const file = join(folder, name);
  const args = ["run", "--quiet", "--package", "uplake-experiment", "--example", "report", "--", "html", more];
  writeFileSync(file, execFileSync("cargo", args, { cwd: root, maxBuffer: 64 << 20 }));
  return pathToFileURL(file).href;
}
const rich = make("report.html");
const bayesian = make("bayesian.html", 'inference = "bayesian"');
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
          claims: svg && ["low", "value", "high"].map((key) => Number(svg.dataset[key])),
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
    const rowOf = (b, c, metric) => {
      const found = (c) => views.find((view) => view.b === b && view.c === c).m[metric];
      return found(c) || found(1);
    };
    const at = (baseline, arm) => (arm < baseline ? arm : arm - 1);
    return views[0].m.map((_, metric) =>
      rowOf(baseline, cuped, metric).map((comparison, index) => {
        const [relative, absolute, impact, , once, any] = comparison;
        const [p, , call] = look === "any" ? any : once;
        const isRelative = scale === "default" && call < 8;
        const own = isRelative ? relative : absolute;
        /** Low, value and high of an effect of `views`. */
        const ends = ([value, ...widths]) => {
          const width = widths[look === "any" ? 1 : 0];
          const [down, up] = Array.isArray(width) ? width : [width, width];
          return [value - down, value, value + up];
        };
        const otherWayRound = () => {
          const arm = index < baseline ? index : index + 1;
          const [lift, difference] = rowOf(arm, cuped, metric)[at(arm, baseline)];
          const turn = isRelative ? (v) => 1 / (1 + v) - 1 : (v) => -v;
          return ends(isRelative ? lift : difference).map(turn).reverse();
        };
        if (scale === "impact" && impact === null) return { p, none: true };
        const times = scale === "impact" ? (impact === 1 ? users : impact) : 1;
        const claims = own === 0 ? otherWayRound() : ends(own);
        return { p, call: call % 8, claims: claims.map((claim) => claim * times) };
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

for (const width of [360, 820, 1400])
  onPage(`nothing is wider than the page at ${width} pixels`, { width }, async (page) => {
    await page.run(() => document.querySelectorAll("button.name").forEach((button) => button.click()));
    await page.run(() => document.querySelectorAll("details").forEach((part) => (part.open = true)));
    const excess = await page.run(() => document.documentElement.scrollWidth - innerWidth);
    assert.equal(excess, 0);
  });

for (const width of [820, 1400])
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
  await page.run(() => document.querySelector("#scores button.name").focus());
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
      "nav a", "#switches input:checked + span", "#switches input:not(:checked) + span", ".readout"];
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
