// One task, batch or ingestion: how it stands, what failed, its files, and what can be done to it.
import { announce, call, reload, setTitle, useFetch } from "../api.js";
import { address, count, modelName, moment, rate, some, Time, words } from "../format.js";
import { html, useEffect, useRef } from "../html.js";
import { ErrorNotice, Notice, Reading, Waits } from "../parts/banner.js";
import { Ask, Download } from "../parts/dialog.js";
import { JobBar, jobOf, pathOf, Stages, State, stateOf, timeOf } from "../parts/progress.js";
import { Copy, grouped, Groups, Pager, Table } from "../parts/table.js";

const OPEN_MS = 2000;
const ENDED_MS = 10_000;
const READ_BYTES = 256 * 1024;
const PAGE = 100;
// Of lines and texts: what a retry can help, beside what the server itself did wrong.
const AGAIN = new Set(["encoding_failed", "worker_lost", "model_changed", "batch_expired", "batch_cancelled", "batch_part_lost"]);
const again = ({ code, status = 0 }) => status >= 500 || AGAIN.has(code);
const contentOf = (file) => `v1/files/${encodeURIComponent(file)}/content`;

// What tells the kinds apart. stages, failed and facts are given a job, as `jobOf` returns it.
const KINDS = {
  task: {
    deletion: "Its result is deleted too. This cannot be undone.",
    stages: () => [],
    failed: failedTexts,
    facts: ({ lane, deadline }) => [["Lane", lane], ["Must end", deadline && html`<${Time} at=${deadline} />`]],
    Files: ({ job }) => job.ended && job.counts.completed > 0 && html`<h2>Result</h2>
      <${Download} path=${`${job.path}/result`} name=${`${job.id}.json`} label="Download the vectors" />`,
  },
  batch: {
    deletion: "Its record is deleted. Its files stay until they are deleted or expire.",
    retry: "A new batch is made of the lines without a result. This one stays as it is.",
    stages: batchStages,
    failed: failedLines,
    facts: ({ completion_window: window, ended, expires_at: expires }) => [["Window", window], ["Must end", !ended && html`<${Time} at=${expires} />`]],
    Files: BatchFiles,
  },
  ingestion: {
    deletion: "Its record and its list of documents are deleted. A dataset with a name, or a table, stays as it is.",
    retry: "The failed documents are tried again under the same id.",
    stages: ingestionStages,
    failed: (job) => ({ path: groupsPath(job, "failed"), found: ({ data, complete }) => ({ groups: data, complete }) }),
    facts: ingestionFacts,
    Files: IngestionFiles,
  },
};

// ---- the screen -----------------------------------------------------------------------------------------------------

export function Job({ name: id, query }) {
  const path = pathOf(id);
  const read = useFetch(path, { every: (object) => (jobOf(object).ended ? ENDED_MS : OPEN_MS) });
  const { status, message } = path ? (read.error ?? {}) : { status: 404, message: "Ids of jobs begin with task_, batch_ or ing_." };
  const job = read.data && jobOf(read.data);
  useTold(job);
  const up = html`<a class="up" href=${address("jobs")}>Jobs</a>`;
  const head = (title) => html`${up}<div class="head"><h1 tabindex="-1">${title}</h1></div>`;
  if (status === 404) return html`${head("This job is not there")}<p role="alert">${message} It was deleted, its time is over, or it belongs to another key.</p>`;
  if (status === 410) return html`${head("This job is not there")}<p role="alert">${message}</p>`;
  if (!job) return html`${head("Job")}<${Reading} of=${read} what="the job" />`;
  return html`${up}<${Whole} job=${job} read=${read} query=${query} />`;
}

// The tab says how it stands, and people who do not see the page hear of its end.
function useTold(job) {
  const before = useRef(job?.status);
  useEffect(() => {
    if (!job) return;
    if (before.current && before.current !== job.status && job.ended) announce(`The ${job.kind} is ${stateOf(job)[1]}.`);
    if (!before.current && document.activeElement === document.body) document.querySelector("h1").focus({ preventScroll: true });
    before.current = job.status;
    const share = job.total ? `${Math.floor((100 * job.done) / job.total)}\u00a0% ` : "";
    setTitle(`${job.ended ? (job.status === "completed" ? "" : `${job.status}: `) : share}${job.name}`);
  });
}

