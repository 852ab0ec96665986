// A table of things that failed: which, the code, the reason and what to do.
import { adviceFor } from "../advice.js";
import { html } from "../html.js";
import { Table } from "./table.js";

// rows: [{key, name, code, message, stage?}]; place: where the codes come from, as adviceFor takes it.
export function Failures({ caption, what, rows, place }) {
  const staged = rows.some(({ stage }) => stage);
  const columns = [
    { key: "name", label: what, wide: true, show: ({ name }) => name },
    staged && { key: "stage", label: "Stage", show: ({ stage }) => stage },
    { key: "code", label: "Code", show: ({ code }) => html`<code>${code}</code>` },
    { key: "message", label: "Reason", wide: true, show: ({ message }) => message },
    { key: "advice", label: "What to do", wide: true, show: ({ code }) => adviceFor(code, place) },
  ];
  return html`<${Table} caption=${caption} columns=${columns.filter(Boolean)} rows=${rows} rowKey=${({ key }) => key} />`;
}
