// A hook for data that changes: it is read again and again. A hidden page asks for nothing.
import { call, useSession } from "./api.js";
import { useCallback, useEffect, useState } from "./html.js";

const RETRY_MS = 2000;
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
        const data = await call(path, { signal: stop.signal, withinMs: SILENT_MS });
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
