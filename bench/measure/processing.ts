import { Child, inChild } from '../lib/child.js';
import { nanos, sinceMs, sleep } from '../lib/clock.js';
import { cpuSeconds } from '../lib/cpu.js';
import { round } from '../lib/stats.js';

export interface ProcessingRequest {
  readonly uri: string;
  readonly database: string;
  readonly contender: string;
  readonly variant: string;
  readonly jobs: number;
  readonly processes: number;
  readonly serverPid: number | undefined;
  /** Lets the server come to rest before the clock starts. */
  readonly settle?: () => Promise<void>;
  readonly limitMs?: number;
}

export interface ProcessingResult {
  readonly perSecond: number;
  /** Handlers that ran; more than `jobs` if some ran twice. */
  readonly handled: number;
  readonly jobs: number;
  readonly seconds: number;
  readonly firstMs: number | null;
  readonly tenths: readonly number[];
  readonly workerCpuSeconds: number;
  readonly serverCpuSeconds: number;
  readonly extra: readonly Record<string, unknown>[];
  readonly timedOut: boolean;
}

interface Worked {
  readonly count: number;
  readonly firstMs: number | null;
  readonly tenths: readonly number[];
  readonly cpuSeconds: number;
  readonly extra: Record<string, unknown>;
}

/** Measures from `start()` of the workers until the last outcome is in the database. */
export async function processing(request: ProcessingRequest): Promise<ProcessingResult> {
  const { jobs, processes, limitMs = 120_000 } = request;
  await inChild({ ...request, task: 'fill' });
  const children = Array.from({ length: processes }, () => new Child({ ...request, task: 'work' }));
  try {
    await Promise.all(children.map((child) => child.hear('ready')));
    await request.settle?.();
    const serverBefore = cpuSeconds(request.serverPid);
    const counts = children.map(() => 0);
    children.forEach((child, index) =>
      child.on('count', (message) => (counts[index] = Number(message['count']))),
    );
    const began = nanos();
    for (const child of children) child.say('go');
    const total = (): number => counts.reduce((sum, count) => sum + count, 0);
    while (total() < jobs && sinceMs(began) < limitMs) await sleep(5);
    const timedOut = total() < jobs;
    const ended = timedOut ? nanos() : await recorded(children[0]!);
    const serverCpuSeconds = round(cpuSeconds(request.serverPid) - serverBefore, 2);
    const worked = await Promise.all(children.map(stopped));
    const seconds = sinceMs(began, ended) / 1_000;
    const handled = worked.reduce((sum, { count }) => sum + count, 0);
    return {
      perSecond: round((timedOut ? handled : jobs) / seconds),
      handled,
      jobs,
      seconds: round(seconds, 2),
      firstMs: worked[0]!.firstMs,
      tenths: worked[0]!.tenths,
      workerCpuSeconds: round(
        worked.reduce((sum, one) => sum + one.cpuSeconds, 0),
        2,
      ),
      serverCpuSeconds,
      extra: worked.map(({ extra }) => extra),
      timedOut,
    };
  } finally {
    for (const child of children) child.kill();
  }
}

async function recorded(child: Child): Promise<bigint> {
  child.say('check');
  const { at } = await child.hear<{ at: string }>('finished');
  return BigInt(at);
}

async function stopped(child: Child): Promise<Worked> {
  child.say('stop');
  const { value } = await child.hear<{ value: Worked }>('result');
  await child.end();
  return value;
}
