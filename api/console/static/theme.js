// Light or dark: as the system says, unless chosen here.
import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { ofBrowser } from "./storage.js";

const STORED = "embedq.theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const LABELS = { auto: "auto", light: "light", dark: "dark" };

export function ThemeButton() {
  const [theme, setTheme] = useState(() => (ofBrowser.get(STORED) in NEXT ? ofBrowser.get(STORED) : "auto"));
  useLayoutEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    ofBrowser.set(STORED, theme);
    dispatchEvent(new Event("themechange")); // for what is drawn on a canvas
  }, [theme]);
  return html`<button type="button" class="small" title="Colours: as the system says, light, or dark" onClick=${() => setTheme(NEXT[theme])}>
    Theme: ${LABELS[theme]}
  </button>`;
}

// A hook for what is drawn on a canvas, where variables of CSS mean nothing: [colours, probe]. names: a name for each
// class whose text has the colour. The probe has to be rendered; it is not seen.
export function useColours(names) {
  const place = useRef(null);
  const [colours, setColours] = useState({});
  useLayoutEffect(() => {
    const read = () =>
      setColours(Object.fromEntries([...place.current.children].map((sample) => [sample.title, getComputedStyle(sample).color])));
    const system = matchMedia("(prefers-color-scheme: dark)");
    read();
    addEventListener("themechange", read);
    system.addEventListener("change", read);
    return () => {
      removeEventListener("themechange", read);
      system.removeEventListener("change", read);
    };
  }, []);
  const probe = html`<span ref=${place} hidden>
    ${Object.entries(names).map(([name, colour]) => html`<i key=${name} title=${name} class=${`colour-${colour}`}></i>`)}
  </span>`;
  return [colours, probe];
}
