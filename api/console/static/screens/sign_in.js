// Entering the API key: the one screen while the API refuses the present key. It stays in this tab and goes only to this
// server, in a header.
import { announce, session, setKey } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Notice } from "../parts/banner.js";

// Of other keys the browser makes no header.
const SENDABLE = /^[\x20-\x7e]+$/;

export function SignIn() {
  const { key, refused } = session;
  const [value, setValue] = useState("");
  const [shown, setShown] = useState(false);
  const [unsendable, setUnsendable] = useState(false);
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const save = (event) => {
    event.preventDefault();
    const entered = value.trim();
    setUnsendable(entered !== "" && !SENDABLE.test(entered));
    if (!SENDABLE.test(entered)) return;
    setKey(entered);
    announce("The key is set.");
  };
  return html`<form class="card signin" onSubmit=${save}>
    <h1 tabindex="-1">Sign in with an API key</h1>
    <p class="small">The key stays in this tab until you close it or sign out.</p>
    ${unsendable ? html`<${Notice} title="A key has letters, digits and signs of ASCII only." />` : key && html`<${Notice} title=${refused} />`}
    <label class="field after">API key <input ref=${field} type=${shown ? "text" : "password"} autocomplete="off" spellcheck=${false} value=${value}
      onInput=${(event) => setValue(event.target.value)} /></label>
    <div class="do">
      <button class="primary" type="submit">Sign in</button>
      <button type="button" aria-pressed=${String(shown)} onClick=${() => setShown(!shown)}>Show the key</button>
    </div>
    <p class="small after">No key yet? On the server: <code>embedq keys create NAME</code></p>
  </form>`;
}
