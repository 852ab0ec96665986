// The service as it is: models with their workers and lanes, documents workers, Redis.
import { useFetch } from "../api.js";
import { bytes, count, duration, NONE, rate, Time } from "../format.js";
import { html } from "../html.js";
import { Reading } from "../parts/banner.js";
import { Code } from "../parts/code.js";
import { Badge } from "../parts/progress.js";
import { Empty, Facts, Table } from "../parts/table.js";

const EVERY_MS = 2000;

export function Service() {
  const read = useFetch("v1/service", { every: () => EVERY_MS });
  const service = read.data;
  return html`<h1 tabindex="-1">Service</h1>
    <${Reading} of=${read} what="the service" />
    ${service && html`<${Overview} service=${service} />
      ${service.models.map((model) => html`<${Model} key=${model.id} model=${model} />`)}
      <${Documents} documents=${service.documents} />`}`;
}

function Overview({ service: { redis, models, documents, version, started_at } }) {
  const workers = models.reduce((sum, model) => sum + model.workers.length, 0);
  return html`<${Facts} facts=${[
    ["Redis", html`<${Badge} state=${redis.up ? "answers" : "does not answer"} tone=${redis.up ? "good" : "bad"} />
      ${redis.memory_percent > 0 && ` ${redis.memory_percent} % of its memory`}`],
    ["Model workers", html`<${Workers} number=${workers} />`],
    ["Documents workers", html`<${Workers} number=${documents.workers.length} calm />`],
    ["Work waiting", duration(waitingSeconds(models))],
    ["API", html`${version}, started <${Time} at=${started_at} />`],
  ]} />
  ${!redis.up && html`<p class="muted">Everything below is as it was <${Time} at=${redis.seen_at} />.</p>`}`;
}

const Workers = ({ number, calm }) => (number
  ? count(number)
  : html`${count(number)} <${Badge} state="none runs" tone=${calm ? "calm" : "bad"} />`);

// Of the model that has the most, like the metric embedq_backlog_seconds; null where a speed is not known.
function waitingSeconds(models) {
  const lanes = models.map((model) => Object.values(model.lanes).map(({ seconds }) => seconds));
  if (lanes.flat().includes(null)) return null;
  return Math.max(0, ...lanes.map((seconds) => seconds.reduce((sum, one) => sum + one, 0)));
}

function Model({ model }) {
  const { id, names, workers, loading, lanes } = model;
  return html`<section aria-label=${`Model ${id}`}>
    <h2>${id}</h2>
    <${Facts} facts=${[
      ["Device", model.device ?? NONE],
      ["Computes with", model.compute ?? NONE],
      ["Precision", model.precision ?? NONE],
      ["Dimension", count(model.dimension)],
      ["Longest text", model.max_tokens ? `${count(model.max_tokens)} tokens` : NONE],
      ["Speed", rate(model.tokens_per_second, "tokens/s")],
      ["Claims in work", count(model.leases)],
      names.length > 1 && ["Also called", names.slice(1).join(", ")],
    ]} />
    <${Table} caption=${`Lanes of ${id}`} columns=${LANES} rows=${Object.entries(lanes)} rowKey=${([lane]) => lane} />
    ${workers.length
      ? html`<${Table} caption=${`Workers of ${id}`} columns=${WORKERS} rows=${workers} rowKey=${({ id: worker }) => worker} />`
      : loading.length
      ? html`<${Empty} title="A worker loads this model">
          ${loading.map(({ source, since }) => html`<p key=${since}>From ${source}, since <${Time} at=${since} />.</p>`)}
        <//>`
      : html`<${Empty} title="No worker serves this model">
          <p>Texts for it wait until one starts. This command starts one, with EMBEDQ_MODEL and the other settings of its worker before:</p>
          <${Code} text="embedq worker" label="command" />
        <//>`}
  </section>`;
}

const LANES = [
  { label: "Lane", show: ([lane]) => lane },
  { label: "Tasks waiting", number: true, show: ([, lane]) => count(lane.tasks) },
  { label: "Tokens", number: true, show: ([, lane]) => count(lane.tokens) },
  { label: "Work", number: true, show: ([, lane]) => (lane.seconds === null ? "speed not known yet" : duration(lane.seconds)) },
];

const PROCESS = [
  { label: "Worker", wide: true, show: ({ id, host, pid }) => html`${host} <span class="sub">process ${pid} · ${id}</span>` },
  { label: "Started", number: true, show: ({ started_at }) => html`<${Time} at=${started_at} />` },
  { label: "Memory", number: true, show: ({ rss_bytes }) => bytes(rss_bytes) },
];

const WORKERS = [
  ...PROCESS,
  { label: "Speed", number: true, show: ({ tokens_per_second }) => rate(tokens_per_second, "tokens/s") },
  { label: "Texts", number: true, show: ({ items, forward_passes }) => html`${count(items)} <span class="sub">in ${count(forward_passes)} passes</span>` },
  { label: "At once", number: true, show: ({ streams }) => count(streams) },
];

function Documents({ documents: { workers, tasks } }) {
  return html`<section aria-label="Documents workers">
    <h2>Documents</h2>
    <${Facts} facts=${[["Open tasks", count(tasks)]]} />
    ${workers.length
      ? html`<${Table} caption="Documents workers" columns=${PROCESS} rows=${workers} rowKey=${({ id }) => id} />`
      : html`<${Empty} title="No documents worker runs">
          <p>Batches and ingestions wait until one starts. This command starts one:</p>
          <${Code} text="embedq documents-worker" label="command" />
        <//>`}
  </section>`;
}
