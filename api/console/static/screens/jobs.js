// Tasks, batches and ingestions in one list, newest first.
import { announce, useFetch } from "../api.js";
import { address, capital, duration, rate, search, Time, words } from "../format.js";
import { html, useEffect, useRef } from "../html.js";
import { Reading } from "../parts/banner.js";
import { Code, curl } from "../parts/code.js";
import { Badge, Progress } from "../parts/progress.js";
import { Empty, Table } from "../parts/table.js";
import { Actions, jobOf } from "./job.js";

const PAGE = 100;
const EVERY_MS = 2000;
const KINDS = { task: "Tasks", batch: "Batches", ingestion: "Ingestions" };
const STATES = ["queued", "validating", "in_progress", "finalizing", "cancelling", "completed", "failed", "expired", "cancelled"];

export function Jobs({ query }) {
  const filter = { kind: query.get("kind"), status: query.get("status") };
  const after = query.get("after");
  const choose = (changes) => {
    location.hash = address("jobs", "", { ...filter, ...changes });
  };
  return html`<h1 tabindex="-1">Jobs</h1>
    <div class="filters" role="group" aria-label="Filter">
      <${Choice} label="Kind" all="All kinds" options=${Object.entries(KINDS)}
        value=${filter.kind} choose=${(kind) => choose({ kind })} />
      <${Choice} label="State" all="Any state" options=${STATES.map((state) => [state, capital(words(state))])}
        value=${filter.status} choose=${(status) => choose({ status })} />
    </div>
    <${Page} key=${after} filter=${filter} after=${after} />`;
}

function Choice({ label, all, options, value, choose }) {
  return html`<label>${label}
    <select onChange=${(event) => choose(event.target.value)}>
      ${[["", all], ...options].map(([key, text]) => html`<option key=${key} value=${key} selected=${key === (value ?? "")}>${text}</option>`)}
    </select>
  </label>`;
}

function Page({ filter, after }) {
  const path = `v1/jobs?${search({ ...filter, after, limit: PAGE })}`;
  const read = useFetch(path, { every: () => EVERY_MS });
  const page = read.data;
  const announced = useRef(null); // the path whose number was told, or need not be, as the first one
  useEffect(() => {
    if (!page || announced.current === path) return;
    if (announced.current) announce(page.data.length === 1 ? "One job." : `${page.data.length} jobs.`);
    announced.current = path;
  }, [page]);
  return html`<${Reading} of=${read} what="the jobs" />
    ${after && html`<p><a href=${address("jobs", "", filter)}>Back to the newest</a></p>`}
    ${page && html`<${Rows} jobs=${page.data.map(jobOf)} filter=${filter} more=${page.has_more} />`}
    ${page?.has_more && html`<p><a href=${address("jobs", "", { ...filter, after: page.last_id })}>Older jobs</a></p>`}`;
}

function Rows({ jobs, filter, more }) {
  if (jobs.length) return html`<${Table} caption="Jobs, newest first" columns=${COLUMNS} rows=${jobs} rowKey=${({ id }) => id} />`;
  if (more) return html`<p>None of these jobs fits; older ones may.</p>`;
  if (filter.kind || filter.status) return html`<${Empty} title="No job fits">
    <p>No job has this kind and this state. <a href=${address("jobs")}>Show all jobs</a>.</p>
  <//>`;
  return html`<${Empty} title="No jobs yet">
    <p>Tasks, batches and ingestions appear here as soon as they are submitted. This command submits two texts:</p>
    <${Code} text=${curl("v1/tasks", { input: ["first text", "second text"] })} label="curl command" />
  <//>`;
}

const COLUMNS = [
  { label: "Job", wide: true, show: nameAndKind },
  { label: "State", show: ({ status }) => html`<${Badge} state=${status} />` },
  { label: "Progress", wide: true, show: standing },
  { label: "Rate", number: true, show: ({ speed }) => rate(speed, "documents/s") },
  { label: "Time left", number: true, show: timeLeft },
  { label: "Created", number: true, show: (job) => html`<${Time} at=${job.created_at} />` },
  { label: "Actions", show: (job) => html`<${Actions} job=${job} />` },
];

// The end of an id tells one from another; its beginning is a time.
function nameAndKind({ id, kind, name, model }) {
  return html`<a class="job-name" href=${address("jobs", id)} title=${id}>${name ?? `${kind} …${id.slice(-12)}`}</a>
    <span class="sub">${[kind, model].filter(Boolean).join(" · ")}</span>`;
}

function standing({ id, name, counts, ended, waiting, error, errors }) {
  const failure = error ?? errors?.data[0];
  return html`<${Progress} counts=${counts} ended=${ended} label=${`Progress of ${name ?? id}`} />
    ${waiting && html`<span class="sub">${waiting.message}</span>`}
    ${failure && html`<span class="sub bad-text">${failure.message}</span>`}`;
}

function timeLeft({ ended, left, started, finished }) {
  if (!ended) return duration(left);
  return started == null ? "ended" : html`<span class="muted">took ${duration(finished - started)}</span>`;
}
