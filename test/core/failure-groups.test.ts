import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { groupFailures, patternOf } from '../../src/core/records/failure-groups.js';

describe('the pattern of a failure message', () => {
  it.each([
    ['Request failed with status code 404'],
    ['HTTP 500'],
    ['HTTP error! status: 503'],
    ['{"statusCode":429,"error":"slow down"}'],
    ['Response code 502 (Bad Gateway)'],
    ['404 Not Found'],
    ['502'],
    ['401: sign in first'],
    ['the server returned 503'],
    ['upstream responded with 502'],
    ['Unexpected server response: 504'],
    ['Service Unavailable (503)'],
    ['ffmpeg exited with code 1'],
    ['exit code 137'],
    ['the process was killed by signal 9'],
    ['connect failed, errno -110'],
  ])('keeps the code of "%s"', (message) => {
    expect(patternOf(message)).toBe(message);
  });

  it.each([
    ['mailbox 17 is full', 'mailbox … is full'],
    ['order 404 is locked', 'order … is locked'],
    ['user 6919b0f2c4d1a2b3c4d5e6f7 is gone', 'user … is gone'],
    ['job 1k3qv5hg4000010000000a is gone', 'job … is gone'],
    ['no row 8f14e45f-ceea-467f-a8f1-0123456789ab', 'no row …'],
    ['connect ECONNREFUSED 127.0.0.1:500', 'connect ECONNREFUSED …:…'],
    ['connect ECONNREFUSED localhost:404', 'connect ECONNREFUSED localhost:…'],
    ['timed out after 500 ms', 'timed out after … ms'],
    ['got 500 bytes', 'got … bytes'],
    ['error: 404ms', 'error: …ms'],
    ['502 rows were refused', '… rows were refused'],
    ['status code 40412345', 'status code …'],
    ['barcode 404 is unknown', 'barcode … is unknown'],
    ['HTTP/1.1 404 for order 17', 'HTTP/… 404 for order …'],
    ['at 2026-11-17T08:00:00.000Z, 0xdeadbeef', 'at …, …'],
  ])('masks what varies in "%s"', (message, pattern) => {
    expect(patternOf(message)).toBe(pattern);
  });

  it('keeps every two HTTP errors apart, whatever ids and durations stand beside them', () => {
    const status = fc.integer({ min: 400, max: 599 });
    const id = fc.integer({ min: 0 });
    fc.assert(
      fc.property(status, status, id, id, (one, other, first, second) => {
        const message = (code: number, order: number): string =>
          `GET /orders/${String(order)}: status ${String(code)} after ${String(order % 1_000)} ms`;
        const at = new Date(0);
        const groups = groupFailures([
          { name: 'sync', message: message(one, first), at },
          { name: 'sync', message: message(other, second), at },
        ]);
        expect(groups).toHaveLength(one === other ? 1 : 2);
        for (const group of groups) expect(group.example).toContain(group.search);
      }),
    );
  });
});
