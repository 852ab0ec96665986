// What became of each text: its tokens, its vector, or why it has none.
import { announce } from "../announce.js";
import { count, duration } from "../format.js";
import { html } from "../html.js";
import { Badge } from "../ui/state.js";
import { Table } from "../ui/table.js";

const SHOWN_NUMBERS = 4;
const SHOWN_CHARACTERS = 300;

export const shortened = (text, most = SHOWN_CHARACTERS) => (text.length > most ? `${text.slice(0, most)} …` : text);

export function Vectors({ results, seconds, model }) {
  const tokens = results.reduce((sum, result) => sum + (result.tokens ?? 0), 0);
  const took = seconds < 1 ? `${Math.round(seconds * 1000)} ms` : duration(seconds);
  return html`<p class="muted">Texts: ${count(results.length)} · tokens: ${count(tokens)} · ${took} · ${model}</p>
    <${Table} caption="Vectors" columns=${COLUMNS} rows=${results.map((result, index) => ({ ...result, index }))} rowKey=${({ index }) => index} />`;
}

const COLUMNS = [
  { key: "text", label: "Text", wide: true, show: ({ index, text }) => html`<strong>${index + 1}</strong> ${shortened(text)}` },
  { key: "tokens", label: "Tokens", number: true, show: ({ tokens, truncated }) => html`${count(tokens)} ${truncated && html`<${Badge} state="truncated" tone="calm" />`}` },
  { key: "dimension", label: "Dimension", number: true, show: ({ vector }) => count(vector?.length) },
  { key: "vector", label: "Vector", wide: true, show: (result) => (result.error ? html`<${Failure} error=${result.error} />` : html`<${Numbers} vector=${result.vector} />`) },
  { key: "copy", label: "Copy", show: ({ vector, index }) => vector && html`<button type="button" class="small" aria-label=${`Copy vector ${index + 1}`} onClick=${() => copy(vector, index)}>Copy</button>` },
];

function Numbers({ vector }) {
  const first = vector.slice(0, SHOWN_NUMBERS).map((number) => number.toFixed(4));
  return html`<code>[${first.join(", ")}${vector.length > SHOWN_NUMBERS ? ", …" : ""}]</code>`;
}

function Failure({ error }) {
  return html`<span class="bad-text">${error.message}</span>
    <span class="sub"><code>${error.code}</code></span>`;
}

async function copy(vector, index) {
  try {
    await navigator.clipboard.writeText(JSON.stringify(vector));
    announce(`Vector ${index + 1} is copied.`);
  } catch {
    announce("The browser does not let this page copy.");
  }
}
