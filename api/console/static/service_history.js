// The last hour in figures: read once, then extended by events.
import { useMemo, useState } from "./html.js";
import { useFetch } from "./live.js";

const MINUTES = 60;

// [history, error, add]: history is {times, series: {name: values}} or null; add takes a step of the events.
export function useHistory() {
  const { data, error } = useFetch(`v1/service/history?minutes=${MINUTES}`);
  const [steps, setSteps] = useState([]);
  const add = (step) => setSteps((before) => [...before, step].slice(-stepsOfAnHour(data)));
  const history = useMemo(() => data && extended(data, steps), [data, steps]);
  return [history, error, add];
}

const stepsOfAnHour = (data) => (MINUTES * 60) / (data?.step ?? 1);

function extended({ step, from, series }, steps) {
  const first = Object.values(series)[0] ?? [];
  const numberOf = ({ at }) => Math.round((at - from) / step);
  const length = Math.max(first.length, ...steps.map((one) => numberOf(one) + 1)); // grows while the page is open
  const dropped = Math.max(0, length - stepsOfAnHour({ step }));
  const times = Array.from({ length: length - dropped }, (_, index) => from + (index + dropped) * step);
  const columns = Object.entries(series).map(([name, values]) => {
    const shown = times.map((_, index) => values[index + dropped] ?? null);
    for (const one of steps) if (numberOf(one) >= dropped) shown[numberOf(one) - dropped] = one.series[name] ?? null;
    return [name, shown];
  });
  return { times, series: Object.fromEntries(columns) };
}
