// How a job stands: its state as a shape and a word, its bar, its counts, its rate and time, and its stages.
import { count, duration, nextTry, sentence, some, words } from "../format.js";
import { html } from "../html.js";

const [WINDOW_S, LEAST_S] = [30, 4];
const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);
const GOES_ON = new Set(["in_line", "working"]); // all other reasons are for people to look at
const SHAPES = { in_progress: "work", validating: "work", finalizing: "work", completed: "done", failed: "fail", queued: "" };
// By what their ids begin with.
const KINDS = {
  task_: { kind: "task", collection: "v1/tasks", part: "text" },
  batch_: { kind: "batch", collection: "v1/batches", part: "line" },
  ing_: { kind: "ingestion", collection: "v1/ingestions", part: "document" },
};
const kindOf = (id) => KINDS[`${id.split("_")[0]}_`];
const past = new Map(); // id of an open job -> [time, parts done] of the last half minute
const known = new WeakMap(); // object of the API -> its job: a drawing of the same answer is no second measurement

// The path of a job by its id, or null.
export function pathOf(id) {
  const { collection } = kindOf(id) ?? {};
  return collection ? `${collection}/${encodeURIComponent(id)}` : null;
}

// An object of the API with what all kinds have in common under one name. done, total, unit: of an ingestion its chunks
// while it runs, else its parts. speed: per second of the last half minute. left: seconds. held: it waits for people.
// behind: others go first.
export function jobOf(object) {
  if (!known.has(object)) known.set(object, made(object));
  return known.get(object);
}

function made(object) {
  const { id, status, waiting, metadata, counts, chunks } = object;
  const { kind, part } = kindOf(id);
  const ended = ENDED.has(status);
  const held = !ended && Boolean(waiting) && !GOES_ON.has(waiting.code);
  const cut = !ended && chunks?.total > 0;
  const [done, total] = cut ? [object.dry_run ? chunks.total : chunks.embedded, chunks.total] : [counts.completed, counts.total];
  const through = done + (cut ? 0 : counts.failed);
  if (ended) past.delete(id);
  const speed = ended || held ? null : (object.rate?.chunks_per_s || measured(id, through));
  const began = object.started_at ?? object.in_progress_at ?? object.created_at;
  const finished = object.finished_at ?? object[`${status}_at`]; // of a batch: `completed_at` and so on
  return {
    ...object,
    kind,
    path: pathOf(id),
    part,
    ended,
    held,
    behind: !ended && waiting?.code === "in_line",
    name: metadata?.name ?? metadata?.filename ?? metadata?.title ?? object.sink?.dataset ?? `${kind} …${id.slice(-8)}`,
    done,
    total,
    unit: cut ? "chunk" : part,
    speed,
    left: speed && total > through && object.listing_complete !== false ? Math.ceil((total - through) / speed) : null,
    took: ended && finished ? finished - began : null,
  };
}

function measured(id, done) {
  const now = performance.now() / 1000;
  const seen = (past.get(id) ?? []).filter(([at]) => now - at <= WINDOW_S);
  seen.push([now, done]);
  past.set(id, seen);
  const [at, first] = seen[0];
  return now - at >= LEAST_S && done > first ? (done - first) / (now - at) : null;
}

// [shape, word]
export function stateOf({ status, held, counts }) {
  if (held) return ["hold", "waiting"];
  if (status === "completed" && counts.failed > 0) return ["part", `completed, ${count(counts.failed)} failed`];
  return [SHAPES[status] ?? "off", words(status)];
}

export function State({ job }) {
  const [shape, word] = stateOf(job);
  return html`<span class=${`state ${shape}`}>${word}</span>`;
}

// Hidden from readers: the counts beside it are text. tone: "", "held", "ended" or "stopped".
function Bar({ done = 0, failed = 0, total = 0, tone = "" }) {
  const width = (number) => ({ "--w": `${total ? Math.min(100, (100 * number) / total) : 0}%` });
  return html`<span class=${`bar ${tone}`} aria-hidden="true"><b style=${width(done)}></b>${failed > 0 && html`<b class="x" style=${width(failed)}></b>`}</span>`;
}

// Of a job; nothing of one that is whole, or that broke before anything was done.
export function JobBar({ job: { ended, held, status, counts, done, total, unit, part } }) {
  if (ended && (status === "completed" ? !counts.failed : !counts.completed)) return null;
  const tone = !ended ? (held ? "held" : "") : status === "completed" ? "ended" : "stopped";
  return html`<${Bar} done=${done} failed=${unit === part ? counts.failed : 0} total=${total} tone=${tone} />`;
}

// What is known of its time: words before it, the time, words behind it; or nothing.
export function timeOf({ status, held, behind, waiting, left, took }) {
  if (took !== null) {
    if (status === "completed") return ["took ", took < 1 ? "under 1\u00a0s" : duration(took)];
    return took < 1 ? ["", "at once"] : ["after ", duration(took)];
  }
  if (held) return ["", nextTry(waiting)];
  if (behind) return waiting.seconds ? ["starts in ", duration(waiting.seconds)] : [];
  return left ? ["", duration(left), " left"] : [];
}

const share = ({ done, total, unit }) => `${count(done)} of ${some(total, unit)}`;

// Its counts, or why it waits or failed: {text, tone, failed}.
export function standing(job) {
  const { status, ended, held, behind, waiting, counts, total, part, unit, kind, error, errors } = job;
  const failed = counts.failed > 0 ? `${unit === part ? count(counts.failed) : some(counts.failed, part)} failed` : "";
  if (held) return { text: sentence(waiting), tone: "wait" };
  if (!ended) return { text: total ? `${share(job)}${behind ? " · other work goes first" : ""}` : "nothing counted yet", failed };
  if (status === "failed") return { text: errors ? ofFile(errors.data) : (error?.message ?? ""), tone: "bad" };
  if (status !== "completed") return { text: `${share(job)} ${counts.completed === 1 ? "was" : "were"} done${kind === "ingestion" || !counts.completed ? "" : " and can be read"}`, failed };
  return { text: `${share(job)}${kind === "ingestion" ? " loaded" : ""}`, failed };
}

// Lines of a file may have several errors each.
function ofFile([first, ...others]) {
  const lines = new Set(others.map(({ line }) => line).filter((line) => line !== first.line));
  return `${first.line ? `Line ${count(first.line)}: ` : ""}${first.message}${lines.size ? ` ${some(lines.size, "other line")} ${lines.size === 1 ? "is" : "are"} wrong, too.` : ""}`;
}

// stages: [name, state, text, what is said of it, {done, failed, total}] in order. state: "ended", "" (at work), "held",
// "broke", "stopped" or "next".
export function Stages({ stages }) {
  const tones = { held: "wait", broke: "bad" };
  return html`<ol class="stages">
    ${stages.map(([name, state, text, note, { done, failed, total } = {}]) => html`<li key=${name} aria-current=${state === "" ? "step" : undefined}>
      <${Bar} tone=${state} done=${state === "broke" || state === "next" ? 0 : done} failed=${state === "broke" ? 1 : failed} total=${state === "broke" ? 1 : total} />
      <b class=${tones[state]}>${name}</b> <span>${text}</span> ${note && html`<small class=${tones[state] ?? (failed ? "bad" : "")}>${note}</small>`}
    </li>`)}
  </ol>`;
}
