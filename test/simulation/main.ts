// npm run simulate -- --seed 42 --minutes 1       one seed
// npm run simulate -- --seed 42 --trace           the same, with every step
// npm run simulate -- --seeds 1000 --workers 2    seeds 1 to 1000, in two processes
// npm run simulate -- --seeds 1000 --bail         until the first that fails
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { FAULTS, isFault } from './faults.js';
import { simulate } from './simulate.js';
import { Tally } from './tally.js';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    seeds: { type: 'string', default: '1' },
    minutes: { type: 'string', default: '0.3' },
    without: { type: 'string', multiple: true, default: [] },
    workers: { type: 'string', default: '1' },
    trace: { type: 'boolean', default: false },
    bail: { type: 'boolean', default: false },
  },
});

const first = whole('seed');
const count = whole('seeds');
const workers = Math.min(whole('workers'), count);
const forMs = Number(values.minutes) * 60_000;
const without = values.without.filter(isFault);
const unknown = values.without.find((fault) => !isFault(fault));
if (unknown !== undefined) fail(`There is no fault ${unknown}. Known: ${FAULTS.join(', ')}.`);
if (!(forMs > 0)) fail(`--minutes must be a positive number (got ${values.minutes}).`);

const tally = await (workers > 1 ? inProcesses() : here());
if (process.send === undefined) console.log(tally.text);
else process.send(tally.state);
process.exitCode = tally.failed === 0 ? 0 : 1;

function whole(option: 'seed' | 'seeds' | 'workers'): number {
  const number = Number(values[option]);
  if (!Number.isSafeInteger(number) || number < 1)
    fail(`--${option} must be a positive integer (got ${values[option]}).`);
  return number;
}

function fail(message: string): never {
  console.error(message);
  process.exit(2);
}

async function here(): Promise<Tally> {
  const tally = new Tally();
  for (let seed = first; seed < first + count; seed += 1) {
    const verdict = await simulate({
      seed,
      forMs,
      without,
      ...(values.trace ? { print: (line: string) => console.log(line) } : {}),
    });
    tally.add(verdict);
    if (verdict.violations.length === 0) continue;
    report(seed, verdict.hash, verdict.violations);
    if (values.bail) break;
  }
  return tally;
}

function report(seed: number, hash: string, violations: readonly string[]): void {
  const options = [
    `--seed ${String(seed)}`,
    `--minutes ${values.minutes}`,
    ...values.without.map((one) => `--without ${one}`),
  ];
  console.log(
    `seed ${String(seed)} (${hash}); repeat it with: npm run simulate -- ${options.join(' ')} --trace`,
  );
  for (const violation of violations.slice(0, 5)) console.log(`  ${violation}`);
}

/** Each worker takes a range of the seeds. */
async function inProcesses(): Promise<Tally> {
  const tally = new Tally();
  const share = Math.ceil(count / workers);
  const ranges = Array.from({ length: workers }, (_, at) => ({
    seed: first + at * share,
    seeds: Math.min(share, count - at * share),
  })).filter(({ seeds }) => seeds > 0);
  const ends = ranges.map(
    ({ seed, seeds }) =>
      new Promise<void>((resolve, reject) => {
        const options = ['--seed', seed, '--seeds', seeds, '--minutes', values.minutes].map(String);
        const child = fork(fileURLToPath(import.meta.url), [
          ...options,
          ...values.without.flatMap((fault) => ['--without', fault]),
        ]);
        let isToldOf = false;
        child.on('message', (state) => {
          isToldOf = true;
          tally.merge(state);
        });
        child.on('exit', () =>
          isToldOf ? resolve() : reject(new Error(`The worker of seed ${String(seed)} died.`)),
        );
      }),
  );
  await Promise.all(ends);
  return tally;
}
