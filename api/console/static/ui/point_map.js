// Points on a canvas that is moved and zoomed by pointer, wheel and keys.
import { neighbour, PointGrid } from "./point_grid.js";

const MAX_ZOOM = 400;
const REACH_PX = 12;
const MOVED_PX = 4;
const STEP = 1.5;
const PAN_PX = 60;
const PASSES = 16;
const ARROWS = { ArrowLeft: { x: -1, y: 0 }, ArrowRight: { x: 1, y: 0 }, ArrowUp: { x: 0, y: 1 }, ArrowDown: { x: 0, y: -1 } };

export class PointMap {
  // points: [x, y, colour]; x and y in -1 to 1. onHover and onSelect: called with an index or null.
  constructor(canvas, points, { onHover, onSelect }) {
    Object.assign(this, { canvas, points, onHover, onSelect });
    this.grid = new PointGrid(points);
    this.order = drawingOrder(points);
    this.view = { x: 0, y: 0, zoom: 1 };
    this.marks = null;
    this.only = null;
    this.selected = null;
    this.pointers = new Map();
    this.stop = new AbortController();
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(canvas);
    this.listen();
  }

  destroy() {
    this.stop.abort();
    this.watcher.disconnect();
    cancelAnimationFrame(this.frame);
  }

  // ---- what is shown ------------------------------------------------------------------------------------------------

  // marks: {colour, cross: bool} of each number, a cross instead of a square; outline: the colour around the selected
  // point. only: the number that is not faded; null for all.
  show({ marks, outline, only, selected }) {
    Object.assign(this, { marks, outline, only, selected });
    this.redraw();
  }

  // Moves the view so far that a point is in it.
  reveal(index) {
    const [x, y] = this.toScreen(this.points[index]);
    const inside = x > REACH_PX && y > REACH_PX && x < this.width - REACH_PX && y < this.height - REACH_PX;
    if (!inside) this.move({ x: this.points[index][0], y: this.points[index][1] });
  }

  resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    Object.assign(this, { width, height });
    this.canvas.width = Math.round(width * devicePixelRatio);
    this.canvas.height = Math.round(height * devicePixelRatio);
    this.draw(); // at once: the canvas is blank now
  }

  redraw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  get scale() {
    return (Math.min(this.width, this.height) / 2) * 0.94 * this.view.zoom;
  }

  toScreen([x, y]) {
    return [this.width / 2 + (x - this.view.x) * this.scale, this.height / 2 - (y - this.view.y) * this.scale];
  }

  toPlace(screenX, screenY) {
    return [this.view.x + (screenX - this.width / 2) / this.scale, this.view.y - (screenY - this.height / 2) / this.scale];
  }

  draw() {
    if (!this.width || !this.marks) return;
    const context = this.canvas.getContext("2d");
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    const radius = this.radius();
    let number = null;
    let mark;
    for (const index of this.order) {
      const point = this.points[index];
      const [x, y] = this.toScreen(point);
      if (x < -radius || y < -radius || x > this.width + radius || y > this.height + radius) continue;
      if (point[2] !== number) {
        [, , number] = point;
        mark = this.marks[number];
        context.fillStyle = mark.colour;
        context.globalAlpha = this.only === null || this.only === number ? 0.8 : 0.08;
      }
      if (mark.cross) drawCross(context, x, y, radius);
      else context.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
    }
    context.globalAlpha = 1;
    if (this.selected !== null) this.outlinePoint(context, this.toScreen(this.points[this.selected]), radius);
  }

  radius() {
    const base = this.points.length > 20_000 ? 1.2 : this.points.length > 2000 ? 1.8 : 3;
    return Math.min(6, base * this.view.zoom ** 0.35);
  }

  outlinePoint(context, [x, y], radius) {
    context.strokeStyle = this.outline;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, radius + 6, 0, 2 * Math.PI);
    context.stroke();
  }

  // ---- moving -------------------------------------------------------------------------------------------------------

  move(changes) {
    const view = { ...this.view, ...changes };
    const within = (value) => Math.min(1, Math.max(-1, value));
    this.view = { x: within(view.x), y: within(view.y), zoom: Math.min(MAX_ZOOM, Math.max(1, view.zoom)) };
    this.redraw();
  }

  pan(byX, byY) {
    this.move({ x: this.view.x - byX / this.scale, y: this.view.y + byY / this.scale });
  }

  // The place under (x, y) of the canvas stays where it is.
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const [placeX, placeY] = this.toPlace(x, y);
    const before = this.scale;
    this.view = { ...this.view, zoom: Math.min(MAX_ZOOM, Math.max(1, this.view.zoom * factor)) };
    const share = before / this.scale;
    this.move({ x: placeX + (this.view.x - placeX) * share, y: placeY + (this.view.y - placeY) * share });
  }

  reset() {
    this.move({ x: 0, y: 0, zoom: 1 });
  }

  // ---- choosing -----------------------------------------------------------------------------------------------------

  fits = (index) => this.only === null || this.points[index][2] === this.only;

  at(x, y) {
    const [placeX, placeY] = this.toPlace(x, y);
    return this.grid.nearest(placeX, placeY, REACH_PX / this.scale, this.fits);
  }

  step(direction) {
    const from = this.selected === null ? [this.view.x, this.view.y] : this.points[this.selected];
    const next = this.selected === null ? this.grid.nearest(...from, 2, this.fits) : neighbour(this.points, from, direction, this.fits);
    if (next === null) return;
    this.reveal(next);
    this.onSelect(next);
  }

  // ---- what the person does -----------------------------------------------------------------------------------------

  listen() {
    const on = (name, listener, options) => this.canvas.addEventListener(name, listener, { signal: this.stop.signal, ...options });
    on("wheel", (event) => {
      event.preventDefault();
      this.zoom(STEP ** (-event.deltaY / 150), event.offsetX, event.offsetY);
    }, { passive: false });
    on("pointerdown", (event) => this.press(event));
    on("pointermove", (event) => this.drag(event));
    on("pointerup", (event) => this.release(event, true));
    on("pointercancel", (event) => this.release(event, false));
    on("pointerleave", () => this.onHover(null));
    on("keydown", (event) => this.pressKey(event));
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.travelled = this.pointers.size > 1 ? Infinity : 0;
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    const now = [event.offsetX, event.offsetY];
    if (!before) {
      this.onHover(this.at(...now));
      return;
    }
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) this.zoom(apart(now, other) / (apart(before, other) || 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    else this.pan(now[0] - before[0], now[1] - before[1]);
    this.travelled += apart(now, before);
    this.pointers.set(event.pointerId, now);
  }

  release(event, click) {
    this.pointers.delete(event.pointerId);
    if (click && this.travelled < MOVED_PX) this.onSelect(this.at(event.offsetX, event.offsetY));
  }

  pressKey(event) {
    const direction = ARROWS[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (direction && event.shiftKey) this.pan(-direction.x * PAN_PX, direction.y * PAN_PX);
    else if (direction) this.step(direction);
    else if (event.key === "+" || event.key === "=") this.zoom(STEP);
    else if (event.key === "-") this.zoom(1 / STEP);
    else if (event.key === "0") this.reset();
    else if (event.key === "Escape") this.onSelect(null);
    else return;
    event.preventDefault();
  }
}

function drawCross(context, x, y, radius) {
  const [long, thin] = [1.5 * radius, 0.5 * radius];
  context.fillRect(x - long, y - thin, 2 * long, 2 * thin);
  context.fillRect(x - thin, y - long, 2 * thin, 2 * long);
}

const apart = ([x, y], [otherX, otherY]) => Math.hypot(x - otherX, y - otherY);

// Mixed, so that no colour lies above all others; in runs of one colour, because changing it costs more than a point.
function drawingOrder(points) {
  const order = Uint32Array.from(points.keys());
  return order.sort((one, other) => (one % PASSES) - (other % PASSES) || points[one][2] - points[other][2]);
}
