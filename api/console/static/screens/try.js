// Texts to vectors: what a model makes of them, how near they are to each other, and the same call as code.
import { announce, BASE, call, session, useFetch } from "../api.js";
import { count, duration } from "../format.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "../html.js";
import { ErrorBox, Reading } from "../parts/banner.js";
import { Code, copy, curl } from "../parts/code.js";
import { Badge } from "../parts/progress.js";
import { Table } from "../parts/table.js";

const MAX_TEXTS = 50;
const MAX_COMPARED = 20;
const SHOWN_NUMBERS = 4;
const EXAMPLE = "How do I get my money back?\nRefunds are paid within ten days.\nThe weather is fine today.";
const ITEM = /^input\[0\](: | )?/;

// What was entered stays while other screens are visited, and goes when the key is forgotten.
let entered = null;

export function Try() {
  const { person } = session;
  const read = useFetch("v1/models");
  const [form, setForm] = useState(entered?.person === person ? entered : { person, texts: EXAMPLE, model: "", dimensions: "", prompt: "" });
  const [run, setRun] = useState(null);
  const change = (changes) => {
    entered = { ...form, ...changes };
    setForm(entered);
  };
  if (!read.data) return html`<h1 tabindex="-1">Try it</h1><${Reading} of=${read} what="the models" />`;
  const models = read.data.data;
  const model = models.find(({ id }) => id === form.model) ?? models.find(({ ready }) => ready) ?? models[0];
  const texts = form.texts.split("\n").filter((text) => text.trim());
  const options = {
    model: model?.id,
    ...(form.dimensions && { dimensions: Number(form.dimensions) }),
    ...(model?.prompts.includes(form.prompt) && { prompt_name: form.prompt }),
  };
  return html`<h1 tabindex="-1">Try it</h1>
    <${Form} form=${form} change=${change} models=${models} model=${model} number=${texts.length} busy=${run !== null && !run.results}
      start=${() => embedAll(texts.slice(0, MAX_TEXTS), options, setRun)} />
    ${run && html`<${Results} run=${run} />`}
    <h2>The same call as code</h2>
    <${CodeForms} body=${{ input: texts, ...options }} />`;
}

