// One task, batch or ingestion: how it stands, what failed, its files, and what can be done to it.
import { announce, call, reload, useFetch } from "../api.js";
import { address, count, duration, rate, Time } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { ErrorBox, Reading, Waiting } from "../parts/banner.js";
import { ConfirmButton, Download } from "../parts/dialog.js";
import { Badge, Progress, Stages } from "../parts/progress.js";
import { Facts, Failures, Table } from "../parts/table.js";

const OPEN_MS = 2000;
const ENDED_MS = 10_000;
const READ_UNASKED = 500;
const READ_BYTES = 256 * 1024;
const SHOWN = 200;
const PAGE = 100;
const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);

// What tells the kinds apart. `facts`, `stages`, `failed` and `Files` are given a job, as `jobOf` returns it.
const KINDS = {
  task: {
    prefix: "task_",
    collection: "v1/tasks",
    parts: "texts",
    deletion: "Its result is deleted too. This cannot be undone.",
    facts: ({ lane, usage, deadline, expires_at: expires }) => [
      ["Lane", lane],
      ["Tokens", count(usage.total_tokens)],
      ["Deadline", deadline && html`<${Time} at=${deadline} />`],
      ["Kept until", expires && html`<${Time} at=${expires} />`],
    ],
    stages: ({ ended, started, counts }) => [
      ["Queued", true, started || ended, "waits for its turn"],
      ["Encoding", started, ended, `${count(counts.completed + counts.failed)} of ${count(counts.total)} texts`],
    ],
    failed: failedTexts,
    Files: ({ job }) => job.ended && job.counts.completed > 0 && html`<h2>Result</h2>
      <div class="buttons"><${Download} path=${`${job.path}/result`} name=${`${job.id}.json`} label="Download the vectors" /></div>`,
  },
  batch: {
    prefix: "batch_",
    collection: "v1/batches",
    parts: "lines",
    retry: "A new batch is made of the lines without a result. This one stays as it is.",
    deletion: "Its record is deleted. Its files stay until they are deleted or expire.",
    facts: ({ completion_window: window, usage, ended, expires_at: expires }) => [
      ["Window", window],
      ["Tokens", usage && count(usage.total_tokens)],
      ["Must end", !ended && html`<${Time} at=${expires} />`],
    ],
    stages: batchStages,
    failed: failedLines,
    Files: BatchFiles,
  },
  ingestion: {
    prefix: "ing_",
    collection: "v1/ingestions",
    parts: "documents",
    retry: "The failed documents are tried again under the same id.",
    deletion: "Its record and its list of documents are deleted. Rows in a table or in a dataset with a name stay; "
      + "a dataset without a name is deleted too.",
    facts: ingestionFacts,
    stages: ingestionStages,
    failed: failedDocuments,
    warned: warnedDocuments,
    Files: ({ job }) => job.sink.type === "dataset" && !job.dry_run && job.ended && job.chunks.loaded > 0
      && html`<h2>Files of its dataset</h2><${Parts} path=${`${job.path}/output`} />`,
  },
};
const kindOf = (id) => Object.keys(KINDS).find((kind) => id.startsWith(KINDS[kind].prefix));
const pathOf = (id) => `${KINDS[kindOf(id)].collection}/${encodeURIComponent(id)}`;

// An object of the API with what all kinds have in common, under one name: kind, path, ended, name, documents per second,
// seconds left, and when it was started and finished.
export function jobOf(object) {
  const { id, status, waiting, metadata } = object;
  const kind = kindOf(id);
  const ended = ENDED.has(status);
  return {
    ...object,
    kind,
    path: pathOf(id),
    ended,
    name: metadata?.name ?? metadata?.filename ?? metadata?.title ?? object.sink?.dataset ?? null,
    speed: ended ? null : object.rate?.documents_per_s,
    left: waiting?.code === "working" ? waiting.seconds : null,
    started: object.started_at ?? object.in_progress_at ?? null,
    finished: ended ? (object.finished_at ?? object[`${status}_at`] ?? null) : null, // of a batch: `completed_at` and so on
  };
}

// ---- the screen -----------------------------------------------------------------------------------------------------

