// Code with a button that copies it.
import { announce, BASE, session } from "../api.js";
import { html, useState } from "../html.js";

// Puts a text on the clipboard and announces it; false where the browser does not let it.
export async function copy(text, done = "Copied.") {
  const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  announce(copied ? done : "The browser does not let this page copy. Select the text instead.");
  return Boolean(copied);
}

export function Code({ text, label = "code" }) {
  const [copied, setCopied] = useState(null); // the text
  const click = async () => {
    if (await copy(text)) setCopied(text);
  };
  return html`<div class="code">
    <pre tabindex="0" role="region" aria-label=${label}><code>${text}</code></pre>
    <button type="button" class="small" onClick=${click} aria-label=${`Copy ${label}`}>${copied === text ? "Copied" : "Copy"}</button>
  </div>`;
}

// A shell word.
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// A call that posts JSON, as `curl` for a shell; the key is the name of a variable, never the key itself. path: "v1/…".
export function curl(path, body) {
  return [
    `curl -s -X POST ${quoted(new URL(path, BASE).href)}`,
    ...(session.key ? ['-H "Authorization: Bearer $EMBEDQ_API_KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n     ");
}
