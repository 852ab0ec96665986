// Code with a button that copies it, and several forms of one call as tabs.
import { announce } from "../announce.js";
import { html, useId, useState } from "../html.js";

export function Code({ text, label = "code" }) {
  const [copied, setCopied] = useState(null); // the text
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(text);
      announce("Copied.");
    } catch {
      announce("The browser does not let this page copy. Select the text instead.");
    }
  };
  return html`<div class="code">
    <pre tabindex="0" role="region" aria-label=${label}><code>${text}</code></pre>
    <button type="button" class="small" onClick=${copy} aria-label=${`Copy ${label}`}>${copied === text ? "Copied" : "Copy"}</button>
  </div>`;
}

// forms: [{name, text}], such as curl and Python.
export function CodeForms({ forms }) {
  const [chosen, setChosen] = useState(forms[0].name);
  const id = useId();
  const form = forms.find(({ name }) => name === chosen) ?? forms[0];
  return html`<div>
    <div class="choices" role="group" aria-label="Form of the request">
      ${forms.map(({ name }) => html`<button
        key=${name}
        type="button"
        class="small"
        aria-pressed=${String(name === form.name)}
        aria-controls=${id}
        onClick=${() => setChosen(name)}
      >${name}</button>`)}
    </div>
    <div id=${id}><${Code} key=${form.name} text=${form.text} label=${`${form.name} code`} /></div>
  </div>`;
}

// How a key is sent in code that a person copies: by the name of a variable, never the key itself.
const KEY_VARIABLE = "$EMBEDQ_API_KEY";

// A shell word.
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// A call as `curl` for a shell. path: "v1/…"; body: sent as JSON.
export function curl(base, path, { method = "GET", body, key = false } = {}) {
  const lines = [`curl -s ${method === "GET" ? "" : `-X ${method} `}${quoted(new URL(path, base).href)}`];
  if (key) lines.push(`-H "Authorization: Bearer ${KEY_VARIABLE}"`);
  if (body !== undefined) lines.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n     ");
}

// The first lines of Python code that calls this server with the `openai` package.
export function openaiClient(base, key) {
  const how = key ? 'os.environ["EMBEDQ_API_KEY"]' : '"none"';
  return `${key ? "import os\n\n" : ""}from openai import OpenAI\n\nclient = OpenAI(base_url="${new URL("v1", base).href}", api_key=${how})\n`;
}

// A value of JSON as Python writes it.
export function python(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`).join(", ")}}`;
}
