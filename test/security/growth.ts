/** How work grows with its input, in CPU time of this process: other load on the machine does not count. */

/** The fastest of several runs, which was disturbed the least. */
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

/** How many times longer it takes for an input eight times as long; 0 if it is too fast to tell. */
export function growth(work: (size: number) => unknown, size: number): number {
  // One run is enough for fast work, which is almost everything.
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
