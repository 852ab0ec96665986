// What tasks, batches and ingestions have in common, as the list and the screen of one of them show it.
const KINDS = { "embedding.task": "task", batch: "batch", ingestion: "ingestion" };
const UNITS = { task: "texts/s", batch: "lines/s", ingestion: "documents/s" };
const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);

export const hasEnded = (status) => ENDED.has(status);

export function summary(object) {
  const { id, status, counts, waiting, metadata } = object;
  const kind = KINDS[object.object];
  const ended = hasEnded(status);
  const speed = kind === "task" ? waiting?.rate : object.rate?.documents_per_s;
  return {
    id,
    kind,
    status,
    ended,
    name: metadata?.name ?? metadata?.filename ?? metadata?.title ?? object.sink?.dataset ?? null,
    model: object.model,
    ...counts,
    unit: UNITS[kind],
    rate: ended ? null : speed,
    left: waiting?.code === "working" ? waiting.seconds : null,
    created: object.created_at,
    started: object.started_at ?? object.in_progress_at ?? null,
    finished: ended ? (object.finished_at ?? object[`${status}_at`] ?? null) : null, // of a batch: `completed_at` and so on
    metadata,
    resumable: object.resumable,
  };
}
