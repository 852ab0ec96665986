// Components are written with `html`, a tagged template: values in it become text or attributes, never markup.
import { h, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { render };
export { useEffect, useId, useMemo, useRef, useState } from "./vendor/preact-hooks.js";
export const html = htm.bind(h);
