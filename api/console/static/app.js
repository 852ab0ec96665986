// The frame around the screens: navigation, key, theme, and what is said when the API does not answer.
import { onAnnounce } from "./announce.js";
import { html, render, useEffect, useRef, useState } from "./html.js";
import { KeyForm } from "./key.js";
import { useSession } from "./api.js";
import { address, useRoute } from "./route.js";
import * as datasets from "./screens/datasets.js";
import * as job from "./screens/job.js";
import * as jobs from "./screens/jobs.js";
import * as service from "./screens/service.js";
import * as trial from "./screens/try.js";
import { ThemeButton } from "./theme.js";

// A screen exports `title(name)`, text, and `Screen({name, query})`, a component that begins with the one `h1`.
const SCREENS = [
  { path: "jobs", label: "Jobs", list: jobs, one: job },
  { path: "service", label: "Service", list: service },
  { path: "try", label: "Try it", list: trial },
  { path: "datasets", label: "Datasets", list: datasets, one: datasets },
];

function App() {
  const { screen, name, query } = useRoute();
  const { person } = useSession();
  const place = SCREENS.find(({ path }) => path === screen);
  const shown = place ? (name ? place.one : place.list) : null;
  const title = shown ? shown.title(name) : "Not found";
  const main = useRef(null);
  const moved = useRef(false);
  useEffect(() => {
    document.title = `${title} · embedq`;
    if (moved.current) main.current.querySelector("h1")?.focus();
    moved.current = true;
  }, [title]);
  return html`<a class="skip" href="#main" onClick=${(event) => skip(event, main)}>Skip to the content</a>
    <${Header} place=${place} />
    <${Connection} />
    <main id="main" ref=${main} tabindex="-1">
      ${shown ? html`<${shown.Screen} key=${`${person}/${screen}/${name}`} name=${name} query=${query} />` : html`<${Lost} />`}
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
    <div class="tools"><${ThemeButton} /><${KeyForm} /></div>
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

render(html`<${App} />`, document.getElementById("app"));
