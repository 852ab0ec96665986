// Tasks, batches and ingestions in one list, newest first.
import { announce, useFetch } from "../api.js";
import { address, clock, clockAndDay, rate, search, some, Time } from "../format.js";
import { html, useEffect, useRef } from "../html.js";
import { Reading } from "../parts/banner.js";
import { JobBar, jobOf, standing, State, stateOf, timeOf } from "../parts/progress.js";
import { Command, Empty, Pager, Table } from "../parts/table.js";

const PAGE = 50;
const EVERY_MS = 2000;
const TYPED_MS = 300;
const KINDS = { task: "Tasks", batch: "Batches", ingestion: "Ingestions" };
const STATES = {
  open: ["Open", "queued,validating,in_progress,finalizing,cancelling"],
  waiting: ["Waiting", "waiting"],
  failed: ["Failed, or with failures", "failed,expired,with_failures"],
  completed: ["Completed", "completed"],
  cancelled: ["Cancelled", "cancelled"],
};
const newer = new Map(); // where a page begins -> where the one before it does

export function Jobs({ query }) {
  const filter = { name: query.get("name"), kind: query.get("kind"), state: query.get("state") };
  const after = query.get("after");
  const heading = useRef(null);
  const before = useRef(after);
  useEffect(() => {
    if (before.current !== after) heading.current.focus();
    before.current = after;
  }, [after]);
  return html`<div class="head"><h1 tabindex="-1" ref=${heading}>Jobs</h1></div>
    <${Filters} filter=${filter} />
    <${Page} filter=${filter} after=${after} />`;
}

function Filters({ filter }) {
  const timer = useRef(null);
  const field = useRef(null);
  const chosen = () => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1])); // also since the last drawing
  const choose = (changes) => location.replace(address("jobs", "", { ...chosen(), after: "", ...changes }));
  const typed = ({ target: { value } }) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => choose({ name: value.trim() }), TYPED_MS);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (document.activeElement !== field.current) field.current.value = filter.name ?? "";
  }, [filter.name]);
  const select = (label, name, all, options) => html`<select aria-label=${label} onChange=${(event) => choose({ [name]: event.target.value })}>
    ${[["", all], ...options].map(([key, text]) => html`<option key=${key} value=${key} selected=${key === (filter[name] ?? "")}>${text}</option>`)}
  </select>`;
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <input ref=${field} type="search" aria-label="Find by name or id" placeholder="Find by name or id" onInput=${typed} />
    ${select("Kind", "kind", "All kinds", Object.entries(KINDS))}
    ${select("State", "state", "Any state", Object.entries(STATES).map(([key, [text]]) => [key, text]))}
  </form>`;
}

function Page({ filter, after }) {
  const { name, kind, state } = filter;
  const path = `v1/jobs?${search({ name, kind, status: STATES[state]?.[1], after, limit: PAGE })}`;
  const read = useFetch(path, { every: () => EVERY_MS });
  const page = read.data;
  const announced = useRef(null); // the path whose number was told, or need not be, as the first one
  useEffect(() => {
    if (!page || announced.current === path) return;
    if (announced.current) announce(some(page.data.length, "job"));
    announced.current = path;
  }, [page]);
  if (!page) return read.error ? html`<${Reading} of=${read} what="the jobs" />` : html`<${FirstRead} />`;
  const jobs = page.data.map(jobOf);
  if (page.has_more) newer.set(page.last_id, after ?? "");
  const to = (place) => address("jobs", "", { ...filter, after: place });
  const pages = { newer: after && to(newer.get(after) ?? ""), older: page.has_more && to(page.last_id) };
  return html`<${Reading} of=${read} what="the jobs" />
    ${jobs.length
      ? html`<ol class="rows" aria-label="Jobs, newest first">${runs(jobs, name).map((run) => (run.length > 1
          ? html`<${Quiet} key=${`run ${run.at(-1).id}`} run=${run} />`
          : html`<${Row} key=${run[0].id} job=${run[0]} />`))}</ol>`
      : page.has_more ? html`<p>None of these jobs fits; older ones may.</p>` : html`<${None} filter=${filter} after=${after} />`}
    ${(pages.newer || pages.older) && html`<${Pager} ...${pages}>Newest first, at most ${PAGE} on a page<//>`}`;
}

const FirstRead = () => html`<ol class="rows" aria-busy="true" aria-label="Jobs are being read">
  ${[1, 2, 3].map((key) => html`<li class="job" key=${key}><span class="bar"></span><small class="why"></small></li>`)}
</ol>`;

function None({ filter: { name, kind, state }, after }) {
  const all = html`<p><a class="button" href=${address("jobs")}>Show all jobs</a></p>`;
  if (name) return html`<${Empty} title=${`No job is called “${name}”`}><p>Names and ids are compared from any place in them, in all your jobs that are still kept.</p>${all}<//>`;
  if (kind || state || after) return html`<${Empty} title="No job fits"><p>No job has this kind and this state.</p>${all}<//>`;
  return html`<${Empty} title="No jobs yet">
    <p>Embed the lines of a file:</p><${Command} text="embedq submit texts.txt --wait" />
    <p>Make a dataset of a folder, and search it:</p><${Command} text="embedq ingest docs/ --dataset handbook" />
  <//>`;
}

// Lists of jobs: a run of tasks of one text is one list. What failed stays apart, and so does what somebody looks for.
function runs(jobs, looked) {
  const lists = [];
  let open = false;
  for (const job of jobs) {
    const single = !looked && job.kind === "task" && job.total === 1 && !job.counts.failed;
    if (single && open) lists.at(-1).push(job);
    else lists.push([job]);
    open = single;
  }
  return lists;
}

const nameOf = (job) => html`<a class="name" href=${address("jobs", job.id)} title=${job.id}>${job.name}</a>`;

function Row({ job }) {
  const { text, tone, failed } = standing(job);
  return html`<li class="job">
    ${nameOf(job)}<${State} job=${job} /><${JobBar} job=${job} />
    <small class=${`why ${tone ?? ""}`}>${text}${failed && html` · <span class="bad">${failed}</span>`}</small>
    ${job.speed && html`<small class="num rate">${rate(job.speed, `${job.unit}s/s`)}</small>`}
    <small class="meta">${job.kind} · <${Time} at=${job.created_at} /></small><span class="num time">${timeOf(job).join("")}</span>
  </li>`;
}

const SINGLES = [
  { label: "Text", show: nameOf },
  { label: "State", show: (job) => html`<${State} job=${job} />` },
  { label: "Time", number: true, show: (job) => timeOf(job).join("") || html`<${Time} at=${job.created_at} />` },
];

function Quiet({ run }) {
  const states = new Map();
  for (const job of run) states.set(stateOf(job)[1], (states.get(stateOf(job)[1]) ?? 0) + 1);
  const told = [...states].map(([word, number]) => `${number} ${word}`).join(", ");
  const [first, last] = [run.at(-1).created_at, run[0].created_at];
  const when = clockAndDay(first) === clockAndDay(last) ? clockAndDay(last) : `${clock(first)} to ${clockAndDay(last)}`;
  return html`<li class="quiet"><details><summary>${some(run.length, "single text")}, ${when}: ${told}</summary>
    <${Table} caption="Single texts" columns=${SINGLES} rows=${run} rowKey=${({ id }) => id} framed=${false} />
  </details></li>`;
}
