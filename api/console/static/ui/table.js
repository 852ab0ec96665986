// A table that becomes a list of cards on a narrow screen.
import { html } from "../html.js";

// columns: [{key, label, number?: bool, wide?: bool, show: (row) => content}]; wide: a line of its own on a narrow screen.
// rowKey: (row) => what stays the same while the row changes. The caption is read to those who cannot see the heading.
export function Table({ caption, columns, rows, rowKey }) {
  return html`<div class="table">
    <table>
      <caption class="unseen">${caption}</caption>
      <thead>
        <tr>${columns.map(({ key, label, number }) => html`<th key=${key} scope="col" class=${number && "number"}>${label}</th>`)}</tr>
      </thead>
      <tbody>
        ${rows.map((row) => html`<tr key=${rowKey(row)}>
          ${columns.map((column) => html`<td key=${column.key} class=${classes(column)} data-label=${column.label}>
            ${column.show(row)}
          </td>`)}
        </tr>`)}
      </tbody>
    </table>
  </div>`;
}

const classes = ({ number, wide }) => [number && "number", wide && "wide"].filter(Boolean).join(" ");
