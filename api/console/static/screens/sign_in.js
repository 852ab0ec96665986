// Entering the API key. It stays in this tab and goes only to this server, in a header.
import { announce, session, setKey } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";

// Of other keys the browser makes no header.
const SENDABLE = /^[\x20-\x7e]+$/;

// A button, and a form below the header: when the button was pressed, or while the API refuses the present key.
export function SignIn() {
  const { key, refused } = session;
  const [open, setOpen] = useState(false);
  const shown = open || refused !== "";
  return html`<button type="button" class="small" aria-expanded=${String(shown)} onClick=${() => setOpen(!open)}>
      ${key ? "API key set" : "API key"}
    </button>
    ${shown && html`<${Entry} key=${String(refused !== "")} open=${open} close=${() => setOpen(false)} />`}`;
}

function Entry({ open, close }) {
  const { key, refused } = session;
  const [value, setValue] = useState("");
  const [unsendable, setUnsendable] = useState(false);
  const field = useRef(null);
  useEffect(() => {
    if (open || document.activeElement === document.body) field.current.focus(); // not while somebody types elsewhere
  }, []);
  const use = (chosen, said) => {
    setKey(chosen);
    announce(said);
    close();
  };
  const save = (event) => {
    event.preventDefault();
    const entered = value.trim();
    setUnsendable(entered !== "" && !SENDABLE.test(entered));
    if (SENDABLE.test(entered)) use(entered, "The key is set.");
  };
  return html`<form class=${refused || unsendable ? "key box bad" : "key box"} onSubmit=${save} aria-label="Enter an API key">
    ${unsendable
      ? html`<p role="alert"><strong>A key has letters, digits and signs of ASCII only.</strong></p>`
      : refused && html`<p role="alert"><strong>${key ? refused : "This server needs an API key."}</strong>
      ${key
        ? " Enter another one, or ask whoever runs the server for one. "
        : html` Whoever runs the service makes one where it runs: <code>embedq keys create NAME</code>. `}
      The page goes on where you are.</p>`}
    <label>API key <input ref=${field} type="password" autocomplete="off" spellcheck=${false} value=${value}
      onInput=${(event) => setValue(event.target.value)} /></label>
    <div class="buttons">
      <button type="submit" class="primary">Use this key</button>
      ${key && html`<button type="button" onClick=${() => use("", "The key is forgotten.")}>Forget the key</button>`}
      ${!refused && html`<button type="button" onClick=${close}>Close</button>`}
    </div>
    <p class="muted">It is kept in this tab only, and forgotten with it.</p>
  </form>`;
}
