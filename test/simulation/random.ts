/** The only source of randomness of a run: it decides everything. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed ^ 0x9e3779b9) >>> 0;
    // Neighbouring seeds begin alike; a few steps separate them.
    for (let step = 0; step < 8; step += 1) this.next();
  }

  /** From 0 up to, but not including, 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** A whole number; both ends are possible. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  pick<T>(items: readonly T[]): T | undefined {
    return items[Math.floor(this.next() * items.length)];
  }

  bytes(count: number): Buffer {
    return Buffer.from(Array.from({ length: count }, () => this.between(0, 255)));
  }
}
