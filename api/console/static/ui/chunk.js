// A slice of a document as a person reads it.
import { count } from "../format.js";
import { html, useState } from "../html.js";

const FIRST_CHARACTERS = 2000;
const NO_METADATA = Object.freeze({});

// chunk: {document_id, chunk, text, start, end, headings, page, metadata}. children: shown beside its name.
export function Chunk({ chunk, children }) {
  const { document_id, text, headings, metadata } = chunk;
  return html`<article class="chunk">
    <div class="chunk-head"><strong>${document_id}</strong> <span class="muted">${placeOf(chunk)}</span> ${children}</div>
    ${headings?.length > 0 && html`<p class="muted">${headings.join(" › ")}</p>`}
    <${Text} text=${text} />
    <${Metadata} metadata=${metadata ?? NO_METADATA} />
  </article>`;
}

function Text({ text }) {
  const [all, setAll] = useState(text.length <= FIRST_CHARACTERS);
  return html`<p class="chunk-text">${all ? text : `${text.slice(0, FIRST_CHARACTERS)} …`}</p>
    ${!all && html`<button type="button" class="small" onClick=${() => setAll(true)}>Show all ${count(text.length)} characters</button>`}`;
}

function placeOf({ chunk, start, end, page }) {
  const parts = [`chunk ${count(chunk)}`];
  if (page != null) parts.push(`page ${count(page)}`);
  if (start != null) parts.push(`characters ${count(start)} to ${count(end)}`);
  return parts.join(" · ");
}

export function Metadata({ metadata }) {
  const pairs = Object.entries(metadata);
  if (!pairs.length) return null;
  return html`<ul class="metadata" aria-label="Metadata">
    ${pairs.map(([name, value]) => html`<li key=${name}><span class="muted">${name}</span> ${typeof value === "string" ? value : JSON.stringify(value)}</li>`)}
  </ul>`;
}
