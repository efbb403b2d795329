// The table in force rung by rung, with the reason for each, and the tables before it.

const SOURCES = { config: "from the configuration", hand: "set by hand", measured: "measured" };
let shownRungs = ""; // what was drawn last: drawn anew, details would close and lose the focus

/** Takes an answer of GET /policy/explain; `decoding`: batch sizes at present. */
function showTables({ kinds }, decoding) {
  const wanted = JSON.stringify([kinds, decoding]);
  if (wanted === shownRungs) return;
  shownRungs = wanted;
  const open = new Set([...document.querySelectorAll("#tables details[open]")].map((details) => details.dataset.rung));
  const focused = document.activeElement?.closest?.("#tables details")?.dataset.rung;
  write($("table-source"), kinds.length === 1 ? tableSource(kinds[0]) : "");
  $("tables").replaceChildren(...kinds.map((kind) => tableOf(kind, kinds.length > 1, decoding, open)));
  if (focused) document.querySelector(`#tables details[data-rung="${CSS.escape(focused)}"] summary`)?.focus();
}

function tableSource({ version, mode, source }) {
  return `version ${version}, ${mode}, ${SOURCES[source] ?? source}`;
}

function tableOf(kind, isOneOfSeveral, decoding, open) {
  const heads = [["Batch size", ""], ["Draft length", "number"], ["Tokens a round", "number extra"], ["Per token", "number"], ["At length 0", "number extra"], ["Gain", "number"]];
  const body = el("tbody");
  for (const rung of kind.rungs) body.append(...rowsOf(rung, kind, decoding, open));
  const table = el("table", { class: "rungs" },
    el("thead", {}, el("tr", {}, ...heads.map(([head, look]) => el("th", { scope: "col", class: look }, head)))),
    body);
  if (isOneOfSeveral) table.prepend(el("caption", {}, `${kind.kind}: ${tableSource(kind)}`));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table in force, scrollable" }, table);
}

function rowsOf(rung, kind, decoding, open) {
  const { first, last, at_first: low, at_last: high } = rung;
  const isNow = decoding.some((size) => size >= first && (last === null || size <= last));
  const sizes = el("th", { scope: "row" }, stretch(first, last));
  if (isNow) sizes.append(el("span", { class: "now" }, "now"));
  const length = el("td", { class: "number" }, String(rung.draft_len));
  if (rung.modelled !== rung.looked_up) length.append(el("small", {}, rung.modelled < rung.looked_up ? `${rung.modelled} modelled` : `${rung.looked_up} looked up`));
  const range = (name, told) => {
    if (!("batch_size" in low)) return NOTHING;
    const [one, other] = [told(low[name]), told(high[name])];
    return one === other ? one : `${one.replace(/ (ms|%)$/, "")} to ${other}`;
  };
  const gain = rung.draft_len ? range("speedup", (factor) => `${factor >= 1 ? "+" : "−"}${Math.abs(100 * (factor - 1)).toFixed(0)} %`) : NOTHING;
  const number = (text, more = "") => el("td", { class: `number ${more}` }, text);
  const name = `${kind.kind} ${first}`;
  return [
    el("tr", {}, sizes, length, number(range("tokens_per_round", digits), "extra"), number(range("seconds_per_token", milliseconds)),
      number(range("seconds_per_token_without", milliseconds), "extra"), number(gain, "gain")),
    el("tr", { class: "why" }, el("td", { colspan: "6" },
      el("details", { "data-rung": name, open: open.has(name) ? "" : null },
        el("summary", {}, `Why ${rung.draft_len} at ${stretch(first, last)}`),
        el("ul", { class: "reasons" }, ...rung.why.split("; ").map((part) => el("li", {}, part.replaceAll(" %", "\u00a0%"))))))),
  ];
}

/** Takes an answer of GET /policy; newest first. */
function showHistory(described, nowUnixS) {
  const kinds = described.kinds ?? [{ history: described.history ?? [] }];
  const entries = kinds.flatMap(({ kind, history }) => history.map((entry) => ({ ...entry, kind })));
  entries.sort((one, other) => other.at_unix_s - one.at_unix_s || other.version - one.version);
  const items = entries.map((entry) => el("li", {},
    el("p", {}, el("span", {}, `Version ${entry.version}`), " ", el("span", { class: "when" }, `${span(Math.max(0, nowUnixS - entry.at_unix_s))} ago${entry.kind ? `, ${entry.kind}` : ""}`)),
    el("p", { class: "lengths" }, lengthsOf(entry.rungs)),
    el("p", { class: "note" }, entry.why)));
  $("history").replaceChildren(...(items.length ? items : [el("li", {}, "Nothing is known of earlier tables at the moment.")]));
}
