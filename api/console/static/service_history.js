// The last hour in figures: read anew at each of its steps.
import { useMemo } from "./html.js";
import { useFetch } from "./live.js";

const STEP_MS = 10_000;

// [history, error]: history is {times, series: {name: values}} or null.
export function useHistory() {
  const { data, error } = useFetch("v1/service/history", { everyMs: STEP_MS });
  return [useMemo(() => (data ? withTimes(data) : null), [data]), error];
}

function withTimes({ step, from, series }) {
  const length = Math.max(0, ...Object.values(series).map((values) => values.length));
  return { times: Array.from({ length }, (_, index) => from + index * step), series };
}
