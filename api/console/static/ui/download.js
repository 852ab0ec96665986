// A button that downloads a file of the API: a link could not send the key.
import { download } from "../api.js";
import { html, useState } from "../html.js";
import { ErrorBox } from "./error_box.js";

export function Download({ path, name, label = "Download" }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const run = async () => {
    setBusy(true);
    setError(null);
    try {
      await download(path, name);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class="small" disabled=${busy} onClick=${run} aria-label=${`${label} ${name}`}>
      ${busy ? "Reading …" : label}
    </button>
    <${ErrorBox} error=${error} title="The file cannot be read" />`;
}
