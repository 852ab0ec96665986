// The chunks of a dataset that are nearest to one of the texts.
import { html, useState } from "../html.js";
import { useFetch } from "../live.js";
import { Empty, ErrorBox, Loading } from "../ui/error_box.js";
import { Hits, useSearch } from "../ui/search.js";
import { shortened } from "./try_vectors.js";

// results: [{number, text}]. A dataset is searched by the model that made its vectors, whatever was chosen for the texts.
export function Nearest({ results }) {
  const { data, error, reload } = useFetch("v1/datasets?limit=100");
  const [chosen, setChosen] = useState({ dataset: null, number: results[0].number });
  const { hits, failure, busy, search } = useSearch();
  if (!data) return error ? html`<${ErrorBox} error=${error} again=${reload} title="The datasets cannot be read" />` : html`<${Loading} what="the datasets" />`;
  const names = data.data.map(({ name }) => name);
  if (!names.length) return html`<${Empty} title="No datasets yet"><p>Ingested documents can be searched here. <a href="#/datasets">How to ingest some</a>.</p><//>`;
  const dataset = chosen.dataset ?? names[0];
  const submit = (event) => {
    event.preventDefault();
    search(dataset, { query: results.find(({ number }) => number === chosen.number).text, limit: 5 });
  };
  return html`<form class="filters" onSubmit=${submit} aria-label="Nearest chunks">
      <label>Dataset
        <select onChange=${(event) => setChosen({ ...chosen, dataset: event.target.value })}>
          ${names.map((name) => html`<option key=${name} value=${name} selected=${name === dataset}>${name}</option>`)}
        </select>
      </label>
      <label>Text
        <select onChange=${(event) => setChosen({ ...chosen, number: Number(event.target.value) })}>
          ${results.map(({ number, text }) => html`<option key=${number} value=${number} selected=${number === chosen.number}>${number}: ${shortened(text, 60)}</option>`)}
        </select>
      </label>
      <button type="submit" disabled=${busy}>Find chunks</button>
    </form>
    <${ErrorBox} error=${failure} title="The dataset cannot be searched" />
    ${hits && html`<${Hits} hits=${hits} />`}`;
}
