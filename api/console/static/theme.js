// Light or dark: as the system says, unless chosen here.
import { html, useEffect, useState } from "./html.js";

const STORED = "embedq.theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const LABELS = { auto: "Auto", light: "Light", dark: "Dark" };

export function ThemeButton() {
  const [theme, setTheme] = useState(() => (localStorage.getItem(STORED) in NEXT ? localStorage.getItem(STORED) : "auto"));
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    localStorage.setItem(STORED, theme);
    dispatchEvent(new Event("themechange")); // for what is drawn on a canvas
  }, [theme]);
  return html`<button type="button" class="small" aria-label=${`Theme: ${LABELS[theme]}`} title="Colours: auto, light, dark" onClick=${() => setTheme(NEXT[theme])}>
    ${LABELS[theme]}
  </button>`;
}
