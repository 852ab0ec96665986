// A plot of values over time: on a canvas by uPlot, and in words below it.
import { html, useEffect, useRef, useState } from "../html.js";
import { NONE } from "../format.js";
import { useColours } from "../theme.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 150;
const AXIS_WIDTH = 56;
const AXIS_HEIGHT = 28;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const exactClock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const axisNumber = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

// times: Unix seconds; lines: [{name, values}], null for no data; show: (value) => text, unit included.
// scale, steps: texts at the scale, and the distances that they may have. Charts of one `group` show the same moment while the pointer is over one of them.
export function Chart({ title, times, lines, show, group, scale = axisNumber.format, steps }) {
  const [moment, setMoment] = useState(null);
  const empty = lines.every(({ values }) => values.every((value) => value == null));
  return html`<figure class="chart" aria-label=${title}>
    <h3>${title}</h3>
    ${empty
      ? html`<p class="chart-empty muted">No data in the last hour yet.</p>`
      : html`<${Plot} times=${times} lines=${lines} group=${group} scale=${scale} steps=${steps} onMoment=${setMoment} />`}
    <figcaption>
      ${lines.map(({ name, values }, index) => html`<div key=${name} class="chart-line">
        <span class=${`chart-key line-${index}`} aria-hidden="true"></span>
        <span>${lines.length > 1 && `${name} `}<strong>${textAt(values, moment ?? values.length - 1, show)}</strong>${" "}
          ${moment === null ? "now" : `at ${exactClock.format(times[moment] * 1000)}`}${extremes(values, show)}</span>
      </div>`)}
    </figcaption>
  </figure>`;
}

const textAt = (values, index, show) => (values[index] == null ? NONE : show(values[index]));

function extremes(values, show) {
  const known = values.filter((value) => value != null);
  if (!known.length) return "";
  return html` <span class="muted">· min ${show(Math.min(...known))} · max ${show(Math.max(...known))}</span>`;
}

function Plot({ times, lines, group, scale, steps, onMoment }) {
  const place = useRef(null);
  const plot = useRef(null);
  const data = [times, ...lines.map(({ values }) => values)];
  const [colours, probe] = useColours({ axis: "muted", grid: "faint", 0: "line-0", 1: "line-1" });
  const latest = useRef(colours);
  latest.current = colours;
  useEffect(() => {
    const options = plotOptions(lines.length, () => latest.current, { group, scale, steps, onMoment });
    plot.current = new uPlot({ ...options, width: place.current.clientWidth }, data, place.current);
    const watcher = new ResizeObserver(([{ contentRect: { width } }]) => {
      if (width) plot.current.setSize({ width, height: HEIGHT }); // 0: it is being taken away
    });
    watcher.observe(place.current);
    return () => {
      watcher.disconnect();
      plot.current.destroy();
      onMoment(null);
    };
  }, []);
  useEffect(() => plot.current.setData(data), [times, lines]);
  useEffect(() => plot.current.redraw(false, true), [colours]);
  return html`<div ref=${place} class="chart-plot" aria-hidden="true">${probe}</div>`;
}

function plotOptions(lines, colours, { group, scale, steps, onMoment }) {
  const axis = { stroke: () => colours().axis, grid: { stroke: () => colours().grid, width: 1 }, ticks: { show: false } };
  return {
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    cursor: { y: false, points: { show: false }, drag: { setScale: false, x: false }, sync: { key: group } },
    scales: { y: { range: (_, low, high) => [0, uPlot.rangeNum(0, high || 1, 0.1, true)[1]] } },
    axes: [
      { ...axis, size: AXIS_HEIGHT, space: 60, values: (_, ticks) => ticks.map((tick) => clock.format(tick * 1000)) },
      { ...axis, size: AXIS_WIDTH, space: 35, incrs: steps, values: (_, ticks) => ticks.map((tick) => scale(tick)) },
    ],
    series: [{}, ...Array.from({ length: lines }, (_, index) => line(index, colours))],
    hooks: { setCursor: [({ cursor }) => onMoment(cursor.left < 0 ? null : cursor.idx)] },
  };
}

const line = (index, colours) => ({
  stroke: () => colours()[index],
  width: 1.5,
  points: { show: alone, size: 3 },
});

// Whether single values without neighbours are to be marked: a line cannot show them.
function alone(plot, series) {
  const values = plot.data[series];
  return values.some((value, at) => value != null && values[at - 1] == null && values[at + 1] == null);
}
