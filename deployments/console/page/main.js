// Begins: asks for the model and for a key where one is needed, then for the numbers again and again.

const POLL_MS = 1000;
const EXPLAIN_EVERY_S = 5;
const HISTORY_EVERY_S = 5;
const THEME_NAME = "paceline-theme";

let explainedAtS = -Infinity;
let explainedVersion = null;
let historyAtS = -Infinity;
let lastExplained = null;
let wasAskedForKey = false;

function askForKey(reason) {
  if ($("key-dialog").open) return;
  if (reason) write($("key-reason"), `${reason[0].toUpperCase()}${reason.slice(1)}. It stays in this tab, and is forgotten when the tab is closed.`);
  $("key").value = "";
  $("key-dialog").showModal();
}

function tell(state, text) {
  if ($("connection").dataset.state !== state) $("connection").dataset.state = state;
  write($("connection"), text); // a status: said aloud when it changes, and no more often
}

/** One look at everything. Throws what `ask` does. */
async function look() {
  if (!modelName) {
    setModel((await ask("/v1/models")).data[0]);
    $("send").disabled = running !== null;
  }
  const described = await ask("/policy");
  const nowS = performance.now() / 1000, nowUnixS = Date.now() / 1000;
  const { reachable } = described.policy_actor ?? { reachable: true };
  if (reachable) await explain(described, nowS);
  takeSample(described, nowS);
  if (nowS - historyAtS >= HISTORY_EVERY_S || described.table.version !== explainedVersion) {
    historyAtS = nowS;
    showHistory(described, nowUnixS);
  }
  const ready = described.replicas.filter(isReady).length;
  tell(reachable ? "live" : "trouble", reachable ? `live, ${ready} of ${described.replicas.length} replicas ready` : "the policy actor is being restarted; replicas keep their table");
}

/** The reasons: when the table changes, and now and then, since estimates follow the traffic. */
async function explain(described, nowS) {
  const version = described.table.version;
  if (version !== explainedVersion || nowS - explainedAtS >= EXPLAIN_EVERY_S) {
    lastExplained = await ask("/policy/explain");
    explainedVersion = version;
    explainedAtS = nowS;
    historyAtS = -Infinity;
    learnCosts(lastExplained);
  }
  const decoding = [...new Set(described.replicas.map((replica) => replica.decoding ?? 0).filter(Boolean))].sort();
  showTables(lastExplained, decoding);
}

async function watch() {
  for (;;) {
    try {
      if (!document.hidden && !$("key-dialog").open) await look();
    } catch (error) {
      tell("trouble", error.needsKey ? "a key is needed" : error instanceof Refused ? error.message : "no answer; trying again");
      if (error.needsKey && !wasAskedForKey) {
        wasAskedForKey = true; // whoever closes the dialog is not asked again and again
        askForKey(error.message);
      }
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function setUpKey() {
  $("key-button").addEventListener("click", () => askForKey(""));
  $("key-cancel").addEventListener("click", () => $("key-dialog").close());
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = $("key").value.trim();
    if (!/^[\x21-\x7e]*$/.test(given)) {
      write($("key-reason"), "A key has letters, digits and signs of ASCII alone, and no spaces.");
      return;
    }
    key.set(given);
    wasAskedForKey = false;
    $("key").value = "";
    $("key-dialog").close();
    $("prompt").focus();
  });
}

function setUpTheme() {
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => document.documentElement.dataset.theme;
  const isDark = () => (chosen() ? chosen() === "dark" : systemIsDark.matches);
  const label = () => write($("theme-button"), isDark() ? "Light" : "Dark");
  const stored = localStorage.getItem(THEME_NAME);
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
  $("theme-button").addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem(THEME_NAME, next);
    label();
  });
  systemIsDark.addEventListener("change", label);
  label();
}

setUpTheme();
setUpKey();
setUpChat();
$("send").disabled = true; // until the model's name is known
watch();
