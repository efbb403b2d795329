// Small plots in SVG, drawn anew at each change. Each says in words what it shows.

const MARGIN = { left: 34, right: 8, top: 12, bottom: 20 };
const LEAST_WIDTH = 120;
const GAP_S = 8;

/** A place in `figure` for a picture under a title. */
class Plot {
  constructor(figure, title) {
    this.key = el("div", { class: "key" });
    this.svg = svg("svg", { role: "img", "aria-label": `${title}: no data yet` });
    this.title = title;
    const canvas = el("div", { class: "canvas" }, this.svg);
    figure.append(el("figcaption", {}, title, this.key), canvas);
    this.draw = () => [];
    this.keyAt = () => [];
    this.pointedX = null;
    canvas.addEventListener("pointermove", (event) => this.pointAt(event.offsetX));
    canvas.addEventListener("pointerleave", () => this.pointAt(null));
    new ResizeObserver(() => this.paint()).observe(canvas);
  }

  pointAt(x) {
    this.pointedX = x;
    this.paint();
  }

  /** `draw(width, height)` gives the picture's elements, `says` what is to be seen, for who does not
   * see it. `keyAt` gives [label, look] of each line, and is told where someone points: a share of
   * the width, or null. */
  show(draw, keyAt, says) {
    this.draw = draw;
    this.keyAt = keyAt;
    this.svg.setAttribute("aria-label", `${this.title}: ${says}`);
    this.paint();
  }

  paint() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (width < LEAST_WIDTH || height < 60) return;
    const inside = width - MARGIN.left - MARGIN.right;
    const x = this.pointedX === null ? null : Math.min(Math.max(this.pointedX, MARGIN.left), MARGIN.left + inside);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...this.draw(width, height));
    if (x !== null) this.svg.append(svg("line", { class: "pointed", x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom }));
    const entries = this.keyAt(x === null ? null : (x - MARGIN.left) / inside);
    this.key.replaceChildren(...entries.map(([label, look]) => el("span", { class: look }, label)));
  }
}

/** Largest value of an axis, and the distance of its lines: 1, 2 or 5 times a power of ten. */
function scaleTo(largest, wholeNumbers) {
  const rough = Math.max(largest, wholeNumbers ? 1 : 1e-9) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  if (wholeNumbers) step = Math.max(1, Math.round(step));
  return { top: step * Math.max(1, Math.ceil((largest * 0.999) / step)), step };
}

function horizontalLines({ top, step }, y, width, label) {
  const lines = [];
  for (let value = 0; value <= top * 1.001; value += step) {
    lines.push(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    lines.push(svg("text", { class: "axis", x: MARGIN.left - 7, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  }
  return lines;
}

/** Lines over the last `spanS` seconds. `series`: {look, step, points: [[secondsAgo, value, low, high]]},
 * where a value of null is a gap, and a band goes from low to high. */
function timeLines(series, spanS, wholeNumbers) {
  return (width, height) => {
    const values = series.flatMap(({ points }) => points.flatMap(([, value, , high]) => [value ?? 0, high ?? 0]));
    const scale = scaleTo(Math.max(0, ...values), wholeNumbers);
    const x = (ago) => width - MARGIN.right - (ago / spanS) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => height - MARGIN.bottom - (value / scale.top) * (height - MARGIN.top - MARGIN.bottom);
    const drawn = horizontalLines(scale, y, width, (value) => String(Number(value.toPrecision(3))));
    const below = height - 4;
    drawn.push(svg("text", { class: "axis", x: MARGIN.left, y: below }, `${span(spanS)} ago`));
    drawn.push(svg("text", { class: "axis", x: width - MARGIN.right, y: below, "text-anchor": "end" }, "now"));
    for (const { look, step, points } of series) {
      for (const run of unbroken(points)) {
        if (run.some(([, , low, high]) => high > low)) {
          const upper = run.map(([ago, , , high]) => `${x(ago)},${y(high)}`);
          const lower = run.map(([ago, , low]) => `${x(ago)},${y(low)}`).reverse();
          drawn.push(svg("polygon", { class: `band ${look}`, points: [...upper, ...lower].join(" ") }));
        }
        drawn.push(svg("path", { class: `trace ${look}`, d: pathOf(run, x, y, step) }));
      }
    }
    return drawn;
  };
}

/** Runs of points without a gap: a value of null, or a time in which nobody looked. */
function unbroken(points) {
  const runs = [[]];
  let before = null;
  for (const point of points) {
    if (point[1] === null || (before !== null && before - point[0] > GAP_S)) runs.push([]);
    if (point[1] !== null) runs.at(-1).push(point);
    before = point[0];
  }
  return runs.filter((run) => run.length);
}

function pathOf(run, x, y, step) {
  const [[ago, value], ...rest] = run;
  let path = `M${x(ago)} ${y(value)}`;
  for (const [nextAgo, next] of rest) path += step ? `H${x(nextAgo)}V${y(next)}` : `L${x(nextAgo)} ${y(next)}`;
  return run.length === 1 ? `${path}h0.01` : path;
}

/** A bar for each share of [label, share or null, note]. */
function shareBars(bars) {
  return (width, height) => {
    const y = (share) => height - MARGIN.bottom - share * (height - MARGIN.top - 12 - MARGIN.bottom);
    const drawn = horizontalLines({ top: 1, step: 0.5 }, y, width, (share) => `${100 * share} %`);
    const slot = (width - MARGIN.left - MARGIN.right) / Math.max(4, bars.length);
    const thick = Math.min(40, slot * 0.7);
    bars.forEach(([label, share, note], index) => {
      const middle = MARGIN.left + slot * (index + 0.5);
      const left = middle - thick / 2;
      drawn.push(svg("rect", { class: "bar-ground", x: left, y: y(1), width: thick, height: y(0) - y(1), rx: 3 }));
      if (share !== null) {
        drawn.push(svg("rect", { class: "bar", x: left, y: y(share), width: thick, height: y(0) - y(share), rx: 3 }, svg("title", {}, note)));
        const value = slot < 30 ? Math.round(100 * share) : percent(share);
        drawn.push(svg("text", { class: "bar-value", x: middle, y: y(share) - 4, "text-anchor": "middle" }, String(value)));
      }
      drawn.push(svg("text", { class: "axis", x: middle, y: height - 4, "text-anchor": "middle" }, label));
    });
    return drawn;
  };
}
