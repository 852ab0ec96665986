// What a map is drawn from: its points, which the documents worker computes when they are asked for first.
import { call, request, useSession } from "../api.js";
import { useEffect, useState } from "../html.js";

const PAUSE_S = 1;

// {map, computing, error, again}. computing: the answer while it is being computed. A dataset that changes while its map
// is open keeps the map it had: `again` asks for the new one.
export function useMap(dataset, colour) {
  const { round } = useSession();
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState({});
  const of = JSON.stringify([dataset.name, colour, turn]);
  const { map = null, computing = null, error = null } = state.of === of ? state : {};
  useEffect(() => {
    const stop = new AbortController();
    const show = (changes) => stop.signal.aborted || setState((before) => ({ ...(before.of === of && before), of, ...changes }));
    follow(dataset.name, colour, stop.signal, show).catch((failure) => show({ error: failure }));
    return () => stop.abort();
  }, [of, round]);
  return { map, computing, error, again: () => setTurn(turn + 1) };
}

async function follow(name, colour, signal, show) {
  const path = `v1/datasets/${encodeURIComponent(name)}/map?color=${encodeURIComponent(colour)}`;
  for (;;) {
    const answer = await request(path, { signal });
    const body = await answer.json();
    if (answer.status !== 202) {
      show({ map: body, computing: null, error: null });
      return;
    }
    show({ computing: body, error: null });
    const pause = Number(answer.headers.get("retry-after")) || PAUSE_S;
    await new Promise((resolve) => setTimeout(resolve, pause * 1000));
    if (signal.aborted) return;
  }
}

const PAGE = 100;
const MAX_PAGES = 50;

// One chunk of a document, which is found by reading on in the document; null if it is not there.
export async function readChunk(dataset, document, number, signal) {
  let after = "";
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const search = new URLSearchParams({ document_id: document, limit: PAGE, ...(after && { after }) });
    const { data, has_more, last_id } = await call(`v1/datasets/${encodeURIComponent(dataset.name)}/chunks?${search}`, { signal });
    const found = data.find(({ chunk }) => chunk === number);
    if (found || !has_more) return found ?? null;
    after = last_id;
  }
  return null;
}
