// A dataset as a map: each chunk is a point, and near points have similar vectors.
import { useSession } from "../api.js";
import { count, percent } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { address } from "../route.js";
import { useColours } from "../theme.js";
import { Chunk } from "../ui/chunk.js";
import { ErrorBox, Loading } from "../ui/error_box.js";
import { PointMap } from "../ui/point_map.js";
import { readChunk, useMap } from "./dataset_map_data.js";

const HUES = 7;
const CLUSTER = "cluster";
const GATHERED = new Set(["other", "none"]);

export function DatasetMap({ dataset, query }) {
  const colour = query.get("color") || CLUSTER;
  const { map, computing, error, again } = useMap(dataset, colour);
  const fields = useRef([]); // of the map before, while the next one is read
  if (map) fields.current = map.fields;
  return html`<h2>Map</h2>
    <${ColourChoice} dataset=${dataset} colour=${colour} fields=${fields.current} />
    <${ErrorBox} error=${error} again=${again} title="There is no map" />
    ${computing && html`<p role="status">The documents worker draws the map, which appears here by itself. ${computing.waiting?.message}</p>`}
    ${!map && !computing && !error && html`<${Loading} what="the map" />`}
    ${map && map.version !== dataset.version && html`<p class="buttons" role="status">The dataset has changed since.
      <button type="button" class="small" onClick=${again}>Draw its map again</button></p>`}
    ${map && html`<${MapOf} key=${`${map.version} ${colour}`} dataset=${dataset} map=${map} colour=${colour} />`}`;
}

function ColourChoice({ dataset, colour, fields }) {
  const choices = new Set([CLUSTER, colour, ...fields]);
  const choose = (event) => {
    location.hash = address("datasets", dataset.name, { view: "map", color: event.target.value });
  };
  return html`<p class="filters"><label>Colours show
    <select onChange=${choose}>
      ${[...choices].map((choice) => html`<option key=${choice} value=${choice} selected=${choice === colour}>
        ${choice === CLUSTER ? "clusters of similar chunks" : choice}
      </option>`)}
    </select>
  </label></p>`;
}

function MapOf({ dataset, map, colour }) {
  const { points, colors: names } = map;
  const [selected, setSelected] = useState(null);
  const [hovered, setHovered] = useState(null);
  const [only, setOnly] = useState(null);
  const drawn = useRef(null);
  const groups = useMemo(() => groupsOf(points, names), [map]);
  const shown = hovered ?? selected;
  return html`<${Summary} map=${map} groups=${groups} colour=${colour} />
    <div class="map-frame">
      <${Canvas} map=${map} groups=${groups} only=${only} selected=${selected} onSelect=${setSelected} onHover=${setHovered} drawn=${drawn} />
      <div class="map-buttons" role="group" aria-label="Zoom">
        <button type="button" class="small" aria-label="Zoom in" onClick=${() => drawn.current.zoom(1.5)}>+</button>
        <button type="button" class="small" aria-label="Zoom out" onClick=${() => drawn.current.zoom(1 / 1.5)}>−</button>
        <button type="button" class="small" onClick=${() => drawn.current.reset()}>Whole map</button>
      </div>
      <p class="map-label" aria-hidden="true">${shown === null ? "" : `${map.ids[shown][0]} · ${names[points[shown][2]]}`}</p>
    </div>
    <p class="muted" id="map-keys">With the map focused: arrows go from chunk to chunk, shift and arrows move the map, + and − zoom, 0 shows all, Escape leaves the chunk.</p>
    <${Legend} groups=${groups} only=${only} choose=${setOnly} />
    <${Selected} dataset=${dataset} map=${map} index=${selected} go=${(index) => { setSelected(index); drawn.current.reveal(index); }} />`;
}

// Each group has a mark: a hue as a square, or as a cross where the hues are used up. What the API put together is grey.
function groupsOf(points, names) {
  const sizes = new Array(names.length).fill(0);
  for (const [, , colour] of points) sizes[colour] += 1;
  const groups = names.map((name, number) => ({ name, number, size: sizes[number], gathered: GATHERED.has(name) }));
  groups.sort((one, other) => one.gathered - other.gathered || other.size - one.size);
  return groups.map((group, rank) => {
    const grey = group.gathered || rank >= 2 * HUES;
    return { ...group, hue: grey ? HUES : rank % HUES, cross: !grey && rank >= HUES };
  });
}

