// The HTTP API as the page calls it: the key of this tab, whether the API answers, and errors as one class.
import { useEffect, useState } from "./html.js";

// The page is at `/` or `/console`, possibly behind a proxy's prefix; this script is at `console/api.js` below it.
export const BASE = new URL("../", import.meta.url);
const STORED_KEY = "embedq.key";
const PROBE_MS = 1000;
const PROBED_MS = 10_000;
const RETRY_MS = 2000;
// How long the head of an answer may take. Only what is posted waits on the server, where 120 s are above what it lets a
// request wait, unless EMBEDQ_MAX_WAIT_S was raised far.
const READ_MS = 40_000;
const POST_MS = 120_000;
const KEPT = 20;

// ---- what all screens know ------------------------------------------------------------------------------------------

// refused: what the API has said with a 401 to the present key (or to none), or "". away: since when the API does not
// answer, in Unix seconds, or null. round: grows when everything should be read anew. person: grows when what is shown
// should be gone, because a key was forgotten. said: the last sentence for people who do not see what has changed. title:
// of the tab, where a screen knows better than its name.
export const session = {
  key: ofTab(() => sessionStorage.getItem(STORED_KEY)) ?? "",
  refused: "",
  away: null,
  round: 0,
  person: 0,
  said: "",
  title: "",
};
const kept = new Map(); // path -> its data, so that who comes back finds the screen as it was
let draw = () => {};

// Has the page drawn again whenever the session changes.
export function onChange(listener) {
  draw = listener;
}

function update(changes) {
  Object.assign(session, changes);
  queueMicrotask(draw); // at once, an effect that changes the session would be run again within itself
}

// A browser that keeps nothing, by a setting of its user, is no reason to fail: the key lives as long as the page.
function ofTab(act) {
  try {
    return act();
  } catch {
    return null;
  }
}

// Keeps the key for this tab. An empty one is forgotten.
export function setKey(key) {
  ofTab(() => sessionStorage.setItem(STORED_KEY, key));
  kept.clear();
  update({ key, refused: "", round: session.round + 1, person: session.person + 1 });
}

export const announce = (sentence) => update({ said: sentence });
export const setTitle = (title) => title === session.title || update({ title });

// Reads everything anew that is shown.
export const reload = () => update({ round: session.round + 1 });

// Looks every second whether the API is back.
async function connectionLost() {
  if (session.away) return;
  update({ away: Date.now() / 1000 });
  while (session.away) {
    await new Promise((resolve) => setTimeout(resolve, PROBE_MS));
    const probe = fetch(new URL("health/live", BASE), { cache: "no-store", signal: AbortSignal.timeout(PROBED_MS) });
    if (await probe.then(() => true, () => false)) update({ away: null, round: session.round + 1 });
  }
}

// ---- calls ----------------------------------------------------------------------------------------------------------

// An answer that is an error. status 0: there was no answer.
class ApiError extends Error {
  constructor(status, code, message, { param = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, code, param, retryAfter });
  }
}

// The answer of a path such as "v1/jobs"; as: "json", "text" or "blob". Throws ApiError unless it is a success, or what
// `fetch` throws when `signal` has ended it.
export async function call(path, { method = "GET", body, headers, as = "json", signal } = {}) {
  const { key } = session;
  const sent = { Accept: as === "json" ? "application/json" : "*/*", ...headers };
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body) sent["Content-Type"] = "application/json";
  const late = new AbortController(); // a host that vanished closes no connection
  const timer = setTimeout(() => late.abort(), method === "GET" ? READ_MS : POST_MS);
  const options = {
    method,
    headers: sent,
    body: body && JSON.stringify(body),
    signal: AbortSignal.any([late.signal, ...(signal ? [signal] : [])]),
    cache: "no-store",
  };
  let answer;
  let content;
  try {
    answer = await fetch(new URL(path, BASE), options);
    clearTimeout(timer); // a large body takes its time
    if (answer.ok) content = await answer[as]();
  } catch (error) {
    clearTimeout(timer);
    if (signal?.aborted) throw error;
    connectionLost();
    throw new ApiError(0, "unreachable", "The API does not answer.");
  }
  if (!answer.ok) throw await asError(answer, key, signal);
  return content;
}

async function asError(answer, key, signal) {
  const error = (await answer.json().catch(() => null))?.error ?? {}; // that of a proxy has none
  const message = error.message ?? `The answer was ${answer.status}.`;
  if (answer.status === 401 && key === session.key && !signal?.aborted) update({ refused: message });
  const retryAfter = Number(answer.headers.get("retry-after")) || null;
  return new ApiError(answer.status, error.code ?? `http_${answer.status}`, message, { param: error.param, retryAfter });
}

// A hook for data that changes: {data, error} of a path (null: nothing is read). It is read again after `every(data)`
// milliseconds (0: never), with a new key, and when the API is back. A hidden page asks for nothing. Data stays while a
// later reading fails, and with `stays` until the data of another path is there.
export function useFetch(path, { every = () => 0, stays = false, ...options } = {}) {
  const { round, away } = session;
  const { hidden } = document;
  const [state, setState] = useState({});
  useEffect(() => {
    if (path === null || away || hidden) return undefined;
    const left = new AbortController();
    let timer;
    const read = async () => {
      let pause;
      try {
        const data = await call(path, { ...options, signal: left.signal });
        keep(path, data);
        setState({ path, data });
        pause = every(data);
      } catch (error) {
        if (left.signal.aborted) return;
        setState((before) => ({ path, error, data: stays || before.path === path ? before.data : undefined }));
        const passing = error.status >= 500 || error.status === 429;
        pause = passing && Math.max(RETRY_MS, (error.retryAfter ?? 0) * 1000);
      }
      if (pause && !left.signal.aborted) timer = setTimeout(read, pause);
    };
    read();
    return () => {
      left.abort();
      clearTimeout(timer);
    };
  }, [path, round, away, hidden]);
  return state.path === path ? state : { data: kept.get(path) ?? (stays && path !== null ? state.data : undefined) };
}

function keep(path, data) {
  kept.delete(path); // to the end
  kept.set(path, data);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
}

// A hook for what a button does: {busy, error, run, clear}. `run(act)` waits for it and returns its error, which stays
// until the next one or until `clear()`.
export function useAct() {
  const [state, setState] = useState({ busy: false, error: null });
  const run = async (act) => {
    setState({ busy: true, error: null });
    const error = await act().then(() => null, (failure) => failure);
    setState({ busy: false, error });
    return error;
  };
  return { ...state, run, clear: () => setState({ busy: false, error: null }) };
}
