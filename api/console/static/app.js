// The frame around the screens: navigation, key, strip and foot. The whole page is drawn again when the session or the
// address changes, and every five seconds for the times in it.
import { BASE, onChange, session, setKey, setTitle, useFetch } from "./api.js";
import { address } from "./format.js";
import { html, render, useEffect, useRef } from "./html.js";
import { Said, Strip, troubleOf } from "./parts/banner.js";
import { record } from "./parts/chart.js";
import { Dataset, Datasets } from "./screens/datasets.js";
import { Job } from "./screens/job.js";
import { Jobs } from "./screens/jobs.js";
import { Service } from "./screens/service.js";
import { SignIn } from "./screens/sign_in.js";
import { Try } from "./screens/try.js";

// A screen gets {name, query, service} and begins with the one `h1`. One: of a thing with a name.
const SCREENS = [
  { path: "jobs", label: "Jobs", Screen: Jobs, one: "Job", One: Job },
  { path: "datasets", label: "Datasets", Screen: Datasets, one: "Dataset", One: Dataset },
  { path: "service", label: "Service", Screen: Service },
  { path: "try", label: "Try it", Screen: Try },
];
const REDRAW_MS = 5000;
const [SERVICE_MS, STRIP_MS] = [2000, 5000];
const positions = new Map(); // address -> how far it was scrolled

// The part of the address behind `#`: {path, name, query}; the name is decoded, the query is URLSearchParams.
function route() {
  const [place, query] = (location.hash.startsWith("#/") ? location.hash : "#/jobs").slice(2).split("?");
  const [path, ...rest] = place.split("/");
  return { path, name: decoded(rest.join("/")), query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

function App() {
  const { path, name, query } = route();
  const { refused, person } = session;
  const place = SCREENS.find((one) => one.path === path);
  const Screen = refused ? SignIn : (name ? place?.One : place?.Screen) ?? Lost;
  const own = useFetch(refused ? null : "v1/key");
  const read = useFetch(refused ? null : "v1/service", { every: () => (location.hash.startsWith("#/service") ? SERVICE_MS : STRIP_MS) });
  const trouble = refused ? null : troubleOf(read.data);
  record(read.data);
  const at = Screen === SignIn ? "Sign in" : Screen === Lost ? "Not found" : name || place.label;
  const main = useRef(null);
  const before = useRef(at);
  useEffect(() => {
    if (before.current !== at && Screen !== SignIn) main.current.querySelector("h1")?.focus({ preventScroll: true });
    before.current = at;
    setTitle("");
  }, [at]);
  useEffect(() => {
    document.title = `${trouble?.stop ? "(!) " : ""}${session.title || at} · embedq`;
  });
  const skip = (event) => {
    event.preventDefault(); // the fragment is the address of the screen
    main.current.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top"><div class="wide">
      <a class="brand" href=${address("jobs")}>embedq</a>
      ${!refused && html`<nav class=${own.data || own.error ? "main" : "main pending"} aria-label="Screens">
          ${SCREENS.map((one) => html`<a key=${one.path} href=${address(one.path)} aria-current=${one === place ? "page" : undefined}>${one.label}</a>`)}
        </nav>
        <div class="who">
          ${session.key && html`<small>${own.data && `key ${own.data.name}`}</small>
            <button class="plain" type="button" onClick=${() => setKey("")}>Sign out</button>`}
        </div>`}
    </div></header>
    ${!refused && html`<${Strip} trouble=${trouble} service=${read.data} />`}
    <${Said} trouble=${trouble} />
    <main key=${refused ? "sign in" : "screen"} class="wide" id="main" ref=${main} tabindex="-1">
      <${Screen} key=${`${person}/${path}/${name}`} name=${name} query=${query} service=${read} />
    </main>
    ${!refused && html`<footer class="foot"><div class="wide small">
      <span>embedq ${read.data?.version}</span>
      <a href=${new URL("docs", BASE).pathname}>API reference</a>
    </div></footer>`}`;
}

function Lost() {
  return html`<div class="head"><h1 tabindex="-1">Not found</h1></div><p>There is no such screen. <a href=${address("jobs")}>Go to the jobs</a>.</p>`;
}

const draw = () => render(html`<${App} />`, document.getElementById("app"));
onChange(draw);
history.scrollRestoration = "manual"; // the browser would restore it before the rows are there
addEventListener("hashchange", ({ oldURL }) => {
  positions.set(new URL(oldURL).hash, scrollY);
  draw();
  requestAnimationFrame(() => scrollTo(0, positions.get(location.hash) ?? 0));
});
document.addEventListener("visibilitychange", draw); // a hidden page asks for nothing
setInterval(draw, REDRAW_MS);
draw();
