// One answer while it comes: its text token by token, and what became of its drafts.

class Answer {
  constructor(log) {
    this.text = el("div", { class: "message-text" });
    this.note = el("p", { class: "message-note" });
    this.element = el("article", { class: "message", "aria-label": "Answer" }, this.text, this.note);
    log.append(this.element);
    this.startedMs = performance.now();
    this.firstMs = null;
    this.lastMs = null;
    this.characters = 0; // shown so far, as the server counts them: code points
    this.numTokens = 0;
    this.numKept = 0;
    this.numRejected = 0;
    this.token = null; // the span that text goes to
    write(this.note, "waiting for the first token");
  }

  /** Takes new text, and the marks of the tokens that begin in it. */
  push(text, marks) {
    this.lastMs = performance.now();
    this.firstMs ??= this.lastMs;
    const characters = [...text];
    let written = 0;
    for (const mark of marks) {
      const begins = Math.min(Math.max(mark.offset - this.characters, written), characters.length);
      this.append(characters.slice(written, begins).join(""));
      written = begins;
      this.open(mark);
    }
    this.append(characters.slice(written).join(""));
    this.characters += characters.length;
    this.showNote();
  }

  /** The server's own counts, of all tokens, those without text included. */
  end(usage, how) {
    if (usage) {
      this.numTokens = usage.completion_tokens;
      this.numKept = usage.completion_tokens_details.accepted_prediction_tokens;
      this.numRejected = usage.completion_tokens_details.rejected_prediction_tokens;
    }
    this.showNote(how);
  }

  fail(message) {
    this.element.classList.add("error");
    this.append(this.text.textContent ? `\n${message}` : message);
    if (!this.numTokens) write(this.note, "");
  }

  append(text) {
    if (!text) return;
    if (this.token === null) this.text.append((this.token = el("span", { class: "token" })));
    this.token.append(text);
  }

  open({ drafted, rejected }) {
    this.numTokens += 1;
    this.numKept += drafted ? 1 : 0;
    this.numRejected += rejected;
    // A token that is a part of a character shares the span of its last part.
    if (this.token === null || this.token.textContent) this.text.append((this.token = el("span")));
    this.token.className = drafted ? "token kept" : "token";
    const dropped = Number(this.token.dataset.rejected ?? 0) + rejected;
    if (dropped) this.token.dataset.rejected = dropped;
    this.token.title = drafted ? "kept from a draft" : dropped ? `the model's own, in the place of ${dropped} rejected` : "the model's own";
  }

  get tokensPerS() {
    const seconds = (this.lastMs - this.firstMs) / 1000;
    return this.numTokens > 1 && seconds > 0 ? (this.numTokens - 1) / seconds : null;
  }

  showNote(how = "") {
    const drafted = this.numKept + this.numRejected;
    const told = [tokens(String(this.numTokens))];
    if (this.tokensPerS !== null) told.push(`${digits(this.tokensPerS)} tokens/s`);
    if (this.firstMs !== null) told.push(`first after ${digits((this.firstMs - this.startedMs) / 1000)} s`);
    told.push(drafted ? `${this.numKept} of ${drafted} drafted kept, ${this.numRejected} rejected` : "nothing drafted");
    if (how) told.push(how);
    write(this.note, told.join(" · "));
  }
}
