(() => {
  const { drawPicture, drawWhenSeen, hideModels } = page;
  const data = JSON.parse(document.getElementById("data").textContent);
  const views = new Set();
  const hidden = hideModels(views);

  const time = (t) => new Date(t).toISOString().slice(0, 19).replace("T", " ");

  function hoverText(row) {
    if (row.c) return [`Changed at ${time(row.t)}`, ...row.c];
    if (row.a) return [`No run at ${time(row.t)}`, row.a];
    return [
      `${data.models[row.m]}: ${row.s}`,
      `${time(row.t)} · run ${row.r}`,
      `${row.i} items${row.p ? " · incomplete run" : ""}`,
    ];
  }

  async function drawInto(panel, canvas) {
    const picture = data.pictures[panel.closest(".picture").dataset.picture];
    const spec = structuredClone(data.spec);
    spec.datasets = { ...spec.datasets, rows: picture.panels[panel.dataset.panel] };
    for (const { encoding } of spec.layer) {
      if (!encoding.y?.scale) continue;
      encoding.y.scale.domain = picture.ends;
      encoding.y.axis.title = picture.unit || null;
    }
    const view = await drawPicture(canvas, spec, data.config, hoverText);
    if (hidden.size) await view.signal("hidden", [...hidden]).runAsync();
    views.add(view);
  }

  drawWhenSeen([...document.querySelectorAll(".panel")], drawInto);
})();
