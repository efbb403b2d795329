// What GET /policy says of the replicas, once a second: numbers, plots, and the list of replicas.

const SPAN_S = 120;
const POSITIONS_LEAST = 2;

const samples = []; // one for each answer, of the last SPAN_S seconds
let costs = new Map(); // by kind of replica: what GET /policy/explain says by batch size

const plots = {
  batch: new Plot($("plot-batch"), "Batch size"),
  length: new Plot($("plot-length"), "Draft length in force"),
  acceptance: new Plot($("plot-acceptance"), "Kept, by position in the draft"),
  pace: new Plot($("plot-pace"), "Milliseconds per token, estimated"),
};

/** Takes what the policy explains: its estimates are drawn from now on. */
function learnCosts(explained) {
  costs = new Map(explained.kinds.map((kind) => [kind.kind, kind.by_batch_size]));
}

/** Seconds a token at a batch size, with the table and without drafts; null where none are known. */
function paceOf(replica) {
  const points = costs.get(replica.kind) ?? costs.values().next().value ?? [];
  const above = points.findIndex((point) => point.batch_size >= replica.decoding);
  if (!replica.decoding || !points.length) return null;
  const high = points.at(above), low = points[Math.max(0, above - 1)]; // above -1: the last one
  const share = high === low ? 0 : Math.min(1, (replica.decoding - low.batch_size) / (high.batch_size - low.batch_size));
  const between = (name) => low[name] + share * (high[name] - low[name]);
  return { with: between("seconds_per_token"), without: between("seconds_per_token_without") };
}

/** What a silent one last told of itself no longer counts. */
function isReady(replica) {
  return replica.stage === "ready" && !replica.is_silent;
}

/** Takes an answer of GET /policy. */
function takeSample(described, nowS) {
  const working = described.replicas.filter((replica) => isReady(replica) && "decoding" in replica);
  const paces = working.map(paceOf).filter((pace) => pace !== null);
  samples.push({
    atS: nowS,
    rate: sum(working.map((replica) => replica.tokens_per_s)),
    batches: working.map((replica) => replica.decoding),
    lengths: working.filter((replica) => replica.decoding).map((replica) => replica.draft_len),
    with: mean(paces.map((pace) => pace.with)),
    without: mean(paces.map((pace) => pace.without)),
    counts: new Map(working.map((replica) => [replica.replica_id, replica])),
  });
  while (samples[0].atS < nowS - SPAN_S) samples.shift();
  showTiles();
  showPlots(nowS);
  showReplicas(described);
}

/** Sums of a count by position over the replicas, less what each had counted `before`. */
function byPosition(name, before) {
  const total = [];
  for (const [id, replica] of samples.at(-1).counts) {
    const earlier = before.get(id);
    // Counts begin anew when the policy actor does.
    const less = earlier !== undefined && earlier.rounds <= replica.rounds ? earlier[name] : [];
    replica[name].forEach((count, position) => {
      total[position] = (total[position] ?? 0) + count - (less[position] ?? 0);
    });
  }
  return total;
}

/** By position: [drafted, kept], of the last two minutes; of all time where those had none. */
function acceptance() {
  const isRecent = sum(byPosition("drafted_by_position", samples[0].counts)) > 0;
  const before = isRecent ? samples[0].counts : new Map();
  const kept = byPosition("accepted_by_position", before);
  const bars = byPosition("drafted_by_position", before).map((drafted, position) => [drafted, kept[position] ?? 0]);
  return { isRecent, bars };
}

function showTiles() {
  const { rate, batches, lengths, with: pace, without } = samples.at(-1);
  const { bars } = acceptance();
  const drafted = sum(bars.map(([count]) => count)), kept = sum(bars.map(([, count]) => count));
  write($("tile-rate"), rate ? digits(rate) : "0");
  write($("tile-batch"), batches.length ? String(sum(batches)) : NOTHING);
  write($("tile-length"), counted(mean(lengths)));
  write($("tile-kept"), drafted ? percent(kept / drafted) : NOTHING);
  write($("tile-speedup"), pace ? times(without / pace) : NOTHING);
}