export function Job({ name: id }) {
  return html`<p class="trail"><a href=${address("jobs")}>Jobs</a></p>
    ${kindOf(id) ? html`<${Known} id=${id} />` : html`<${Gone} id=${id} />`}`;
}

function Known({ id }) {
  const read = useFetch(pathOf(id), { every: ({ status }) => (ENDED.has(status) ? ENDED_MS : OPEN_MS) });
  const { data, error } = read;
  useAnnouncedEnd(kindOf(id), data?.status);
  if (error?.status === 404 || error?.status === 410) return html`<${Gone} id=${id} error=${error} />`;
  if (!data) return html`<h1 tabindex="-1">Job ${id}</h1><${Reading} of=${read} what="the job" />`;
  const job = jobOf(data);
  const { kind, ended, counts } = job;
  const { stages, failed, warned, Files } = KINDS[kind];
  const faults = [failed(job), warned?.(job)].filter(Boolean);
  return html`<div class="heading">
      <h1 tabindex="-1">${job.name ?? `${kind} ${id}`}</h1>
      <${Badge} state=${job.status} />
      <${Actions} job=${job} gone=${leave} />
    </div>
    <${Reading} of=${read} what="the job" />
    <${Waiting} waiting=${job.waiting} />
    ${job.error && html`<${ErrorBox} error=${job.error} title=${`The ${kind} failed`} />`}
    <section class="box" aria-label="Progress">
      <${Progress} counts=${counts} ended=${ended} label="Progress" />
      <${Stages} stages=${[...stages(job), ["Ended", false, ended, ended ? job.status : ""]]} />
      <${Facts} facts=${factsOf(job)} />
    </section>
    ${job.errors?.data.length > 0 && html`<h2>Errors of the file</h2>
      <${Shown} caption="Errors of the file" what="Line" rows=${job.errors.data.map(errorOfFile)} />`}
    ${faults.map((some) => html`<section key=${`${some.caption} ${some.all}`}><h2>${some.caption}</h2><${Failed} ...${some} /></section>`)}
    <${Files} job=${job} />`;
}

const leave = () => {
  location.hash = address("jobs");
};

// Tells people who do not see the page that the job has ended while they were here.
function useAnnouncedEnd(kind, status) {
  const before = useRef(status);
  useEffect(() => {
    if (before.current && ENDED.has(status)) announce(`The ${kind} is ${status}.`);
    before.current = status;
  }, [status]);
}

function factsOf(job) {
  const { started, finished, metadata } = job;
  return [
    ["Kind", job.kind],
    ["Id", html`<code>${job.id}</code>`],
    ["Model", job.model],
    ["Created", html`<${Time} at=${job.created_at} />`],
    started != null && ["Started", html`<${Time} at=${started} />`],
    finished != null && ["Ended", html`<${Time} at=${finished} />`],
    finished != null && started != null && ["Took", duration(finished - started)],
    job.speed != null && ["Rate", rate(job.speed, "documents/s")],
    job.left != null && ["Time left", duration(job.left)],
    ...KINDS[job.kind].facts(job),
    ...Object.entries(metadata ?? {})
      .filter(([, value]) => value !== job.name)
      .map(([name, value]) => [`metadata.${name}`, value]),
  ];
}

function Gone({ id, error }) {
  return html`<h1 tabindex="-1">Job ${id}</h1>
    <div class="box" role="alert">
      <h2>This job is not there</h2>
      <p>${error?.message ?? "Ids of jobs begin with task_, batch_ or ing_."}</p>
      <p>It was deleted, its time of retention is over, or it belongs to another key. <a href=${address("jobs")}>Go to the jobs</a>.</p>
    </div>`;
}

