// Searching a dataset by meaning, with a filter on its metadata.
import { BASE, useSession } from "../api.js";
import { html, useState } from "../html.js";
import { Code, curl } from "../ui/code.js";
import { ErrorBox } from "../ui/error_box.js";
import { Hits, useSearch } from "../ui/search.js";

export function Search({ dataset }) {
  const { key } = useSession();
  const [form, setForm] = useState({ query: "", limit: 10, field: "", value: "" });
  const [sent, setSent] = useState(null);
  const { search, ...found } = useSearch();
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const run = (value) => {
    const body = { query: form.query, limit: Number(form.limit), ...(form.field && { filter: { [form.field]: value } }) };
    setSent(body);
    return search(dataset.name, body);
  };
  const submit = async (event) => {
    event.preventDefault();
    if (!form.query.trim()) return;
    const hits = await run(form.value);
    const other = scalar(form.value);
    if (form.field && hits?.data.length === 0 && other !== null) run(other); // metadata tells 2021 from "2021"
  };
  return html`<h2>Search</h2>
    <form role="search" onSubmit=${submit}>
      <div class="filters">
        <label class="grow">Text <input type="search" class="grow" value=${form.query} onInput=${set("query")} placeholder="How do I get my money back?" /></label>
        <label>Results <input type="number" class="short" min="1" max="100" required value=${form.limit} onInput=${set("limit")} /></label>
        <button type="submit" class="primary" disabled=${found.busy}>Search</button>
      </div>
      <details>
        <summary>Only chunks with a value in their metadata</summary>
        <div class="filters">
          <label>Field <input value=${form.field} onInput=${set("field")} /></label>
          <label>Value <input value=${form.value} onInput=${set("value")} /></label>
        </div>
      </details>
    </form>
    <${ErrorBox} error=${found.failure} title="The dataset cannot be searched" />
    ${found.hits && html`<${Hits} hits=${found.hits} />`}
    ${sent && html`<h2>The same search as code</h2>
      <${Code} text=${curl(BASE, `v1/datasets/${encodeURIComponent(dataset.name)}/search`, { method: "POST", body: sent, key: Boolean(key) })} label="curl command" />`}`;
}

// The number or boolean that a text stands for; null for none.
function scalar(text) {
  if (text === "true" || text === "false") return text === "true";
  return text.trim() && Number.isFinite(Number(text)) ? Number(text) : null;
}
