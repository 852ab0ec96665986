// How a job stands: its state as a badge, its progress as a bar, and the stages that it goes through.
import { count, words } from "../format.js";
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
const STAGE_WORDS = { done: "done", now: "at work", next: "not begun" };

// The tone is a colour beside the word, never instead of it.
export function Badge({ state, tone = TONES[state] ?? "calm" }) {
  return html`<span class=${`badge ${tone}`}>${words(state)}</span>`;
}

export function Progress({ counts: { completed, failed, total }, ended, label }) {
  const done = completed + failed;
  const share = total ? Math.min(1, done / total) : 0;
  return html`<div class="progress">
    <progress max="1" value=${share} aria-label=${label}></progress>
    <span class="figures">
      ${total
        ? html`<span>${count(done)} of ${count(total)} · ${Math.floor(share * 100)} %</span>`
        : ended ? "nothing was done" : "nothing counted yet"}
      ${failed > 0 && html` <span class="bad-text">${count(failed)} failed</span>`}
    </span>
  </div>`;
}

// stages: [name, whether it has begun, whether it is done, text], in order.
export function Stages({ stages }) {
  return html`<ol class="stages">
    ${stages.map(([name, begun, done, text]) => {
      const state = done ? "done" : begun ? "now" : "next";
      return html`<li key=${name} class=${state} aria-current=${state === "now" ? "step" : undefined}>
        <strong>${name}</strong> <span class="unseen">${STAGE_WORDS[state]}</span> <span class="sub">${text}</span>
      </li>`;
    })}
  </ol>`;
}
