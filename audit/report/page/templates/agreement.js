(() => {
  const { drawPicture, drawWhenSeen, showLines } = page;
  const data = JSON.parse(document.getElementById("data").textContent);

  async function draw(panel) {
    const canvas = panel.querySelector(".canvas");
    if (canvas.dataset.drawn || !canvas.offsetWidth) return;
    canvas.dataset.drawn = "yes";
    const spec = structuredClone(data.spec);
    spec.datasets = { ...spec.datasets, rows: data.rows };
    await drawPicture(canvas, spec, data.config,
      (handler, event, item, value) => showLines(event, value && item ? [item.datum.s, item.datum.x] : []));
    canvas.dataset.drawn = "done";
  }

  drawWhenSeen([...document.querySelectorAll(".panel")], draw);
})();
