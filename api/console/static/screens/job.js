// One task, batch or ingestion: how it stands, what failed, and its files.
import { announce } from "../announce.js";
import { duration, rate, Time } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { useFetch } from "../live.js";
import { address } from "../route.js";
import { ErrorBox, Loading } from "../ui/error_box.js";
import { Badge, Progress } from "../ui/state.js";
import { Waiting } from "../ui/waiting.js";
import { Actions, pathOf } from "./job_actions.js";
import * as batch from "./job_batch.js";
import * as ingestion from "./job_ingestion.js";
import { hasEnded, summary } from "./job_summary.js";
import * as task from "./job_task.js";

// Each kind exports `facts(object)` and the components `Stages`, `Errors` and `Files`.
const KINDS = { task_: ["task", task], batch_: ["batch", batch], ing_: ["ingestion", ingestion] };
const OPEN_MS = 2000;
const ENDED_MS = 10_000;

export const title = (name) => `Job ${name}`;

export function Screen({ name: id }) {
  const found = Object.keys(KINDS).find((prefix) => id.startsWith(prefix));
  return html`<p class="trail"><a href=${address("jobs")}>Jobs</a></p>
    ${found ? html`<${Job} id=${id} kind=${KINDS[found][0]} of=${KINDS[found][1]} />` : html`<${Gone} id=${id} />`}`;
}

// The object at a path, as it changes: {data, error, reload}.
function useJob(path) {
  const [ended, setEnded] = useState(false);
  const read = useFetch(path, { everyMs: ended ? ENDED_MS : OPEN_MS });
  const over = Boolean(read.data) && hasEnded(read.data.status);
  useEffect(() => setEnded(over), [over]);
  return read;
}

function Job({ id, kind, of }) {
  const { data, error, reload } = useJob(pathOf(kind, id));
  useEnd(kind, data?.status);
  if (error && (error.status === 404 || error.status === 410)) return html`<${Gone} id=${id} error=${error} />`;
  if (!data) return html`<h1 tabindex="-1">Job ${id}</h1><${ErrorBox} error=${error} again=${reload} />${!error && html`<${Loading} what="the job" />`}`;
  const job = summary(data);
  const changed = (method) => {
    if (method === "DELETE") location.hash = address("jobs");
    else reload();
  };
  return html`<div class="heading">
      <h1 tabindex="-1">${job.name ?? `${kind} ${id}`}</h1>
      <${Badge} state=${data.status} />
      <${Actions} job=${job} changed=${changed} />
    </div>
    <${ErrorBox} error=${error} again=${reload} title="This may be old: the last reading failed" />
    <${Waiting} waiting=${data.waiting} />
    ${data.error && html`<${ErrorBox} error=${data.error} title=${`The ${kind} failed`} />`}
    <section class="box" aria-label="Progress">
      <${Progress} done=${job.completed} failed=${job.failed} total=${job.total} ended=${job.ended} label="Progress" />
      <${of.Stages} object=${data} />
      <${Facts} job=${job} more=${of.facts(data)} />
    </section>
    <${of.Errors} object=${data} path=${pathOf(kind, id)} />
    <${of.Files} object=${data} path=${pathOf(kind, id)} />`;
}

// Tells people who do not see the page that the job has ended while they were here.
function useEnd(kind, status) {
  const [before, setBefore] = useState(status);
  useEffect(() => {
    if (before && before !== status && hasEnded(status)) announce(`The ${kind} is ${status}.`);
    setBefore(status);
  }, [status]);
}

const LONG = new Set(["Id", "Model"]);

function Facts({ job, more }) {
  const facts = [
    ["Kind", job.kind],
    ["Id", html`<code>${job.id}</code>`],
    ["Model", job.model],
    ["Created", html`<${Time} at=${job.created} />`],
    job.started != null && ["Started", html`<${Time} at=${job.started} />`],
    job.finished != null && ["Ended", html`<${Time} at=${job.finished} />`],
    job.finished != null && job.started != null && ["Took", duration(job.finished - job.started)],
    job.rate != null && ["Rate", rate(job.rate, "documents/s")],
    job.left != null && ["Time left", duration(job.left)],
    ...more,
    ...Object.entries(job.metadata ?? {}).filter(([, value]) => value !== job.name).map(([name, value]) => [`metadata.${name}`, value]),
  ];
  return html`<dl class="facts">
    ${facts.filter((fact) => fact && fact[1]).map(([name, value]) => html`<div key=${name} class=${LONG.has(name) ? "long" : ""}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

function Gone({ id, error }) {
  return html`<h1 tabindex="-1">Job ${id}</h1>
    <div class="box" role="alert">
      <h2>This job is not there</h2>
      <p>${error?.message ?? "Ids of jobs begin with task_, batch_ or ing_."}</p>
      <p>It was deleted, its time of retention is over, or it belongs to another key. <a href=${address("jobs")}>Go to the jobs</a>.</p>
    </div>`;
}
