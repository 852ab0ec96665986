// How a job stands: its state as a badge and its progress as a bar.
import { count, percent } from "../format.js";
import { html } from "../html.js";

const TONES = {
  completed: "good",
  failed: "bad",
  expired: "bad",
  cancelled: "muted",
  cancelling: "muted",
  in_progress: "busy",
  finalizing: "busy",
};

// The words of the API, readable. The tone is a colour beside the word, never instead of it.
export function Badge({ state, tone = TONES[state] ?? "calm" }) {
  return html`<span class=${`badge ${tone}`}>${state.replaceAll("_", " ")}</span>`;
}

export function Progress({ done, failed = 0, total, ended, label }) {
  const share = total ? Math.min(1, (done + failed) / total) : 0;
  return html`<div class="progress">
    <progress max="1" value=${share} aria-label=${label}></progress>
    <span class="figures">
      ${total ? html`<span>${count(done + failed)} of ${count(total)} · ${percent(share)}</span>` : ended ? "nothing was done" : "nothing counted yet"}
      ${failed > 0 && html` <span class="bad-text">${count(failed)} failed</span>`}
    </span>
  </div>`;
}
