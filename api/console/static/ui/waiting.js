// Why something has not ended yet, in the API's sentence.
import { html } from "../html.js";

const USUAL = new Set(["in_line", "working"]);

export function Waiting({ waiting }) {
  if (!waiting) return null;
  const usual = USUAL.has(waiting.code);
  return html`<div class=${usual ? "box" : "box calm"}>
    <p><strong>${usual ? "Why it is not done:" : "It waits:"}</strong> ${waiting.message}</p>
  </div>`;
}
