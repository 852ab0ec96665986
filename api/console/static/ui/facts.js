// Names and values side by side.
import { html } from "../html.js";

// facts: pairs of a name and its content; false ones are left out.
export function Facts({ facts }) {
  return html`<dl class="facts">
    ${facts.filter(Boolean).map(([name, content]) => html`<div key=${name}><dt>${name}</dt><dd>${content}</dd></div>`)}
  </dl>`;
}
