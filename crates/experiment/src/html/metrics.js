// Finding metrics among many: by words, in another order, those that changed; groups that fold.
(() => {
  const { report } = Page;
  const scores = document.getElementById("scores");
  const bar = document.getElementById("find");
  const indexOf = (body) => Number(body.dataset.m);
  const sections = [];
  for (const body of scores.tBodies) {
    if (body.className === "group") sections.push({ head: body, bodies: [] });
    else sections.at(-1).bodies.push(body);
  }
  const all = sections.flatMap(({ bodies }) => bodies);
  const texts = report.metrics.map(({ name, group }) => `${name} ${group ?? ""}`.toLowerCase());
  const [words, order, changed] = bar ? bar.querySelectorAll("input[type=search], select, [type=checkbox]") : [];
  const status = bar?.querySelector("[role=status]");

  const NONE = Infinity;
  /** What rows are sorted by, least first. */
  const keyOf = (by, choice) => (body) => {
    const index = indexOf(body);
    const comparisons = Page.comparisonsFor(index, choice);
    if (by === "p")
      return Math.min(...comparisons.map((it) => Page.shown(it, choice.scale, choice.look).p ?? NONE));
    const gain = report.metrics[index].direction === "increase" ? 1 : -1;
    const lifts = comparisons.map(([lift]) => lift).filter(Array.isArray).map(([value]) => gain * value);
    return by === "best" ? -Math.max(...lifts) : Math.min(...lifts);
  };
  const sorted = (by) => {
    if (by === "name")
      return [...all].sort((a, b) => texts[indexOf(a)].localeCompare(texts[indexOf(b)], "en", { numeric: true }));
    const key = keyOf(by, Page.choice());
    const keys = new Map(all.map((body) => [body, key(body)]));
    return [...all].sort((a, b) => keys.get(a) - keys.get(b) || indexOf(a) - indexOf(b));
  };
  const panelOf = (body) => {
    const next = body.nextElementSibling;
    return next?.className === "panel" ? next : null;
  };
  const place = (by) => {
    const withPanel = (body) => [body, panelOf(body)].filter((part) => part);
    const parts = by
      ? [...sections.map(({ head }) => head), ...sorted(by).flatMap(withPanel)]
      : sections.flatMap(({ head, bodies }) => [head, ...bodies.flatMap(withPanel)]);
    scores.append(...parts);
  };

  const change = (body) => body.querySelector("tr.better, tr.worse") !== null;
  const countOf = (bodies) => {
    const has = (name) => bodies.filter((body) => body.querySelector(`tr.${name}`)).length;
    const counts = [["better", "▲"], ["worse", "▼"]].map(([name, sign]) => [has(name), `${sign} ${name}`]);
    const said = counts.filter(([count]) => count).map(([count, name]) => `${count} ${name}`);
    return bodies.length > 1 ? [`${bodies.length} metrics`, ...said].join(", ") : "";
  };
  const show = () => {
    const asked = (words?.value ?? "").toLowerCase().split(/\s+/).filter((word) => word);
    const found = (index) => asked.every((word) => texts[index].includes(word));
    for (const { head, bodies, button, count } of sections) {
      bodies.forEach((body) => {
        const out = !found(indexOf(body)) || (changed?.checked === true && !change(body));
        body.hidden = out || (!order?.value && button.getAttribute("aria-expanded") === "false");
        body.classList.toggle("out", out);
        const panel = panelOf(body);
        if (panel) panel.hidden = body.hidden;
      });
      count.textContent = countOf(bodies);
      head.hidden = Boolean(order?.value) || bodies.every((body) => body.classList.contains("out"));
    }
    if (!bar) return;
    const seen = all.filter((body) => !body.classList.contains("out")).length;
    status.textContent = seen === all.length ? "" : `${seen} of ${all.length}`;
    document.querySelectorAll(".by[data-m]").forEach((part) => (part.hidden = !found(indexOf(part))));
    if (asked.length) document.querySelectorAll(".by:not([data-m])").forEach((part) => (part.open = true));
  };

  sections.forEach((section) => {
    const title = section.head.querySelector("th");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "name";
    button.setAttribute("aria-expanded", "true");
    button.textContent = title.textContent;
    const count = document.createElement("small");
    title.replaceChildren(button, count);
    Object.assign(section, { button, count });
    title.addEventListener("click", () => {
      button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") === "false"));
      show();
    });
  });
  show();
  if (bar) {
    bar.hidden = false;
    words.addEventListener("input", show);
    changed.addEventListener("change", show);
    order.addEventListener("change", () => {
      place(order.value);
      show();
    });
  }
  document.addEventListener("choice", () => {
    if (order?.value) place(order.value);
    show();
  });
})();
