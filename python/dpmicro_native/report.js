// Draws the figures in the colours of the page, and again when the colours or the paper change.
(() => {
  "use strict";
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);

  // {"css": "--name"} stands for the colour that the style sheet gives that name now.
  const coloured = (value, style) => {
    if (Array.isArray(value)) return value.map((item) => coloured(item, style));
    if (value === null || typeof value !== "object") return value;
    if (typeof value.css === "string") return style.getPropertyValue(value.css).trim();
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, style)]));
  };

  const axis = (style, own) => ({
    gridcolor: style.getPropertyValue("--grid").trim(),
    linecolor: style.getPropertyValue("--line").trim(),
    zeroline: false,
    automargin: true,
    ...own,
    title: { standoff: 8, ...own?.title },
  });

  const draw = () => {
    const style = getComputedStyle(root);
    const drawn = Object.entries(figures).map(([id, figure]) => {
      const { data, layout } = coloured(figure, style);
      const axes = Object.fromEntries(
        [...new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis/.test(key))])]
          .map((key) => [key, axis(style, layout[key])]),
      );
      return Plotly.react(id, data, {
        font: {
          family: 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif',
          size: 12.5,
          color: style.getPropertyValue("--ink").trim(),
        },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        margin: { l: 48, r: 12, t: 36, b: 44 },
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
        hoverlabel: { bgcolor: style.getPropertyValue("--raised").trim() },
        autosize: true,
        ...layout,
        ...axes,
      }, { responsive: true, displaylogo: false, displayModeBar: false });
    });
    return Promise.all(drawn).then((all) => { root.dataset.drawn = String(all.length); });
  };

  addEventListener("error", () => { root.dataset.failed = "true"; });
  addEventListener("beforeprint", () => {
    root.dataset.printing = "";
    draw();
    for (const id of Object.keys(figures)) Plotly.Plots.resize(id);
  });
  addEventListener("afterprint", () => {
    delete root.dataset.printing;
    draw();
    for (const id of Object.keys(figures)) Plotly.Plots.resize(id);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
