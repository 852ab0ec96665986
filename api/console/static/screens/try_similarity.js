// How near texts are to each other, as a table of cosines.
import { html, useMemo } from "../html.js";
import { shortened } from "./try_vectors.js";

const MAX_TEXTS = 20;

// results: [{number, text, vector}], vectors of one length.
export function Similarity({ results }) {
  const shown = results.slice(0, MAX_TEXTS);
  const cosines = useMemo(() => shown.map((one) => shown.map((other) => cosine(one.vector, other.vector))), [results]);
  return html`<p class="muted">The cosine of the angle between two vectors: 1 for the same direction, 0 for unrelated ones.
      ${results.length > MAX_TEXTS && ` Only the first ${MAX_TEXTS} texts are compared.`}</p>
    <div class="matrix" tabindex="0" role="region" aria-label="Similarity of the texts">
      <table>
        <caption class="unseen">Cosine similarity of each pair of texts</caption>
        <thead><tr><th scope="col">Text</th>${shown.map(({ number, text }) => html`<th key=${number} scope="col" title=${shortened(text)}>${number}</th>`)}</tr></thead>
        <tbody>${shown.map(({ number, text }, row) => html`<tr key=${number}>
          <th scope="row"><strong>${number}</strong> <span class="matrix-text">${shortened(text, 60)}</span></th>
          ${cosines[row].map((value, column) => html`<td key=${column} style=${{ "--share": Math.max(0, value).toFixed(2) }}>${rounded(value)}</td>`)}
        </tr>`)}</tbody>
      </table>
    </div>`;
}

const rounded = (value) => (Math.round(value * 100) / 100 || 0).toFixed(2); // without -0.00

function cosine(one, other) {
  let dot = 0;
  let oneSquare = 0;
  let otherSquare = 0;
  for (let index = 0; index < one.length; index += 1) {
    dot += one[index] * other[index];
    oneSquare += one[index] ** 2;
    otherSquare += other[index] ** 2;
  }
  return dot / Math.sqrt(oneSquare * otherSquare) || 0;
}
