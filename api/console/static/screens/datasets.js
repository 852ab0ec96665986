// A place for the screen.
import { html } from "../html.js";

export const title = () => "Datasets";

export function Screen() {
  return html`<h1 tabindex="-1">Datasets</h1><p class="muted">This screen is being made.</p>`;
}
