// A batch: the lines of an uploaded file, answered in an output file and an error file.
import { request, useSession } from "../api.js";
import { count, Time } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Download } from "../ui/download.js";
import { ErrorBox, Loading } from "../ui/error_box.js";
import { Failures } from "../ui/failures.js";
import { StageList } from "../ui/stages.js";
import { Table } from "../ui/table.js";
import { hasEnded } from "./job_summary.js";

const READ_BYTES = 256 * 1024;
const SHOWN = 200;

export const facts = (batch) => [
  ["Window", batch.completion_window],
  ["Tokens", batch.usage && count(batch.usage.total_tokens)],
  ["Must end", !hasEnded(batch.status) && html`<${Time} at=${batch.expires_at} />`],
];

const ORDER = ["validating", "in_progress", "finalizing"];

export function Stages({ object }) {
  const { status, counts } = object;
  const at = ORDER.indexOf(status);
  const ended = hasEnded(status);
  const reached = [object.created_at, object.in_progress_at, object.finalizing_at];
  const state = (place) => (place === at ? "now" : reached[place] != null && (ended || place < at || at < 0) ? "done" : "next");
  const stages = [
    { name: "Checking", state: state(0), text: object.errors ? `${count(object.errors.data.length)} errors` : counts.total ? `${count(counts.total)} lines` : "reads the file" },
    { name: "Encoding", state: state(1), text: counts.total ? `${count(counts.completed + counts.failed)} of ${count(counts.total)} lines` : "" },
    { name: "Writing files", state: state(2), text: "" },
    { name: "Ended", state: ended ? "done" : "next", text: ended ? status : "" },
  ];
  return html`<${StageList} stages=${stages} />`;
}

export function Errors({ object }) {
  const ofFile = object.errors?.data ?? [];
  return html`${ofFile.length > 0 && html`<h2>Errors of the file</h2><${Failures} caption="Errors of the file" what="Line"
      rows=${ofFile.slice(0, SHOWN).map(({ line, code, message }, place) => ({ key: place, name: line == null ? "the file" : `line ${line}`, code, message }))} />
      <${Rest} all=${ofFile.length} />`}
    ${object.error_file_id && html`<h2>Failed lines</h2><${FailedLines} key=${object.error_file_id} id=${object.error_file_id} all=${object.counts.failed} />`}`;
}

const Rest = ({ all, shown = SHOWN }) => (all > shown ? html`<p class="muted">These are the first ${count(shown)} of ${count(all)}.</p>` : null);

// The beginning of the error file, which may be large.
function FailedLines({ id, all }) {
  const { round } = useSession();
  const [{ rows, error }, set] = useState({});
  useEffect(() => {
    const stop = new AbortController();
    readLines(id, stop.signal).then((lines) => set({ rows: lines }), (failure) => !stop.signal.aborted && set({ error: failure }));
    return () => stop.abort();
  }, [id, round]);
  if (!rows) return error ? html`<${ErrorBox} error=${error} title="The error file cannot be read" />` : html`<${Loading} what="the error file" />`;
  return html`<${Failures} caption="Failed lines" what="custom_id" rows=${rows} /><${Rest} all=${all} shown=${rows.length} />`;
}

async function readLines(id, signal) {
  const headers = { Accept: "*/*", Range: `bytes=0-${READ_BYTES - 1}` };
  const answer = await request(`v1/files/${encodeURIComponent(id)}/content`, { headers, signal });
  const lines = (await answer.text()).split("\n").slice(0, -1); // what follows the last end of line was cut
  return lines.slice(0, SHOWN).map((line, place) => {
    const { custom_id: name, response, error } = JSON.parse(line);
    const { code, message } = error ?? response.body.error;
    return { key: place, name, code, message };
  });
}

export function Files({ object }) {
  const files = [
    ["Input", object.input_file_id],
    ["Output", object.output_file_id],
    ["Errors", object.error_file_id],
  ].filter(([, id]) => id);
  const columns = [
    { key: "what", label: "File", show: ([what]) => what },
    { key: "id", label: "Id", show: ([, id]) => html`<code>${id}</code>` },
    { key: "get", label: "Download", show: ([what, id]) => html`<${Download} path=${`v1/files/${encodeURIComponent(id)}/content`} name=${`${object.id}-${what.toLowerCase()}.jsonl`} />` },
  ];
  return html`<h2>Files</h2><${Table} caption="Files of the batch" columns=${columns} rows=${files} rowKey=${([what]) => what} />`;
}
