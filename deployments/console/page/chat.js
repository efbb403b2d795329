// The conversation: sending, stopping, clearing.

const messages = [];
let running = null; // of the answer that is coming: its AbortController
let modelName = "";

const ENDS = { length: "stopped at max tokens", stop: "" };

function setModel({ id, max_model_len: limit }) {
  modelName = id;
  write($("model"), `${id}, context ${limit.toLocaleString("en")}`);
}

function say(text, className, label) {
  const spoken = el("div", { class: "message-text" }, text);
  $("log").append(el("article", { class: `message ${className}`, "aria-label": label }, spoken));
}

async function send() {
  const prompt = $("prompt").value.trim();
  if (!prompt || running || !$("chat-form").reportValidity()) return;
  $("log-empty")?.remove();
  messages.push({ role: "user", content: prompt });
  say(prompt, "mine", "You");
  $("prompt").value = "";
  const conversation = [...messages];
  const answer = new Answer($("log"));
  setRunning(new AbortController());
  announce("The model answers.");
  scrollDown();
  const mine = running;
  let text = "";
  let said = "";
  try {
    const ended = await receive(answer, requestBody(conversation), mine.signal, (part) => (text += part));
    said = `Answer: ${text}. ${answer.note.textContent}`;
    if (ended && mine === running) scrollDown();
  } catch (error) {
    if (error.name === "AbortError") {
      answer.end(null, "stopped");
      said = `Stopped. ${answer.note.textContent}`;
    } else {
      answer.fail(error.message);
      said = `Failed: ${error.message}`;
      if (error.needsKey) askForKey(error.message);
    }
  }
  if (mine !== running) return; // cleared meanwhile
  // A part of an answer is a part of the conversation; of none, the question is taken back.
  if (text) messages.push({ role: "assistant", content: text });
  else messages.pop();
  setRunning(null);
  announce(said);
}

function requestBody(conversation) {
  const drafts = $("drafts").value;
  return {
    model: modelName,
    messages: conversation,
    temperature: Number($("temperature").value),
    max_tokens: Number($("max-tokens").value),
    include_draft_marks: true,
    stream_options: { include_usage: true },
    ...(drafts === "" ? {} : { speculation: { max_draft_tokens: Number(drafts) } }),
  };
}

/** Whether the stream came to its end. */
async function receive(answer, body, signal, take) {
  let how = "";
  for await (const { choices, usage } of chatChunks(body, signal)) {
    for (const { delta, draft_marks: marks, finish_reason: reason } of choices) {
      const follows = isAtEnd();
      if (delta.content || marks) {
        answer.push(delta.content ?? "", marks ?? []);
        take(delta.content ?? "");
      }
      if (reason) how = ENDS[reason] ?? reason;
      if (follows) scrollDown();
    }
    if (usage) {
      answer.end(usage, how);
      return true;
    }
  }
  return false;
}

function setRunning(controller) {
  const hadFocus = document.activeElement === $("stop");
  running = controller;
  $("send").disabled = controller !== null;
  $("stop").disabled = controller === null;
  if (hadFocus && controller === null) $("prompt").focus();
}

function clear() {
  running?.abort();
  setRunning(null);
  messages.length = 0;
  $("log").replaceChildren();
  announce("The conversation is cleared.");
  $("prompt").focus();
}

/** Once for each answer, at its end: a screen reader would be flooded by tokens. */
function announce(text) {
  write($("announcer"), text);
}

const isAtEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 60;
const scrollDown = () => ($("log").scrollTop = $("log").scrollHeight);

function setUpChat() {
  $("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !$("key-dialog").open) running?.abort();
  });
  $("stop").addEventListener("click", () => running?.abort());
  $("clear").addEventListener("click", clear);
  $("temperature").addEventListener("input", () => write($("temperature-value"), $("temperature").value));
  $("show-marks").addEventListener("change", () => $("log").classList.toggle("without-marks", !$("show-marks").checked));
}
