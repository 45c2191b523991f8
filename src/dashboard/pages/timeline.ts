import type { Attempt } from '../../index.js';
import { iso } from '../request-context.js';
import type { TimelineEntry } from '../contract.js';
import type { Redactor } from '../redaction/redact.js';

/** An attempt that has ended. */
export function entryOf(attempt: Attempt, redactor: Redactor): TimelineEntry {
  const { error } = attempt;
  return {
    attempt: attempt.attempt,
    status: attempt.status,
    startedAt: iso(attempt.startedAt),
    finishedAt: iso(attempt.finishedAt),
    durationMs: attempt.durationMs,
    instanceId: attempt.instanceId,
    ...(error === undefined
      ? {}
      : {
          error: {
            name: redactor.text(error.name),
            message: redactor.text(error.message),
            ...(error.stack === undefined ? {} : { stack: redactor.text(error.stack) }),
          },
        }),
  };
}

/** Returns the ended attempts, oldest first, and then the running one. */
export function timelineOf(
  history: readonly Attempt[] | undefined,
  running: { readonly attempt: number; readonly since: Date | null; readonly by?: string | undefined } | null,
  redactor: Redactor,
): readonly TimelineEntry[] {
  const ended = (history ?? []).map((attempt) => entryOf(attempt, redactor));
  if (running === null) return ended;
  return [
    ...ended,
    {
      attempt: running.attempt,
      status: 'running',
      startedAt: iso(running.since),
      finishedAt: null,
      durationMs: null,
      ...(running.by === undefined ? {} : { instanceId: running.by }),
    },
  ];
}
