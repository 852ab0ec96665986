// A button whose act is confirmed in a dialog first.
import { announce } from "../announce.js";
import { html, useRef, useState } from "../html.js";
import { ErrorBox } from "./error_box.js";

// label: of the button; question and consequence: of the dialog; act: async; done: announced afterwards.
export function ConfirmButton({ label, name, question, consequence, act, done, danger = false }) {
  const dialog = useRef(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const open = () => {
    setError(null);
    dialog.current.showModal();
  };
  const run = async () => {
    setBusy(true);
    setError(null);
    try {
      await act();
      dialog.current?.close();
      announce(done);
    } catch (failure) {
      setError(failure);
      if (failure.code === "invalid_api_key" || failure.code === "unreachable") dialog.current?.close(); // the frame says so
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class=${danger ? "small danger" : "small"} onClick=${open} aria-label=${`${label} ${name}`}>
      ${label}
    </button>
    <dialog ref=${dialog} aria-label=${question}>
      <h2>${question}</h2>
      <p>${consequence}</p>
      <${ErrorBox} error=${error} />
      <div class="buttons">
        <button type="button" onClick=${() => dialog.current.close()} autofocus>No, keep it</button>
        <button type="button" class=${danger ? "danger" : "primary"} disabled=${busy} onClick=${run}>Yes, ${label.toLowerCase()}</button>
      </div>
    </dialog>`;
}