const small = (share) => (share > 0 && share < 0.01 ? "under 1 %" : percent(share));

function Summary({ map, groups, colour }) {
  const { rows, sampled, points, explained } = map;
  const what = colour === CLUSTER ? "cluster" : colour;
  const share = explained.reduce((sum, part) => sum + part, 0);
  return html`<p>${sampled ? `A sample of ${count(points.length)} of ${count(rows)} chunks` : `All ${count(rows)} chunks`}, in
    ${" "}${count(groups.length)} ${groups.length === 1 ? "colour" : "colours"} by ${what}. Near points have similar vectors: the two directions of the map hold
    ${" "}${small(share)} of the differences between vectors (${explained.map(small).join(" and ")}).</p>`;
}

const colourNames = Object.fromEntries([...Array.from({ length: HUES + 1 }, (_, number) => [number, `hue-${number}`]), ["outline", "text"]]);

function Canvas({ map, groups, only, selected, onSelect, onHover, drawn }) {
  const place = useRef(null);
  const [colours, probe] = useColours(colourNames);
  useEffect(() => {
    drawn.current = new PointMap(place.current, map.points, { onSelect, onHover });
    return () => drawn.current.destroy();
  }, []);
  useEffect(() => {
    const marks = [];
    for (const { number, hue, cross } of groups) marks[number] = { colour: colours[hue], cross };
    if (colours.outline) drawn.current.show({ marks, outline: colours.outline, only, selected });
  }, [colours, only, selected]);
  return html`${probe}<canvas ref=${place} class="map" tabindex="0" role="application" aria-label=${`Map of ${count(map.points.length)} chunks`} aria-describedby="map-keys"></canvas>`;
}

function Legend({ groups, only, choose }) {
  return html`<ul class="legend" aria-label="Colours. One of them can be shown alone.">
    ${groups.map(({ name, number, size, hue, cross }) => html`<li key=${number}>
      <button type="button" class="small" aria-pressed=${String(only === number)} onClick=${() => choose(only === number ? null : number)}>
        <span class=${`swatch colour-hue-${hue}${cross ? " cross" : ""}`} aria-hidden="true"></span>${name} <span class="muted">${count(size)}</span>
      </button>
    </li>`)}
  </ul>`;
}

// The points in the order of their documents: a sample comes in an order of its own.
function reading(ids) {
  const order = Array.from(ids.keys()).sort((one, other) => compare(ids[one][0], ids[other][0]) || ids[one][1] - ids[other][1]);
  const place = new Uint32Array(order.length);
  order.forEach((index, at) => {
    place[index] = at;
  });
  return { before: (index) => order[place[index] - 1], after: (index) => order[index === null ? 0 : place[index] + 1] };
}

const compare = (one, other) => (one < other ? -1 : Number(one > other));

// The chunk of the selected point, told to screen readers when it changes.
function Selected({ dataset, map, index, go }) {
  const { round } = useSession();
  const [state, setState] = useState({ index: null });
  const { before, after } = useMemo(() => reading(map.ids), [map]);
  const [previous, next] = [index === null ? undefined : before(index), after(index)];
  useEffect(() => {
    if (index === null) return undefined;
    const stop = new AbortController();
    const [document, chunk] = map.ids[index];
    readChunk(dataset, document, chunk, stop.signal).then(
      (found) => setState({ index, chunk: found }),
      (error) => stop.signal.aborted || setState({ index, error }),
    );
    return () => stop.abort();
  }, [index, round]);
  const known = index !== null && state.index === index;
  return html`<h3>Selected chunk</h3>
    <div class="buttons">
      <button type="button" class="small" disabled=${previous === undefined} onClick=${() => go(previous)}>Previous chunk</button>
      <button type="button" class="small" disabled=${next === undefined} onClick=${() => go(next)}>Next chunk</button>
    </div>
    <div aria-live="polite">
      ${index === null && html`<p class="muted">Choose a point of the map, or go through the chunks one by one.</p>`}
      ${index !== null && !known && html`<p class="muted">${map.ids[index][0]}</p>`}
      ${known && state.error && html`<${ErrorBox} error=${state.error} title="The chunk cannot be read" />`}
      ${known && state.chunk && html`<${Chunk} chunk=${state.chunk} />`}
      ${known && state.chunk === null && html`<p>This chunk is no longer in the dataset. Open the map again.</p>`}
    </div>`;
}
