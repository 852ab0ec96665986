// What ingestions have loaded: the list of datasets, and one dataset to search and read.
import { announce, call, reload, useAct, useFetch } from "../api.js";
import { address, bytes, count, search, Time } from "../format.js";
import { html, useState } from "../html.js";
import { ErrorBox, Reading } from "../parts/banner.js";
import { Code, curl } from "../parts/code.js";
import { ConfirmButton } from "../parts/dialog.js";
import { Empty, Facts, Table } from "../parts/table.js";

const EVERY_MS = 10_000;
const PAGE = 100;
const DOCUMENTS_PAGE = 25;
const FIRST_CHARACTERS = 2000;
const EXAMPLE = {
  source: { documents: [{ id: "refunds", text: "Refunds are paid within ten days.", metadata: { topic: "billing" } }] },
  sink: { type: "dataset", dataset: "handbook" },
};
const VIEWS = { search: ["Search", Search], documents: ["Documents", Documents] };
const COLUMNS = [
  { label: "Dataset", wide: true, show: (dataset) => html`<a class="job-name" href=${address("datasets", dataset.name)}>${dataset.name}</a>
      ${dataset.of_one_ingestion && html`<span class="sub">of one ingestion</span>`}` },
  { label: "Documents", number: true, show: ({ documents }) => count(documents) },
  { label: "Chunks", number: true, show: ({ rows }) => count(rows) },
  { label: "Dimension", number: true, show: ({ dimension }) => count(dimension) },
  { label: "Size", number: true, show: (dataset) => bytes(dataset.bytes) },
  { label: "Changed", number: true, show: (dataset) => html`<${Time} at=${dataset.updated_at} />` },
  { label: "Actions", show: (dataset) => html`<${Delete} dataset=${dataset} />` },
];
const MODES = { vector: "by meaning", text: "by words", hybrid: "by both" };
const pathOf = (name) => `v1/datasets/${encodeURIComponent(name)}`;

