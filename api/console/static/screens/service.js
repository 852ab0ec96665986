// The service as it is: its parts, what waits, and the workers.
import { bytes, clockAndDay, count, duration, modelName, NONE, percent, rate, since, some } from "../format.js";
import { html } from "../html.js";
import { Reading, redisOf, waitingSeconds } from "../parts/banner.js";
import { Meter, Spark, watchedSince } from "../parts/chart.js";
import { Table } from "../parts/table.js";

export function Service({ service: read }) {
  const service = read.data;
  return html`<div class="head"><h1 tabindex="-1">Service</h1></div>
    <${Reading} of=${read} what="the service" />
    ${service && html`<div class="parts">
        <ol class="rows">
          <${Part} shape="done" name="API" said="answers" small=${`version ${service.version}, since ${clockAndDay(service.started_at)}`} />
          <${RedisPart} service=${service} />
          ${service.models.map((model) => html`<${ModelPart} key=${model.id} model=${model} />`)}
          <${DocumentsPart} documents=${service.documents} />
        </ol>
        <${Watched} service=${service} />
      </div>
      <h2>Queue</h2>
      <${Table} caption="Queue" columns=${LANES} rows=${lanesOf(service)} rowKey=${({ lane, of }) => `${lane} ${of}`} />
      <h2>Workers</h2>
      <${Table} caption="Workers" columns=${WORKERS} rows=${workersOf(service)} rowKey=${({ id, of }) => `${id} ${of}`} />`}`;
}

// shape: of the state. said: in a few words; small: more of it; tone: "", "wait" or "bad".
function Part({ shape, name, said, tone = "", small, children }) {
  return html`<li class="fact"><span class=${`state ${shape}`}>${name}</span><div><div class=${tone}>${said}</div>${children}<div class="small">${small}</div></div></li>`;
}

function RedisPart({ service }) {
  const { up, seen_at: seen, used_bytes: used } = service.redis;
  const full = redisOf(service);
  if (!up) return html`<${Part} shape="fail" name="Redis" tone="bad" said=${`does not answer ${since(seen)}`} small="Everything here is as it was then." />`;
  if (!full) return html`<${Part} shape="done" name="Redis" said=${`${bytes(used)} used, without a limit`} small="Without maxmemory nothing is refused before the machine is full." />`;
  const remedy = `redis-cli CONFIG SET maxmemory ${Math.ceil((1.5 * full.limit) / 2 ** 20)}mb`;
  const said = `${percent(full.share)} of ${bytes(full.limit)} used${full.refuses && `: ${full.refuses}`}`;
  return html`<${Part} shape=${full.refuses ? "fail" : "done"} name="Redis" tone=${full.refuses && "bad"} said=${said}
    small=${html`Tasks are refused above ${percent(full.tasks)}, queries above ${percent(full.queries)}.
      ${full.refuses && html`<br />Give it room: <code>${remedy}</code> (where Redis has users, with <code>--user operator --askpass</code>), or delete ended jobs with large results.`}`}>
    <${Meter} share=${full.share} limits=${[full.tasks, full.queries]} over=${full.refuses} />
  <//>`;
}

function ModelPart({ model }) {
  const { id, names, workers, loading, absent_since: absent, device, compute, precision, dimension, tokens_per_second: speed } = model;
  const name = modelName(id);
  if (!workers.length && loading.length) {
    const [{ since: began, source }] = loading;
    return html`<${Part} shape="hold" name="Model workers" tone="wait" said=${`${count(loading.length)} load${loading.length === 1 ? "s" : ""} ${name} ${since(began)}`} small=${`from ${source}; none serves yet`} />`;
  }
  if (!workers.length) {
    return html`<${Part} shape="fail" name="Model workers" tone="bad" said=${`none serves ${name}${absent ? ` ${since(absent)}` : ""}`} small=${html`Start one: <code>embedq worker</code>`} />`;
  }
  const facts = [device, compute, precision, dimension && `${count(dimension)} dimensions`].filter(Boolean).join(", ");
  const others = names.length > 1 ? ` · also called ${names.slice(1).join(", ")}` : "";
  const more = loading.length ? `, ${count(loading.length)} more load${loading.length === 1 ? "s" : ""}` : "";
  return html`<${Part} shape="done" name="Model workers" said=${`${count(workers.length)} serve${workers.length === 1 ? "s" : ""} ${name}${more}`}
    small=${`${facts} · ${rate(speed, "tokens/s")}${others}`} />`;
}

