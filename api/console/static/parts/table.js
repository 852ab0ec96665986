// Things in rows: tables, groups of what failed, pages, and what is said where there is nothing yet.
import { announce } from "../api.js";
import { count, some } from "../format.js";
import { html, useState } from "../html.js";

// columns: [{label, number?: bool, show: (row) => content}]; the first one names the row. Below 40rem a row is a list of labels
// and values. rowKey: (row, place) => what stays the same while the row changes.
export function Table({ caption, columns, rows, rowKey, framed = true }) {
  return html`<div class=${framed ? "framed stack" : "stack"}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${columns.map(({ label, number }) => html`<th key=${label} scope="col" class=${number ? "num" : ""}>${label}</th>`)}</tr></thead>
    <tbody>
      ${rows.map((row, place) => html`<tr key=${rowKey(row, place)}>
        ${columns.map(({ label, number, show }, column) => (column
          ? html`<td key=${label} class=${number ? "num" : ""} data-label=${label}>${show(row)}</td>`
          : html`<th key=${label} scope="row">${show(row)}</th>`))}
      </tr>`)}
    </tbody>
  </table></div>`;
}

// groups: [{code, message, count, retryable, names}]; retryable undefined: nobody asks. one: what each of them is.
export function Groups({ groups, one }) {
  return html`<ol class="rows">
    ${groups.map(({ code, message, count: number, retryable, names }) => html`<li class="group" key=${code}>
      <span>${message}</span><span class="num" title=${some(number, one)}>${count(number)}</span>
      <small><code>${code}</code> ${retryable === undefined ? "" : retryable ? "a retry can help" : "a retry would fail again"}</small>
      ${number > 1
        ? html`<details><summary class="small">${names[0]} and ${some(number - 1, "other")}</summary>
            <ul>${names.map((name) => html`<li key=${name}>${name}</li>`)}${number > names.length && html`<li>and ${count(number - names.length)} more</li>`}</ul>
          </details>`
        : html`<span class="small">${names[0]}</span>`}
    </li>`)}
  </ol>`;
}

// Faults of parts, [{name, code, message, again}], as groups of equal codes, the largest first.
export function grouped(faults, most = 5) {
  const groups = new Map();
  for (const { name, code, message, again } of faults) {
    const group = groups.get(code) ?? { code, message, count: 0, retryable: again, names: [] };
    groups.set(code, group);
    group.count += 1;
    if (group.names.length < most) group.names.push(name);
  }
  return [...groups.values()].sort((one, other) => other.count - one.count);
}

// newer, older: addresses, or "" where there is no such page.
export function Pager({ children, newer, older }) {
  const link = (label, to) => (to ? html`<a class="button" href=${to}>${label}</a>` : html`<button type="button" disabled>${label}</button>`);
  return html`<nav class="pager" aria-label="Pages"><small>${children}</small>${link("Newer", newer)}${link("Older", older)}</nav>`;
}

// What would be here; `children` say what makes the first one.
export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}

// Puts a text on the clipboard and announces it; false where the browser does not let it.
async function copy(text, done) {
  const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  announce(copied ? done : "The browser does not let this page copy. Select the text instead.");
  return Boolean(copied);
}

// A button that copies a text, or what a function makes then. what: for people who do not see where it is.
export function Copy({ text, what, label = "Copy" }) {
  const [copied, setCopied] = useState(false);
  const click = async () => {
    if (!(await copy(typeof text === "function" ? text() : text, `${what} is copied.`))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return html`<button type="button" class="plain" onClick=${click} aria-label=${label === "Copy" ? `Copy ${what}` : undefined}>${copied ? "Copied" : label}</button>`;
}

// A command with a button. It breaks between words only.
export function Command({ text }) {
  return html`<div class="cmd"><code>${text.split(" ").map((word) => html`<span key=${word}>${word}</span> `)}</code><${Copy} text=${text} what="the command" /></div>`;
}
