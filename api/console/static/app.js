// The frame around the screens: navigation, key, and what is said when the API does not answer. The whole page is drawn
// again when the session or the address changes, and every five seconds for the times in it.
import { onChange, session } from "./api.js";
import { address } from "./format.js";
import { html, render, useEffect, useRef } from "./html.js";
import { Banner } from "./parts/banner.js";
import { Dataset, Datasets } from "./screens/datasets.js";
import { Job } from "./screens/job.js";
import { Jobs } from "./screens/jobs.js";
import { Service } from "./screens/service.js";
import { SignIn } from "./screens/sign_in.js";
import { Try } from "./screens/try.js";

// A screen gets {name, query} of its address and begins with the one `h1`. One: of a thing with a name.
const SCREENS = [
  { path: "jobs", label: "Jobs", Screen: Jobs, one: "Job", One: Job },
  { path: "service", label: "Service", Screen: Service },
  { path: "try", label: "Try it", Screen: Try },
  { path: "datasets", label: "Datasets", Screen: Datasets, one: "Dataset", One: Dataset },
];
const REDRAW_MS = 5000;

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
  const place = SCREENS.find((one) => one.path === path);
  const Screen = (name ? place?.One : place?.Screen) ?? Lost;
  const title = Screen === Lost ? "Not found" : name ? `${place.one} ${name}` : place.label;
  const main = useRef(null);
  const before = useRef(title);
  useEffect(() => {
    document.title = `${title} · embedq`;
    if (before.current !== title) main.current.querySelector("h1")?.focus();
    before.current = title;
  }, [title]);
  const skip = (event) => {
    event.preventDefault(); // the fragment is the address of the screen
    main.current.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header>
      <a class="brand" href=${address("jobs")}>embedq</a>
      <nav aria-label="Screens">
        ${SCREENS.map((one) => html`<a key=${one.path} href=${address(one.path)} aria-current=${one === place ? "page" : undefined}>
          ${one.label}
        </a>`)}
      </nav>
      <div class="tools"><${SignIn} /></div>
    </header>
    <${Banner} />
    <main id="main" ref=${main} tabindex="-1">
      <${Screen} key=${`${session.person}/${path}/${name}`} name=${name} query=${query} />
    </main>`;
}

function Lost() {
  return html`<h1 tabindex="-1">Not found</h1><p>There is no such screen. <a href=${address("jobs")}>Go to the jobs</a>.</p>`;
}

const draw = () => render(html`<${App} />`, document.getElementById("app"));
onChange(draw);
addEventListener("hashchange", draw);
document.addEventListener("visibilitychange", draw); // a hidden page asks for nothing
setInterval(draw, REDRAW_MS);
draw();