function DocumentsPart({ documents: { workers, tasks, absent_since: absent } }) {
  const small = "files, batches, ingestions";
  if (workers.length) return html`<${Part} shape="done" name="Documents workers" said=${`${count(workers.length)} run${workers.length === 1 ? "s" : ""}`} small=${small} />`;
  return html`<${Part} shape=${tasks ? "fail" : "off"} name="Documents workers" tone=${tasks ? "bad" : ""} said=${`none${absent ? ` ${since(absent)}` : ""}`}
    small=${html`${small}. Start one: <code>embedq documents-worker</code>`} />`;
}

const seconds = (value) => (value && value < 1 ? `${value.toFixed(1)}\u00a0s` : duration(value));

function Watched({ service }) {
  const nobody = service.models.every(({ workers }) => !workers.length) && waitingSeconds(service) !== 0;
  const began = watchedSince();
  return html`<div class="card">
    <${Spark} label="Texts per second" what="texts" show=${(value) => count(Math.round(value))} />
    <${Spark} label="Work waiting" what="seconds" show=${seconds} none=${nobody ? "nobody works on it" : undefined} />
    <small>Since you opened this page${began && `, ${duration(service.time - began, 1)}`}. For more: Grafana.</small>
  </div>`;
}

// The lanes of all models, and the documents.
function lanesOf({ models, documents }) {
  const several = models.length > 1;
  const lanes = models.flatMap((model) => Object.entries(model.lanes).map(([lane, found]) => (
    { lane, of: several ? modelName(model.id) : "", what: "task", served: model.workers.length, ...found })));
  return [...lanes, { lane: "documents", of: "", what: "stage", served: documents.workers.length, tasks: documents.tasks, seconds: null, oldest_s: null }];
}

const LANES = [
  { label: "Lane", show: ({ lane, of }) => html`${lane} ${of && html`<small>${of}</small>`}` },
  { label: "Open", number: true, show: ({ tasks, what }) => some(tasks, what) },
  { label: "Tokens", number: true, show: ({ tokens }) => tokens != null && count(tokens) },
  { label: "Oldest waits", number: true, show: ({ oldest_s: oldest }) => oldest != null && seconds(oldest) },
  { label: "Work", number: true, show: ({ tasks, served, seconds: work }) => (tasks && !served ? html`<span class="wait">no worker</span>` : !tasks ? NONE : work === null ? "not known" : seconds(work)) },
];

// Those of models, those that load, and those of documents.
function workersOf({ models, documents }) {
  return [
    ...models.flatMap(({ id: of, workers }) => workers.map((worker) => ({ ...worker, of: modelName(of) }))),
    ...models.flatMap(({ id: of, loading }) => loading.map((one, place) => ({ ...one, id: `worker ${place + 1}`, of: modelName(of), loads: true }))),
    ...documents.workers.map((worker) => ({ ...worker, of: "documents" })),
  ];
}

const WORKERS = [
  { label: "Worker", show: ({ host, pid, id, of }) => html`${host ? `${host} ${pid}` : id} <small>${of}</small>` },
  { label: "State", show: ({ loads, deaths, since: began, started_at: started }) => (loads
    ? html`<span class="state hold">loads ${since(began)}</span>`
    : html`<span class=${`state ${deaths ? "part" : "done"}`}>serves since ${clockAndDay(started)}</span>`) },
  { label: "Tokens/s", number: true, show: ({ tokens_per_second: speed }) => speed != null && count(Math.round(speed)) },
  { label: "Memory", number: true, show: ({ rss_bytes: size }) => size != null && bytes(size) },
  { label: "Deaths", show: ({ loads, deaths, died_at: died, died_of: how }) => !loads && (deaths
    ? html`<span class="wait">${count(deaths)}, last ${clockAndDay(died)}, ${how}</span>`
    : html`<small>none</small>`) },
];
