// A small line of the last values: enough to see whether something grows.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 28;

/** Draw values from the left to the right, from zero to their largest; `label` says what is seen. */
export function spark(values, label) {
  const svg = document.createElementNS(SVG, "svg");
  const attributes = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img", "aria-label": label, preserveAspectRatio: "none" };
  for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
  if (values.length < 2) return svg;
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, at) => {
    const x = (at / (values.length - 1)) * WIDTH;
    return `${x.toFixed(1)},${(HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1)}`;
  });
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}
