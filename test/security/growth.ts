/** How work grows with its input, in time of this process alone: what else the machine does is not in it. */

/** Of several runs the quickest: it was disturbed the least. */
function cpuMs(work: () => unknown, runs: number): number {
  let best = Infinity;
  for (let run = 0; run < runs; run += 1) {
    const start = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(start);
    best = Math.min(best, (user + system) / 1_000);
  }
  return best;
}

/** Less than this says more about the engine than about the work. */
const NOISE_MS = 40;

/** How many times as long it takes for an input that is eight times as long; 0 where it is too quick to tell. */
export function growth(work: (size: number) => unknown, size: number): number {
  // One run is enough for what is quick: almost everything is.
  if (cpuMs(() => work(8 * size), 1) < NOISE_MS) return 0;
  const large = cpuMs(() => work(8 * size), 3);
  return large < NOISE_MS
    ? 0
    : large /
        Math.max(
          cpuMs(() => work(size), 3),
          0.1,
        );
}

/** Linear work takes 8 times as long, and quadratic work 64 times. */
export const MOST_GROWTH = 30;
