// Buttons that call the API: one whose act is confirmed in a dialog first, and one that downloads.
import { announce, call, useAct } from "../api.js";
import { html, useId, useRef } from "../html.js";
import { ErrorNotice, SAID_BY_FRAME } from "./banner.js";

// label, tone: of the button. The dialog: question, with the name of the thing; children: what stays and what is lost; of: the
// thing in small; keep, confirm: its buttons, verb and object; danger: something is lost. act: async; done: announced afterwards.
export function Ask({ label, tone = "", question, children, of, keep = "Keep it", confirm, act, done, danger = false }) {
  const dialog = useRef(null);
  const id = useId();
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
  return html`<button type="button" class=${tone} onClick=${open}>${label}</button>
    <dialog ref=${dialog} aria-labelledby=${id}>
      <h2 id=${id}>${question}</h2>
      <p>${children}</p>
      ${of && html`<p class="small">${of}</p>`}
      <${ErrorNotice} error=${error} />
      <div class="do">
        <button type="button" class="primary" onClick=${() => dialog.current.close()} autofocus>${keep}</button>
        <button type="button" class=${danger ? "danger" : ""} disabled=${busy} onClick=${confirmed}>${confirm}</button>
      </div>
    </dialog>`;
}

// A link could not send the key.
export function Download({ path, name, label }) {
  const { busy, error, run } = useAct();
  const download = () => run(async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await call(path, { as: "blob" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });
  return html`<button type="button" class=${label ? "" : "plain"} disabled=${busy} onClick=${download} aria-label=${label ?? `Download ${name}`}>${label ?? "Download"}</button>
    <${ErrorNotice} error=${error} title="The file cannot be read." />`;
}