// What can be done to a job; each is confirmed first. Where that made another job, its screen is shown. gone: called when
// the job was deleted.
export function Actions({ job: { id, kind, path, name, status, ended, counts, resumable }, gone = reload }) {
  const { parts, retry, deletion } = KINDS[kind];
  const act = (method, tail = "") => async () => {
    const answer = await call(path + tail, { method });
    if (method === "DELETE") gone();
    else if (answer.id === id) reload();
    else location.hash = address("jobs", answer.id);
  };
  const named = `${kind} ${name ?? id}`;
  // Of an ingestion that failed as a whole only its own record says whether the API would try it again.
  const canRetry = retry && (counts.failed > 0 || (kind === "batch" ? status !== "completed" : resumable));
  return html`<div class="buttons">
    ${!ended && status !== "cancelling" && html`<${ConfirmButton}
      label="Cancel" name=${named} question=${`Cancel this ${kind}?`} danger
      consequence=${`What is done stays. The other ${parts} are not worked on.`}
      act=${act("POST", "/cancel")} done=${`The ${kind} is being cancelled.`} />`}
    ${ended && canRetry && html`<${ConfirmButton}
      label="Retry" name=${named} question=${`Retry the failed ${parts}?`}
      consequence=${retry} act=${act("POST", "/retry")} done="The failed ones are tried again." />`}
    ${ended && html`<${ConfirmButton}
      label="Delete" name=${named} question=${`Delete this ${kind}?`} danger
      consequence=${deletion} act=${act("DELETE")} done=${`The ${kind} is deleted.`} />`}
  </div>`;
}

// ---- what failed ----------------------------------------------------------------------------------------------------

// Reads what failed: `path` as `options` say, whose data `rows` makes to rows; `all` of them. A path that answers pages has
// further ones. large: a sentence on what has to be read for them, where that is done only when somebody asks for it.
function Failed({ caption, what, path, options, rows, all, large }) {
  const [wanted, setWanted] = useState(!large);
  const [after, setAfter] = useState([]); // where the pages up to this one begin
  const read = useFetch(wanted ? path + (after.length ? `&after=${encodeURIComponent(after.at(-1))}` : "") : null, options);
  if (!wanted) return html`<p>${large} <button type="button" onClick=${() => setWanted(true)}>Read it</button></p>`;
  if (!read.data) return html`<${Reading} of=${read} what=${`the ${caption.toLowerCase()}`} />`;
  const more = read.data.has_more;
  return html`<${Shown} caption=${caption} what=${what} rows=${rows(read.data)} all=${more || after.length ? 0 : all} />
    ${(more || after.length > 0) && html`<div class="buttons">
      ${after.length > 0 && html`<button type="button" onClick=${() => setAfter(after.slice(0, -1))}>Page before</button>`}
      ${more && html`<button type="button" onClick=${() => setAfter([...after, read.data.last_id])}>Next page</button>`}
    </div>`}`;
}

function Shown({ caption, what, rows, all = rows.length }) {
  const shown = rows.slice(0, SHOWN);
  return html`<${Failures} caption=${caption} what=${what} rows=${shown} />
    ${all > shown.length && html`<p class="muted">These are the first ${count(shown.length)} of ${count(all)}.</p>`}`;
}

// The result has the errors between the vectors, so it is read as a whole: a large one only when asked for.
function failedTexts({ ended, counts: { failed, total }, path }) {
  const rows = ({ data }) => data.filter(({ object }) => object === "error").map(({ index, error }) => ({ ...error, name: `input[${index}]` }));
  const large = total > READ_UNASKED && `The result of ${count(total)} texts has to be read for them.`;
  return ended && failed > 0 && { caption: "Failed texts", what: "Text", path: `${path}/result?encoding_format=base64`, rows, all: failed, large };
}

// The beginning of the error file, which may be large; what follows the last end of line was cut.
function failedLines({ error_file_id: file, counts }) {
  const options = { as: "text", headers: { Range: `bytes=0-${READ_BYTES - 1}` } };
  const rows = (text) => text.split("\n").slice(0, -1).map((line) => {
    const { custom_id: name, response, error } = JSON.parse(line);
    return { ...(error ?? response.body.error), name };
  });
  return file && { caption: "Failed lines", what: "custom_id", path: contentOf(file), options, rows, all: counts.failed };
}

const errorOfFile = ({ line, code, message }) => ({ name: line == null ? "the file" : `line ${line}`, code, message });
const contentOf = (file) => `v1/files/${encodeURIComponent(file)}/content`;

function failedDocuments({ path, file_counts: { failed } }) {
  const rows = ({ data }) => data.map(({ id, stage, last_error: error }) => ({ ...error, name: id, stage }));
  return failed > 0 && { caption: "Failed documents", what: "Document", path: `${path}/documents?filter=failed&limit=${PAGE}`, rows, all: failed };
}

