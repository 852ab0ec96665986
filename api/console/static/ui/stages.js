// The stages that something goes through, in order: which are done, which is at work, and their counts.
import { html } from "../html.js";

// stages: [{name, state: "done"|"now"|"next", text}]
export function StageList({ stages }) {
  return html`<ol class="stages">
    ${stages.map(({ name, state, text }) => html`<li key=${name} class=${state} aria-current=${state === "now" ? "step" : undefined}>
      <strong>${name}</strong> <span class="unseen">${WORDS[state]}</span> <span class="sub">${text}</span>
    </li>`)}
  </ol>`;
}

const WORDS = { done: "done", now: "at work", next: "not begun" };
