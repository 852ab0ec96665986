// Numbers, times, sizes and words as people read them, and addresses of screens. Values that are null are unknown.
import { html } from "./html.js";

export const NONE = "–";
const numbers = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const dates = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

export const count = (value) => (value == null ? NONE : numbers.format(value));
export const rate = (value, unit) => (value == null ? NONE : `${short.format(value)} ${unit}`);
export const words = (state) => state.replaceAll("_", " ");
export const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;

export function bytes(value) {
  if (value == null) return NONE;
  const power = value < 1000 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(value) / 3));
  return `${short.format(value / 1000 ** power)} ${UNITS[power]}`;
}

export function duration(seconds) {
  if (seconds == null) return NONE;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60 ? `${whole % 60} s` : ""}`.trim();
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

function relative(seconds) {
  const size = Math.abs(seconds);
  if (size < 5) return "now";
  const text = duration(size).split(" ").slice(0, 2).join(" ");
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

// A time (Unix seconds) relative to now; the absolute time is its title.
export function Time({ at }) {
  if (at == null) return NONE;
  const date = new Date(at * 1000);
  return html`<time datetime=${date.toISOString()} title=${dates.format(date)}>${relative(Date.now() / 1000 - at)}</time>`;
}

// The address of a screen, such as `#/jobs?kind=batch` or `#/jobs/task_…`. Empty values of the query are left out.
export function address(screen, name = "", query = {}) {
  const text = search(query);
  return `#/${screen}${name ? `/${encodeURIComponent(name)}` : ""}${text ? `?${text}` : ""}`;
}

// A query without its empty values.
export const search = (pairs) => new URLSearchParams(Object.entries(pairs).filter(([, value]) => value)).toString();
