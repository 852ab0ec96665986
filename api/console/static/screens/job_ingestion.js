// An ingestion: documents that are listed, parsed, embedded and loaded.
import { bytes, count, rate, Time } from "../format.js";
import { html, useState } from "../html.js";
import { useFetch } from "../live.js";
import { address } from "../route.js";
import { Download } from "../ui/download.js";
import { ErrorBox, Loading } from "../ui/error_box.js";
import { Failures } from "../ui/failures.js";
import { StageList } from "../ui/stages.js";
import { Table } from "../ui/table.js";
import { hasEnded } from "./job_summary.js";

const PAGE = 100;

export function facts(ingestion) {
  const { source, sink, warnings } = ingestion;
  const { unchanged, emptied, cancelled } = ingestion.file_counts;
  return [
    ["Source", `${count(source.count)} ${source.type}`],
    ["Sink", sink.dataset ? html`Parquet: <a href=${address("datasets", sink.dataset)}>${sink.dataset}</a>` : [sink.type, sink.name, sink.table].filter(Boolean).join(" ")],
    ["Mode", ingestion.dry_run ? "dry run" : ingestion.mode],
    ["Speed", rate(ingestion.rate?.chunks_per_s, "chunks/s")],
    unchanged > 0 && ["Unchanged", count(unchanged)],
    emptied > 0 && ["Emptied", count(emptied)],
    cancelled > 0 && ["Cancelled", count(cancelled)],
    ["Tokens", count(ingestion.usage.total_tokens)],
    ["Warning", warnings.join(" ")],
    ["Kept until", ingestion.expires_at && html`<${Time} at=${ingestion.expires_at} />`],
  ];
}

export function Stages({ object }) {
  const { file_counts: files, chunks, listing_complete: listed, status } = object;
  const ended = hasEnded(status);
  const begun = (amount) => (ended ? "done" : amount ? "now" : "next");
  const stages = [
    { name: "Listing", state: listed || ended ? "done" : "now", text: `${count(files.total)} documents` },
    { name: "Parsing", state: begun(chunks.total), text: `${count(chunks.total)} chunks` },
    { name: "Embedding", state: begun(chunks.embedded), text: `${count(chunks.embedded)} chunks` },
    { name: "Loading", state: begun(chunks.loaded), text: `${count(chunks.loaded)} chunks` },
    { name: "Ended", state: ended ? "done" : "next", text: ended ? status : "" },
  ];
  return html`<${StageList} stages=${stages} />`;
}

export function Errors({ object, path }) {
  return object.file_counts.failed ? html`<h2>Failed documents</h2><${FailedDocuments} key=${object.file_counts.failed} path=${path} />` : null;
}

function FailedDocuments({ path }) {
  const [after, setAfter] = useState([]); // where the pages up to this one begin
  const last = after.at(-1);
  const { data, error, reload } = useFetch(`${path}/documents?filter=failed&limit=${PAGE}${last ? `&after=${encodeURIComponent(last)}` : ""}`);
  if (!data) return error ? html`<${ErrorBox} error=${error} again=${reload} title="The documents cannot be read" />` : html`<${Loading} what="the documents" />`;
  const rows = data.data.map(({ id, stage, last_error: failure }) => ({ key: id, name: id, stage, ...failure }));
  return html`<${Failures} caption="Failed documents" what="Document" rows=${rows} />
    <div class="buttons">
      ${after.length > 0 && html`<button type="button" onClick=${() => setAfter(after.slice(0, -1))}>Page before</button>`}
      ${data.has_more && html`<button type="button" onClick=${() => setAfter([...after, data.last_id])}>Next page</button>`}
    </div>`;
}

export function Files({ object, path }) {
  if (object.sink.type !== "parquet" || object.dry_run || !hasEnded(object.status) || !object.chunks.loaded) return null;
  return html`<h2>Files of its dataset</h2><${Parts} path=${path} />`;
}

function Parts({ path }) {
  const { data, error, reload } = useFetch(`${path}/output`);
  if (!data) return error ? html`<${ErrorBox} error=${error} again=${reload} title="The files cannot be listed" />` : html`<${Loading} what="the files" />`;
  const columns = [
    { key: "name", label: "File", wide: true, show: ({ name }) => html`<code>${name}</code>` },
    { key: "rows", label: "Chunks", number: true, show: ({ rows }) => count(rows) },
    { key: "documents", label: "Documents", number: true, show: ({ documents }) => count(documents) },
    { key: "bytes", label: "Size", number: true, show: (part) => bytes(part.bytes) },
    { key: "get", label: "Download", show: ({ name }) => html`<${Download} path=${`${path}/output/${encodeURIComponent(name)}`} name=${name} />` },
  ];
  return html`<${Table} caption="Parquet files" columns=${columns} rows=${data.data} rowKey=${({ name }) => name} />`;
}
