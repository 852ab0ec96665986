// What is said above a screen or in it: that the API is away, that something failed, that something waits.
import { reload, session } from "../api.js";
import { capital } from "../format.js";
import { html } from "../html.js";

const USUAL = new Set(["in_line", "working"]);
// Codes of errors that the frame tells: no box repeats them.
export const SAID_BY_FRAME = new Set(["unreachable", "invalid_api_key"]);

// Whether the API answers, and what is announced to people who do not see the page.
export function Banner() {
  const { online, said } = session;
  return html`<div role="status" class=${online ? "unseen" : "banner"}>
      ${online ? "" : "The API does not answer. What you see is as it was; this page connects again by itself."}
    </div>
    <div class="unseen" aria-live="polite">${said}</div>`;
}

// error: an ApiError or a {code, message} of the API, in whose words it is shown. again: reading anew may help.
export function ErrorBox({ error, again, title = "This did not work" }) {
  if (!error || SAID_BY_FRAME.has(error.code)) return null;
  return html`<div class="box bad" role="alert">
    <h2>${title}</h2>
    <p>${error.message}</p>
    <p class="muted">Code <code>${error.code}</code>${error.status ? html`, status ${error.status}` : ""}</p>
    ${again && html`<button type="button" onClick=${reload}>Try again</button>`}
  </div>`;
}

// What is shown of a reading, as `useFetch` returns it, beside its data. what: with its article.
export function Reading({ of: { data, error }, what }) {
  if (!data && !error) return html`<p class="muted" role="status">Reading ${what} …</p>`;
  return html`<${ErrorBox} error=${error} again title=${data ? "This may be old: the last reading failed" : `${capital(what)} cannot be read`} />`;
}

// Why something has not ended yet, in the API's sentence.
export function Waiting({ waiting }) {
  if (!waiting) return null;
  const usual = USUAL.has(waiting.code);
  return html`<div class=${usual ? "box" : "box calm"}>
    <p><strong>${usual ? "Why it is not done:" : "It waits:"}</strong> ${waiting.message}</p>
  </div>`;
}
