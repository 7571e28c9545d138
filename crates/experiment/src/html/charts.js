// Charts over days, drawn by uPlot: exposures, power, and those of an opened metric.
(() => {
  const { report, views, armsBeside, control } = Page;
  const charts = new Map();
  const SIGNS = ["●", "■", "▲", "◆", "▼", "★"];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const armColor = (arm) => color(`--arm${arm % SIGNS.length}`);
  const seconds = (day) => Date.parse(`${day}T00:00:00Z`) / 1000;
  const dayText = (year) => (t) =>
    new Date(t * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", year, timeZone: "UTC" });
  const DAY = 86400;

  /** Numbers of a line of `views.series`, of so many letters a day; see data.rs. */
  const unline = ([least, most, text], letters = 2) => {
    const base = views.letters.length;
    const steps = base ** letters - 2;
    const range = most > least ? most - least : 1;
    const out = [];
    for (let i = 0; i < text.length; i += letters) {
      let place = 0;
      for (const letter of text.slice(i, i + letters)) place = place * base + views.letters.indexOf(letter);
      out.push(place > steps ? null : least + (place / steps) * range);
    }
    return out;
  };

  /** Numbers of a smooth line. */
  const unsmooth = ([last, text]) => {
    const out = [];
    const at = (i) => views.letters.indexOf(text[i]);
    let [after, second] = [0, 0];
    for (let i = 0; i < text.length; i++) {
      let step = at(i) - 42;
      if (step === 42) {
        const place = at(++i) * views.letters.length + at(++i);
        if (place === 7224) {
          out.unshift(null);
          continue;
        }
        step = place - 3612;
      }
      [after, second] = [2 * after - second + step, after];
      out.unshift(last * Math.exp(after / 2000));
    }
    return out;
  };

  /** Ends of an axis that leave out the first fifth of the days, when few users make wide bands. */
  const settledRange = (lines, withZero) => {
    const late = lines.flatMap((line) => line.slice(Math.floor(line.length / 5)));
    const known = (late.some((v) => v !== null) ? late : lines.flat()).filter((v) => v !== null);
    if (withZero) known.push(0);
    if (!known.length) return [0, 1];
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const room = (high - low || Math.abs(high) || 1) * 0.08;
    return [withZero && low === 0 ? 0 : low - room, withZero && high === 0 ? 0 : high + room];
  };

  /** Ends of an axis with 0 that leave nothing out. */
  const wholeRange = (lines) => {
    const [low, high] = [Math.min(0, ...lines.flat()), Math.max(0, ...lines.flat())];
    const room = (high - low || 1) * 0.08;
    return [low && low - room, high && high + room];
  };
  /** Lines that nobody could tell apart on an axis with these ends. */
  const alike = (lines, [low, high]) =>
    lines.length > 1 && lines[0].every((_, i, { length }) => {
      if (i < Math.floor(length / 5)) return true;
      const values = lines.map((line) => line[i]).filter((v) => v !== null);
      return values.length < 2 || Math.max(...values) - Math.min(...values) < (high - low) / 20;
    });
  /** Labels of an axis, with the digits that their distance has, so that no two are the same. */
  const labels = ([times, unit, sign], splits) => {
    const step = splits.length > 1 ? Math.abs(splits[1] - splits[0]) * times : 1;
    let digits = 0;
    while (digits < 15 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-4 * step * 10 ** digits)
      digits++;
    return splits.map((v) => {
      const [whole, part] = Math.abs(v * times).toFixed(digits).split(".");
      if (Math.abs(v * times) < 1e-9 * step) return "0";
      return (v < 0 ? "−" : sign) + Page.thousands(whole) + (part ? `.${part}` : "") + unit;
    });
  };

  const options = (spec, width) => {
    const years = spec.days.length && spec.days[0].slice(0, 4) !== spec.days.at(-1).slice(0, 4);

    const ink = color("--quiet");
    const grid = { stroke: color("--line"), width: 1 };
    const font = "12px system-ui, sans-serif";
    const say = (u) => {
      const last = u.data[0].length - 1;
      spec.readout.innerHTML = spec.say(u.cursor.idx ?? last).replaceAll(" %", "\u00a0%");
    };
    // Lines that cross the whole chart, and each arm's sign at the end of its line.
    const marks = (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      for (const [at, dash] of spec.levels ?? []) {
        const y = Math.round(u.valToPos(at, "y", true));
        if (y < bbox.top || y > bbox.top + bbox.height) continue;
        ctx.strokeStyle = ink;
        ctx.setLineDash(dash.map((d) => d * devicePixelRatio));
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
      }
      ctx.font = `${13 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textBaseline = "middle";
      ctx.textAlign = "center";
      spec.lines.forEach((line, i) => {
        const values = u.data[i + 1];
        const last = values.findLastIndex((v) => v !== null);
        if (line.sign === undefined || last < 0) return;
        ctx.fillStyle = armColor(line.sign);
        const place = [u.data[0][last], values[last]];
        const x = u.valToPos(place[0], "x", true);
        ctx.fillText(SIGNS[line.sign % SIGNS.length], x, u.valToPos(place[1], "y", true));
      });
      ctx.restore();
    };
    return {
      width,
      height: 190,
      legend: { show: false },
      tzDate: (t) => uPlot.tzDate(new Date(t * 1000), "Etc/UTC"),
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        // A single day stands in the middle.
        x: {
          range: (_, first, last) =>
            spec.days.length > 1 ? [first, last] : [first - DAY / 2, first + DAY / 2],
        },
        y: { range: () => spec.range },
      },
      axes: [
        {
          stroke: ink, font, grid: { show: false }, ticks: { ...grid, size: 4 }, size: 28, gap: 4,
          space: years ? 80 : 56, incrs: [1, 2, 3, 7, 14, 28, 91, 182, 364].map((days) => days * DAY),
          values: (_, splits) => splits.map(dayText(years ? "2-digit" : undefined)),
        },
        {
          stroke: ink, font, grid, ticks: { show: false }, gap: 6, space: 34,
          values: (_, splits) => labels(spec.axis, splits),
          size: (_, values) => 14 + 7 * Math.max(1, ...(values ?? []).map((text) => text.length)),
        },
      ],
      series: [{}, ...spec.lines.map((line) => ({
        label: line.label, stroke: line.color, width: line.width ?? 2, dash: line.dash,
        points: { show: spec.days.length < 2 },
      }))],
      bands: spec.bands ?? [],
      hooks: { draw: [marks], setCursor: [say], ready: [say] },
      padding: [8, 12, 0, 0],
    };
  };

  /** Draws a chart into `parent`; `make` is called again when colours change. */
  const add = (parent, make) => {
    const figure = document.createElement("figure");
    figure.innerHTML =
      '<figcaption></figcaption><div class="plot" role="img"></div>' +
      '<p class="readout" aria-hidden="true"></p>';
    parent.append(figure);
    const [caption, place, readout] = figure.children;
    const draw = () => {
      const spec = { ...make(), readout };
      caption.innerHTML = spec.title;
      charts.get(figure)?.plot.destroy();
      const data = [spec.days.map(seconds), ...spec.lines.map((line) => line.values)];
      const width = Math.max(220, place.clientWidth);
      const plot = new uPlot(options(spec, width), data, place);
      readout.innerHTML = spec.say(spec.days.length - 1);
      place.setAttribute("aria-label", `${caption.textContent}. ${readout.textContent}`);
      charts.set(figure, { plot, draw });
    };
    draw();
    new ResizeObserver(() => {
      const plot = charts.get(figure)?.plot;
      const width = Math.max(220, place.clientWidth);
      if (plot && plot.width !== width) plot.setSize({ width, height: 190 });
    }).observe(place);
  };
  const drop = (root) =>
    root.querySelectorAll("figure").forEach((figure) => {
      charts.get(figure)?.plot.destroy();
      charts.delete(figure);
    });
  const redraw = () => [...charts.values()].forEach(({ draw }) => draw());

  // Exposures.
  const names = report.arms.map((arm) => arm.name);
  const armLines = (lines, extra = {}) =>
    lines.map((values, arm) => ({ label: names[arm], values, color: armColor(arm), sign: arm, ...extra }));
  /** What each arm has on a day: the chart's legend, too. */
  const sayArms = (days, lines, text) => (i) =>
    `${days[i]}: ` + Object.entries(lines).map(([arm, line]) => `${Page.armNames[arm]} ${text(line[i], arm, i)}`).join(", ");
  /** A line for all arms, in no arm's colour. */
  const together = (values) => [{ values, color: color("--ink") }];
  const wholeText = (v) => (v === null ? "–" : Page.thousands(String(Math.round(v))));
  const shareText = (v) => (v === null ? "–" : Page.percent(v, 2));

  const exposures = (parent) => {
    const rows = report.first_exposures;
    const days = rows.map((row) => row.day);
    const daily = names.map((_, arm) => rows.map((row) => row.users[arm]));
    const cumulative = daily.map((line) => line.map(((sum) => (v) => (sum += v))(0)));
    const totals = days.map((_, i) => cumulative.reduce((sum, line) => sum + line[i], 0));
    const shares = cumulative.map((line) => line.map((v, i) => (totals[i] ? v / totals[i] : null)));
    const planned = report.arms.reduce((sum, arm) => sum + arm.planned_share, 0);
    const levels = report.arms.map((arm) => [arm.planned_share / planned, [4, 4]]);
    const counts = (title, lines) => () => {
      const sums = days.map((_, i) => lines.reduce((sum, line) => sum + line[i], 0));
      const one = alike(lines, wholeRange(lines));
      return {
        title: one ? `${title} <small>all arms together</small>` : title, days, axis: [1, "", ""],
        lines: one ? together(sums) : armLines(lines), range: wholeRange(one ? [sums] : lines),
        say: one ? (i) => `${days[i]}: ${wholeText(sums[i])} users` : sayArms(days, lines, wholeText),
      };
    };
    parent.replaceChildren();
    add(parent, counts("Users, cumulative", cumulative));
    add(parent, counts("Users first exposed per day", daily));
    if (alike(cumulative, wholeRange(cumulative))) {
      const beyond = cumulative.map((line, arm) => line.map((v, i) => v - totals[i] * levels[arm][0]));
      const text = (v, arm, i) =>
        `${wholeText(cumulative[arm][i])} (${v < 0 ? "−" : "+"}${wholeText(Math.abs(v))})`;
      return add(parent, () => ({
        title: "Users more or fewer than planned, cumulative", days, levels: [[0, [4, 4]]],
        lines: armLines(beyond), range: wholeRange(beyond), axis: [1, "", "+"],
        say: sayArms(days, beyond, text),
      }));
    }
    add(parent, () => {
      const around = [...shares, levels.map(([at]) => at)];
      return {
        title: "Share of users per arm <small>dashed: planned</small>", days, levels,
        lines: armLines(shares), range: settledRange(around, false),
        axis: [100, " %", ""], say: sayArms(days, shares, shareText),
      };
    });
  };

  // One metric.
  const onScale = (metric, scale) => (v) => (v === null ? "–" : Page.effectText(v, scale, metric));
  const axisOn = (metric, scale) =>
    scale === "relative" ? [100, " %", "+"] : Page.isShare(metric) ? [100, " pp", "+"] : [1, "", "+"];
  const bandsOf = ([, effect, once, any, , above, anyAbove]) => {
    const end = (widths, skews, sign) =>
      effect.map((v, i) => {
        const width = widths[i];
        const skew = (Array.isArray(skews) ? skews[i] : skews) ?? 0;
        return v === null || width === null ? null : v + sign * width + skew * width * width;
      });
    return {
      effect,
      low: end(once, above, -1),
      high: end(once, above, 1),
      anyLow: end(any, anyAbove, -1),
      anyHigh: end(any, anyAbove, 1),
    };
  };
  /** An arm's colour, `#rrggbb`, with so many of 255 parts of opacity. */
  const tint = (arm, opacity) => armColor(arm) + opacity.toString(16).padStart(2, "0");
  const lift = (parent, metric, arm, lines) => {
    const { effect, low, high, anyLow, anyHigh } = bandsOf(lines);
    const { scale } = metric.comparisons.find((comparison) => comparison.arm === arm);
    const text = onScale(metric, scale);
    const name = Page.armNames[arm];
    add(parent, () => ({
      title: `Cumulative ${scale === "relative" ? "lift" : "difference"} of ${name} ` +
        "<small>dark band: look once; light band: look any time</small>",
      days: report.days, levels: [[0, [3, 3]]], range: settledRange([anyLow, anyHigh], true),
      axis: axisOn(metric, scale),
      lines: [
        { values: anyHigh, color: tint(arm, 110), width: 1 },
        { values: anyLow, color: tint(arm, 110), width: 1 },
        { values: high, color: tint(arm, 180), width: 1, dash: [4, 3] },
        { values: low, color: tint(arm, 180), width: 1, dash: [4, 3] },
        { values: effect, color: armColor(arm), sign: arm },
      ],
      bands: [{ series: [1, 2], fill: tint(arm, 34) }, { series: [3, 4], fill: tint(arm, 56) }],
      say: (i) =>
        `${report.days[i]}: ${text(effect[i])}, once [${text(low[i])}, ${text(high[i])}], ` +
        `any time [${text(anyLow[i])}, ${text(anyHigh[i])}]`,
    }));
  };
  const valuesOf = (parent, metric, base, arms) => {
    const lines = [];
    lines[control] = base;
    armsBeside(control).forEach((arm, i) => (lines[arm] = arms[i][0]));
    const text = (v) => (v === null ? "–" : Page.valueText(v, metric));
    if (alike(lines, settledRange(lines, false))) {
      const beyond = lines.map((line) => line.map((v, i) => (v === null || base[i] === null ? null : v - base[i])));
      const others = beyond.map((line, arm) => ({ values: line, color: armColor(arm), sign: arm }));
      const both = (v, arm, i) => text(lines[arm][i]) + (+arm === control ? "" : ` (${onScale(metric, "absolute")(v)})`);
      return add(parent, () => ({
        title: `Value, cumulative <small>less that of ${Page.armNames[control]}</small>`, days: report.days,
        lines: others.filter((_, arm) => arm !== control), levels: [[0, [3, 3]]],
        range: settledRange(beyond, true), axis: axisOn(metric, "absolute"),
        say: sayArms(report.days, beyond, both),
      }));
    }
    add(parent, () => ({
      title: "Value per arm, cumulative", days: report.days, lines: armLines(lines),
      range: settledRange(lines, false), axis: Page.isShare(metric) ? [100, " %", ""] : [1, "", ""],
      say: sayArms(report.days, lines, text),
    }));
  };
  const detectable = (parent, metric, arms, title) => {
    const others = armsBeside(control);
    const lines = [];
    others.forEach((arm, i) => (lines[arm] = arms[i][4]));
    const known = others.map((arm) => lines[arm]);
    const { scale } = metric.comparisons[0];
    const text = (v) => onScale(metric, scale)(v).replace(/^\+/, "");
    const range = settledRange(known, true);
    const one = alike(known, range);
    const [times, unit] = axisOn(metric, scale);
    add(parent, () => ({
      title: one ? `${title} <small>all arms alike</small>` : title,
      days: report.days, axis: [times, unit, ""], range,
      lines: one
        ? together(known[0])
        : others.map((arm) => ({ values: lines[arm], color: armColor(arm), sign: arm })),
      say: sayArms(report.days, lines, text),
    }));
  };
  const armLinesOf = (arm) => {
    const read = (line, i) => (line.length === 2 ? unsmooth(line) : unline(line, i < 4 ? 2 : 1));
    const lines = arm.map((line, i) => (Array.isArray(line) ? read(line, i) : line));
    const times = lines[4];
    lines[4] = lines[2].map((width, i) => (width === null ? null : width * (times[i] ?? times)));
    return lines;
  };
  const linesOf = (index) => {
    const packed = views.series[index];
    if (!packed) return packed;
    const base = unline(packed[0]);
    const arms = packed.slice(1).map(armLinesOf);
    const { comparisons } = report.metrics[index];
    arms.forEach((lines, i) => {
      const isLift = comparisons[i].scale === "relative";
      const value = (control, effect) => (isLift ? control * (1 + effect) : control + effect);
      if (lines[0] === 0)
        lines[0] = lines[1].map((v, day) => (v === null || base[day] === null ? null : value(base[day], v)));
    });
    return { base, arms };
  };
  const DETECTABLE = "Smallest effect found four times in five";
  const metricCharts = (parent) => {
    const index = Number(parent.dataset.metric);
    const metric = report.metrics[index];
    const found = linesOf(index);
    if (!found) return;
    found.arms.forEach((lines, i) => lift(parent, metric, armsBeside(control)[i], lines));
    valuesOf(parent, metric, found.base, found.arms);
    detectable(parent, metric, found.arms, DETECTABLE);
  };

  // Power: one goal at a time, the primary one at first.
  const power = (parent) => {
    const goals = report.metrics.map((_, index) => index).filter((index) => !report.metrics[index].guardrail);
    const known = goals.filter((index) => views.series[index]);
    known.sort((a, b) => (b === report.primary) - (a === report.primary));
    if (!known.length) return;
    const label = document.createElement("label");
    label.className = "pick";
    label.append("By day: ");
    const pick = document.createElement("select");
    known.forEach((index) => pick.add(new Option(report.metrics[index].name, index)));
    label.append(pick);
    parent.before(label);
    const draw = () => {
      drop(parent);
      parent.replaceChildren();
      const index = Number(pick.value);
      detectable(parent, report.metrics[index], linesOf(index).arms, DETECTABLE);
    };
    pick.addEventListener("change", draw);
    draw();
  };

  const exposureCharts = document.getElementById("exposure-charts");
  if (exposureCharts) exposures(exposureCharts);
  const powerChart = document.getElementById("power-chart");
  if (powerChart) power(powerChart);
  document.addEventListener("panel-opened", (event) =>
    event.detail.querySelectorAll("[data-metric]").forEach(metricCharts));
  document.addEventListener("panel-closed", (event) => drop(event.detail));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Paper is white whatever the screen is.
  const paper = (on) => () => {
    document.documentElement.classList.toggle("paper", on);
    redraw();
  };
  addEventListener("beforeprint", paper(true));
  addEventListener("afterprint", paper(false));
})();
