// Numbers, times, sizes and words as people read them, and addresses of screens. Values that are null are unknown.
import { html } from "./html.js";

export const NONE = "–";
const NARROW = "\u00a0"; // no line ends between a number and its unit
const DAY = 86_400;
const numbers = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const clocks = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
const whole = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const BYTES = ["B", "kB", "MB", "GB", "TB"];
const LENGTHS = [["d", DAY], ["h", 3600], ["min", 60], ["s", 1]];
const SINCE = /since \d{4}-\d\d-\d\d \d\d:\d\d UTC/;

const unit = (value, name) => `${value}${NARROW}${name}`;
export const count = (value) => (value == null ? NONE : numbers.format(value));
export const some = (value, one) => unit(count(value), value === 1 ? one : `${one}s`);
export const rate = (value, name) => (value == null ? NONE : unit(short.format(value), name));
export const percent = (value) => unit(value, "%");
export const words = (state) => state.replaceAll("_", " ");
export const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;
// A model's name without its owner on the hub.
export const modelName = (id) => id.split("/").at(-1);

export function bytes(value) {
  if (value == null) return NONE;
  const power = value < 1000 ? 0 : Math.min(BYTES.length - 1, Math.floor(Math.log10(value) / 3));
  return unit(short.format(value / 1000 ** power), BYTES[power]);
}

// The two largest units, or as many as `most` says, rounded down.
export function duration(seconds, most = 2) {
  if (seconds == null) return NONE;
  let rest = Math.max(0, Math.floor(seconds));
  const parts = [];
  for (const [name, size] of LENGTHS) {
    const number = Math.floor(rest / size);
    rest %= size;
    if (parts.length || number || size === 1) parts.push(number && unit(number, name));
  }
  return parts.slice(0, most).filter(Boolean).join(" ") || unit(0, "s");
}

// What is left, in its largest unit, rounded up: nothing ends before its time.
function rest(seconds) {
  const [name, size] = LENGTHS.find(([, length]) => seconds >= length) ?? ["s", 1];
  return unit(Math.ceil(seconds / size), name);
}

// Such as "today", "yesterday", "12 May".
function day(date, now = new Date()) {
  const back = Math.round((new Date(now).setHours(0, 0, 0, 0) - new Date(date).setHours(0, 0, 0, 0)) / (DAY * 1000));
  if (back === 0 || back === 1) return back ? "yesterday" : "today";
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...(date.getFullYear() !== now.getFullYear() && { year: "numeric" }) });
}

export const clock = (at) => clocks.format(at * 1000);
const dayAndClock = (at) => `${day(new Date(at * 1000))}, ${clock(at)}`;
export const moment = (at) => whole.format(at * 1000);
export const clockAndDay = (at) => `${clock(at)} ${day(new Date(at * 1000))}`;
// Such as "since 17:10 today, 6 min".
export const since = (at) => `since ${clockAndDay(at)}, ${duration(Date.now() / 1000 - at, 1)}`;
// A sentence of the API, which has no time zone but UTC.
export const sentence = ({ message, since: at }) => (at ? message.replace(SINCE, () => since(at)) : message);

// Of a reason to wait: "next try in 7 s", or "".
export function nextTry({ next_try: at }) {
  const seconds = Math.ceil((at ?? 0) - Date.now() / 1000);
  return seconds > 0 ? `next try in ${duration(seconds)}` : "";
}

// A time (Unix seconds): relative to now within a day, else the date; the whole time is its title.
export function Time({ at }) {
  if (at == null) return NONE;
  const past = Date.now() / 1000 - at;
  const text = Math.abs(past) >= DAY ? dayAndClock(at) : Math.abs(past) < 5 ? "now" : past > 0 ? `${duration(past, 1)} ago` : `in ${rest(-past)}`;
  return html`<time datetime=${new Date(at * 1000).toISOString()} title=${moment(at)}>${text}</time>`;
}

// The address of a screen, such as `#/jobs?kind=batch` or `#/jobs/task_…`. Empty values of the query are left out.
export function address(screen, name = "", query = {}) {
  const text = search(query);
  return `#/${screen}${name ? `/${encodeURIComponent(name)}` : ""}${text ? `?${text}` : ""}`;
}

// A query without its empty values.
export const search = (pairs) => new URLSearchParams(Object.entries(pairs).filter(([, value]) => value)).toString();
