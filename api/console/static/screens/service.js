// A place for the screen.
import { html } from "../html.js";

export const title = () => "Service";

export function Screen() {
  return html`<h1 tabindex="-1">Service</h1><p class="muted">This screen is being made.</p>`;
}
