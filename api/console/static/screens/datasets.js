// What ingestions have loaded: the list of datasets, and one dataset to search and read.
import { announce, call, useFetch } from "../api.js";
import { address, bytes, count, modelName, search, some, Time } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { ErrorNotice, Reading } from "../parts/banner.js";
import { Ask } from "../parts/dialog.js";
import { Command, Empty, Pager, Table } from "../parts/table.js";

const EVERY_MS = 10_000;
const PAGE = 50;
const DOCUMENTS_PAGE = 25;
const HITS = 10;
const MODES = { vector: "Meaning", text: "Words", hybrid: "Both" };
const pathOf = (name) => `v1/datasets/${encodeURIComponent(name)}`;
// `vectors` begins with the model, then its revision and more.
const modelOf = ({ vectors }) => (vectors ? modelName(vectors.split(/[ @,]/)[0]) : "–");

const COLUMNS = [
  { label: "Name", show: ({ name, of_one_ingestion: own }) => html`<a href=${address("datasets", name)}>${name}</a>${own && html` <small>of one ingestion</small>`}` },
  { label: "Documents", number: true, show: ({ documents }) => count(documents) },
  { label: "Chunks", number: true, show: ({ rows }) => count(rows) },
  { label: "Size", number: true, show: (dataset) => bytes(dataset.bytes) },
  { label: "Model", show: modelOf },
  { label: "Changed", number: true, show: ({ updated_at: at }) => html`<${Time} at=${at} />` },
];

export function Datasets({ query }) {
  const after = query.get("after");
  const read = useFetch(`v1/datasets?${search({ limit: PAGE, after })}`, { every: () => EVERY_MS });
  const page = read.data;
  return html`<div class="head"><h1 tabindex="-1">Datasets</h1></div>
    <${Reading} of=${read} what="the datasets" />
    ${page && (page.data.length
      ? html`<${Table} caption="Datasets" columns=${COLUMNS} rows=${page.data} rowKey=${({ id }) => id} />`
      : html`<${Empty} title="No datasets yet">
          <p>A dataset is made of documents that are cut, embedded and kept for search:</p><${Command} text="embedq ingest docs/ --dataset handbook" />
        <//>`)}
    ${page && (after || page.has_more) && html`<${Pager} newer=${after && address("datasets")} older=${page.has_more && address("datasets", "", { after: page.last_id })}>By name<//>`}`;
}

const leave = () => {
  location.hash = address("datasets");
};

export function Dataset({ name, query }) {
  const read = useFetch(pathOf(name), { every: () => EVERY_MS });
  const dataset = read.data;
  const documents = query.get("view") === "documents";
  const tab = (label, view, current) => html`<a href=${address("datasets", name, { view })} aria-current=${current ? "page" : undefined}>${label}</a>`;
  return html`<a class="up" href=${address("datasets")}>Datasets</a>
    <div class="head"><h1 tabindex="-1">${name}</h1>
      ${dataset && html`<div class="do"><${Ask} label="Delete" question=${`Delete the dataset “${name}”?`} confirm="Delete this dataset" tone="danger" danger
        act=${() => call(pathOf(name), { method: "DELETE" }).then(leave)} done="The dataset is deleted.">
        ${`All chunks (${count(dataset.rows)}) and their vectors are deleted for good. An ingestion that is loading into it fails.`}
      <//></div>`}
    </div>
    <${Reading} of=${read} what="the dataset" />
    ${dataset && html`<p class="small" title=${dataset.vectors}>
        ${some(dataset.documents, "document")} · ${some(dataset.rows, "chunk")} · ${bytes(dataset.bytes)} · ${dataset.dimension ? `${modelOf(dataset)}, ${some(dataset.dimension, "dimension")} · ` : ""}changed <${Time} at=${dataset.updated_at} />
      </p>
      <nav class="tabs" aria-label="Views of the dataset">${tab("Search", "", !documents)}${tab("Documents", "documents", documents)}</nav>
      ${documents
        ? html`<${Documents} key=${dataset.id} name=${name} query=${query} />`
        : html`<${Search} key=${dataset.id} name=${name} query=${query} />`}`}`;
}

// ---- search ---------------------------------------------------------------------------------------------------------

// What is asked stands in the address: a reload, a bookmark and the way back keep it.
function Search({ name, query }) {
  const [q, by, where] = [query.get("q") ?? "", query.get("by") ?? "vector", query.get("where") ?? ""];
  const [found, setFound] = useState({});
  const asked = `${q} ${by} ${where}`;
  useEffect(() => {
    if (!q) return undefined;
    const left = new AbortController();
    searchFor(name, q, by, where, left.signal).then(
      (hits) => {
        setFound({ asked, hits });
        announce(`${some(hits.data.length, "chunk")} found.`);
      },
      (error) => left.signal.aborted || setFound({ asked, error }),
    );
    return () => left.abort();
  }, [asked]);
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    location.hash = address("datasets", name, { q: form.get("q").trim(), by: form.get("by"), where: form.get("where").trim() });
  };
  const { hits, error } = found;
  return html`<form class="filters" role="search" onSubmit=${submit} key=${asked}>
      <input type="search" name="q" aria-label="Search for" defaultValue=${q} />
      <fieldset class="choice"><legend class="unseen">Search by</legend>
        ${Object.entries(MODES).map(([mode, label]) => html`<label key=${mode}><input class="unseen" type="radio" name="by" value=${mode} defaultChecked=${mode === by} /> ${label}</label>`)}
      </fieldset>
      <input class="where" name="where" aria-label="Only where" placeholder="FIELD=VALUE" title="A field of the metadata and its value" defaultValue=${where} />
      <button class="primary" type="submit">Search</button>
    </form>
    <${ErrorNotice} error=${error} title="The dataset cannot be searched." />
    ${q && found.asked !== asked && html`<p class="small" role="status">Searching …</p>`}
    ${q && hits && found.asked === asked && html`<${Hits} name=${name} hits=${hits} q=${q} where=${where} />`}`;
}

// Metadata tells 2021 from "2021": the number is looked for where the text is nowhere.
async function searchFor(name, query, mode, where, signal) {
  const [, field, value] = where.match(/^([^=]+)=(.*)$/) ?? [];
  if (where && !field) throw { code: "invalid_value", message: `“${where}” is not FIELD=VALUE.` };
  const ask = (filter) => call(`${pathOf(name)}/search`, { method: "POST", body: { query, mode, limit: HITS, ...(field && { filter: { [field]: filter } }) }, signal });
  const hits = await ask(value);
  const other = field ? scalar(value) : null;
  return hits.data.length || other === null ? hits : ask(other);
}

// The number or boolean that a text stands for; null for none.
function scalar(text) {
  if (text === "true" || text === "false") return text === "true";
  return text.trim() && Number.isFinite(Number(text)) ? Number(text) : null;
}

function Hits({ name, hits: { data, rows, took_ms: took }, q, where }) {
  if (!data.length) return html`<${Empty} title=${where ? `No chunk has ${where}` : "No chunk fits"}><p>The dataset has ${some(rows, "chunk")}.</p><//>`;
  return html`<p class="small">${count(data.length)} of ${some(rows, "chunk")}, in ${Math.max(1, Math.round(took))} ms</p>
    <ol class="rows">${data.map((chunk, place) => html`<${Chunk} key=${`${chunk.document_id} ${chunk.chunk}`} chunk=${chunk} name=${name} q=${q}>
      <span class="score">${place + 1} <small>${chunk.score.toFixed(3)}</small></span>
    <//>`)}</ol>`;
}

