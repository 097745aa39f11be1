// Pictures: curves over time, and tiles whose areas are loads.

const SVG = "http://www.w3.org/2000/svg";

// A hue for each rank: neighbours differ.
export const colour = (rank) => `hsl(${(168 + rank * 137) % 360} 55% 48%)`;

// A number as people read it: three digits and a unit.
export function short(value) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return (value / size).toPrecision(3) + unit;
  }
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toPrecision(2);
}

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The next of 1, 2, 5, 10, 20, … above a value.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) ?? value;
}

// Areas on top of each other. `series`: rank and values, the newest last; null where none is known.
export function stacked(figure, series, seconds) {
  const [width, height, left, bottom] = [Math.max(figure.clientWidth, 240), 190, 44, 20];
  const count = Math.max(2, ...series.map(({ values }) => values.length));
  const sums = Array.from({ length: count }, () => 0);
  const x = (at) => left + ((width - left) * at) / (count - 1);
  const top = ceiling(Math.max(10, ...sums.map((_, at) => series.reduce((sum, { values }) =>
    sum + (values[values.length - count + at] ?? 0), 0))));
  const y = (value) => (height - bottom) * (1 - value / top) + 4;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const part of [0, 0.5, 1]) {
    const at = y(top * part);
    svg.append(element("line", { class: "grid", x1: left, x2: width, y1: at, y2: at }));
    svg.append(element("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, short(top * part)));
  }
  for (const { rank, values } of series) {
    const value = (at) => values[values.length - count + at] ?? 0;
    const below = sums.map((sum, at) => `${x(at).toFixed(1)},${y(sum).toFixed(1)}`).reverse();
    const above = sums.map((sum, at) => {
      sums[at] = sum + value(at);
      return `${x(at).toFixed(1)},${y(sums[at]).toFixed(1)}`;
    });
    const points = [...above, ...below].join(" ");
    svg.append(element("polygon", { points, fill: colour(rank), "fill-opacity": 0.75 }));
  }
  const span = seconds >= 120 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds)} s ago`;
  svg.append(element("text", { x: left, y: height - 2 }, span));
  svg.append(element("text", { x: width, y: height - 2, "text-anchor": "end" }, "now"));
  figure.replaceChildren(svg);
}

// Places for loads in a rectangle, in order, as nearly square as they get (squarified treemap:
// Bruls, Huizing and van Wijk, 2000).
export function squarified(loads, width, height) {
  const total = loads.reduce((sum, load) => sum + load, 0) || 1;
  const areas = loads.map((load) => (load / total) * width * height);
  const places = [];
  let [left, top, wide, high, start] = [0, 0, width, height, 0];
  const worst = (row, side) => {
    const sum = row.reduce((all, area) => all + area, 0);
    return Math.max(...row.map((area) => Math.max((side * side * area) / (sum * sum),
      (sum * sum) / (side * side * area))));
  };
  while (start < areas.length) {
    const side = Math.min(wide, high);
    let end = start + 1;
    while (end < areas.length
      && worst(areas.slice(start, end + 1), side) <= worst(areas.slice(start, end), side)) end += 1;
    const row = areas.slice(start, end);
    const thick = row.reduce((all, area) => all + area, 0) / side;
    let along = 0;
    for (const area of row) {
      const length = area / thick;
      places.push(wide >= high
        ? { left, top: top + along, width: thick, height: length }
        : { left: left + along, top, width: length, height: thick });
      along += length;
    }
    if (wide >= high) [left, wide] = [left + thick, wide - thick];
    else [top, high] = [top + thick, high - thick];
    start = end;
  }
  return places;
}
