(() => {
  const { MISSING, digits, drawPicture, drawWhenSeen, hideModels, hover, isKnown, make, range, symbol } = page;
  const data = JSON.parse(document.getElementById("data").textContent);
  const columns = Object.fromEntries(data.figures.columns.map((name, i) => [name, i]));
  const { rows: figures, texts, conditions } = data.figures;
  const views = new Set();
  const hidden = hideModels(views);

  const chance = (p) => (isKnown(p) && p < 0.001 ? "below 0.001" : digits(p));
  const get = (f, name) => figures[f][columns[name]];
  const text = (f, name) => texts[get(f, name)];
  const signature = (f) => data.figures.signatures[get(f, "signature")].map((part) => texts[part]).join("|");
  const condition = (f) => conditions[get(f, "where")];

  // --- plots ---------------------------------------------------------------------------------------------------------

  function hoverText(row) {
    if (row.pub !== undefined) return [row.pub, `published: ${digits(row.u)}`];
    if (row.w !== undefined) return [inOneLine(row.k), row.s ?? `${digits(row.v)}, interval ${range(row.l, row.h)}`, ...notes(row)];
    const { f } = row;
    const lines = [`${data.models[row.m]}${row.k === data.models[row.m] ? "" : ` · ${row.k}`}`];
    lines.push(`${text(f, "measure")} ${get(f, "text")}`);
    if (row.x !== undefined) lines.push(`at ${digits(row.x)}`);
    lines.push(`${get(f, "items")} items, ${get(f, "clusters")} clusters`);
    if (get(f, "pHolm") !== null) lines.push(`p after the correction: ${chance(get(f, "pHolm"))}`);
    if (get(f, "coverage") !== null) lines.push(`coverage ${digits(get(f, "coverage"))}`);
    return lines;
  }

  const inOneLine = (label) => label.replace(" −\n", " − ").replace("\n", ": ");

  function notes(row) {
    const lines = [];
    if (isKnown(row.p)) lines.push(`p after the correction: ${chance(row.p)}`);
    if (isKnown(row.bl)) lines.push(`bounds, not sampling error: ${range(row.bl, row.bh)}`);
    if (isKnown(row.e)) lines.push(`noise between engines: ±${digits(row.e)}${row.v !== null && Math.abs(row.v) <= row.e ? ", more than this difference" : ""}`);
    return lines;
  }

  const TOLD = 6; // numbers in a picture's description

  /** A picture's description with what it shows, as far as a sentence holds it. */
  function withNumbers(label, rows) {
    const drawn = rows.filter((row) => row.f !== undefined && row.m !== undefined);
    const told = drawn.slice(0, TOLD).map((row) => `${data.models[row.m]}${!row.k || row.k === data.models[row.m] ? "" : `, ${row.k}`}: ${get(row.f, "text")}`);
    if (drawn.length > TOLD) told.push(`and ${drawn.length - TOLD} more`);
    return told.length && !label.includes(told[0]) ? label.replace(". The numbers", `. ${told.join("; ")}. The numbers`) : label;
  }

  async function drawInto(panel, canvas) {
    const figure = panel.closest(".picture");
    const plot = data.plots[figure.dataset.plot];
    const index = Number(panel.dataset.panel);
    const width = canvas.offsetWidth;
    const spec = structuredClone(plot.spec);
    spec.datasets = { ...spec.datasets, rows: plot.panels[index].rows };
    if (plot.aspect) spec.height = Math.round(Math.min(width, 460) * plot.aspect);
    if (plot.heights.length) spec.height = plot.heights[index];
    const { ends, axis } = plot.panels[index];
    for (const { encoding } of spec.layer) {
      if (ends && encoding.x?.scale) encoding.x.scale.domain = ends;
      if (axis && encoding.x?.axis) encoding.x.axis.title = axis;
    }
    const config = structuredClone(data.config);
    config.axisY.labelLimit = width < 420 ? 160 : 240;
    config.axisX = width < 420 ? { titleAnchor: "end", titleLimit: width - 30 } : {};
    canvas.setAttribute("aria-label", withNumbers(canvas.getAttribute("aria-label"), spec.datasets.rows));
    const view = await drawPicture(canvas, spec, config, hoverText);
    view.addEventListener("click", (event, item) => {
      const row = item?.datum;
      if (row?.f !== undefined) openFigure(row.f);
    });
    if (hidden.size) await view.signal("hidden", [...hidden]).runAsync();
    views.add(view);
  }

  drawWhenSeen([...document.querySelectorAll(".panel")], drawInto);

  for (const figure of document.querySelectorAll(".picture")) {
    const behind = figure.querySelector(".behind");
    behind.addEventListener("toggle", () => {
      if (behind.open) behind.querySelector(".scroll").replaceChildren(numbersTable(data.plots[figure.dataset.plot]));
    });
  }

  function figureButton(f) {
    const reason = text(f, "reason");
    return make("button", get(f, "text"), { class: "figure", "data-f": f, type: "button", ...(reason ? { title: reason } : {}) });
  }

  /** A table of texts and elements; the first cell of a row is its heading. */
  function table(names, rows) {
    const head = make("thead", [make("tr", names.map((name) => make("th", name, { scope: "col" })))]);
    const line = ([heading, ...cells]) => make("tr", [make("th", heading, { scope: "row" }),
      ...cells.map((cell, i) => make("td", cell, NUMERIC.has(names[i + 1]) ? { class: "n" } : {}))]);
    return make("table", [head, make("tbody", rows.map((row) => (Array.isArray(row) ? line(row) : row)))]);
  }

  const NUMERIC = new Set(["Difference"]);
  const difference = (row, panel) => [inOneLine(row.k), panel.title, digits(row.v),
    range(row.l, row.h), [...(row.s ? [row.s] : []), ...(row.g ? [`margin ±${digits(row.g)}`] : []), ...notes(row)].join("; ")];

  function numbersTable(plot) {
    if (plot.kind === "differences") {
      const names = ["What", "Figure", "Difference", "Interval", "Notes"];
      return table(names, plot.panels.flatMap((panel) => panel.rows.map((row) => difference(row, panel))));
    }
    const body = [];
    for (const panel of plot.panels) {
      for (const row of panel.rows) {
        if (row.pub !== undefined) {
          body.push(make("tr", [make("th", `${row.pub} (published)`), make("td", panel.title), make("td", row.k), make("td", digits(row.u))], { class: "published" }));
        }
        if (row.f !== undefined) {
          const { f } = row;
          const cells = [make("th", [symbol(row.m), ` ${data.models[row.m]}`], { scope: "row" }), make("td", text(f, "measure")),
            make("td", condition(f)), make("td", [figureButton(f)])];
          const line = make("tr", cells, { "data-model": row.m });
          line.hidden = hidden.has(row.m);
          body.push(line);
        }
      }
    }
    return table(["Model", "Measure", "Where", "Figure"], body);
  }

  // --- heatmap -------------------------------------------------------------------------------------------------------

  const heatmap = document.getElementById("heatmap");
  const PALEST = 0.1;  // a measure whose figures all stay below this never gets the darkest colour

  /** Figures of all models in one row: [suite, measure, where, {model: figure}], in reported order. */
  function heatRows() {
    const found = new Map();
    figures.forEach((row, f) => {
      if (get(f, "isSubgroup")) return;
      const key = `${get(f, "suite")}|${get(f, "measure")}|${get(f, "where")}`;
      if (!found.has(key)) found.set(key, { suite: get(f, "suite"), measure: get(f, "measure"), label: condition(f), cells: {} });
      found.get(key).cells[get(f, "model")] = f;
    });
    return [...found.values()].sort((a, b) => a.suite - b.suite || a.measure - b.measure);
  }

  /** What a cell's shade shows: how far its whole interval stays from the neutral value; without one, the value. */
  function weight(f) {
    const neutral = get(f, "neutral"), side = get(f, "side");
    if (neutral === null) return get(f, "value") ?? 0;
    return side > 0 ? get(f, "low") - neutral : side < 0 ? get(f, "high") - neutral : 0;
  }

  /** Colour is for what lies off neutral; sizes without a neutral value are grey. */
  function shade(f, largest) {
    const step = Math.min(4, Math.ceil(Math.abs(weight(f) / largest) * 4));
    if (!step) return "";
    return get(f, "neutral") === null ? `g${step}` : `h${get(f, "side") < 0 ? "-" : ""}${step}`;
  }

  function drawHeatmap() {
    const rows = heatRows();
    const largest = {};
    for (const row of rows) {
      for (const f of Object.values(row.cells)) {
        const key = `${row.suite}|${row.measure}`;
        largest[key] = Math.max(largest[key] ?? PALEST, Math.abs(weight(f)));
      }
    }
    const table = make("table", [make("thead", [make("tr", [make("th", "Where", { scope: "col" }),
      ...data.models.map((name, i) => make("th", [symbol(i), ` ${name}`], { scope: "col", class: "n", "data-model": i }))])])], { class: "heat" });
    let body, last;
    for (const row of rows) {
      const key = `${row.suite}|${row.measure}`;
      const name = `${data.suites.length > 1 ? `${data.suites[row.suite]}: ` : ""}${texts[row.measure]}`;
      if (key !== last) {
        body = make("tbody", [make("tr", [make("th", name, { colspan: data.models.length + 1, class: "block", scope: "rowgroup" })], { class: "heading" })]);
        table.append(body);
        last = key;
      }
      const cells = data.models.map((_, m) => {
        const f = row.cells[m];
        const cell = f === undefined ? make("td", MISSING, { class: "n missing", title: "not measured" })
          : make("td", [figureButton(f)], { class: `n ${shade(f, largest[key])}` });
        cell.dataset.model = m;
        cell.hidden = hidden.has(m);
        return cell;
      });
      const line = make("tr", [make("th", row.label, { scope: "row" }), ...cells]);
      line.dataset.words = `${name} ${row.label}`.toLowerCase();
      body.append(line);
    }
    heatmap.replaceChildren(table);
    filterHeatmap();
  }

  const filter = document.getElementById("filter");
  function filterHeatmap() {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0, all = 0;
    for (const body of heatmap.querySelectorAll("tbody")) {
      let any = false;
      for (const line of body.querySelectorAll("tr[data-words]")) {
        line.hidden = !wanted.every((word) => line.dataset.words.includes(word));
        any ||= !line.hidden;
        shown += line.hidden ? 0 : 1;
        all += 1;
      }
      body.hidden = !any;
    }
    document.getElementById("filtered").textContent = wanted.length ? `${shown} of ${all} rows` : `${all} rows`;
  }
  filter.addEventListener("input", filterHeatmap);
  // Built when unfolded, by hand or with all others: paper has it then, and a search within the page finds it.
  heatmap.closest("details").addEventListener("toggle", drawHeatmap, { once: true });

  // --- what is behind a figure ---------------------------------------------------------------------------------------

  const dialog = document.getElementById("figure");
  const body = document.getElementById("figure-body");

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button.figure");
    if (button) openFigure(Number(button.dataset.f));
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => { if (location.hash.startsWith("#figure-")) history.replaceState(null, "", " "); });

  function openFigure(f) {
    hover.hidden = true;
    body.replaceChildren(describe(f), ...examplesOf(f));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    try { history.replaceState(null, "", `#figure-${get(f, "id")}`); } catch { /* not allowed in some viewers */ }
  }

  function describe(f) {
    const bounded = get(f, "boundLow") !== null && get(f, "boundHigh") > get(f, "boundLow");
    const pairs = [
      ["Model", data.models[get(f, "model")]],
      ["Suite", data.suites[get(f, "suite")]],
      ["Where", condition(f)],
      [`${data.confidence} interval, clustered`, range(get(f, "low"), get(f, "high"))],
      ...(get(f, "completeLow") === null ? [] : [["Complete case: the answered items alone", `${digits(get(f, "value"))} ${range(get(f, "completeLow"), get(f, "completeHigh"))}`]]),
      ...(bounded ? [["Bounds (not sampling error)", range(get(f, "boundLow"), get(f, "boundHigh"))]] : []),
      ["Neutral value", get(f, "neutral") === null ? "not defined" : digits(get(f, "neutral"))],
      ...(get(f, "p") === null ? [] : [["p against the neutral value", `${chance(get(f, "p"))}; after the correction for many figures ${chance(get(f, "pHolm"))}`]]),
      ["Items, clusters", `${get(f, "items")}, ${get(f, "clusters")}`],
      ["Missing; only bounds known", `${get(f, "missing")}; ${get(f, "censored")}`],
      ...(text(f, "reason") ? [["Why there is no value", text(f, "reason")]] : []),
      ["Coverage, mean over its prompts", digits(get(f, "coverage"))],
    ];
    const list = make("dl", pairs.flatMap(([name, value]) => [make("dt", name), make("dd", value)]), { class: "pairs" });
    return make("div", [
      make("h2", `${text(f, "measure")}: ${get(f, "text")}`, { id: "figure-title" }),
      list,
      make("details", [make("summary", "How to reproduce it"), make("code", signature(f)),
        make("p", "All items behind it, from the store:"), make("code", `audit show ${get(f, "id")} --run ${data.run}${data.store}`)]),
    ]);
  }

  const SHOWN = 20; // examples in the dialog
  const LINE = 120; // characters of a question or an answer in a line

  function examplesOf(f) {
    const found = data.examples.filter((example) => example.f.includes(f));
    if (!found.length) return [make("p", "This page holds no example of this figure. The command above shows its items.")];
    const shown = found.slice(0, SHOWN);
    const heading = make("h3", `Examples behind it (${shown.length})`);
    const which = make("p", `Of the items behind it this page holds ${found.length}${found.length > SHOWN ? `; these are the first ${SHOWN}` : ""}. The command above shows all.`, { class: "source" });
    const warning = make("p", "Unedited model output. It may offend.", { class: "caution" });
    return [heading, which, warning, ...shown.map(exampleOf)];
  }

  /** The end of the question, where examples differ, and the likeliest answer, in a line. */
  function inShort(example) {
    const line = (words, end) => { const one = words.replace(/\s+/g, " ").trim(); return one.length <= LINE ? one : end ? `… ${one.slice(-LINE)}` : `${one.slice(0, LINE)} …`; };
    const question = line(example.turns.at(-1)?.[1] ?? "", true) || example.item;
    const likeliest = (example.scores ?? []).filter((s) => s.v !== null).sort((a, b) => b.v - a.v)[0];
    const answer = example.none !== undefined ? "no answer" : example.text ?? likeliest?.c ?? (example.labels ?? []).toSorted((a, b) => b[1] - a[1])[0]?.[0] ?? "";
    return answer.trim() ? `${question} → ${line(answer, false)}` : question;
  }

  function exampleOf(example) {
    const factors = Object.entries(example.factors).filter(([, v]) => v !== null && v !== true).map(([k, v]) => `${k.replaceAll("_", " ")} ${v}`).join(" · ");
    const folded = make("details", [make("summary", inShort(example), { dir: "auto" })], { class: "example" });
    folded.addEventListener("toggle", () => {
      if (!folded.open || folded.children.length > 1) return;
      for (const [role, content] of example.turns) folded.append(make("h4", role || "Prompt"), make("pre", content, { dir: "auto" }));
      folded.append(make("h4", "Answer"), answerOf(example), make("p", [factors, `Item ${example.item}`].filter(Boolean).join(" · "), { class: "source" }));
    });
    return folded;
  }

  function answerOf(example) {
    if (example.none !== undefined) return make("p", `No answer: ${example.none}`, { class: "missing" });
    if (example.thought !== undefined) {
      const thought = make("details", [make("summary", "Thought before the answer"), make("pre", example.thought, { dir: "auto" })]);
      return make("div", [thought, make("pre", example.text, { dir: "auto" })]);
    }
    if (example.text !== undefined) return make("pre", example.text, { dir: "auto" });
    if (example.labels) return make("div", [table(["Label", "Probability"], example.labels.map(([k, v]) => [k, digits(v)]))], { class: "scroll" });
    const rows = [...example.scores].sort((a, b) => (b.v ?? b.h ?? -1e9) - (a.v ?? a.h ?? -1e9)).map((s) => [
      `“${s.c}”`,
      s.v === null ? "not reported" : digits(Math.exp(s.v)),
      s.v === null ? `${s.l === null ? "no lower bound" : digits(s.l)} to ${digits(s.h)}` : digits(s.v),
      [s.e === "exact" ? "" : s.e, s.b === "clean" ? "" : s.b].filter(Boolean).join(", "),
      s.t.map(([token, logprob, exact]) => `“${token}” ${exact ? "" : "≤ "}${digits(logprob)}`).join("  "),
    ]);
    return make("div", [table(["Continuation", "Probability", "Log-probability (nats)", "Note", "Tokens (nats)"], rows)], { class: "scroll" });
  }

  // --- links and folds -----------------------------------------------------------------------------------------------

  function openFromLink() {
    const id = location.hash.match(/^#figure-(.+)$/)?.[1];
    const f = id === undefined ? -1 : figures.findIndex((row) => row[columns.id] === id);
    if (f >= 0) openFigure(f);
  }
  addEventListener("hashchange", openFromLink);
  openFromLink();

  const all = document.getElementById("unfold");
  all.addEventListener("click", () => {
    const open = all.getAttribute("aria-pressed") !== "true";
    all.setAttribute("aria-pressed", String(open));
    for (const part of document.querySelectorAll("main details")) part.open = open;
  });
})();
