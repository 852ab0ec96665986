// Texts to vectors: what a model makes of them, how near they are to each other, and the same call as code.
import { announce, BASE, call, session, useFetch } from "../api.js";
import { count, duration, since, some } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { ErrorNotice, Notice, Reading } from "../parts/banner.js";
import { Copy, Empty, Table } from "../parts/table.js";

const [MAX_TEXTS, MAX_COMPARED, SHOWN_NUMBERS] = [50, 20, 3];
const EXAMPLE = "How do I get my money back?\nRefunds are paid within ten days.\nThe weather is fine today.";
const ITEM = /^input\[0\](: | )?/;

// What was entered stays while other screens are visited, and goes when the key is forgotten.
let entered = null;

export function Try({ service }) {
  const { person } = session;
  const read = useFetch("v1/models");
  const [form, setForm] = useState(entered?.person === person ? entered : { person, texts: EXAMPLE, model: "", dimensions: "", prompt: "" });
  const [run, setRun] = useState(null);
  const set = (name) => (event) => {
    entered = { ...form, [name]: event.target.value };
    setForm(entered);
  };
  const head = html`<div class="head"><h1 tabindex="-1">Try it</h1></div>`;
  if (!read.data || !(service.data || service.error)) return html`${head}<${Reading} of=${read.error ? read : {}} what="the models" />`;
  const models = read.data.data;
  const model = models.find(({ id }) => id === form.model) ?? models.find(({ ready }) => ready) ?? models[0];
  const live = service.data?.models.find(({ names }) => names.includes(model?.id));
  const texts = form.texts.split("\n").filter((text) => text.trim());
  const options = {
    model: model?.id,
    ...(form.dimensions && { dimensions: Number(form.dimensions) }),
    ...(model?.prompts?.includes(form.prompt) && { prompt_name: form.prompt }),
  };
  const start = () => embedAll(texts.slice(0, MAX_TEXTS), options, setRun);
  return html`${head}<div class="tryit">
    <${Form} form=${form} set=${set} models=${models} model=${model} absent=${live && !live.workers.length ? live : null}
      texts=${texts} options=${options} busy=${run !== null && !run.results} start=${start} />
    <div>${run ? html`<${Results} run=${run} />` : html`<${Empty} title="No vectors yet">
      <p>Each text becomes a vector here, and the table shows how near they are to each other.</p>
    <//>`}</div>
  </div>`;
}

function Form({ form, set, models, model, absent, texts, options, busy, start }) {
  const submit = (event) => {
    event.preventDefault();
    if (texts.length && !busy && !absent) start();
  };
  const purpose = (name) => (name === model.query_prompt ? " (queries)" : name === model.document_prompt ? " (documents)" : "");
  return html`<form class="card" onSubmit=${submit} aria-label="Texts">
    <label class="field">Texts, one a line, at most ${MAX_TEXTS}
      <textarea spellcheck="false" value=${form.texts} onInput=${set("texts")}></textarea></label>
    <label class="field">Model <select onChange=${set("model")}>
      ${models.map(({ id }) => html`<option key=${id} value=${id} selected=${id === model?.id}>${id}</option>`)}
    </select></label>
    <div class="two">
      ${model?.prompts?.length > 0 && html`<label class="field">As <select onChange=${set("prompt")}>
        <option value="" selected=${!form.prompt}>its default</option>
        ${model.prompts.map((name) => html`<option key=${name} value=${name} selected=${name === form.prompt}>${name}${purpose(name)}</option>`)}
      </select></label>`}
      <label class="field">Dimensions <input type="number" min="1" max=${model?.dimension} placeholder=${model?.dimension} value=${form.dimensions} onInput=${set("dimensions")} /></label>
    </div>
    ${absent
      ? html`<${Notice} title=${`No worker serves this model${absent.absent_since ? ` ${since(absent.absent_since)}` : ""}.`}>
          ${absent.loading.length ? "One loads it." : html`Start one: <code>embedq worker</code>`}<//>`
      : html`<button type="submit" class="primary" disabled=${busy || !texts.length}>
          ${busy ? "Embedding …" : `Embed ${some(Math.min(texts.length, MAX_TEXTS), "text")}`}</button>`}
    ${" "}<${Copy} label="Copy as curl" what="The curl command" text=${() => curl("v1/embeddings", { input: texts, ...options })} />
  </form>`;
}

// A call that posts JSON, as `curl` for a shell; the key is the name of a variable, never the key itself.
function curl(path, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  return [
    `curl -s -X POST ${quoted(new URL(path, BASE).href)}`,
    ...(session.key ? ['-H "Authorization: Bearer $EMBEDQ_API_KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body, null, 2))}`,
  ].join(" \\\n     ");
}

