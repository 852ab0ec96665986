// Finds points by place. x and y lie in -1 to 1.
const CELLS = 256;

const cellOf = (value) => Math.min(CELLS - 1, Math.max(0, Math.floor(((value + 1) / 2) * CELLS)));

// A look at a click reads the points of a few cells, however many points there are.
export class PointGrid {
  constructor(points) {
    this.points = points;
    this.starts = new Uint32Array(CELLS * CELLS + 1);
    this.order = new Uint32Array(points.length);
    const cells = points.map(([x, y]) => cellOf(y) * CELLS + cellOf(x));
    for (const cell of cells) this.starts[cell + 1] += 1;
    for (let cell = 0; cell < CELLS * CELLS; cell += 1) this.starts[cell + 1] += this.starts[cell];
    const next = this.starts.slice();
    cells.forEach((cell, index) => {
      this.order[next[cell]] = index;
      next[cell] += 1;
    });
  }

  // The index of the point next to a place, at most `reach` away and let through by `fits`; null for none.
  nearest(x, y, reach, fits = () => true) {
    let best = null;
    let distance = reach ** 2;
    for (let row = cellOf(y - reach); row <= cellOf(y + reach); row += 1) {
      const from = this.starts[row * CELLS + cellOf(x - reach)];
      const to = this.starts[row * CELLS + cellOf(x + reach) + 1];
      for (let at = from; at < to; at += 1) {
        const index = this.order[at];
        const [pointX, pointY] = this.points[index];
        const squared = (pointX - x) ** 2 + (pointY - y) ** 2;
        if (squared <= distance && fits(index)) [best, distance] = [index, squared];
      }
    }
    return best;
  }
}

// The point that is next to another one in a direction, {x, y}: within 45 degrees of it; null for none.
export function neighbour(points, from, direction, fits = () => true) {
  let best = null;
  let distance = Infinity;
  points.forEach(([x, y], index) => {
    const along = (x - from[0]) * direction.x + (y - from[1]) * direction.y;
    const across = Math.abs((x - from[0]) * direction.y) + Math.abs((y - from[1]) * direction.x);
    if (along <= 0 || across > along || along + 2 * across >= distance || !fits(index)) return;
    [best, distance] = [index, along + 2 * across];
  });
  return best;
}
