// The documents of a dataset, and the chunks of one document.
import { count } from "../format.js";
import { html } from "../html.js";
import { useFetch } from "../live.js";
import { address } from "../route.js";
import { Chunk, Metadata } from "../ui/chunk.js";
import { ErrorBox, Loading } from "../ui/error_box.js";
import { Table } from "../ui/table.js";

const PAGE = 25;

export function Documents({ dataset, query }) {
  const document = query.get("document");
  const after = query.get("after") ?? "";
  const search = new URLSearchParams({ limit: PAGE, ...(after && { after }), ...(document && { document_id: document }) });
  const path = `v1/datasets/${encodeURIComponent(dataset.name)}/${document ? "chunks" : "documents"}?${search}`;
  const { data, error, reload } = useFetch(path);
  const to = (more) => address("datasets", dataset.name, { view: "documents", ...more });
  return html`<h2>${document ? `Chunks of ${document}` : "Documents"}</h2>
    ${document && html`<p><a href=${to({})}>All documents</a></p>`}
    <${ErrorBox} error=${error} again=${reload} title="They cannot be read" />
    ${!data && !error && html`<${Loading} what=${document ? "the chunks" : "the documents"} />`}
    ${data && (document ? html`<${Chunks} chunks=${data.data} />` : html`<${DocumentTable} documents=${data.data} to=${to} />`)}
    ${data && html`<p class="buttons">
      ${after && html`<a href=${to({ document })}>First page</a>`}
      ${data.has_more && html`<a href=${to({ document, after: data.last_id })}>Next page</a>`}
    </p>`}`;
}

function Chunks({ chunks }) {
  if (!chunks.length) return html`<p>This document has no chunks here.</p>`;
  return chunks.map((chunk) => html`<${Chunk} key=${chunk.chunk} chunk=${chunk} />`);
}

function DocumentTable({ documents, to }) {
  if (!documents.length) return html`<p>This dataset has no documents.</p>`;
  const columns = [
    { key: "id", label: "Document", wide: true, show: ({ id, title, source_uri }) => html`<a class="job-name" href=${to({ document: id })}>${id}</a>
        ${title && html`<span class="sub">${title}</span>`}${source_uri && html`<span class="sub">${source_uri}</span>`}` },
    { key: "chunks", label: "Chunks", number: true, show: ({ chunks }) => count(chunks) },
    { key: "metadata", label: "Metadata", wide: true, show: ({ metadata }) => html`<${Metadata} metadata=${metadata} />` },
  ];
  return html`<${Table} caption="Documents" columns=${columns} rows=${documents} rowKey=${({ id }) => id} />`;
}