// A slice of a document as a person reads it. children: shown beside its name.
function Chunk({ chunk: { document_id: document, chunk, text, start, end, headings, page, metadata }, name, q = "", children }) {
  const place = [headings?.join(" › "), page != null && `page ${count(page)}`, start == null ? `chunk ${count(chunk)}` : `characters ${count(start)} to ${count(end)}`];
  return html`<li class="hit">
    <span><a href=${address("datasets", name, { view: "documents", document })}>${document}</a> <small>${place.filter(Boolean).join(" · ")}</small></span>${children}
    <p class="text">${marked(text, q)}</p>
    <span class="small about">${pairs(metadata)}</span>
  </li>`;
}

// The words of the query, where they stand in the text.
function marked(text, q) {
  const words = q.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu);
  if (!words) return text;
  const found = text.split(new RegExp(`(${words.join("|")})`, "giu"));
  return found.map((part, place) => (place % 2 ? html`<mark key=${place}>${part}</mark>` : part));
}

const pairs = (metadata) => Object.entries(metadata ?? {}).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" · ");

// ---- documents and their chunks -------------------------------------------------------------------------------------

// The documents of a dataset, or the chunks of the one that the query names.
function Documents({ name, query }) {
  const [document, after] = [query.get("document"), query.get("after")];
  const what = document ? "chunks" : "documents";
  const read = useFetch(`${pathOf(name)}/${what}?${search({ limit: DOCUMENTS_PAGE, after, document_id: document })}`);
  const page = read.data;
  const to = (more) => address("datasets", name, { view: "documents", ...more });
  return html`${document && html`<h2>${document}</h2><p><a href=${to({})}>All documents</a></p>`}
    <${Reading} of=${read} what=${`the ${what}`} />
    ${page && !page.data.length && html`<p>There are no ${what} here.</p>`}
    ${page?.data.length > 0 && (document
      ? html`<ol class="rows">${page.data.map((chunk) => html`<${Chunk} key=${chunk.chunk} chunk=${chunk} name=${name} />`)}</ol>`
      : html`<${Table} caption="Documents" columns=${documentColumns(to)} rows=${page.data} rowKey=${({ id }) => id} />`)}
    ${page && (after || page.has_more) && html`<${Pager} newer=${after && to({ document })} older=${page.has_more && to({ document, after: page.last_id })}>In the order of the dataset<//>`}`;
}

const documentColumns = (to) => [
  { label: "Document", show: ({ id, title, warnings }) => html`<a href=${to({ document: id })}>${id}</a> ${title && html`<small>${title}</small>`}
      ${warnings.map(({ code, message }) => html`<small class="wait" key=${code}>${message}</small>`)}` },
  { label: "Chunks", number: true, show: ({ chunks }) => count(chunks) },
  { label: "Metadata", show: ({ metadata }) => html`<small>${pairs(metadata)}</small>` },
];
