// Switches, panels and buttons of the report page. No statistics: every number shown here is in
// the element `views` or `report`, made by the engine; see data.rs for their layout. The formats
// repeat format.rs, and the markup of cells repeats rows.rs and plot.rs.
"use strict";
const Page = (() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const read = (id) => JSON.parse(byId(id).textContent);
  const { shapes, words, value } = read("report");
  const unpack = (v) => {
    if (!Array.isArray(v)) return v;
    if (v[0] === -2) return words[v[1]];
    const rest = v.slice(1).map(unpack);
    return v[0] < 0 ? rest : Object.fromEntries(shapes[v[0]].map((key, i) => [key, rest[i]]));
  };
  const report = unpack(value);
  const views = read("views");
  const escape = (text) =>
    text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

  // Numbers as people read them: format.rs in script.
  const thousands = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
  const decimals = (v) => {
    const m = Math.abs(v);
    if (m >= 1e5) return 0;
    if (m >= 100) return 1;
    if (m >= 10) return 2;
    if (m >= 1) return 3;
    return m >= 0.001 || m === 0 ? 4 : 7;
  };
  const signed = (v, digits) => {
    const text = Math.abs(v).toFixed(digits);
    return (/[1-9]/.test(text) ? (v < 0 ? "−" : "+") : "±") + text;
  };
  const plain = (v) => {
    if (v !== 0 && (Math.abs(v) >= 1e12 || Math.abs(v) < 1e-6))
      return v.toExponential(3).replace("e+", "e").replaceAll("-", "−");
    const [whole, part] = Math.abs(v).toFixed(decimals(v)).split(".");
    const minus = v < 0 && /[1-9]/.test(whole + (part ?? "")) ? "−" : "";
    return minus + thousands(whole) + (part ? "." + part : "");
  };
  const percent = (v, digits) => {
    const zero = Math.abs(v * 100) < 0.5 * 10 ** -digits;
    return `${(zero ? 0 : v * 100).toFixed(digits)} %`;
  };
  const signedPercent = (v) => {
    const m = Math.abs(v * 100);
    const digits = m >= 999.5 ? 0 : m >= 9.995 ? 1 : m >= 0.0995 || m === 0 ? 2 : 3;
    return `${signed(v * 100, digits)} %`;
  };
  const isShare = (metric) =>
    ["proportion", "retention", "threshold", "funnel"].includes(metric.kind);
  const effectText = (v, scale, metric) => {
    if (scale === "relative") return signedPercent(v);
    if (scale === "impact") {
      const text = Math.abs(v) < 1000 ? plain(v) : (v < 0 ? "−" : "") + thousands(Math.abs(v).toFixed(0));
      return (v < 0 ? "" : "+") + text;
    }
    return isShare(metric) ? `${signed(v * 100, 3)} pp` : signed(v, decimals(v));
  };
  const valueText = (v, metric) => {
    if (v === null) return "–";
    return isShare(metric) ? percent(v, Math.abs(v) >= 0.01 ? 2 : 4) : plain(v);
  };
  const pText = (p) => {
    if (p >= 0.1) return p.toFixed(2);
    if (p >= 0.001) return p.toFixed(p >= 0.01 ? 3 : 4);
    return p < 1e-300 ? "<1e−300" : p.toExponential(1).replace("-", "−");
  };

  // Effects the other way round are said once.
  const mirrored = ([v, ...widths]) =>
    [-v, ...widths.map((width) => (Array.isArray(width) ? [width[1], width[0]] : width))];
  const inverse = (lift) => 1 / (1 + lift) - 1;
  const inverted = ([v, ...widths]) => [
    inverse(v),
    ...widths.map((width) => {
      const [down, up] = Array.isArray(width) ? width : [width, width];
      return [inverse(v) - inverse(v + up), inverse(v - down) - inverse(v)];
    }),
  ];
  const setTurned = (view, row, metric) =>
    row.forEach((comparison, i) => {
      const isShort = comparison.length === 2;
      if (!isShort && comparison[0] !== 0 && comparison[1] !== 0) return;
      const arm = i < view.b ? i : i + 1;
      const other = views.views.find(({ b, c }) => b === arm && c === view.c);
      const row = other.m[metric] || views.views.find(({ b, c }) => b === arm && c === 1).m[metric];
      const of = row[view.b < arm ? view.b : view.b - 1];
      const look = (own, at) => (own?.length === 2 ? [of[at + 4][0], ...own] : own);
      if (isShort) comparison.splice(0, 2, 0, 0, of[2], of[3], ...comparison.map(look));
      if (comparison[0] === 0) comparison[0] = inverted(of[0]);
      if (comparison[1] === 0) comparison[1] = mirrored(of[1]);
    });
  /** A comparison of the report itself in the layout of those in `views`. */
  const planned = (comparison) => {
    const effect = ({ value, low, high, reason }) => reason ?? [value, [value - low, high - value]];
    const { absolute, impact, non_inferiority: margin } = comparison;
    const end = Math.abs(absolute.high) > Math.abs(absolute.low) ? "high" : "low";
    const times = impact && !absolute.reason ? impact[end] / absolute[end] : null;
    const call = ["better", "worse", "inconclusive", "unavailable", "untrusted"].indexOf(comparison.call);
    const decided = comparison[comparison.scale];
    const look = [
      decided.p ?? null, comparison.p_adjusted, call + (comparison.scale === "absolute" ? 8 : 0),
      ...(margin ? [margin.holds, margin.p] : []),
    ];
    const ofDifference = decided !== absolute && absolute.p !== decided.p ? [absolute.p ?? null] : [];
    return [
      effect(comparison.relative), effect(absolute), Math.abs(times / users - 1) < 1e-5 ? 1 : times, comparison.variance_reduction, look, null,
      ...ofDifference,
    ];
  };
  const users = report.arms.reduce((sum, arm) => sum + arm.users, 0);
  /** A comparison of `views`, with what it leaves to the report. */
  const completed = (metric) => (comparison, i) => {
    if (comparison.length > 5 || comparison.length === 2) return comparison;
    const [isAny, relative, absolute, look, p] = comparison;
    const own = planned(report.metrics[metric].comparisons[i]);
    const pair = (mine, other) => (isAny ? [other, mine] : [mine, other]);
    const both = (effect, width) =>
      typeof effect === "string" ? effect : [effect[0], ...pair(effect[1], width)];
    return [
      both(own[0], relative), both(own[1], absolute), own[2], own[3], ...pair(own[4], look),
      ...(p === undefined && own[6] === undefined ? [] : pair(own[6] ?? own[4][0], p ?? look[0])),
    ];
  };
  views.views.forEach(({ m }) =>
    m.forEach((row, metric) => row && (m[metric] = row.map(completed(metric)))));
  views.views.forEach((view) =>
    view.m.forEach((row, metric) => row && setTurned(view, row, metric)));

  // The engine's numbers for a choice.
  const control = Math.max(0, report.arms.findIndex((arm) => arm.control));
  const viewOf = (baseline, cuped) =>
    views.views.find((view) => view.b === baseline && view.c === cuped);
  const hasCuped = views.views.some((view) => view.c === 1);
  /** The comparisons of a metric; the layout is data.rs's. */
  const comparisonsOf = (metric, baseline, cuped) => {
    const view = viewOf(baseline, cuped) ?? viewOf(baseline, 1 - cuped);
    return view?.m[metric] || viewOf(baseline, 1)?.m[metric];
  };
  const armsBeside = (baseline) => report.arms.map((_, i) => i).filter((i) => i !== baseline);
  const CALLS = ["better", "worse", "open", "none", "untrusted"];
  /** One comparison on one scale, at one look: numbers, or the reason for having none. */
  const shown = (comparison, scale, look) => {
    const [relative, absolute, impact, reduction, once, any, ...ofDifference] = comparison;
    let [p, adjusted, code, holds, marginP] = (look === "any" ? any : once) ?? [null, null, 3];
    const decidedAbsolute = code >= 8;
    const on = scale === "default" ? (decidedAbsolute ? "absolute" : "relative") : scale;
    const estimate = on === "relative" ? relative : absolute;
    // A lift that has a test of its own says nothing of the difference's p.
    if (on !== "relative" && ofDifference.length)
      [p, adjusted] = [ofDifference[look === "any" ? 1 : 0], null];
    const out = { on, p, adjusted, holds, marginP, reduction, call: CALLS[code % 8] };
    const without = (why) => ({ ...out, reason: `no estimate: ${why}`, call: CALLS[3] });
    if (typeof estimate === "string") return without(estimate);
    const width = estimate[look === "any" ? 2 : 1];
    if (width === null || typeof width === "string") return without(width ?? "not computed");
    if (on === "impact" && impact === null)
      return { ...out, reason: "ratios and quantiles have no total" };
    const times = on !== "impact" ? 1 : impact === 1 ? users : impact;
    const [down, up] = Array.isArray(width) ? width : [width, width];
    const v = estimate[0];
    return { ...out, value: v * times, low: (v - down) * times, high: (v + up) * times };
  };

  // The drawing of an interval, as plot.rs makes it.
  const reachOver = (intervals) => {
    const reaches = intervals
      .map(({ low, high }) => Math.max(Math.abs(low), Math.abs(high)))
      .sort((a, b) => a - b);
    const widest = reaches.at(-1);
    if (!(widest > 0)) return 1;
    const limit = 4 * reaches[(reaches.length - 1) >> 1];
    return limit > 0 ? Math.min(widest, limit) : widest;
  };
  const short = (v) => Number(v.toPrecision(6));
  const drawing = (reach, { low, value, high }, margin) => {
    const x = (v) => {
      const place = Math.min(1, Math.max(0, 0.5 + 0.5 * (v / reach)));
      return Math.round((6 + place * 228) * 10) / 10;
    };
    const start = low < -reach ? "12m5-5l-5 5l5 5m-5-5" : "8v8m0-4";
    const end = high > reach ? "m-5-5l5 5l-5 5" : "m0-4v8";
    const tick = margin !== null && Math.abs(margin) <= reach;
    return (
      `<svg viewBox="0 0 240 24" data-reach="${short(reach)}" ` +
      `data-ci="${short(low)} ${short(value)} ${short(high)}">` +
      (tick ? `<path class="ni" d="M${x(margin)} 1v22"/>` : "") +
      `<path d="M${x(low)} ${start}H${x(high)}${end}"/>` +
      (Math.abs(value) > reach ? "" : `<circle cx="${x(value)}"/>`) +
      "</svg>"
    );
  };
  const effectCell = (metric, it) => {
    if (it.reason) return "–";
    const on = (v) => effectText(v, it.on, metric);
    return `<b>${on(it.value)}</b> <small>[${on(it.low)}, ${on(it.high)}]</small>`;
  };
  const marginOf = (metric) =>
    metric.comparisons.find((c) => c.non_inferiority)?.non_inferiority.margin ?? null;
  const pCell = (metric, it) => {
    if (it.p === null) return "–";
    const adjusted = it.adjusted !== null && it.adjusted !== it.p;
    const margin = marginOf(metric);
    const held = it.holds ? "within" : "not within";
    return (
      pText(it.p) +
      (adjusted ? ` <small>adj.\u00a0${pText(it.adjusted)}</small>` : "") +
      (margin === null || it.marginP === undefined
        ? ""
        : ` <small>${held} ${percent(margin, 1).replace(" ", "\u00a0")}, p\u00a0${pText(it.marginP)}</small>`)
    );
  };

  // Switches.
  const form = byId("switches");
  const scores = byId("scores");
  const bodies = all("tbody[data-m]", scores);
  const choice = () => {
    const chosen = (name) => form?.querySelector(`[name=${name}]:checked`)?.value;
    return {
      scale: chosen("scale") ?? "default",
      cuped: chosen("cuped") ?? (hasCuped ? "1" : "0"),
      look: chosen("look") ?? (report.inference === "anytime" ? "any" : "once"),
      baseline: Number(chosen("baseline") ?? control),
    };
  };
  const start = choice();
  // Every cell as the engine wrote it, to come back to.
  const written = all("th, td", scores).map((cell) => [cell, cell.innerHTML]);
  const writtenClass = all("tr, td.a", scores).map((part) => [part, part.className]);
  const cellOf = (row, name) => row.querySelector(`.${name}`);
  const armNames = all("header .arms li").map((item) => {
    const [sign, name] = [item.querySelector("i"), item.querySelector("b")];
    return `${sign.outerHTML}\u00a0${name.innerHTML}`;
  });
  const values = bodies.map((body) => {
    const out = [];
    out[control] = cellOf(body, "c").innerHTML;
    const others = armsBeside(control);
    all("tr", body).forEach((row, i) => (out[others[i]] = cellOf(row, "v").innerHTML));
    return out;
  });

  const setBaseline = (arm) => (scores.className = scores.className.replace(/of\d/, `of${arm % 6}`));
  const restore = () => {
    written.forEach(([cell, html]) => {
      if (!cell.querySelector("button") && cell.innerHTML !== html) cell.innerHTML = html;
    });
    writtenClass.forEach(([part, name]) => (part.className = name));
    setBaseline(control);
  };
  const fillRow = (row, metric, it, arm, reach, metricReach, foreign) => {
    row.className = it.call;
    const name = cellOf(row, "a");
    if (name) {
      name.className = `a arm${arm % 6}`;
      name.textContent = report.arms[arm].name;
    }
    cellOf(row, "e").innerHTML = effectCell(metric, it);
    const own = it.on === "relative" ? reach : metricReach;
    const worse = metric.direction === "increase" ? -1 : 1;
    const margin = it.on === "relative" ? marginOf(metric) : null;
    cellOf(row, "g").innerHTML = it.reason
      ? `<small>${escape(it.reason)}</small>`
      : drawing(own, it, margin === null ? null : worse * margin);
    const reduction = cellOf(row, "r");
    if (reduction) {
      const share = it.reduction;
      reduction.textContent =
        share === null ? "–" : (share > 0 ? "−" : "+") + percent(Math.abs(share), 1);
    }
    const path = cellOf(row, "s");
    if (path && foreign) path.textContent = "";
  };
  const fill = ({ scale, cuped, look, baseline }) => {
    const rows = bodies.flatMap((body, place) => {
      const index = Number(body.dataset.m);
      const comparisons = comparisonsFor(index, { look, baseline, cuped });
      cellOf(body, "c").innerHTML = values[place][baseline];
      const others = armsBeside(baseline);
      return all("tr", body).map((row, i) => {
        cellOf(row, "v").innerHTML = values[place][others[i]];
        return [row, report.metrics[index], shown(comparisons[i], scale, look), others[i]];
      });
    });
    const lifts = rows.filter(([, , it]) => it.on === "relative" && !it.reason);
    const reach = reachOver(lifts.map(([, , it]) => it));
    // Differences of one metric share an axis of their own.
    const isDifference = (it) => it.on !== "relative" && !it.reason;
    const drawn = (metric) => rows.filter(([, of, it]) => of === metric && isDifference(it));
    rows.forEach(([row, metric, it, arm]) => {
      const metricReach = reachOver(drawn(metric).map(([, , other]) => other));
      // Beliefs are of the plan and the same on every scale.
      if (look !== "planned") cellOf(row, "p").innerHTML = pCell(metric, it);
      fillRow(row, metric, it, arm, reach, metricReach, baseline !== control);
    });
    setBaseline(baseline);
    const head = scores.tHead;
    const titles = { default: "lift", absolute: "difference", impact: "impact" };
    cellOf(head, "scale").textContent = titles[scale];
    const ends = all(".ax span", head);
    const words = scale === "default"
      ? [signedPercent(-reach), "0", signedPercent(reach)]
      : ["", "0, each metric its own axis", ""];
    ends.forEach((end, i) => (end.textContent = words[i]));
    if (look !== "planned") cellOf(head, "p").textContent = "p";
    cellOf(head, "c").textContent = report.arms[baseline].name;
  };
  const comparisonsFor = (index, { look, baseline, cuped }) =>
    (look !== "planned" && comparisonsOf(index, baseline, Number(cuped))) ||
    report.metrics[index].comparisons.map(planned);
  const describe = ({ scale, cuped, look, baseline }) => {
    const effects = {
      default: "Relative effects",
      absolute: "Absolute differences",
      impact: "Differences times the users of all arms",
    };
    const looks = {
      once: "intervals and p for one look", any: "intervals and p that hold at every look",
    };
    const words = [effects[scale]];
    if (hasCuped) words.push(cuped === "1" ? "with CUPED" : "without CUPED");
    words.push(looks[look] ?? "as planned");
    words.push(`against ${report.arms[baseline].name}`);
    return words.join(", ") + ".";
  };
  const isStart = (now) => Object.keys(start).every((key) => start[key] === now[key]);
  const show = (changed) => {
    let now = choice();
    // A plan has no numbers for other arms and without CUPED; one look and any time have.
    if (now.look === "planned" && (now.cuped !== start.cuped || now.baseline !== control)) {
      const set = (name, value) => {
        const input = form.querySelector(`[name=${name}][value="${value}"]`);
        if (input) input.checked = true;
      };
      if (changed === "look") ["cuped", "baseline"].forEach((name) => set(name, start[name]));
      else set("look", "once");
      now = choice();
    }
    restore();
    if (!isStart(now)) fill(now);
    byId("state").textContent = describe(now) + (isStart(now) ? "" : " Verdict and other blocks stay.");
    document.dispatchEvent(new CustomEvent("choice", { detail: now }));
  };

  // Panels.
  const choicesOf = (index, arm) => {
    const out = [];
    for (const cuped of hasCuped ? [1, 0] : [0])
      for (const look of ["once", "any"]) {
        const view = viewOf(control, cuped);
        const comparison = comparisonsOf(index, control, cuped)?.[armsBeside(control).indexOf(arm)];
        // Without a reduction both CUPED choices are the same.
        if (!view || !comparison || (cuped && comparison[3] === null)) continue;
        const how = cuped ? "CUPED, " : hasCuped ? "raw, " : "";
        out.push([how + (look === "once" ? "look once" : "any time"), comparison, look]);
      }
    return out;
  };
  const choiceTable = (index) => {
    const metric = report.metrics[index];
    const rows = armsBeside(control).flatMap((arm) =>
      choicesOf(index, arm).map(([how, comparison, look]) => {
        const on = (scale) => {
          const it = shown(comparison, scale, look);
          return `<td class="e">${effectCell(metric, it)}</td>`;
        };
        const it = shown(comparison, "default", look);
        return (
          `<tr><td>${armNames[arm]}</td><th scope="row">${how}</th>${on("relative")}` +
          `${on("absolute")}<td>${it.p === null ? "–" : pText(it.p)}</td>` +
          `<td>${it.adjusted === null ? "–" : pText(it.adjusted)}</td></tr>`
        );
      }));
    if (!rows.length) return "";
    const titles = ["arm", "way", "lift", "difference", "p", "p adjusted"];
    return (
      '<table class="plain ways"><caption>The same data judged in each way</caption><thead><tr>' +
      titles.map((title, i) => `<th scope="col"${i < 2 ? ' class="t"' : ""}>${title}</th>`).join("") +
      `</tr></thead><tbody>${rows.join("")}</tbody></table>`
    );
  };
  const panelOf = (index) => {
    const metric = report.metrics[index];
    const methods = [...new Set(metric.comparisons.map((c) => c.method))];
    const total = (v) => (v >= 0 && (v >= 1000 || v % 1 === 0) ? thousands(v.toFixed(0)) : plain(v));
    const totals = metric.values.flatMap(({ numerator, denominator }, arm) =>
      numerator === null || denominator === null
        ? [] : [`${report.arms[arm].name} ${total(numerator)} / ${total(denominator)}`]);
    const said = [totals.join(", "), ...methods, ...metric.notes].filter((text) => text);
    if (metric.cap !== null) said.push(`Values are capped at ${plain(metric.cap)}.`);
    return (
      `<div class="charts" data-metric="${index}"></div>${choiceTable(index)}` +
      said.map((text) => `<p class="quiet note">${escape(text)}</p>`).join("")
    );
  };
  const toggle = (body, button) => {
    const next = body.nextElementSibling;
    const opened = next?.classList.contains("panel");
    button.setAttribute("aria-expanded", String(!opened));
    if (opened) {
      document.dispatchEvent(new CustomEvent("panel-closed", { detail: next }));
      return next.remove();
    }
    const panel = document.createElement("tbody");
    panel.className = "panel";
    const columns = scores.tHead.rows[0].cells.length;
    panel.innerHTML = `<tr><td colspan="${columns}"><div>${panelOf(Number(body.dataset.m))}</div></td></tr>`;
    body.after(panel);
    document.dispatchEvent(new CustomEvent("panel-opened", { detail: panel }));
  };
  const makePanels = () =>
    bodies.forEach((body) => {
      const name = body.querySelector(".n").firstChild;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "name";
      button.setAttribute("aria-expanded", "false");
      button.textContent = name.data.trim();
      name.replaceWith(button);
      body.addEventListener("click", () => {
        if (String(getSelection()) === "") toggle(body, button);
      });
    });

  // Buttons.
  const whole = () => {
    const again = report.reproduce && {
      ...report.reproduce,
      definition: byId("definition")?.textContent ?? "",
      sql: byId("sql")?.textContent ?? "",
    };
    return JSON.stringify({ ...report, reproduce: again }, null, 2) + "\n";
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A page from a file may lack the clipboard; the old way works there.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  const download = (text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = `${report.experiment.replace(/[^\p{L}\p{N}._-]+/gu, "_")}.json`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const act = async (event) => {
    const what = event.target.closest("button")?.dataset.do;
    if (!what) return;
    await (what === "copy" ? copy : download)(whole());
    byId("actions").querySelector("[role=status]").textContent = what === "copy" ? "Copied." : "";
  };

  makePanels();
  if (form && views.views.length) {
    form.hidden = false;
    form.addEventListener("change", (event) => show(event.target.name));
    byId("state").textContent = describe(start);
  }
  byId("actions").hidden = false;
  byId("actions").addEventListener("click", act);
  return {
    report, views, control, armsBeside, armNames, choice, effectText, valueText, plain, percent,
    isShare, whole, thousands, comparisonsOf, comparisonsFor, shown,
  };
})();
