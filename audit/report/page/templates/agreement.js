(() => {
  const { drawPicture, drawWhenSeen } = page;
  const data = JSON.parse(document.getElementById("data").textContent);

  drawWhenSeen([...document.querySelectorAll(".panel")], async (panel, canvas) => {
    const spec = structuredClone(data.spec);
    spec.datasets = { ...spec.datasets, rows: data.rows };
    await drawPicture(canvas, spec, data.config, (row) => [row.s, row.x]);
  });
})();
