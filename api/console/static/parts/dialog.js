// Buttons that call the API: one whose act is confirmed in a dialog first, and one that downloads.
import { announce, call, useAct } from "../api.js";
import { html, useRef } from "../html.js";
import { ErrorBox, SAID_BY_FRAME } from "./banner.js";

// label: of the button; question and consequence: of the dialog; act: async; done: announced afterwards.
export function ConfirmButton({ label, name, question, consequence, act, done, danger = false }) {
  const dialog = useRef(null);
  const { busy, error, run, clear } = useAct();
  const open = () => {
    clear();
    dialog.current.showModal();
  };
  const confirmed = async () => {
    const failure = await run(act);
    if (failure && !SAID_BY_FRAME.has(failure.code)) return;
    dialog.current?.close();
    if (!failure) announce(done);
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
        <button type="button" class=${danger ? "danger" : "primary"} disabled=${busy} onClick=${confirmed}>Yes, ${label.toLowerCase()}</button>
      </div>
    </dialog>`;
}

// A link could not send the key.
export function Download({ path, name, label = "Download" }) {
  const { busy, error, run } = useAct();
  const download = () => run(async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await call(path, { as: "blob" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });
  return html`<button type="button" class="small" disabled=${busy} onClick=${download} aria-label=${`${label} ${name}`}>
      ${busy ? "Reading …" : label}
    </button>
    <${ErrorBox} error=${error} title="The file cannot be read" />`;
}
