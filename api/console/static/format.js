// Numbers, times and sizes as people read them. All take null for "unknown".
import { html, useEffect, useState } from "./html.js";

export const NONE = "–";
const numbers = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const dates = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

export const count = (value) => (value == null ? NONE : numbers.format(value));
export const percent = (share) => (share == null ? NONE : `${Math.floor(share * 100)} %`);
export const rate = (value, unit = "/s") => (value == null ? NONE : `${short.format(value)} ${unit}`);

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
  const ahead = seconds < 0;
  const size = Math.abs(seconds);
  if (size < 5) return "now";
  const text = size < 60 ? `${Math.round(size)} s` : duration(size).split(" ").slice(0, 2).join(" ");
  return ahead ? `in ${text}` : `${text} ago`;
}

// Seconds since the epoch, renewed while the component is there.
export function useNow(everyMs = 5000) {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

// A time (Unix seconds) relative to now; the absolute time is its title.
export function Time({ at }) {
  const now = useNow();
  if (at == null) return NONE;
  const date = new Date(at * 1000);
  return html`<time datetime=${date.toISOString()} title=${dates.format(date)}>${relative(now - at)}</time>`;
}
