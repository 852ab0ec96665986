// What can be done to a job: cancel, retry, delete. Each is confirmed first.
import { call } from "../api.js";
import { html } from "../html.js";
import { address } from "../route.js";
import { ConfirmButton } from "../ui/confirm.js";

const COLLECTIONS = { task: "v1/tasks", batch: "v1/batches", ingestion: "v1/ingestions" };
const PARTS = { task: "texts", batch: "lines", ingestion: "documents" };

export const pathOf = (kind, id) => `${COLLECTIONS[kind]}/${encodeURIComponent(id)}`;

// job: its summary; changed: called when something was done. Where that made another job, its screen is
// shown.
export function Actions({ job, changed = () => {} }) {
  const act = (method, tail = "") => async () => {
    const answer = await call(pathOf(job.kind, job.id) + tail, { method });
    if (answer.id === job.id) changed(method);
    else location.hash = address("jobs", answer.id);
  };
  const { kind, ended } = job;
  const name = `${kind} ${job.name ?? job.id}`;
  return html`<div class="buttons">
    ${!ended && job.status !== "cancelling" && html`<${ConfirmButton}
      label="Cancel" name=${name} question=${`Cancel this ${kind}?`} danger
      consequence=${`What is done stays. The other ${PARTS[kind]} are not worked on.`}
      act=${act("POST", "/cancel")} done=${`The ${kind} is being cancelled.`} />`}
    ${ended && canRetry(job) && html`<${ConfirmButton}
      label="Retry" name=${name} question=${`Retry the failed ${PARTS[kind]}?`}
      consequence=${RETRIES[kind]} act=${act("POST", "/retry")} done="The failed ones are tried again." />`}
    ${ended && html`<${ConfirmButton}
      label="Delete" name=${name} question=${`Delete this ${kind}?`} danger
      consequence=${DELETIONS[kind]} act=${act("DELETE")} done=${`The ${kind} is deleted.`} />`}
  </div>`;
}

// Whether the API would try something again; of an ingestion that failed as a whole only its own record says so.
function canRetry({ kind, status, failed, resumable }) {
  if (kind === "ingestion") return failed > 0 || Boolean(resumable);
  return kind === "batch" && (failed > 0 || status !== "completed");
}

const RETRIES = {
  batch: "A new batch is made of the lines without a result. This one stays as it is.",
  ingestion: "The failed documents are tried again under the same id.",
};
const DELETIONS = {
  task: "Its result is deleted too. This cannot be undone.",
  batch: "Its record is deleted. Its files stay until they are deleted or expire.",
  ingestion: "Its record and its list of documents are deleted. Rows in a table or in a dataset with a name stay; a dataset without a name is deleted too.",
};
