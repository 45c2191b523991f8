import { defineJob } from 'tidemill';

/** Many and short. */
export const sendEmail = defineJob<{ to: string }>('send-email');

/** A few seconds long, with progress that others can read meanwhile. */
export const buildReport = defineJob<{ pages: number }>('build-report');

/** Fails now and then, and is tried again twice; some never work and end as failed. */
export const chargeCard = defineJob<{ card: string; declined: boolean }>('charge-card', {
  retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 3, jitter: true },
});

/** Asked for far more often than needed; its unique key lets one per account live at a time. */
export const syncAccount = defineJob<{ account: number }>('sync-account');

/** Runs on a schedule. */
export const takePulse = defineJob('take-pulse');
export const PULSE_CRON = '*/5 * * * * *';

export const NAMES: readonly string[] = [sendEmail, buildReport, chargeCard, syncAccount, takePulse].map(
  ({ name }) => name,
);
