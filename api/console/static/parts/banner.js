// What is said above a screen or in it: the strip below the header, notices, and errors.
import { reload, session } from "../api.js";
import { address, capital, duration, modelName, nextTry, percent, sentence, since, some } from "../format.js";
import { html } from "../html.js";

// Codes of errors that the frame tells: no notice repeats them.
export const SAID_BY_FRAME = new Set(["unreachable", "invalid_api_key"]);

// How full Redis is: null without a limit; `refuses`: what, for people, or "".
export function redisOf({ redis: { used_bytes: used, limit_bytes: limit, tasks_percent: tasks, queries_percent: queries } }) {
  if (!limit) return null;
  const share = (100 * used) / limit;
  const refuses = share > queries ? "tasks and queries are refused" : share > tasks ? "tasks are refused" : "";
  return { share: Math.floor(share), tasks, queries, limit, refuses };
}

// Seconds of work that wait: of the model that has the most; null where nobody knows the speed.
export function waitingSeconds({ models }) {
  const lanes = models.map((model) => Object.values(model.lanes).map(({ seconds }) => seconds));
  if (lanes.flat().includes(null)) return null;
  return Math.max(0, ...lanes.map((seconds) => seconds.reduce((sum, one) => sum + one, 0)));
}

// Models that nobody serves. One that nobody asks for is a matter for the strip only where no other is served.
function unserved({ models }) {
  const without = models.filter(({ workers }) => !workers.length);
  return without.length === models.length ? without : without.filter(({ lanes }) => lanes.online.tasks || lanes.bulk.tasks);
}

// What is wrong, the worst first, or null: {stop?, said, at?, fix?, command?, more?}.
export function troubleOf(service) {
  if (session.away) return { stop: true, said: "The API does not answer", at: session.away, fix: "What you see is from then. The page tries again every second." };
  if (!service) return null;
  const { redis, models, documents } = service;
  if (!redis.up) return { stop: true, said: "Redis does not answer", at: redis.seen_at, fix: "What you see is from then. Nothing that was accepted is lost.", more: "What to do" };
  const full = redisOf(service);
  if (full?.refuses) return { stop: true, said: `Redis is ${percent(full.share)} full: ${full.refuses}`, fix: "Give it room, or delete ended jobs with large results.", more: "What to do" };
  const without = unserved(service);
  const absent = without.find(({ loading }) => !loading.length);
  if (absent) return { stop: true, said: `No worker serves ${modelName(absent.id)}`, at: absent.absent_since, fix: "Start one:", command: "embedq worker", more: "What to do" };
  if (documents.tasks && !documents.workers.length) return { stop: true, said: "No documents worker runs", at: documents.absent_since, fix: "Start one:", command: "embedq documents-worker", more: "What to do" };
  if (without.length && models.length) return { said: "The model loads", at: Math.min(...without[0].loading.map((one) => one.since)), fix: "Work is accepted and starts when it is there.", more: "What loads" };
  return null;
}

// One place of one height: nothing moves when it changes.
export function Strip({ trouble, service }) {
  const kind = trouble ? (trouble.stop ? "stop" : "warn") : "calm";
  return html`<section class=${`strip ${kind}`} aria-label="State of the service"><div class="wide">
    ${trouble
      ? html`<p><b>${trouble.said}${trouble.at ? ` ${since(trouble.at)}` : ""}.</b> <span class="fix">${trouble.fix} ${trouble.command && html`<code>${trouble.command}</code>`}</span></p>`
      : html`<p>${service && calm(service)}</p>`}
    ${(trouble ? trouble.more : service) && html`<a class="more" href=${address("service")}>${trouble?.more ?? "Service"}</a>`}
  </div></section>`;
}

function calm(service) {
  const workers = service.models.reduce((sum, model) => sum + model.workers.length, 0);
  const seconds = waitingSeconds(service);
  const work = seconds === null ? "work waits" : seconds < 1 ? "nothing waits" : `about ${duration(seconds, 1)} of work waits`;
  const full = redisOf(service);
  return [some(workers, "worker"), work, full && `Redis ${percent(full.share)} full`].filter(Boolean).join(" · ");
}

// For people who do not see the page: what has changed, and a trouble, once and without its clock.
export function Said({ trouble }) {
  return html`<div class="unseen" aria-live="polite">${session.said}</div>
    <div class="unseen" role="alert">${trouble ? `${trouble.said}.` : ""}</div>`;
}

// kind: "wait" or "bad". title: one sentence.
export function Notice({ kind = "bad", title, children }) {
  return html`<div class=${`notice ${kind}`} role=${kind === "bad" ? "alert" : undefined}><b>${title}</b>${children && html`<br />${children}`}</div>`;
}

// error: an ApiError or a {code, message} of the API, in whose words it is shown. again: reading anew may help.
export function ErrorNotice({ error, again, title }) {
  if (!error || SAID_BY_FRAME.has(error.code)) return null;
  return html`<${Notice} title=${title ?? error.message}>
    ${title && `${error.message} `}<small><code>${error.code}</code></small>
    ${again && html` <button type="button" class="plain" onClick=${reload}>Try again</button>`}
  <//>`;
}

// What is shown of a reading, as `useFetch` returns it, beside its data. what: with its article.
export function Reading({ of: { data, error }, what }) {
  if (!data && !error) return html`<p class="small" role="status">Reading ${what} …</p>`;
  return html`<${ErrorNotice} error=${error} again title=${data ? "This may be old: the last reading failed." : `${capital(what)} cannot be read.`} />`;
}

// What to do about a reason for which something waits.
const REMEDIES = {
  no_worker: html`Start one: <code>embedq worker</code>`,
  no_documents_worker: html`Start one: <code>embedq documents-worker</code>`,
  model_loading: "It starts when the model is there.",
  sink_unavailable: "Nothing is lost: chunks wait in the storage.",
  workers_died: "A text that kills its worker again and again fails alone. The log of the worker says how it died.",
};

// Why a job waits that should not; that others go first is no matter for a notice.
export function Waits({ waiting }) {
  const next = nextTry(waiting);
  return html`<${Notice} kind="wait" title=${sentence(waiting)}>${next && `${capital(next)}. `}${REMEDIES[waiting.code]}<//>`;
}

