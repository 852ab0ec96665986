// What to do about an error, by its code.
const ADVICE = {};

export const adviceFor = (code) => ADVICE[code] ?? null;
