/** What only imported jobs have. Apart, since few processes import any. */
import type { Past } from '../../../store/port.js';
import type { BatchColumn } from '../../connection/batch.js';
import { readable, timeText } from '../../connection/values.js';
import { storedAttempt } from '../record.js';

/** Beside those of every job, so that the statement for all others is as short as it can be. */
export const PAST_COLUMNS: readonly BatchColumn[] = [
  ['fail_count', 'integer'],
  ['fail_reason', 'text'],
  ['fail_kind', 'text'],
  ['first_failed_at', 'timestamptz'],
  ['finished_at', 'timestamptz'],
  ['expires_at', 'timestamptz'],
  ['history', 'jsonb'],
];

export const storedPast = (past: Past = { failCount: 0 }): Readonly<Record<string, unknown>> => ({
  fail_count: past.failCount,
  fail_reason: past.failReason === undefined ? undefined : readable(past.failReason),
  fail_kind: past.failKind,
  first_failed_at: past.firstFailedAt && timeText(past.firstFailedAt),
  finished_at: past.finishedAt && timeText(past.finishedAt),
  expires_at: past.expiresAt && timeText(past.expiresAt),
  history: past.history?.map(storedAttempt),
});
