// Hooks for data that changes: read by polling or by server-sent events. A hidden page asks for nothing.
import { call, connectionLost, request, useSession } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./html.js";

const RETRY_MS = 2000;
// The API sends at least a comment every 15 seconds. A host that vanished closes no connection.
const SILENT_MS = 40_000;

function useVisible() {
  const [visible, setVisible] = useState(!document.hidden);
  useEffect(() => {
    const listener = () => setVisible(!document.hidden);
    document.addEventListener("visibilitychange", listener);
    return () => document.removeEventListener("visibilitychange", listener);
  }, []);
  return visible;
}

// The JSON at a path (null: nothing is read): {data, error, loading, reload}. Read again every `everyMs` (0: never),
// with a new key, and when the API is back. Data stays while a later reading fails, and goes when the path changes.
export function useFetch(path, { everyMs = 0 } = {}) {
  const { round, online } = useSession();
  const visible = useVisible();
  const [state, setState] = useState({ path: null });
  const [turn, setTurn] = useState(0);
  const current = state.path === path ? state : { path };
  useEffect(() => {
    if (path === null || !online || !visible) return undefined;
    const stop = new AbortController();
    let timer;
    const read = async () => {
      let error = null;
      try {
        const data = await call(path, { signal: stop.signal });
        if (stop.signal.aborted) return;
        setState({ path, data });
      } catch (failure) {
        if (stop.signal.aborted) return;
        error = failure;
        setState((before) => ({ path, data: before.path === path ? before.data : undefined, error }));
      }
      const passing = error && (error.status >= 500 || error.status === 429);
      const pause = passing ? Math.max(RETRY_MS, (error.retryAfter ?? 0) * 1000) : error ? 0 : everyMs;
      if (pause) timer = setTimeout(read, pause);
    };
    read();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, everyMs, round, online, visible, turn]);
  const reload = useCallback(() => setTurn((count) => count + 1), []);
  return { data: current.data, error: current.error ?? null, loading: !current.data && !current.error, reload };
}

// Calls `onEvent(name, data, first)` for each server-sent event of a path (null: none) while the component is there;
// first: of this connection, when a stream of changes begins with the whole.
// Connects again when the stream ends. EventSource would do the same, but cannot send a key.
export function useEvents(path, onEvent) {
  const { round, online } = useSession();
  const visible = useVisible();
  const [error, setError] = useState(null);
  const latest = useRef(onEvent);
  latest.current = onEvent;
  useEffect(() => {
    setError(null);
    if (path === null || !online || !visible) return undefined;
    const stop = new AbortController();
    follow(path, stop.signal, (...event) => latest.current(...event), setError);
    return () => stop.abort();
  }, [path, round, online, visible]);
  return error;
}

async function follow(path, signal, onEvent, onError) {
  while (!signal.aborted) {
    try {
      const answer = await request(path, { signal, headers: { Accept: "text/event-stream" } });
      onError(null);
      await read(answer.body, onEvent);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === undefined) {
        connectionLost(); // the stream broke off: the session reads everything again when the API is back
        return;
      }
      onError(error);
      if (error.status < 500 && error.status !== 429) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function read(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let first = true;
  for (;;) {
    const { done, value } = await spoken(reader);
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      if (dispatch(block, first, onEvent)) first = false;
    }
  }
}

// What the reader gives next. Throws when nothing comes for too long.
async function spoken(reader) {
  let silent = false;
  const timer = setTimeout(() => {
    silent = true;
    reader.cancel();
  }, SILENT_MS);
  try {
    const read = await reader.read();
    if (silent) throw new Error("silent");
    return read;
  } finally {
    clearTimeout(timer);
  }
}

// Whether there was an event in the block, and not only a comment.
function dispatch(block, first, onEvent) {
  let name = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (!data.length) return false;
  onEvent(name, JSON.parse(data.join("\n")), first);
  return true;
}
