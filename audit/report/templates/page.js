"use strict";
/** What every page needs: elements, numbers, the theme, hover texts, drawing when seen, and hiding models. */
const page = (() => {
  const MISSING = "–";

  /** An element with its text and children. Text is only ever set as text. */
  function make(tag, content, attributes = {}) {
    const element = document.createElement(tag);
    if (typeof content === "string") element.textContent = content;
    else if (content) element.append(...content);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  function symbol(model) {
    const chip = document.querySelector(`.chip[data-model="${model}"] svg`);
    return chip ? chip.cloneNode(true) : "";
  }

  const isKnown = (x) => x !== null && x !== undefined;
  const digits = (x, precision = 4) => (!isKnown(x) ? MISSING : String(Number(x.toPrecision(precision))).replace("-", "−"));
  /** An interval; its ends have as many digits as it takes to tell them apart. */
  const range = (low, high) => {
    if (!isKnown(low) || !isKnown(high)) return MISSING;
    const relative = Math.max(Math.abs(low), Math.abs(high)) / (high - low);
    const precision = Number.isFinite(relative) && relative > 0 ? Math.min(15, Math.max(4, Math.ceil(Math.log10(relative)) + 2)) : 4;
    return `${digits(low, precision)} to ${digits(high, precision)}`;
  };

  // --- theme ---------------------------------------------------------------------------------------------------------

  const root = document.documentElement;
  const stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
  if (stored) root.dataset.theme = stored;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a page opened from disk may store nothing */ }
  });

  // --- hover ---------------------------------------------------------------------------------------------------------

  const hover = document.getElementById("hover");

  /** Lines of text beside the pointer; none hides them. */
  function showLines(event, lines) {
    hover.hidden = !lines.length;
    if (hover.hidden) return;
    hover.replaceChildren(...lines.filter(Boolean).map((line) => make("div", line)));
    const { clientX: x, clientY: y } = event;
    hover.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - hover.offsetWidth - 6))}px`;
    hover.style.top = `${y + 18 + hover.offsetHeight > innerHeight ? y - hover.offsetHeight - 10 : y + 16}px`;
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  /** Draw one picture; `hoverText` gives the lines about a mark's datum. Vega replaces the canvas's label by its own, so
   *  it is put back. Screen readers skip the SVG: the label says what it shows and where its numbers are. */
  async function drawPicture(canvas, spec, config, hoverText) {
    const label = canvas.getAttribute("aria-label");
    const tooltip = (handler, event, item, value) => showLines(event, value && item ? hoverText(item.datum) : []);
    const { view } = await vegaEmbed(canvas, spec, {
      ast: true, renderer: "svg", actions: false, defaultStyle: false, config, tooltip,
    });
    canvas.setAttribute("role", "img");
    canvas.removeAttribute("aria-roledescription");
    if (label) canvas.setAttribute("aria-label", label);
    canvas.querySelector("svg")?.setAttribute("aria-hidden", "true");
    return view;
  }

  /** Draw each panel once, as it comes near or is unfolded; when all that are not folded are drawn, the root has
   *  `data-plots=drawn`. */
  function drawWhenSeen(panels, drawInto) {
    const isFolded = (panel) => panel.closest("details:not([open])");
    const draw = async (panel) => {
      const canvas = panel.querySelector(".canvas");
      if (canvas.dataset.drawn || !canvas.offsetWidth || isFolded(panel)) return;
      canvas.dataset.drawn = "yes";
      await drawInto(panel, canvas);
      canvas.dataset.drawn = "done";
    };
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
    }, { rootMargin: "500px" });
    panels.forEach((panel) => near.observe(panel));

    // Panels out of sight are drawn when the browser is idle, so that they are there when the page is printed.
    const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
    const waiting = [];
    const drawNext = () => {
      const panel = waiting.shift();
      if (!panel) { root.dataset.plots = "drawn"; return; }
      draw(panel).finally(() => idle(drawNext));
    };
    const drawSoon = (more) => {
      const isResting = !waiting.length && root.dataset.plots !== "drawing";
      waiting.push(...more.filter((panel) => !isFolded(panel))); // a trend folds thousands: none of them costs a turn
      root.dataset.plots = "drawing";
      if (isResting) idle(drawNext);
    };
    drawSoon(panels);
    document.addEventListener("toggle", ({ target }) => {
      if (target.open) drawSoon(panels.filter((panel) => target.contains(panel)));
    }, true);
  }

  // --- which models are shown ----------------------------------------------------------------------------------------

  /** Let the chips hide and show models in the page and in the drawn `views`. Returns the hidden models. */
  function hideModels(views) {
    const hidden = new Set();
    for (const chip of document.querySelectorAll(".chip")) {
      chip.addEventListener("click", () => {
        const model = Number(chip.dataset.model);
        const show = hidden.has(model);
        if (show) hidden.delete(model);
        else hidden.add(model);
        chip.setAttribute("aria-pressed", String(show));
        for (const part of document.querySelectorAll(`main [data-model="${model}"]`)) part.hidden = !show;
        for (const view of views) view.signal("hidden", [...hidden]).runAsync();
      });
    }
    return hidden;
  }

  return { MISSING, digits, drawPicture, drawWhenSeen, hideModels, hover, isKnown, make, range, symbol };
})();