function warnedDocuments({ path, file_counts: { warned } }) {
  const told = (warnings, one) => warnings.map(one).join(" ");
  const rows = ({ data }) => data.map(({ id, warnings }) => ({
    name: id,
    code: told(warnings, ({ code }) => code),
    message: told(warnings, ({ message, pages }) => pagesOf(pages) + message),
  }));
  return warned > 0 && { caption: "Documents with warnings", what: "Document", path: `${path}/documents?filter=warned&limit=${PAGE}`, rows, all: warned };
}

// Such as "Pages 2-10, 14: ".
function pagesOf(pages) {
  const spans = [];
  for (const page of pages) {
    if (spans.length && page === spans.at(-1)[1] + 1) spans.at(-1)[1] = page;
    else spans.push([page, page]);
  }
  const shown = spans.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(", ");
  return shown && `${pages.length > 1 ? "Pages" : "Page"} ${shown}: `;
}

// ---- batches --------------------------------------------------------------------------------------------------------

function batchStages({ ended, counts, errors, in_progress_at: encoding, finalizing_at: writing }) {
  const { total, completed, failed } = counts;
  return [
    ["Checking", true, encoding || ended, errors ? `${count(errors.data.length)} errors` : total ? `${count(total)} lines` : "reads the file"],
    ["Encoding", encoding, writing || (ended && encoding), total ? `${count(completed + failed)} of ${count(total)} lines` : ""],
    ["Writing files", writing, writing && ended, ""],
  ];
}

function BatchFiles({ job }) {
  const files = [
    ["Input", job.input_file_id],
    ["Output", job.output_file_id],
    ["Errors", job.error_file_id],
  ].filter(([, id]) => id);
  const columns = [
    { label: "File", show: ([what]) => what },
    { label: "Id", show: ([, id]) => html`<code>${id}</code>` },
    { label: "Download", show: ([what, id]) => html`<${Download} path=${contentOf(id)} name=${`${job.id}-${what.toLowerCase()}.jsonl`} />` },
  ];
  return html`<h2>Files</h2><${Table} caption="Files of the batch" columns=${columns} rows=${files} rowKey=${([what]) => what} />`;
}

// ---- ingestions -----------------------------------------------------------------------------------------------------

function ingestionFacts({ source, sink, file_counts: { unchanged, emptied, warned, cancelled }, dry_run: dry, mode, ...job }) {
  return [
    ["Source", `${count(source.count)} ${source.type}`],
    ["Sink", sink.dataset
      ? html`dataset <a href=${address("datasets", sink.dataset)}>${sink.dataset}</a>`
      : [sink.type, sink.name, sink.table].filter(Boolean).join(" ")],
    ["Mode", dry ? "dry run" : mode],
    ["Speed", rate(job.rate?.chunks_per_s, "chunks/s")],
    unchanged > 0 && ["Unchanged", count(unchanged)],
    emptied > 0 && ["Emptied", count(emptied)],
    warned > 0 && ["With warnings", count(warned)],
    cancelled > 0 && ["Cancelled", count(cancelled)],
    ["Tokens", count(job.usage.total_tokens)],
    ["Warning", job.warnings.join(" ")],
    ["Kept until", job.expires_at && html`<${Time} at=${job.expires_at} />`],
  ];
}

function ingestionStages({ ended, listing_complete: listed, file_counts: { total }, chunks }) {
  return [
    ["Listing", true, listed || ended, `${count(total)} documents`],
    ["Parsing", chunks.total, ended, `${count(chunks.total)} chunks`],
    ["Embedding", chunks.embedded, ended, `${count(chunks.embedded)} chunks`],
    ["Loading", chunks.loaded, ended, `${count(chunks.loaded)} chunks`],
  ];
}

function Parts({ path }) {
  const read = useFetch(path);
  if (!read.data) return html`<${Reading} of=${read} what="the files" />`;
  const columns = [
    { label: "File", wide: true, show: ({ name }) => html`<code>${name}</code>` },
    { label: "Chunks", number: true, show: ({ rows }) => count(rows) },
    { label: "Download", show: ({ name }) => html`<${Download} path=${`${path}/${encodeURIComponent(name)}`} name=${name} />` },
  ];
  return html`<${Table} caption="Parquet files" columns=${columns} rows=${read.data.data} rowKey=${({ name }) => name} />`;
}
