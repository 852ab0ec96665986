// Texts to vectors: what a model makes of them, and how near they are to each other.
import { announce } from "../announce.js";
import { BASE, call, useSession } from "../api.js";
import { count } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { useFetch } from "../live.js";
import { CodeForms, curl, openaiClient, python } from "../ui/code.js";
import { ErrorBox, Loading } from "../ui/error_box.js";
import { Similarity } from "./try_similarity.js";
import { Vectors } from "./try_vectors.js";

export const title = () => "Try it";

const MAX_TEXTS = 50;
const EXAMPLE = "How do I get my money back?\nRefunds are paid within ten days.\nThe weather is fine today.";
const ITEM = /^input\[0\](: | )?/;

// What was entered stays while other screens are visited, and goes when the key is forgotten.
const EMPTY = { texts: EXAMPLE, model: "", dimensions: "", prompt: "" };
let entered = EMPTY;
let enteredBy = 0;

export function Screen() {
  const { key, person } = useSession();
  const { data, error, reload } = useFetch("v1/models");
  const [form, setForm] = useState(person === enteredBy ? entered : EMPTY);
  const [run, setRun] = useState(null);
  const change = (changes) => {
    enteredBy = person;
    entered = { ...form, ...changes };
    setForm(entered);
  };
  if (!data) return html`<h1 tabindex="-1">Try it</h1>
    <${ErrorBox} error=${error} again=${reload} title="The models cannot be read" />
    ${!error && html`<${Loading} what="the models" />`}`;
  const models = data.data;
  const model = models.find(({ id }) => id === form.model) ?? models.find(({ ready }) => ready) ?? models[0];
  const texts = form.texts.split("\n").filter((text) => text.trim());
  const options = optionsOf(form, model);
  return html`<h1 tabindex="-1">Try it</h1>
    <${Form} form=${form} change=${change} models=${models} model=${model} number=${texts.length} run=${run}
      start=${() => embedAll(texts.slice(0, MAX_TEXTS), options, setRun)} />
    ${run && html`<${Results} run=${run} />`}
    <h2>The same call as code</h2>
    <${CodeForms} forms=${codeForms({ input: texts, ...options }, Boolean(key))} />`;
}

function optionsOf({ dimensions, prompt }, model) {
  const options = { model: model?.id };
  if (dimensions) options.dimensions = Number(dimensions);
  if (prompt && model?.prompts.includes(prompt)) options.prompt_name = prompt;
  return options;
}

function purposeOf(name, { query_prompt: query, document_prompt: document }) {
  return name === query ? " (for queries)" : name === document ? " (for documents)" : "";
}

function Form({ form, change, models, model, number, run, start }) {
  const busy = run !== null && !run.ended;
  const submit = (event) => {
    event.preventDefault();
    if (number && !busy) start();
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  const set = (name) => (event) => change({ [name]: event.target.value });
  return html`<form class="box" onSubmit=${submit} aria-label="Texts">
    <label class="field">Texts, one per line
      <textarea rows="5" spellcheck="false" value=${form.texts} onInput=${set("texts")} onKeyDown=${onKeyDown}></textarea>
    </label>
    <div class="filters">
      <label>Model
        <select onChange=${set("model")}>${models.map(({ id, ready }) => html`<option key=${id} value=${id} selected=${id === model?.id}>
          ${id}${ready ? "" : " (no worker)"}</option>`)}</select>
      </label>
      <label>Dimensions
        <input type="number" class="short" min="1" max=${model?.dimension} placeholder=${model?.dimension} value=${form.dimensions} onInput=${set("dimensions")} />
      </label>
      ${model?.prompts.length > 0 && html`<label>Prompt
        <select onChange=${set("prompt")}>
          <option value="" selected=${!form.prompt}>the model's default</option>
          ${model.prompts.map((name) => html`<option key=${name} value=${name} selected=${name === form.prompt}>${name}${purposeOf(name, model)}</option>`)}
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
  const run = { texts, options, results: [], ended: false, began: performance.now() };
  setRun(run);
  const results = await Promise.all(texts.map((text) => embed(text, options)));
  const general = results.find(({ error }) => error && !error.param?.startsWith("input"))?.error ?? null;
  setRun({ ...run, results, general, ended: true, seconds: (performance.now() - run.began) / 1000 });
  const failed = results.filter(({ error }) => error).length;
  announce(`${results.length - failed} of ${results.length} texts have vectors.`);
}

async function embed(text, options) {
  try {
    const { data, usage } = await call("v1/embeddings", { method: "POST", body: { input: [text], ...options } });
    return { text, vector: data[0].embedding, truncated: data[0].truncated === true, tokens: usage.prompt_tokens };
  } catch (error) {
    return { text, error: { code: error.code, param: error.param, status: error.status, message: error.message.replace(ITEM, "") } };
  }
}

function Results({ run }) {
  const { results, general, ended, options } = run;
  const top = useRef(null);
  useEffect(() => {
    if (ended) top.current?.focus();
  }, [ended]);
  if (!ended) return html`<${Loading} what="the vectors" />`;
  const whole = general && results.every(({ error }) => error);
  if (whole) return html`<${ErrorBox} error=${general} title="No vectors were made" />`;
  const embedded = results.map((result, index) => ({ ...result, number: index + 1 })).filter(({ vector }) => vector);
  return html`<h2 ref=${top} tabindex="-1">Vectors</h2>
    <${Vectors} results=${results} seconds=${run.seconds} model=${options.model} />
    ${embedded.length > 1 && html`<h2>Similarity</h2><${Similarity} results=${embedded} />`}`;
}

function codeForms(body, key) {
  const { input, model, dimensions, prompt_name } = body;
  const fields = [`input=${python(input)}`, `model=${python(model ?? null)}`];
  if (dimensions) fields.push(`dimensions=${dimensions}`);
  if (prompt_name) fields.push(`extra_body=${python({ prompt_name })}`);
  const create = `answer = client.embeddings.create(\n${fields.map((field) => `    ${field},\n`).join("")})\n`;
  return [
    { name: "curl", text: curl(BASE, "v1/embeddings", { method: "POST", body, key }) },
    { name: "Python", text: `${openaiClient(BASE, key)}\n${create}for item in answer.data:\n    print(item.index, item.embedding[:4])\n` },
  ];
}
