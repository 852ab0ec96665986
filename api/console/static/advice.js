// What to do about an error, by its code. The texts are those of the documentation.
import { TEXTS } from "./advice_texts.js";

// place: where the code comes from, a name in TEXTS; codes of texts and of requests appear in other places too.
export function adviceFor(code, place = "request") {
  return [place, "text", "request"].map((name) => TEXTS[name]?.[code]).find(Boolean) ?? null;
}
