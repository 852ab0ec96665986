// A table of things that failed: which, the code and the reason, which says what to do.
import { html } from "../html.js";
import { Table } from "./table.js";

// rows: [{key, name, code, message, stage?}].
export function Failures({ caption, what, rows }) {
  const staged = rows.some(({ stage }) => stage);
  const columns = [
    { key: "name", label: what, wide: true, show: ({ name }) => name },
    staged && { key: "stage", label: "Stage", show: ({ stage }) => stage },
    { key: "code", label: "Code", show: ({ code }) => html`<code>${code}</code>` },
    { key: "message", label: "Reason", wide: true, show: ({ message }) => message },
  ];
  return html`<${Table} caption=${caption} columns=${columns.filter(Boolean)} rows=${rows} rowKey=${({ key }) => key} />`;
}
