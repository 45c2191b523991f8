import { defineJob, type JobDefinition } from '../../index.js';

/** Many and short. */
export const sendEmail: JobDefinition<{ to: string }> = defineJob<{ to: string }>('send-email');

/** A few seconds long, with progress that others can read meanwhile. */
export const buildReport: JobDefinition<{ pages: number }> = defineJob<{ pages: number }>('build-report');

/** Fails now and then, and is tried again twice; some never work and end as failed. */
export const chargeCard: JobDefinition<{ card: string; declined: boolean }> = defineJob<{
  card: string;
  declined: boolean;
}>('charge-card', { retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 3, jitter: true } });

/** Asked for far more often than needed; its unique key lets one per account live at a time. */
export const syncAccount: JobDefinition<{ account: number }> = defineJob<{ account: number }>('sync-account');

/** Runs on a schedule. */
export const takePulse: JobDefinition = defineJob('take-pulse');
export const PULSE_CRON = '*/5 * * * * *';

/** The reactive task: an order that is paid gets shipped. */
export const SHIP_ORDER = 'ship-order';
/** The document schedule, as the screen calls it. */
export const SEND_DIGEST = 'send-digest';

export const JOB_NAMES: readonly string[] = [sendEmail, buildReport, chargeCard, syncAccount, takePulse].map(
  ({ name }) => name,
);
