import { defineJob } from 'tidemill';

export interface Picture {
  readonly file: string;
  readonly width: number;
}

/** What both sides agree on. No handler here, so the producer loads none of the worker's code. */
export const resize = defineJob<Picture>('resize', {
  timeout: '1m',
  retryPolicy: { type: 'exponential', min: '1s', max: '1h', maxAttempts: 5 },
});