// One call for each text, so that each has tokens and an error of its own.
async function embedAll(texts, options, setRun) {
  const began = performance.now();
  setRun({});
  const results = await Promise.all(texts.map((text, index) => embed(text, index + 1, options)));
  const vectors = results.filter(({ vector }) => vector);
  setRun({ results, vectors, seconds: (performance.now() - began) / 1000 });
  announce(`${vectors.length} of ${some(results.length, "text")} have vectors.`);
}

async function embed(text, number, options) {
  try {
    const { data, usage } = await call("v1/embeddings", { method: "POST", body: { input: [text], ...options } });
    return { text, number, vector: data[0].embedding, truncated: data[0].truncated === true, tokens: usage.prompt_tokens };
  } catch ({ code, param, message }) {
    return { text, number, error: { code, param, message: message.replace(ITEM, "") } };
  }
}

// ---- what became of the texts ---------------------------------------------------------------------------------------

function Results({ run: { results, vectors, seconds } }) {
  const top = useRef(null);
  useEffect(() => top.current?.focus({ preventScroll: true }), [results]);
  if (!results) return html`<${Reading} of=${{}} what="the vectors" />`;
  const general = results.find(({ error }) => error && !error.param?.startsWith("input"))?.error; // not of one text alone
  if (general && !vectors.length) return html`<${ErrorNotice} error=${general} title="No vectors were made." />`;
  const tokens = results.reduce((sum, result) => sum + (result.tokens ?? 0), 0);
  const took = seconds < 1 ? `${Math.round(seconds * 1000)}\u00a0ms` : duration(seconds);
  return html`<h2 ref=${top} tabindex="-1">Vectors <small>${some(tokens, "token")} in ${took}</small></h2>
    <${Table} caption="Vectors" columns=${COLUMNS} rows=${results} rowKey=${({ number }) => number} />
    ${vectors.length > 1 && html`<${Cosines} results=${vectors} />`}`;
}

const shortened = (text, most = 300) => (text.length > most ? `${text.slice(0, most)} …` : text);
const COLUMNS = [
  { label: "Text", show: ({ number, text }) => html`${number} <span>${shortened(text)}</span>` },
  { label: "Tokens", number: true, show: ({ tokens, truncated }) => html`${tokens != null && count(tokens)}${truncated && html` <small class="wait">cut</small>`}` },
  { label: "Vector", show: ({ vector, number, error }) => (error
    ? html`<span class="bad">${error.message}</span> <small><code>${error.code}</code></small>`
    : html`<small>${some(vector.length, "number")}: ${vector.slice(0, SHOWN_NUMBERS).map((one) => one.toFixed(3)).join(", ")} …</small>
      <${Copy} text=${() => JSON.stringify(vector)} what=${`vector ${number}`} />`) },
];

// The cosine of each pair of vectors, all of one length. results: [{number, text, vector}].
function Cosines({ results }) {
  const shown = results.slice(0, MAX_COMPARED);
  const cosines = useMemo(() => shown.map((one) => shown.map((other) => cosine(one.vector, other.vector))), [results]);
  return html`<h2>Cosine <small>1 is the same direction, 0 is unrelated${results.length > MAX_COMPARED ? `; of the first ${MAX_COMPARED}` : ""}</small></h2>
    <div class="framed matrix" tabindex="0" role="region" aria-label="Cosines"><table class="cos">
      <caption class="unseen">Cosine of each pair of texts</caption>
      <thead><tr><th scope="col">Text</th>${shown.map(({ number, text }) => html`<th key=${number} scope="col" title=${shortened(text)}>${number}</th>`)}</tr></thead>
      <tbody>${shown.map(({ number, text }, row) => html`<tr key=${number}>
        <th scope="row">${number} ${shortened(text, 60)}</th>
        ${cosines[row].map((value, column) => html`<td key=${column} style=${{ "--v": Math.max(0, value).toFixed(2) }}>${rounded(value)}</td>`)}
      </tr>`)}</tbody>
    </table></div>`;
}

const rounded = (value) => (Math.round(value * 100) / 100 || 0).toFixed(2).replace("-", "−"); // without -0.00

function cosine(one, other) {
  const dot = (left, right) => left.reduce((sum, value, index) => sum + value * right[index], 0);
  return dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other)) || 0;
}
