// Why something has not ended yet, and what to do: the sentence is the API's, the advice the documentation's.
import { adviceFor } from "../advice.js";
import { html } from "../html.js";

const USUAL = new Set(["in_line", "working"]);

export function Waiting({ waiting }) {
  if (!waiting) return null;
  const usual = USUAL.has(waiting.code);
  return html`<div class=${usual ? "box" : "box calm"}>
    <p><strong>${usual ? "Why it is not done:" : "It waits:"}</strong> ${waiting.message}</p>
    ${!usual && html`<p><strong>What to do:</strong> ${adviceFor(waiting.code, "waiting")}</p>`}
  </div>`;
}
