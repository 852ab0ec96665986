// Searching a dataset, and the chunks that were found.
import { announce } from "../announce.js";
import { call } from "../api.js";
import { count } from "../format.js";
import { html, useRef, useState } from "../html.js";
import { Chunk } from "./chunk.js";

// {hits, failure, busy, search(dataset, body)}: the newest answer, which `search` returns too, or its error. An older answer that comes late is dropped.
export function useSearch() {
  const [state, setState] = useState({ hits: null, failure: null, busy: false });
  const turn = useRef(0);
  const search = async (dataset, body) => {
    turn.current += 1;
    const mine = turn.current;
    setState((before) => ({ ...before, busy: true }));
    let after;
    try {
      const hits = await call(`v1/datasets/${encodeURIComponent(dataset)}/search`, { method: "POST", body });
      after = { hits, failure: null, busy: false };
    } catch (failure) {
      after = { hits: null, failure, busy: false };
    }
    if (mine !== turn.current) return null;
    setState(after);
    if (after.hits) announce(`Chunks found: ${after.hits.data.length}.`);
    return after.hits;
  };
  return { ...state, search };
}

export function Hits({ hits: { data, rows, took_ms, dataset } }) {
  if (!data.length) return html`<p>No chunk of ${dataset} fits.</p>`;
  return html`<p class="muted">${count(data.length)} of ${count(rows)} chunks of ${dataset}, compared in ${took_ms} ms.</p>
    <ol class="hits">
      ${data.map((chunk) => html`<li key=${`${chunk.document_id} ${chunk.chunk}`}>
        <${Chunk} chunk=${chunk}><span class="score" title="Cosine similarity">${chunk.score.toFixed(3)}</span><//>
      </li>`)}
    </ol>`;
}
