// Tells people who do not see the page what has changed: the frame shows the last sentence in a live region.
let show = () => {};

export const announce = (sentence) => show(sentence);

export function onAnnounce(listener) {
  show = listener;
}
