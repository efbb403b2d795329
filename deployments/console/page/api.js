// The API of the server that sent this page, with the key that was given, if it asks for one.

const BASE = location.pathname.replace(/\/console\/?$/, "");
const KEY_NAME = "paceline-key";
const ANSWER_MS = 10_000; // of a question for numbers; an answer of the model takes what it takes

/** The server refused: 401 or any other status. */
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.needsKey = status === 401;
  }
}

const key = {
  get: () => sessionStorage.getItem(KEY_NAME),
  /** Nothing forgets it. */
  set: (value) => (value ? sessionStorage.setItem(KEY_NAME, value) : sessionStorage.removeItem(KEY_NAME)),
};

/** The response, whose status is 200. Throws Refused, or TypeError where nobody answers. */
async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  const response = await fetch(BASE + path, { ...options, headers, credentials: "same-origin" });
  if (!response.ok) throw new Refused(response.status, await reasonOf(response));
  return response;
}

/** Throws a DOMException too: where the server takes the question and doesn't answer in time. */
async function ask(path) {
  return (await request(path, { signal: AbortSignal.timeout(ANSWER_MS) })).json();
}

async function reasonOf(response) {
  const text = await response.text();
  try {
    return String(JSON.parse(text).error.message);
  } catch {
    return text.slice(0, 200) || `the server answered ${response.status}`;
  }
}

/** Chunks of a streamed chat, as they come. `signal` ends it, here and on the server. */
async function* chatChunks(body, signal) {
  const response = await request("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (unread + value).split("\n\n");
    unread = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}