export function Datasets({ query }) {
  const after = query.get("after");
  const read = useFetch(`v1/datasets?${search({ limit: PAGE, after })}`, { every: () => EVERY_MS });
  const page = read.data;
  return html`<h1 tabindex="-1">Datasets</h1>
    <${Reading} of=${read} what="the datasets" />
    ${after && html`<p><a href=${address("datasets")}>Back to the first ones</a></p>`}
    ${page && (page.data.length
      ? html`<${Table} caption="Datasets" columns=${COLUMNS} rows=${page.data} rowKey=${({ id }) => id} />`
      : html`<${Empty} title="No datasets yet">
          <p>An ingestion loads documents into a dataset, or into a table of PostgreSQL, which is not shown here. This command loads one document:</p>
          <${Code} text=${curl("v1/ingestions", EXAMPLE)} label="curl command" />
        <//>`)}
    ${page?.has_more && html`<p><a href=${address("datasets", "", { after: page.last_id })}>More datasets</a></p>`}`;
}

function Delete({ dataset: { name, rows }, gone = reload }) {
  const act = () => call(pathOf(name), { method: "DELETE" }).then(gone);
  return html`<${ConfirmButton} label="Delete" name=${`dataset ${name}`} question=${`Delete the dataset ${name}?`} danger
    consequence=${`All chunks (${count(rows)}) and their vectors are deleted for good. An ingestion that is loading into it fails.`}
    act=${act} done="The dataset is deleted." />`;
}

const leave = () => {
  location.hash = address("datasets");
};

export function Dataset({ name, query }) {
  const read = useFetch(pathOf(name), { every: () => EVERY_MS });
  const dataset = read.data;
  const view = Object.hasOwn(VIEWS, query.get("view")) ? query.get("view") : "search";
  const [, View] = VIEWS[view];
  return html`<p class="trail"><a href=${address("datasets")}>All datasets</a></p>
    <div class="heading">
      <h1 tabindex="-1">Dataset ${name}</h1>
      ${dataset && html`<div class="buttons"><${Delete} dataset=${dataset} gone=${leave} /></div>`}
    </div>
    <${Reading} of=${read} what="the dataset" />
    ${dataset && html`<${Facts} facts=${[
        ["Documents", count(dataset.documents)],
        ["Chunks", count(dataset.rows)],
        ["Size", bytes(dataset.bytes)],
        ["Version", count(dataset.version)],
        ["Changed", html`<${Time} at=${dataset.updated_at} />`],
      ]} />
      ${dataset.vectors && html`<p class="muted">Vectors of ${dataset.vectors}.</p>`}
      <nav class="views" aria-label="Views of the dataset">
        ${Object.entries(VIEWS).map(([key, [label]]) => html`<a key=${key} href=${address("datasets", name, { view: key })}
          aria-current=${key === view ? "page" : undefined}>${label}</a>`)}
      </nav>
      <${View} key=${dataset.id} dataset=${dataset} query=${query} />`}`;
}

// ---- search ---------------------------------------------------------------------------------------------------------

// Searching by meaning, by words or by both, with a filter on the metadata.
function Search({ dataset: { name } }) {
  const path = `${pathOf(name)}/search`;
  const [form, setForm] = useState({ query: "", mode: "vector", limit: 10, field: "", value: "" });
  const [sent, setSent] = useState(null);
  const [hits, setHits] = useState(null);
  const { busy, error, run } = useAct();
  const set = (field) => (event) => setForm({ ...form, [field]: event.target.value });
  const searchFor = async (value) => {
    const body = { query: form.query, mode: form.mode, limit: Number(form.limit), ...(form.field && { filter: { [form.field]: value } }) };
    setSent(body);
    return call(path, { method: "POST", body });
  };
  const submit = (event) => {
    event.preventDefault();
    if (form.query.trim()) run(async () => {
      let found = await searchFor(form.value);
      const other = scalar(form.value);
      if (form.field && !found.data.length && other !== null) found = await searchFor(other); // metadata tells 2021 from "2021"
      setHits(found);
      announce(`Chunks found: ${found.data.length}.`);
    });
  };
  return html`<h2>Search</h2>
    <form role="search" onSubmit=${submit}>
      <div class="filters">
        <label class="grow">Text
          <input type="search" class="grow" value=${form.query} onInput=${set("query")} placeholder="How do I get my money back?" /></label>
        <label>Search
          <select value=${form.mode} onChange=${set("mode")}>
            ${Object.entries(MODES).map(([mode, label]) => html`<option value=${mode}>${label}</option>`)}
          </select></label>
        <label>Results <input type="number" class="short" min="1" max="100" required value=${form.limit} onInput=${set("limit")} /></label>
        <button type="submit" class="primary" disabled=${busy}>Search</button>
      </div>
      <details>
        <summary>Only chunks with a value in their metadata</summary>
        <div class="filters">
          <label>Field <input value=${form.field} onInput=${set("field")} /></label>
          <label>Value <input value=${form.value} onInput=${set("value")} /></label>
        </div>
      </details>
    </form>
    <${ErrorBox} error=${error} title="The dataset cannot be searched" />
    ${hits && !error && html`<${Hits} hits=${hits} mode=${sent.mode} />`}
    ${sent && html`<h2>The same search as code</h2><${Code} text=${curl(path, sent)} label="curl command" />`}`;
}

// The number or boolean that a text stands for; null for none.
function scalar(text) {
  if (text === "true" || text === "false") return text === "true";
  return text.trim() && Number.isFinite(Number(text)) ? Number(text) : null;
}

function Hits({ hits: { data, rows, took_ms: took, dataset }, mode }) {
  if (!data.length) return html`<p>No chunk of ${dataset} fits.</p>`;
  return html`<p class="muted">${count(data.length)} of ${count(rows)} chunks of ${dataset}, found in ${took} ms.</p>
    <ol class="hits">
      ${data.map((chunk) => html`<li key=${`${chunk.document_id} ${chunk.chunk}`}>
        <${Chunk} chunk=${chunk}><span class="score" title=${mode === "vector" ? "Cosine similarity" : "Rank: it compares chunks of this answer"}>${chunk.score.toFixed(3)}</span><//>
      </li>`)}
    </ol>`;
}

// ---- documents and their chunks -------------------------------------------------------------------------------------

// The documents of a dataset, or the chunks of the one that the query names.
function Documents({ dataset: { name }, query }) {
  const document = query.get("document");
  const after = query.get("after");
  const what = document ? "chunks" : "documents";
  const read = useFetch(`${pathOf(name)}/${what}?${search({ limit: DOCUMENTS_PAGE, after, document_id: document })}`);
  const page = read.data;
  const to = (more) => address("datasets", name, { view: "documents", ...more });
  return html`<h2>${document ? `Chunks of ${document}` : "Documents"}</h2>
    ${document && html`<p><a href=${to({})}>All documents</a></p>`}
    <${Reading} of=${read} what=${`the ${what}`} />
    ${page && !page.data.length && html`<p>There are no ${what} here.</p>`}
    ${page?.data.length > 0 && (document
      ? page.data.map((chunk) => html`<${Chunk} key=${chunk.chunk} chunk=${chunk} />`)
      : html`<${Table} caption="Documents" columns=${documentColumns(to)} rows=${page.data} rowKey=${({ id }) => id} />`)}
    ${page && html`<p class="buttons">
      ${after && html`<a href=${to({ document })}>First page</a>`}
      ${page.has_more && html`<a href=${to({ document, after: page.last_id })}>Next page</a>`}
    </p>`}`;
}

const documentColumns = (to) => [
  { label: "Document", wide: true, show: ({ id, title, source_uri: uri, warnings }) => html`<a class="job-name" href=${to({ document: id })}>${id}</a>
      ${title && html`<span class="sub">${title}</span>`}${uri && html`<span class="sub">${uri}</span>`}
      ${warnings.map(({ code, message }) => html`<span class="sub" key=${code}><code>${code}</code> ${message}</span>`)}` },
  { label: "Chunks", number: true, show: ({ chunks }) => count(chunks) },
  { label: "Metadata", wide: true, show: ({ metadata }) => html`<${Metadata} metadata=${metadata} />` },
];

// A slice of a document as a person reads it. children: shown beside its name.
function Chunk({ chunk: { document_id: document, chunk, text, start, end, headings, page, metadata }, children }) {
  const [all, setAll] = useState(text.length <= FIRST_CHARACTERS);
  const place = [`chunk ${count(chunk)}`, page != null && `page ${count(page)}`, start != null && `characters ${count(start)} to ${count(end)}`];
  return html`<article class="chunk">
    <div class="chunk-head"><strong>${document}</strong> <span class="muted">${place.filter(Boolean).join(" · ")}</span> ${children}</div>
    ${headings?.length > 0 && html`<p class="muted">${headings.join(" › ")}</p>`}
    <p class="chunk-text">${all ? text : `${text.slice(0, FIRST_CHARACTERS)} …`}</p>
    ${!all && html`<button type="button" class="small" onClick=${() => setAll(true)}>Show all ${count(text.length)} characters</button>`}
    <${Metadata} metadata=${metadata} />
  </article>`;
}

function Metadata({ metadata }) {
  const pairs = Object.entries(metadata ?? {});
  return pairs.length > 0 && html`<ul class="metadata" aria-label="Metadata">
    ${pairs.map(([name, value]) => html`<li key=${name}>
      <span class="muted">${name}</span> ${typeof value === "string" ? value : JSON.stringify(value)}
    </li>`)}
  </ul>`;
}