function showPlots(nowS) {
  const band = (values, atS) => [nowS - atS, mean(values), Math.min(...values), Math.max(...values)];
  const overTime = (name) => samples.map((sample) => band(sample[name], sample.atS));
  const line = (name) => samples.map((sample) => [nowS - sample.atS, sample[name] === null ? null : 1000 * sample[name]]);
  const most = (name) => Math.max(0, ...samples.flatMap((sample) => sample[name]));
  const last = samples.at(-1);
  plots.batch.show(
    timeLines([{ look: "mark-second", points: overTime("batches") }], SPAN_S, true),
    keysAt(nowS, (sample) => [[batchOf(sample), "mark-second"]]),
    `now ${batchOf(last)}; at most ${most("batches")} in the last two minutes`,
  );
  plots.length.show(
    timeLines([{ look: "mark-draft", step: true, points: overTime("lengths") }], SPAN_S, true),
    keysAt(nowS, (sample) => [[lengthOf(sample), "mark-draft"]]),
    `now ${lengthOf(last)}; at most ${most("lengths")} in the last two minutes`,
  );
  showAcceptance();
  plots.pace.show(
    timeLines([
      { look: "mark-plain dashed", points: line("without") },
      { look: "mark-draft", points: line("with") },
    ], SPAN_S, false),
    keysAt(nowS, (sample) => [
      [`table ${digits(1000 * (sample.with ?? NaN))}`, "mark-draft"],
      [`length 0 ${digits(1000 * (sample.without ?? NaN))}`, "mark-plain dashed"],
    ]),
    last.with ? `${milliseconds(last.with)} with the table, ${milliseconds(last.without)} at length 0, ${times(last.without / last.with)} as fast as without drafts` : "nothing decodes",
  );
}

const ofAll = ({ batches }) => (batches.length > 1 ? ", mean of the replicas" : "");
const batchOf = (sample) => `${counted(mean(sample.batches))} decoding${ofAll(sample)}`;
const lengthOf = (sample) => (sample.lengths.length ? tokens(counted(mean(sample.lengths))) + ofAll(sample) : "nothing decodes");

/** What `keyOf` says of the sample that is pointed at, or of the last one. */
function keysAt(nowS, keyOf) {
  return (share) => {
    if (share === null) return keyOf(samples.at(-1));
    const atS = nowS - (1 - share) * SPAN_S;
    const nearest = samples.reduce((best, sample) => (Math.abs(sample.atS - atS) < Math.abs(best.atS - atS) ? sample : best));
    const [[label, look], ...others] = keyOf(nearest);
    return [[`${span(nowS - nearest.atS)} ago: ${label}`, look], ...others];
  };
}

function showAcceptance() {
  const { isRecent, bars } = acceptance();
  const told = bars.map(([drafted, kept], index) => [
    String(index + 1),
    drafted ? kept / drafted : null,
    `position ${index + 1}: ${kept} of ${drafted} kept`,
  ]);
  while (told.length < POSITIONS_LEAST) told.push([String(told.length + 1), null, ""]);
  const drafted = sum(bars.map(([count]) => count));
  plots.acceptance.show(
    shareBars(told),
    () => [[drafted ? `of ${drafted.toLocaleString("en")} drafted ${isRecent ? "lately" : "since the start"}` : "nothing drafted yet", "mark-draft"]],
    drafted ? told.filter(([, share]) => share !== null).map(([, share, note]) => `${note}, ${percent(share)}`).join("; ") : "nothing drafted yet",
  );
}

function showReplicas({ replicas, table, kinds }) {
  const versions = new Map((kinds ?? []).map((kind) => [kind.kind, kind.table.version]));
  const rows = replicas.map((replica) => {
    const drafted = replica.drafted_tokens, newest = versions.get(replica.kind) ?? table.version;
    const state = replica.is_silent ? "silent" : replica.stage || "starting";
    const inForce = replica.version_in_force === newest ? `v${newest}` : `v${replica.version_in_force} of v${newest}`;
    const number = (text) => el("td", { class: "number" }, text);
    return el("tr", {},
      el("th", { scope: "row" }, replica.replica_id),
      el("td", {}, replica.kind ? `${state}, ${replica.kind}` : state),
      number(replica.tokens_per_s === undefined ? NOTHING : digits(replica.tokens_per_s)),
      number(String(replica.decoding ?? NOTHING)),
      number(String(replica.waiting ?? NOTHING)),
      number(replica.decoding ? String(replica.draft_len) : NOTHING),
      number(drafted ? percent(replica.accepted_tokens / drafted) : NOTHING),
      number(replica.kv_use === undefined ? NOTHING : percent(replica.kv_use)),
      number(inForce),
      number(`${span(replica.seen_s_ago)} ago`));
  });
  $("replicas").tBodies[0].replaceChildren(...rows);
}
