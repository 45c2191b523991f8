import { defineJob } from 'tidemill';

export interface Email {
  readonly to: string;
  readonly subject: string;
}

/** What routes and workers share. It has no handler, so a route does not load the worker's code. */
export const sendEmail = defineJob<Email, string>('send-email', {
  timeout: '1m',
  retryPolicy: { maxAttempts: 5 },
});

/** Checks the body of a request. */
export function isEmail(body: unknown): body is Email {
  const { to, subject } = (body ?? {}) as Partial<Email>;
  return typeof to === 'string' && typeof subject === 'string';
}
