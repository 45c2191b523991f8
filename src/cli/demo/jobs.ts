import { defineJob, type JobDefinition } from '../../index.js';

/** Many and short. */
export const sendEmail: JobDefinition<{ to: string }> = defineJob<{ to: string }>('send-email');

/** Takes a few seconds, and reports progress. */
export const buildReport: JobDefinition<{ pages: number }> = defineJob<{ pages: number }>('build-report');

/** Fails now and then, and is retried up to twice; some jobs never succeed and end as failed. */
export const chargeCard: JobDefinition<{ card: string; declined: boolean }> = defineJob<{
  card: string;
  declined: boolean;
}>('charge-card', { retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 3, jitter: true } });

/** Enqueued far more often than needed; its unique key allows one live job per account. */
export const syncAccount: JobDefinition<{ account: number }> = defineJob<{ account: number }>('sync-account');

/** Runs on a schedule. */
export const takePulse: JobDefinition = defineJob('take-pulse');
export const PULSE_CRON = '*/5 * * * * *';

/** The reactive task: ships an order once it is paid. */
export const SHIP_ORDER = 'ship-order';
/** The document schedule, as the screen calls it. */
export const SEND_DIGEST = 'send-digest';

export const JOB_NAMES: readonly string[] = [sendEmail, buildReport, chargeCard, syncAccount, takePulse].map(
  ({ name }) => name,
);
