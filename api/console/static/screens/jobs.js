// Tasks, batches and ingestions in one list, newest first.
import { announce } from "../announce.js";
import { BASE, useSession } from "../api.js";
import { duration, rate, Time } from "../format.js";
import { html, useEffect, useRef } from "../html.js";
import { useFetch } from "../live.js";
import { address } from "../route.js";
import { Code, curl } from "../ui/code.js";
import { Empty, ErrorBox, Loading } from "../ui/error_box.js";
import { Badge, Progress } from "../ui/state.js";
import { Table } from "../ui/table.js";
import { Actions } from "./job_actions.js";
import { summary } from "./job_summary.js";

export const title = () => "Jobs";

const PAGE = 100;
const EVERY_MS = 2000;
const KINDS = { "": "All kinds", task: "Tasks", batch: "Batches", ingestion: "Ingestions" };
const STATES = {
  "": "Any state",
  queued: "Queued",
  validating: "Validating",
  in_progress: "In progress",
  finalizing: "Finalizing",
  cancelling: "Cancelling",
  completed: "Completed",
  failed: "Failed",
  expired: "Expired",
  cancelled: "Cancelled",
};

export function Screen({ query }) {
  const filter = { kind: query.get("kind"), status: query.get("status") };
  const after = query.get("after");
  const go = (changes) => {
    location.hash = address("jobs", "", { ...filter, ...changes });
  };
  return html`<h1 tabindex="-1">Jobs</h1>
    <div class="filters" role="group" aria-label="Filter">
      <${Choice} label="Kind" values=${KINDS} value=${filter.kind ?? ""} choose=${(kind) => go({ kind })} />
      <${Choice} label="State" values=${STATES} value=${filter.status ?? ""} choose=${(status) => go({ status })} />
    </div>
    <${Page} key=${after} filter=${filter} after=${after} />`;
}

function Choice({ label, values, value, choose }) {
  return html`<label>${label}
    <select onChange=${(event) => choose(event.target.value)}>
      ${Object.entries(values).map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}
    </select>
  </label>`;
}

const search = (pairs) => new URLSearchParams(Object.entries(pairs).filter(([, value]) => value)).toString();

function Page({ filter, after }) {
  const path = `v1/jobs?${search({ ...filter, after, limit: PAGE })}`;
  const { data, error, reload } = useFetch(path, { everyMs: EVERY_MS });
  useAnnouncedCount(data ? path : null, data?.data.length);
  return html`<${ErrorBox} error=${error} again=${reload} title="The jobs cannot be read" />
    ${after && html`<p><a href=${address("jobs", "", filter)}>Back to the newest</a></p>`}
    ${data ? html`<${Rows} filter=${filter} rows=${data.data} more=${data.has_more} last=${data.last_id} />` : !error && html`<${Loading} what="the jobs" />`}`;
}

const isFiltered = ({ kind, status }) => Boolean(kind || status);

// Tells how many jobs there are after the filter was changed.
function useAnnouncedCount(path, number) {
  const before = useRef(path);
  useEffect(() => {
    if (path && before.current && before.current !== path) announce(number === 1 ? "One job." : `${number} jobs.`);
    before.current = path ?? before.current;
  }, [path]);
}

function Rows({ filter, rows, more, last }) {
  if (!rows.length && !more) return html`<${Nothing} filtered=${isFiltered(filter)} />`;
  return html`${rows.length
      ? html`<${Table} caption="Jobs, newest first" columns=${COLUMNS} rows=${rows.map(row)} rowKey=${({ id }) => id} />`
      : html`<p>None of these jobs fits; older ones may.</p>`}
    ${more && html`<p><a href=${address("jobs", "", { ...filter, after: last })}>Older jobs</a></p>`}`;
}

const row = (object) => ({ ...summary(object), waiting: object.waiting, error: object.error ?? object.errors?.data[0] });

const COLUMNS = [
  { key: "name", label: "Job", wide: true, show: (job) => html`<${Name} job=${job} />` },
  { key: "state", label: "State", show: ({ status }) => html`<${Badge} state=${status} />` },
  { key: "progress", label: "Progress", wide: true, show: (job) => html`<${Standing} job=${job} />` },
  { key: "rate", label: "Rate", number: true, show: (job) => rate(job.rate, "documents/s") },
  { key: "left", label: "Time left", number: true, show: timeLeft },
  { key: "created", label: "Created", number: true, show: ({ created }) => html`<${Time} at=${created} />` },
  { key: "acts", label: "Actions", show: (job) => html`<${Actions} job=${job} />` },
];

function timeLeft({ ended, left, started, finished }) {
  if (!ended) return duration(left);
  return started == null ? "ended" : html`<span class="muted">took ${duration(finished - started)}</span>`;
}

// The end of an id tells one from another; its beginning is a time.
function Name({ job: { id, kind, name, model } }) {
  return html`<a class="job-name" href=${address("jobs", id)} title=${id}>${name ?? `${kind} …${id.slice(-12)}`}</a>
    <span class="sub">${[kind, model].filter(Boolean).join(" · ")}</span>`;
}

function Standing({ job }) {
  return html`<${Progress} done=${job.completed} failed=${job.failed} total=${job.total} ended=${job.ended} label=${`Progress of ${job.name ?? job.id}`} />
    ${job.waiting && html`<span class="sub">${job.waiting.message}</span>`}
    ${job.error && html`<span class="sub bad-text">${job.error.message}</span>`}`;
}

function Nothing({ filtered }) {
  const { key } = useSession();
  if (filtered) return html`<${Empty} title="No job fits"><p>No job has this kind and this state. <a href="#/jobs">Show all jobs</a>.</p><//>`;
  const command = curl(BASE, "v1/tasks", { method: "POST", body: { input: ["first text", "second text"] }, key: Boolean(key) });
  return html`<${Empty} title="No jobs yet">
    <p>Tasks, batches and ingestions appear here as soon as they are submitted. This command submits two texts:</p>
    <${Code} text=${command} label="curl command" />
  <//>`;
}
