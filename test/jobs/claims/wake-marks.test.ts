import { expect, it } from 'vitest';
import type { NewJob } from '../../../src/store/port.js';
import { virtualClock } from '../../../src/testing/index.js';
import { WakeMarks } from '../../../src/jobs/enqueue/wake-marks.js';
import { aJob } from '../../support/port.js';

const START = Date.now();
const due = (name: string, fields: Partial<NewJob> = {}): NewJob =>
  aJob({ name, nextRunAt: new Date(START), ...fields });
const marksOf = (jobs: readonly NewJob[]): (number | undefined)[] => jobs.map(({ wake }) => wake);

it('the first due job of each name carries a wake-up, with the number of due jobs', () => {
  const marks = new WakeMarks();
  const later = new Date(START + 1_000);
  const jobs = [
    due('a'),
    due('a', { priority: 5 }),
    due('b'),
    due('a', { nextRunAt: later }),
    due('c', { nextRunAt: later }),
  ];
  expect(marksOf(marks.mark(jobs, virtualClock(START)))).toEqual([undefined, 2, 1, undefined, undefined]);
});

it('a call with jobs of many names carries one wake-up that names none', () => {
  const jobs = Array.from({ length: 21 }, (_, n) => due(`name-${String(n)}`));
  expect(marksOf(new WakeMarks().mark(jobs, virtualClock(START)))).toEqual([
    0,
    ...Array<undefined>(20).fill(undefined),
  ]);
});

it('a flood of one name is limited to 50 wake-ups per second, which count all its jobs, and delays no other name', async () => {
  const clock = virtualClock(START);
  const marks = new WakeMarks();
  const mark = (name: string): number | undefined => marks.mark([due(name)], clock)[0]?.wake;
  expect(Array.from({ length: 20 }, () => mark('flood'))).toEqual(Array<number>(20).fill(1));
  expect([mark('flood'), mark('flood'), mark('other')]).toEqual([undefined, undefined, 1]);
  await clock.advance(20);
  expect([mark('flood'), mark('flood')]).toEqual([3, undefined]);
});
