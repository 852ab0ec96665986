// A task: texts that are encoded one by one.
import { count, NONE, Time } from "../format.js";
import { html, useState } from "../html.js";
import { useFetch } from "../live.js";
import { Download } from "../ui/download.js";
import { ErrorBox, Loading } from "../ui/error_box.js";
import { Failures } from "../ui/failures.js";
import { StageList } from "../ui/stages.js";
import { hasEnded } from "./job_summary.js";

const READ_UNASKED = 500;
const SHOWN = 200;

export const facts = (task) => [
  ["Lane", task.lane],
  ["Tokens", count(task.usage.total_tokens)],
  ["Deadline", task.deadline && html`<${Time} at=${task.deadline} />`],
  ["Kept until", task.expires_at && html`<${Time} at=${task.expires_at} />`],
];

export function Stages({ object: { status, started_at: started, counts } }) {
  const ended = hasEnded(status);
  const stages = [
    { name: "Queued", state: started || ended ? "done" : "now", text: "waits for its turn" },
    { name: "Encoding", state: ended ? "done" : started ? "now" : "next", text: `${count(counts.completed + counts.failed)} of ${count(counts.total)} texts` },
    { name: "Ended", state: ended ? "done" : "next", text: ended ? status : NONE },
  ];
  return html`<${StageList} stages=${stages} />`;
}

// The result has the errors between the vectors, so it is read as a whole: a large one only when asked for.
export function Errors({ object, path }) {
  const [wanted, setWanted] = useState(object.counts.total <= READ_UNASKED);
  if (!hasEnded(object.status) || !object.counts.failed) return null;
  return html`<h2>Failed texts</h2>
    ${wanted
      ? html`<${FailedTexts} path=${path} />`
      : html`<p>The result of ${count(object.counts.total)} texts has to be read for them. <button type="button" onClick=${() => setWanted(true)}>Read it</button></p>`}`;
}

function FailedTexts({ path }) {
  const { data, error, reload } = useFetch(`${path}/result?encoding_format=base64`);
  if (!data) return error ? html`<${ErrorBox} error=${error} again=${reload} title="The result cannot be read" />` : html`<${Loading} what="the result" />`;
  const failed = data.data.filter(({ object }) => object === "error");
  const rows = failed.slice(0, SHOWN).map(({ index, error: { code, message } }) => ({ key: index, name: `input[${index}]`, code, message }));
  return html`<${Failures} caption="Failed texts" what="Text" rows=${rows} />
    ${failed.length > SHOWN && html`<p class="muted">These are the first ${SHOWN} of ${count(failed.length)}.</p>`}`;
}

export function Files({ object, path }) {
  if (!hasEnded(object.status) || !object.counts.completed) return null;
  return html`<h2>Result</h2><div class="buttons"><${Download} path=${`${path}/result`} name=${`${object.id}.json`} label="Download the vectors" /></div>`;
}