function Form({ form, change, models, model, number, busy, start }) {
  const submit = (event) => {
    event.preventDefault();
    if (number && !busy) start();
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  const set = (name) => (event) => change({ [name]: event.target.value });
  const purpose = (name) => (name === model.query_prompt ? " (for queries)" : name === model.document_prompt ? " (for documents)" : "");
  return html`<form class="box" onSubmit=${submit} aria-label="Texts">
    <label class="field">Texts, one per line
      <textarea rows="5" spellcheck="false" value=${form.texts} onInput=${set("texts")} onKeyDown=${onKeyDown}></textarea>
    </label>
    <div class="filters">
      <label>Model
        <select onChange=${set("model")}>
          ${models.map(({ id, ready }) => html`<option key=${id} value=${id} selected=${id === model?.id}>${id}${ready ? "" : " (no worker)"}</option>`)}
        </select>
      </label>
      <label>Dimensions
        <input type="number" class="short" min="1" max=${model?.dimension} placeholder=${model?.dimension}
          value=${form.dimensions} onInput=${set("dimensions")} />
      </label>
      ${model?.prompts.length > 0 && html`<label>Prompt
        <select onChange=${set("prompt")}>
          <option value="" selected=${!form.prompt}>the model's default</option>
          ${model.prompts.map((name) => html`<option key=${name} value=${name} selected=${name === form.prompt}>${name}${purpose(name)}</option>`)}
        </select>
      </label>`}
      <button type="submit" class="primary" disabled=${busy || !number} aria-keyshortcuts="Control+Enter">
        ${busy ? "Working …" : "Make vectors"}
      </button>
    </div>
    <p class="muted">${number > MAX_TEXTS ? `Only the first ${MAX_TEXTS} of ${count(number)} texts are sent from here. ` : ""}The
      texts go to this server only. They do not appear among the jobs.</p>
  </form>`;
}

// One call for each text, so that each has tokens and an error of its own. The code shown sends all of them at once.
async function embedAll(texts, options, setRun) {
  const began = performance.now();
  setRun({});
  const results = await Promise.all(texts.map((text, index) => embed(text, index + 1, options)));
  const vectors = results.filter(({ vector }) => vector);
  setRun({ results, vectors, model: options.model, seconds: (performance.now() - began) / 1000 });
  announce(`${vectors.length} of ${results.length} texts have vectors.`);
}

async function embed(text, number, options) {
  try {
    const { data, usage } = await call("v1/embeddings", { method: "POST", body: { input: [text], ...options } });
    return { text, number, vector: data[0].embedding, truncated: data[0].truncated === true, tokens: usage.prompt_tokens };
  } catch ({ code, param, status, message }) {
    return { text, number, error: { code, param, status, message: message.replace(ITEM, "") } };
  }
}

// ---- what became of the texts ---------------------------------------------------------------------------------------

function Results({ run: { results, vectors, model, seconds } }) {
  const top = useRef(null);
  useEffect(() => top.current?.focus(), [results]);
  if (!results) return html`<${Reading} of=${{}} what="the vectors" />`;
  const general = results.find(({ error }) => error && !error.param?.startsWith("input"))?.error; // not of one text alone
  if (general && !vectors.length) return html`<${ErrorBox} error=${general} title="No vectors were made" />`;
  const tokens = results.reduce((sum, result) => sum + (result.tokens ?? 0), 0);
  const took = seconds < 1 ? `${Math.round(seconds * 1000)} ms` : duration(seconds);
  return html`<h2 ref=${top} tabindex="-1">Vectors</h2>
    <p class="muted">Texts: ${count(results.length)} · tokens: ${count(tokens)} · ${took} · ${model}</p>
    <${Table} caption="Vectors" columns=${COLUMNS} rows=${results} rowKey=${({ number }) => number} />
    ${vectors.length > 1 && html`<h2>Similarity</h2><${Similarity} results=${vectors} />`}`;
}

const COLUMNS = [
  { label: "Text", wide: true, show: ({ number, text }) => html`<strong>${number}</strong> ${shortened(text)}` },
  { label: "Tokens", number: true, show: ({ tokens, truncated }) => html`${count(tokens)} ${truncated && html`<${Badge} state="truncated" tone="calm" />`}` },
  { label: "Dimension", number: true, show: ({ vector }) => count(vector?.length) },
  { label: "Vector", wide: true, show: ({ vector, error }) => (error
    ? html`<span class="bad-text">${error.message}</span><span class="sub"><code>${error.code}</code></span>`
    : html`<code>[${vector.slice(0, SHOWN_NUMBERS).map((one) => one.toFixed(4)).join(", ")}${vector.length > SHOWN_NUMBERS ? ", …" : ""}]</code>`) },
  { label: "Copy", show: ({ vector, number }) => vector && html`<button type="button" class="small" aria-label=${`Copy vector ${number}`}
      onClick=${() => copy(JSON.stringify(vector), `Vector ${number} is copied.`)}>Copy</button>` },
];

const shortened = (text, most = 300) => (text.length > most ? `${text.slice(0, most)} …` : text);

// The cosine of each pair of vectors, all of one length. results: [{number, text, vector}].
function Similarity({ results }) {
  const shown = results.slice(0, MAX_COMPARED);
  const cosines = useMemo(() => shown.map((one) => shown.map((other) => cosine(one.vector, other.vector))), [results]);
  return html`<p class="muted">The cosine of the angle between two vectors: 1 for the same direction, 0 for unrelated ones.
      ${results.length > MAX_COMPARED && ` Only the first ${MAX_COMPARED} texts are compared.`}</p>
    <div class="matrix" tabindex="0" role="region" aria-label="Similarity of the texts">
      <table>
        <caption class="unseen">Cosine similarity of each pair of texts</caption>
        <thead><tr>
          <th scope="col">Text</th>
          ${shown.map(({ number, text }) => html`<th key=${number} scope="col" title=${shortened(text)}>${number}</th>`)}
        </tr></thead>
        <tbody>${shown.map(({ number, text }, row) => html`<tr key=${number}>
          <th scope="row"><strong>${number}</strong> <span class="muted">${shortened(text, 60)}</span></th>
          ${cosines[row].map((value, column) => html`<td key=${column} style=${{ "--share": Math.max(0, value).toFixed(2) }}>${rounded(value)}</td>`)}
        </tr>`)}</tbody>
      </table>
    </div>`;
}

const rounded = (value) => (Math.round(value * 100) / 100 || 0).toFixed(2); // without -0.00

function cosine(one, other) {
  const dot = (left, right) => left.reduce((sum, value, index) => sum + value * right[index], 0);
  return dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other)) || 0;
}

// ---- the same call as code ------------------------------------------------------------------------------------------

function CodeForms({ body }) {
  const [chosen, setChosen] = useState("curl");
  const id = useId();
  const forms = { curl: () => curl("v1/embeddings", body), Python: () => python(body, session.key) };
  return html`<div class="choices" role="group" aria-label="Form of the request">
      ${Object.keys(forms).map((name) => html`<button key=${name} type="button" class="small"
        aria-pressed=${String(name === chosen)} aria-controls=${id} onClick=${() => setChosen(name)}>${name}</button>`)}
    </div>
    <div id=${id}><${Code} key=${chosen} text=${forms[chosen]()} label=${`${chosen} code`} /></div>`;
}

// With the `openai` package. Texts and lists of them are written in Python as in JSON.
function python({ input, model, dimensions, prompt_name: prompt }, key) {
  return `${key ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url="${new URL("v1", BASE).href}", api_key=${key ? 'os.environ["EMBEDQ_API_KEY"]' : '"none"'})

answer = client.embeddings.create(
    input=[${input.map((text) => JSON.stringify(text)).join(", ")}],
    model=${JSON.stringify(model ?? "")},
${dimensions ? `    dimensions=${dimensions},\n` : ""}${prompt ? `    extra_body={"prompt_name": ${JSON.stringify(prompt)}},\n` : ""})
for item in answer.data:
    print(item.index, item.embedding[:4])
`;
}
