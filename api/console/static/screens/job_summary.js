// What tasks, batches and ingestions have in common, as the list and the screen of one of them show it.
const KINDS = { "embedding.task": "task", batch: "batch", ingestion: "ingestion" };
const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);

export const hasEnded = (status) => ENDED.has(status);

export function summary(object) {
  const { id, status, counts, waiting, metadata } = object;
  const kind = KINDS[object.object];
  const ended = hasEnded(status);
  return {
    id,
    kind,
    status,
    ended,
    name: metadata?.name ?? metadata?.filename ?? metadata?.title ?? object.sink?.dataset ?? null,
    model: object.model,
    ...counts,
    rate: ended ? null : object.rate?.documents_per_s,
    left: waiting?.code === "working" ? waiting.seconds : null,
    created: object.created_at,
    started: object.started_at ?? object.in_progress_at ?? null,
    finished: ended ? (object.finished_at ?? object[`${status}_at`] ?? null) : null, // of a batch: `completed_at` and so on
    metadata,
    resumable: object.resumable,
  };
}
