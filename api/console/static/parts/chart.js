// Figures over time, drawn from what this page has polled, and a meter. SVG and boxes, no library.
import { clock } from "../format.js";
import { html } from "../html.js";
import { waitingSeconds } from "./banner.js";

const KEPT_S = 600;
const [WIDTH, HEIGHT] = [120, 40];
const samples = []; // {at, items: id of a worker -> texts, texts: per second, seconds: of work}

// Keeps what an answer of /v1/service says; the same answer once.
export function record(service) {
  const last = samples.at(-1);
  if (!service || last?.at === service.time) return;
  const workers = service.models.flatMap((model) => model.workers);
  const items = new Map(workers.map((worker) => [`${worker.id} ${worker.started_at}`, worker.items]));
  const grown = [...items].reduce((sum, [id, number]) => sum + Math.max(0, number - (last?.items.get(id) ?? number)), 0);
  samples.push({ at: service.time, items, texts: last ? grown / (service.time - last.at) : null, seconds: waitingSeconds(service) });
  while (samples[0].at < service.time - KEPT_S) samples.shift();
}

export const watchedSince = () => samples[0]?.at ?? null;

// what: "texts" or "seconds"; show: (number) => text. none: said in place of the last number.
export function Spark({ label, what, show, none }) {
  const points = samples.filter((sample) => sample[what] != null);
  const head = (said) => html`<div class="pair"><span>${label}</span><b class=${none ? "wait" : ""}>${none ?? said}</b></div>`;
  if (!points.length) return html`${head("not known yet")}<svg class="spark" aria-hidden="true" /><p class="small">\u00a0</p>`;
  const numbers = points.map((sample) => sample[what]);
  const [now, lowest, highest] = [numbers.at(-1), Math.min(...numbers), Math.max(...numbers)];
  const span = Math.max(1, points.at(-1).at - points[0].at);
  const x = (at) => ((WIDTH * (at - points[0].at)) / span).toFixed(1);
  const y = (number) => (HEIGHT - 1 - (number / (highest || 1)) * (HEIGHT - 3)).toFixed(1);
  const line = points.map((sample) => `${x(sample.at)},${y(sample[what])}`).join(" ");
  const text = `lowest ${show(lowest)}, highest ${show(highest)}`;
  return html`${head(show(now))}
    <svg class="spark" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${label} since ${clock(points[0].at)}: now ${show(now)}, ${text}`}>
      <line x1="0" y1="39.5" x2=${WIDTH} y2="39.5" /><polyline points=${line} />
    </svg>
    <p class="small">${text}</p>`;
}

// share and limits in percent; hidden from readers: the sentence beside it has the same figures.
export function Meter({ share, limits, over }) {
  return html`<span class=${over ? "meter over" : "meter"} aria-hidden="true">
    <b style=${{ "--w": `${Math.min(100, share)}%` }}></b>${limits.map((limit) => html`<i key=${limit} style=${{ "--w": `${limit}%` }}></i>`)}
  </span>`;
}
