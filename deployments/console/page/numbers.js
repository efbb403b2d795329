// Numbers in words.

const NOTHING = "–";

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => (values.length ? sum(values) / values.length : null);

/** Three digits or so. */
function digits(value) {
  if (value === null || !Number.isFinite(value)) return NOTHING;
  return value >= 100 ? Math.round(value).toLocaleString("en") : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A mean of whole numbers: without a fraction where it has none. */
function counted(value) {
  if (value === null || !Number.isFinite(value)) return NOTHING;
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

const percent = (share) => (share === null ? NOTHING : `${Math.round(100 * share)} %`);
const milliseconds = (seconds) => `${digits(1000 * seconds)} ms`;
const times = (factor) => (factor === null ? NOTHING : `${factor.toFixed(2)}×`);

function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** Batch sizes that a rung is for; `last` is null where it has no end. */
function stretch(first, last) {
  if (last === null) return first === 1 ? "any" : `${first} or more`;
  return first === last ? String(first) : `${first} to ${last}`;
}

const tokens = (count) => (count === "1" ? "1 token" : `${count} tokens`);

/** [[2, 4], [8, 2]] as "4 at 1 to 2 · 2 at 3 to 8". */
function lengthsOf(rungs) {
  if (!rungs.length) return "no drafts";
  let first = 1;
  const told = [];
  for (const [largest, length] of rungs) {
    told.push(`${length} at ${stretch(first, largest >= 2 ** 31 - 1 ? null : largest)}`);
    first = largest + 1;
  }
  return told.join(" · ");
}
