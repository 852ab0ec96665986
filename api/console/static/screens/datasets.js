// What ingestions have loaded: the list of datasets, and one dataset to read and search.
import { BASE, call, useSession } from "../api.js";
import { bytes, count, Time } from "../format.js";
import { html } from "../html.js";
import { useFetch } from "../live.js";
import { address } from "../route.js";
import { Code, curl } from "../ui/code.js";
import { ConfirmButton } from "../ui/confirm.js";
import { Empty, ErrorBox, Loading } from "../ui/error_box.js";
import { Facts } from "../ui/facts.js";
import { Table } from "../ui/table.js";
import { Documents } from "./dataset_documents.js";
import { Search } from "./dataset_search.js";

export const title = (name) => (name ? `Dataset ${name}` : "Datasets");

const PAGE = 100;
const EXAMPLE = {
  source: { documents: [{ id: "refunds", text: "Refunds are paid within ten days.", metadata: { topic: "billing" } }] },
  sink: { type: "parquet", dataset: "handbook" },
};
const VIEWS = { search: ["Search", Search], documents: ["Documents", Documents] };

export const Screen = ({ name, query }) => (name ? html`<${Dataset} name=${name} query=${query} />` : html`<${List} after=${query.get("after")} />`);

function List({ after }) {
  const path = `v1/datasets?limit=${PAGE}${after ? `&after=${encodeURIComponent(after)}` : ""}`;
  const { data, error, reload } = useFetch(path, { everyMs: 10_000 });
  return html`<h1 tabindex="-1">Datasets</h1>
    <${ErrorBox} error=${error} again=${reload} title="The datasets cannot be read" />
    ${after && html`<p><a href=${address("datasets")}>Back to the first ones</a></p>`}
    ${data ? html`<${Rows} page=${data} reload=${reload} />` : !error && html`<${Loading} what="the datasets" />`}`;
}

function Rows({ page, reload }) {
  const { key } = useSession();
  if (!page.data.length) {
    return html`<${Empty} title="No datasets yet">
      <p>An ingestion loads documents into a dataset, or into a table of PostgreSQL, which is not shown here. This command loads one document:</p>
      <${Code} text=${curl(BASE, "v1/ingestions", { method: "POST", body: EXAMPLE, key: Boolean(key) })} label="curl command" />
    <//>`;
  }
  const acts = { key: "acts", label: "Actions", show: (dataset) => html`<${Delete} dataset=${dataset} done=${reload} />` };
  return html`<${Table} caption="Datasets" columns=${[...COLUMNS, acts]} rows=${page.data} rowKey=${({ id }) => id} />
    ${page.has_more && html`<p><a href=${address("datasets", "", { after: page.last_id })}>More datasets</a></p>`}`;
}

const COLUMNS = [
  { key: "name", label: "Dataset", wide: true, show: (dataset) => html`<a class="job-name" href=${address("datasets", dataset.name)}>${dataset.name}</a>
      ${dataset.of_one_ingestion && html`<span class="sub">of one ingestion</span>`}` },
  { key: "documents", label: "Documents", number: true, show: ({ documents }) => count(documents) },
  { key: "rows", label: "Chunks", number: true, show: ({ rows }) => count(rows) },
  { key: "dimension", label: "Dimension", number: true, show: ({ dimension }) => count(dimension) },
  { key: "bytes", label: "Size", number: true, show: (dataset) => bytes(dataset.bytes) },
  { key: "updated", label: "Changed", number: true, show: ({ updated_at }) => html`<${Time} at=${updated_at} />` },
];

function Delete({ dataset, done }) {
  const act = async () => {
    await call(`v1/datasets/${encodeURIComponent(dataset.name)}`, { method: "DELETE" });
    done();
  };
  return html`<${ConfirmButton} label="Delete" name=${`dataset ${dataset.name}`} question=${`Delete the dataset ${dataset.name}?`} danger
    consequence=${`All chunks (${count(dataset.rows)}) and their vectors are deleted for good. An ingestion that is loading into it fails.`}
    act=${act} done="The dataset is deleted." />`;
}

function Dataset({ name, query }) {
  const { data: dataset, error, reload } = useFetch(`v1/datasets/${encodeURIComponent(name)}`, { everyMs: 10_000 });
  const view = Object.hasOwn(VIEWS, query.get("view")) ? query.get("view") : "search";
  const [, View] = VIEWS[view];
  return html`<p><a href=${address("datasets")}>All datasets</a></p>
    <div class="title-row">
      <h1 tabindex="-1">Dataset ${name}</h1>
      ${dataset && html`<${Delete} dataset=${dataset} done=${leave} />`}
    </div>
    <${ErrorBox} error=${error} again=${reload} title="The dataset cannot be read" />
    ${dataset ? html`<${Summary} dataset=${dataset} />
      <nav class="views" aria-label="Views of the dataset">
        ${Object.entries(VIEWS).map(([key, [label]]) => html`<a key=${key} href=${address("datasets", name, { view: key })} aria-current=${key === view ? "page" : undefined}>${label}</a>`)}
      </nav>
      <${View} key=${dataset.id} dataset=${dataset} query=${query} />` : !error && html`<${Loading} what="the dataset" />`}`;
}

const leave = () => {
  location.hash = address("datasets");
};

function Summary({ dataset }) {
  return html`<${Facts} facts=${[
      ["Documents", count(dataset.documents)],
      ["Chunks", count(dataset.rows)],
      ["Size", bytes(dataset.bytes)],
      ["Version", count(dataset.version)],
      ["Changed", html`<${Time} at=${dataset.updated_at} />`],
    ]} />
    ${dataset.vectors && html`<p class="muted">Vectors of ${dataset.vectors}.</p>`}`;
}
