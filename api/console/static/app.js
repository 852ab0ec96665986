// The frame around the screens: navigation, key, and what is said when the API does not answer.
import { onAnnounce } from "./announce.js";
import { connectionLost, useSession } from "./api.js";
import { html, render, useEffect, useRef, useState } from "./html.js";
import { KeyForm } from "./key.js";
import { address, useRoute } from "./route.js";
import * as jobs from "./screens/jobs.js";

// A screen exports `title(name)`, text, and `Screen({name, query})`, a component that begins with the one `h1`. The first
// one comes with the page; the others are loaded when they are needed, or when there is nothing else to do.
const SCREENS = [
  { path: "jobs", label: "Jobs", list: async () => jobs, one: () => import("./screens/job.js") },
  { path: "service", label: "Service", list: () => import("./screens/service.js") },
  { path: "try", label: "Try it", list: () => import("./screens/try.js") },
  { path: "datasets", label: "Datasets", list: () => import("./screens/datasets.js"), one: () => import("./screens/datasets.js") },
];
const IDLE_MS = 1500;
const loaded = new Map([[SCREENS[0].list, jobs]]);

async function load(loader) {
  if (loader && !loaded.has(loader)) loaded.set(loader, await loader());
}

// The module of a screen, or {failed}: {} until it is there.
function useModule(loader) {
  const [failed, setFailed] = useState(null);
  const [, refresh] = useState(0);
  useEffect(() => {
    load(loader).then(() => refresh((count) => count + 1), () => {
      connectionLost();
      setFailed(() => loader);
    });
  }, [loader]);
  return loaded.get(loader) ?? { failed: failed === loader };
}

function App() {
  const { screen, name, query } = useRoute();
  const { person } = useSession();
  const place = SCREENS.find(({ path }) => path === screen);
  const loader = place && (name ? place.one : place.list);
  const module = useModule(loader);
  const title = loader ? module.title?.(name) : "Not found";
  const main = useRef(null);
  const moved = useRef(false);
  useEffect(() => {
    if (!title) return;
    document.title = `${title} · embedq`;
    if (moved.current) main.current.querySelector("h1")?.focus();
    moved.current = true;
  }, [title]);
  return html`<a class="skip" href="#main" onClick=${(event) => skip(event, main)}>Skip to the content</a>
    <${Header} place=${place} />
    <${Connection} />
    <main id="main" ref=${main} tabindex="-1">
      ${!loader ? html`<${Lost} />` : module.failed && html`<${NotLoaded} label=${place.label} />`}
      ${module.Screen && html`<${module.Screen} key=${`${person}/${screen}/${name}`} name=${name} query=${query} />`}
    </main>
    <${Announcements} />`;
}

function skip(event, main) {
  event.preventDefault(); // the fragment is the address of the screen
  main.current.focus();
}

function Header({ place }) {
  return html`<header>
    <a class="brand" href=${address("jobs")}>embedq</a>
    <nav aria-label="Screens">
      ${SCREENS.map(({ path, label }) => html`<a
        key=${path}
        href=${address(path)}
        aria-current=${path === place?.path ? "page" : undefined}
      >${label}</a>`)}
    </nav>
    <div class="tools"><${KeyForm} /></div>
  </header>`;
}

function Connection() {
  const { online } = useSession();
  return html`<div role="status" class=${online ? "unseen" : "banner"}>
    ${online ? "" : "The API does not answer. What you see is as it was; this page connects again by itself."}
  </div>`;
}

function Announcements() {
  const [sentence, setSentence] = useState("");
  useEffect(() => onAnnounce(setSentence), []);
  return html`<div class="unseen" aria-live="polite">${sentence}</div>`;
}

function Lost() {
  return html`<h1 tabindex="-1">Not found</h1><p>There is no such screen. <a href=${address("jobs")}>Go to the jobs</a>.</p>`;
}

function NotLoaded({ label }) {
  return html`<h1 tabindex="-1">${label}</h1>
    <p>This screen could not be loaded. <button type="button" onClick=${() => location.reload()}>Load the page again</button></p>`;
}

setTimeout(() => SCREENS.flatMap(({ list, one }) => [list, one]).forEach((loader) => load(loader).catch(() => {})), IDLE_MS);
render(html`<${App} />`, document.getElementById("app"));
