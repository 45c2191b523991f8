import type { Attempt } from './job.js';
import type { Finished, Outcome } from './outcome.js';
import type { Work } from './work.js';

const STATUS_OF: Readonly<Record<Outcome['kind'], Attempt['status']>> = {
  returned: 'completed',
  recorded: 'completed',
  threw: 'failed',
  timedOut: 'failed',
  crashed: 'crashed',
  deferred: 'deferred',
  released: 'released',
  cancelled: 'cancelled',
  skipped: 'skipped',
  expired: 'cancelled',
};

/** The history entry. None if `historyLimit` is 0, or if the work was handed back before its handler ran. */
export function entryOf(
  work: Work,
  attempt: number,
  finished: Finished,
  options: { readonly instanceId: string; readonly historyLimit: number },
): Attempt | undefined {
  const { outcome, startedAt, finishedAt } = finished;
  if (options.historyLimit === 0 || (outcome.kind === 'released' && startedAt === undefined))
    return undefined;
  const began = startedAt ?? work.lockedAt?.getTime() ?? finishedAt;
  return {
    attempt,
    status: STATUS_OF[outcome.kind],
    startedAt: new Date(began),
    finishedAt: new Date(finishedAt),
    durationMs: Math.max(0, finishedAt - began),
    instanceId: outcome.kind === 'crashed' ? (work.claimedBy ?? options.instanceId) : options.instanceId,
    ...('error' in outcome ? { error: errorOf(outcome.error) } : {}),
  };
}

/** Characters kept of a name, a message or a stack; the end of a long stack says little. */
const STACK_LIMIT = 8_000;

/** Libraries put any value into an error's name and message. That must not keep the outcome from being stored. */
export function textOf(value: unknown): string {
  if (typeof value === 'string') return value.slice(0, STACK_LIMIT);
  try {
    return String(value).slice(0, STACK_LIMIT);
  } catch {
    return 'an error without a message';
  }
}

function errorOf(error: Error): NonNullable<Attempt['error']> {
  const { name, message, stack } = error as { name: unknown; message: unknown; stack?: unknown };
  return {
    name: textOf(name),
    message: textOf(message),
    ...(typeof stack === 'string' ? { stack: textOf(stack) } : {}),
  };
}
