// An error that a person reads: what happened and what to do, in the words of the API.
import { html } from "../html.js";

// error: an ApiError or a {code, message} of the API. again: called by a button, where repeating may help.
export function ErrorBox({ error, again, title = "This did not work" }) {
  if (!error || error.code === "unreachable" || error.code === "invalid_api_key") return null; // the frame says so
  return html`<div class="box bad" role="alert">
    <h2>${title}</h2>
    <p>${error.message}</p>
    <p class="muted">Code <code>${error.code}</code>${error.status ? html`, status ${error.status}` : ""}</p>
    ${again && html`<button type="button" onClick=${again}>Try again</button>`}
  </div>`;
}

// Shown where there is nothing yet: what it would be, and the command that makes the first one.
export function Empty({ title, children }) {
  return html`<div class="box empty"><h2>${title}</h2>${children}</div>`;
}

export function Loading({ what }) {
  return html`<p class="muted" role="status">Reading ${what} …</p>`;
}