function Whole({ job, read, query }) {
  const { kind, part, name, error, errors, held, waiting, file_counts: documents } = job;
  const { stages, Files } = KINDS[kind];
  const failed = useFailed(job);
  const { groups = [], complete } = failed;
  const warnings = groupsPath(job, "warned");
  const warned = useFetch(warnings, { stays: true });
  const shown = useRef(false); // at first all together, as what is below would move; later nothing goes
  shown.current ||= !failed.reading && (!warnings || Boolean(warned.data || warned.error));
  return html`<div class="head">
      <h1 tabindex="-1">${name}</h1><${State} job=${job} />
      <div class="do">${shown.current && html`<${Actions} job=${job} groups=${groups} />`}</div>
    </div>
    <${Reading} of=${read} what="the job" />
    ${held && html`<${Waits} waiting=${waiting} />`}
    ${error && html`<${Notice} title=${error.message}>${advice(job)} <small><code>${error.code}</code></small><//>`}
    ${errors && html`<${Notice} title="Nothing was embedded: the file has lines that are wrong.">Correct the file and upload it again.<//>`}
    ${!shown.current ? html`<${Reading} of=${{}} what="what failed" />` : html`<div class="split"><div>
      <section class="card" aria-label="Progress"><${JobBar} job=${job} /><${Figures} job=${job} /><${Stages} stages=${stages(job, groups)} /></section>
      ${groups.length > 0 && html`<h2>${errors ? "Errors of the file" : `Failed ${part}s`} <small>${summary(job, groups, complete)}</small></h2><${Groups} groups=${groups} one=${part} />`}
      <${ErrorNotice} error=${failed.error} title="What failed cannot be read." />
      ${warned.data?.data.length > 0 && html`<h2>Warnings <small>${some(documents.warned, "document")}, loaded all the same</small></h2>
        <${Groups} groups=${warned.data.data.map((group) => ({ ...group, retryable: undefined }))} one="document" />`}
    </div><aside class="card" aria-label="Facts"><${Facts} job=${job} /></aside></div>
    <${Files} job=${job} query=${query} />`}`;
}

function advice({ kind, resumable }) {
  if (kind !== "ingestion") return "";
  return resumable ? "It was no fault of the request: a retry goes on where it was." : "A retry would fail again.";
}

function summary({ counts, errors }, groups, complete) {
  const known = among(groups, () => true);
  if (errors) return some(known, "error");
  const helped = among(groups, ({ retryable }) => retryable);
  return `${count(Math.max(known, counts.failed))}, ${helped ? `of which ${count(helped)} can be retried as ${helped === 1 ? "it is" : "they are"}` : "none can be retried as it is"}${complete ? "" : `; the first ${count(known)} are below`}`;
}

// How many faults the groups have that are meant.
const among = (groups, meant) => groups.filter(meant).reduce((sum, group) => sum + group.count, 0);

function Figures({ job }) {
  const { ended, status, done, total, unit, kind, counts, part, speed, held, behind } = job;
  const loaded = kind === "ingestion" && ended ? " loaded" : "";
  const [before, time, after] = timeOf(job);
  return html`<p class="figures">
    ${total ? html`<span><b>${count(done)}</b> of ${some(total, unit)}${loaded}</span>` : !ended && html`<span>nothing counted yet</span>`}
    ${counts.failed > 0 && html`<span class="bad"><b>${count(counts.failed)}</b> ${unit === part ? "" : `${part}${counts.failed === 1 ? "" : "s"} `}failed</span>`}
    ${speed && html`<span><b>${rate(speed, "").trim()}</b> ${unit}s/s</span>`}
    ${behind && html`<span>other work goes first</span>`}
    ${time && !held && html`<span>${ended && status !== "completed" && "ended "}${before}<b>${time}</b>${after}</span>`}
  </p>`;
}

function Facts({ job }) {
  const { kind, id, model, metadata, created_at: created, expires_at: expires, ended, name } = job;
  const own = Object.entries(metadata ?? {}).filter(([, value]) => value !== name);
  const facts = [
    ["Kind", kind],
    ...KINDS[kind].facts(job),
    ["Model", model && html`<span title=${model}>${modelName(model)}</span>`],
    ["Created", moment(created)],
    ["Kept until", ended && kind !== "batch" && expires && moment(expires)],
    ...own.map(([key, value]) => [key, value.startsWith("batch_") ? html`<a href=${address("jobs", value)}>${value}</a>` : value]),
  ];
  return html`<dl>
    ${facts.filter(([, content]) => content).map(([label, content]) => html`<div key=${label}><dt>${label}</dt><dd>${content}</dd></div>`)}
    <div class="all"><dt>Id</dt><dd><code>${id}</code> <${Copy} text=${id} what="the id" /></dd></div>
  </dl>`;
}

// ---- what can be done -----------------------------------------------------------------------------------------------

const leave = () => {
  location.hash = address("jobs");
};

function Actions({ job, groups }) {
  const { id, kind, path, name, status, ended, counts, part, total, resumable, errors, created_at: created } = job;
  const { retry, deletion } = KINDS[kind];
  const act = (method, tail = "") => async () => {
    const answer = await call(path + tail, { method });
    if (method === "DELETE") leave();
    else if (answer.id === id) reload();
    else location.hash = address("jobs", answer.id);
  };
  const of = html`${kind} · <code>${id}</code> · made <${Time} at=${created} />`;
  const helped = among(groups, ({ retryable }) => retryable);
  const undone = kind === "batch" && !errors ? total - counts.completed - counts.failed : 0;
  const what = resumable ? "" : undone > 0 ? " what is missing" : ` ${some(helped, part)}`;
  return html`
    ${!ended && status !== "cancelling" && html`<${Ask} label="Cancel" question=${`Cancel “${name}”?`} of=${of}
      keep="Keep it running" confirm=${`Cancel this ${kind}`} danger act=${act("POST", "/cancel")} done=${`The ${kind} is being cancelled.`}>
      ${`${counts.total ? `${count(counts.completed)} of ` : ""}${some(counts.total, part)} are done and stay. The others will be left out.`}
    <//>`}
    ${ended && retry && (resumable || undone > 0 || helped > 0) && html`<${Ask} label=${`Retry${what}`} question=${`Retry${what} of “${name}”?`} of=${of}
      keep="Leave it" confirm=${`Retry this ${kind}`} act=${act("POST", "/retry")} done="What is missing is tried again.">${retry}<//>`}
    ${ended && html`<${Ask} label="Delete" question=${`Delete “${name}”?`} of=${of} confirm=${`Delete this ${kind}`} tone="danger" danger
      act=${act("DELETE")} done=${`The ${kind} is deleted.`}>${deletion}<//>`}`;
}

// ---- what failed ----------------------------------------------------------------------------------------------------

// Groups of what failed: {groups, complete, error, reading}.
function useFailed(job) {
  const { path, options, found } = KINDS[job.kind].failed(job);
  const { data, error } = useFetch(path, { ...options, stays: true });
  if (job.errors) return inGroups(job.errors.data.map((fault) => ({ ...fault, name: fault.line ? `line ${count(fault.line)}` : "the file" })));
  return { ...(path && data && found(data)), error, reading: path && !data && !error };
}

const inGroups = (faults, number = 0) => (
  { groups: grouped(faults.map((fault) => ({ ...fault, again: again(fault) }))), complete: faults.length >= number });

// The result has the errors between the vectors, so it is read as a whole.
function failedTexts({ ended, counts: { failed }, path }) {
  const rows = ({ data }) => data.filter(({ object }) => object === "error").map(({ index, error }) => ({ ...error, name: `input[${index}]` }));
  return {
    path: ended && failed > 0 ? `${path}/result?encoding_format=base64` : null,
    found: (result) => inGroups(rows(result), failed),
  };
}

// The beginning of the error file, which may be large; what follows the last end of line was cut.
function failedLines({ error_file_id: file, counts: { failed } }) {
  const rows = (text) => text.split("\n").slice(0, -1).map((line) => {
    const { custom_id: name, response, error } = JSON.parse(line);
    return { ...(error ?? response.body.error), name, status: response?.status_code };
  });
  return {
    path: file ? contentOf(file) : null,
    options: { as: "text", headers: { Range: `bytes=0-${READ_BYTES - 1}` } },
    found: (text) => inGroups(rows(text), failed),
  };
}

// Where the groups of an ingestion are, or null where there are none. The number has them read again when there are more; the
// API does not look at it.
function groupsPath({ path, file_counts: documents }, filter) {
  const number = documents?.[filter];
  return number > 0 ? `${path}/documents/groups?filter=${filter}&n=${number}` : null;
}

// ---- batches --------------------------------------------------------------------------------------------------------

function batchStages(job) {
  const { ended, status, held, counts, errors, in_progress_at: begun, finalizing_at: writing } = job;
  const { total, completed, failed } = counts;
  const done = { done: completed, failed, total };
  const now = held ? "held" : ended ? "stopped" : "";
  const whole = status === "completed";
  return [
    errors ? ["Check", "broke", "it broke here"] : ["Check", begun || whole ? "ended" : now, total ? some(total, "line") : "reads the file", "", { done: 1, total: begun || whole ? 1 : 0 }],
    ["Embed", !begun ? "next" : whole || writing ? "ended" : now, begun ? `${count(completed + failed)} of ${some(total, "line")}` : "", failed > 0 && `${count(failed)} failed`, done],
    ["Write", whole ? "ended" : writing && !ended ? now : "next", whole ? "its files" : "", "", { done: whole ? 1 : 0, total: 1 }],
  ];
}

function BatchFiles({ job }) {
  const files = [["Input", job.input_file_id], ["Output", job.output_file_id], ["Errors", job.error_file_id]].filter(([, id]) => id);
  const columns = [
    { label: "File", show: ([what, id]) => html`${what} <small>${id}</small>` },
    { label: "Contents", number: true, show: ([what, id]) => html`<${Download} path=${contentOf(id)} name=${`${job.id}-${what.toLowerCase()}.jsonl`} />` },
  ];
  return html`<h2>Files</h2><${Table} caption="Files of the batch" columns=${columns} rows=${files} rowKey=${([what]) => what} />`;
}

// ---- ingestions -----------------------------------------------------------------------------------------------------

function ingestionFacts({ source, sink, file_counts: documents, dry_run: dry, mode, warnings, usage }) {
  const told = ["in_progress", "unchanged", "emptied", "deleted", "cancelled"].filter((name) => documents[name] > 0).map((name) => `${count(documents[name])} ${words(name)}`);
  return [
    ["Documents", html`${count(documents.total)}${told.length > 0 && html`<br /><small>${told.join(", ")}</small>`}`],
    ["From", `${count(source.count)} ${source.type}`],
    ["Into", sink.dataset
      ? html`dataset <a href=${address("datasets", sink.dataset)}>${sink.dataset}</a>`
      : sink.table ? `table ${sink.table} of sink “${sink.name}”` : "a dataset of its own"],
    ["Mode", dry ? "dry run" : words(mode)],
    ["Tokens", usage.total_tokens > 0 && count(usage.total_tokens)],
    ["Warning", warnings.join(" ")],
  ];
}

// Which stage the reason of a wait, or the code of an error, belongs to: by the whole code or its first word.
const AT = {
  sink: "Load", dataset: "Load", nothing: "List", model: "Embed", no_worker: "Embed", workers: "Embed", worker: "Embed",
  encoding: "Embed", non: "Embed", not_embedded: "Embed", out: "Embed", no_tokens: "Embed",
};
const stageOf = (code = "") => AT[code] ?? AT[code.split("_")[0]];

function ingestionStages(job, groups) {
  const { ended, status, held, waiting, error, listing_complete: listed, file_counts: documents, chunks, dry_run: dry } = job;
  const whole = status === "completed";
  const cut = chunks.total > 0;
  const through = listed && documents.in_progress === 0;
  const unembedded = among(groups, ({ code }) => stageOf(code) === "Embed");
  const unparsed = documents.failed - unembedded;
  const parsed = documents.completed + unembedded;
  const of = (number) => (cut ? `${count(number)} of ${some(chunks.total, "chunk")}` : "");
  const stages = [
    ["List", listed || whole, true, listed || documents.total ? some(documents.total, "document") : "", { done: documents.total, total: documents.total }],
    ["Parse", whole || through, cut || listed, `${some(chunks.total, "chunk")}${ended || through ? "" : " so far"}`, { done: parsed, failed: unparsed, total: documents.total }, unparsed],
    ["Embed", whole || through, chunks.embedded > 0 || cut, of(chunks.embedded), { done: chunks.embedded, total: chunks.total }, unembedded],
    ["Load", whole, chunks.loaded > 0 || chunks.embedded > 0, whole ? some(chunks.loaded, "chunk") : of(chunks.loaded), { done: chunks.loaded, total: chunks.total }],
  ].slice(0, dry ? 2 : 4);
  const broke = status === "failed" && (stageOf(error?.code) ?? stages.find(([, done]) => !done)?.[0]);
  const waits = held && (stageOf(waiting.code) ?? stages.find(([, done]) => !done)?.[0]);
  const last = stages.findLast(([, , begun]) => begun)?.[0];
  return stages.map(([name, done, begun, text, figures, failed = 0]) => {
    const reached = failed > 0 ? (name === "Parse" ? documents.total : parsed) : 1;
    if (name === broke) return [name, "broke", "it broke here"];
    if (name === waits) return [name, "held", text, "waits", figures];
    const note = failed > 0 ? `${some(failed, "document")} failed` : "";
    if (done) return [name, "ended", text, note, { done: reached - failed, failed, total: reached }];
    if (!begun) return [name, "next", "", ""];
    return [name, ended ? "stopped" : "", text, ended && name === last ? `${status} here` : note, figures];
  });
}

const STATES = { loaded: "done", unchanged: "done", counted: "done", failed: "fail", queued: "" };
const DOCUMENTS = [
  { label: "Document", show: ({ id }) => id },
  { label: "State", show: ({ status, last_error: error }) => html`<span class=${`state ${STATES[status] ?? "work"}`}>${status}</span>${error && html` <small>${error.message}</small>`}` },
  { label: "Chunks", number: true, show: ({ chunks }) => count(chunks) },
  { label: "Tokens", number: true, show: ({ tokens }) => count(tokens) },
];

function IngestionFiles({ job, query }) {
  const after = query.get("documents");
  const { id, path, file_counts: documents, sink, dry_run: dry, ended, chunks } = job;
  const read = useFetch(after === null ? null : `${path}/documents?limit=${PAGE}${after && `&after=${after}`}`);
  const to = (place) => address("jobs", id, { documents: place });
  const rows = read.data?.data;
  return html`
    ${after === null && documents.total > 0 && html`<p class="after"><a href=${to("0-0")}>Show all ${some(documents.total, "document")}</a></p>`}
    ${after !== null && html`<h2>Documents</h2><${Reading} of=${read} what="the documents" />
      ${rows && html`<${Table} caption="Documents" columns=${DOCUMENTS} rows=${rows} rowKey=${({ id: name }, place) => `${place} ${name}`} />
        <${Pager} newer=${after !== "0-0" && to("0-0")} older=${read.data.has_more && to(read.data.last_id)}>In the order of the source<//>`}`}
    ${after === null && sink.type === "dataset" && !dry && ended && chunks.loaded > 0 && html`<${Parts} path=${`${path}/output`} />`}`;
}

function Parts({ path }) {
  const { data, error } = useFetch(path);
  const columns = [
    { label: "File", show: ({ name }) => html`<code>${name}</code>` },
    { label: "Chunks", number: true, show: ({ rows }) => count(rows) },
    { label: "Contents", number: true, show: ({ name }) => html`<${Download} path=${`${path}/${encodeURIComponent(name)}`} name=${name} />` },
  ];
  return html`<h2>Parquet files of its dataset</h2><${ErrorNotice} error=${error} />
    ${data && html`<${Table} caption="Parquet files" columns=${columns} rows=${data.data} rowKey=${({ name }) => name} />`}`;
}
