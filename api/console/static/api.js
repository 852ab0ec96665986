// The HTTP API as the page calls it: the key of this tab, whether the API answers, and errors as one class.
import { useEffect, useState } from "./html.js";
import { ofTab } from "./storage.js";

// The page is at `/` or `/console`, possibly behind a proxy's prefix; this script is at `console/api.js` below it.
export const BASE = new URL("../", import.meta.url);
const STORED_KEY = "embedq.key";
const PROBE_MS = 1000;
const PROBED_MS = 10_000;
// Above what the server lets a request wait, unless EMBEDQ_MAX_WAIT_S was raised far.
const ANSWER_MS = 120_000;
// Of other keys the browser makes no header.
const SENDABLE = /^[\x20-\x7e]*$/;

// ---- what all screens know ------------------------------------------------------------------------------------------

// refused: what the API has said with a 401 to the present key (or to none), or "". round: grows when everything should
// be read anew. person: grows when what is shown should be gone, because a key was forgotten.
const session = { key: ofTab.get(STORED_KEY) ?? "", refused: "", online: true, round: 0, person: 0 };
const listeners = new Set();

function update(changes) {
  const before = { ...session };
  Object.assign(session, changes);
  if (Object.keys(changes).some((name) => before[name] !== session[name])) listeners.forEach((listener) => listener());
}

// A hook: the session, and a new rendering whenever it changes.
export function useSession() {
  const [, refresh] = useState(0);
  useEffect(() => {
    const listener = () => refresh((count) => count + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return session;
}

// Keeps the key for this tab. An empty one is forgotten.
export function setKey(key) {
  ofTab.set(STORED_KEY, key);
  update({ key, refused: "", round: session.round + 1, person: session.person + (key ? 0 : 1) });
}

let probing = false;

async function probe() {
  if (probing) return;
  probing = true;
  update({ online: false });
  while (!session.online) {
    await new Promise((resolve) => setTimeout(resolve, PROBE_MS));
    try {
      await fetch(new URL("health/live", BASE), { cache: "no-store", signal: AbortSignal.timeout(PROBED_MS) });
      update({ online: true, round: session.round + 1 });
    } catch {
      // still away
    }
  }
  probing = false;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

// An answer that is an error. status 0: there was no answer.
export class ApiError extends Error {
  constructor(status, code, message, { param = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, code, param, retryAfter });
  }
}

// Fetches a path of the API, such as "v1/jobs". Throws ApiError unless the answer is a success.
export async function request(path, { method = "GET", body, headers = {}, signal, withinMs = ANSWER_MS } = {}) {
  const sent = { Accept: "application/json", ...headers };
  const key = session.key;
  if (!SENDABLE.test(key)) {
    const refused = "A key has letters, digits and signs of ASCII only.";
    update({ refused });
    throw new ApiError(401, "invalid_api_key", refused);
  }
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  const late = new AbortController(); // a host that vanished closes no connection
  const timer = setTimeout(() => late.abort(), withinMs);
  const either = AbortSignal.any([late.signal, ...(signal ? [signal] : [])]);
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), { method, headers: sent, body: text, signal: either, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  } finally {
    clearTimeout(timer);
  }
  if (answer.ok) {
    if (session.refused && key === session.key && answer.headers.has("x-request-id")) update({ refused: "" });
    return answer;
  }
  const error = await asError(answer);
  if (answer.status === 401 && key === session.key) update({ refused: error.message });
  throw error;
}

function unreachable() {
  probe();
  return new ApiError(0, "unreachable", "The API does not answer.");
}

async function asError(answer) {
  const retryAfter = Number(answer.headers.get("retry-after")) || null;
  let error = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch {
    // of a proxy, not of the API
  }
  const message = error.message ?? `The answer was ${answer.status}.`;
  return new ApiError(answer.status, error.code ?? `http_${answer.status}`, message, { param: error.param, retryAfter });
}

// The JSON of an answer.
export async function call(path, options) {
  const answer = await request(path, options);
  try {
    return await answer.json();
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw unreachable(); // it broke off in the middle
  }
}

// Downloads what a link cannot, because the key is in a header.
export async function download(path, name) {
  const answer = await request(path, { headers: { Accept: "*/*" } });
  const blob = await answer.blob().catch(() => {
    throw unreachable();
  });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// Tells the session that the API may be away, so that it looks whether it is there.
export { probe as connectionLost };
