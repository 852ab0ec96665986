// Things in rows: tables, pairs of a name and a value, what failed, and what is said where there is nothing yet.
import { html } from "../html.js";

const LONG = new Set(["Id", "Model"]);

// columns: [{label, number?: bool, wide?: bool, show: (row) => content}]; wide: a line of its own on a narrow screen, where
// the table becomes a list of cards. rowKey: (row, place) => what stays the same while the row changes. The caption is read to
// those who cannot see the heading.
export function Table({ caption, columns, rows, rowKey }) {
  return html`<div class="table">
    <table>
      <caption class="unseen">${caption}</caption>
      <thead>
        <tr>${columns.map(({ label, number }) => html`<th key=${label} scope="col" class=${number && "number"}>${label}</th>`)}</tr>
      </thead>
      <tbody>
        ${rows.map((row, place) => html`<tr key=${rowKey(row, place)}>
          ${columns.map(({ label, number, wide, show }) => html`<td key=${label} class=${number ? "number" : wide && "wide"} data-label=${label}>
            ${show(row)}
          </td>`)}
        </tr>`)}
      </tbody>
    </table>
  </div>`;
}

// facts: pairs of a name and its content; those without content are left out.
export function Facts({ facts }) {
  return html`<dl class="facts">
    ${facts.filter((fact) => fact && fact[1]).map(([name, content]) => html`<div key=${name} class=${LONG.has(name) ? "long" : ""}>
      <dt>${name}</dt><dd>${content}</dd>
    </div>`)}
  </dl>`;
}

// rows: [{name, code, message, stage?}] of what failed; the message says what to do. what: the label of the names.
export function Failures({ caption, what, rows }) {
  const columns = [
    { label: what, wide: true, show: ({ name }) => name },
    { label: "Stage", show: ({ stage }) => stage },
    { label: "Code", show: ({ code }) => html`<code>${code}</code>` },
    { label: "Reason", wide: true, show: ({ message }) => message },
  ].filter(({ label }) => label !== "Stage" || rows.some(({ stage }) => stage));
  return html`<${Table} caption=${caption} columns=${columns} rows=${rows} rowKey=${(row, place) => place} />`;
}

// What would be here, and in `children` the command that makes the first one.
export function Empty({ title, children }) {
  return html`<div class="box"><h2>${title}</h2>${children}</div>`;
}
