// One job.
import { html } from "../html.js";

export const title = (name) => `Job ${name}`;

export function Screen({ name }) {
  return html`<h1 tabindex="-1">Job ${name}</h1>`;
}
