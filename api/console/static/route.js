// Addresses of screens: the part behind `#`, such as `#/jobs?kind=batch` or `#/jobs/task_…`.
import { useEffect, useState } from "./html.js";

const HOME = "#/jobs";

// {screen, name, query}: the first part of the path, the decoded rest, and URLSearchParams.
export function parse(hash) {
  const [path, query] = (hash.startsWith("#/") ? hash : HOME).slice(2).split("?");
  const [screen, ...rest] = path.split("/");
  return { screen, name: decoded(rest.join("/")), query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

// The address of a screen. Empty values of the query are left out.
export function address(screen, name = "", query = {}) {
  const pairs = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const text = pairs.toString();
  return `#/${screen}${name ? `/${encodeURIComponent(name)}` : ""}${text ? `?${text}` : ""}`;
}

export function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listener = () => setHash(location.hash);
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, []);
  return parse(hash);
}
