import fc from 'fast-check';
import { expect, it } from 'vitest';
import { namesIn } from '../../../src/sql/schema/names.js';
import { givenBack, grantStarts, NO_STARTS, sliceMs } from '../../../src/time/rate.js';
import { opened } from '../../support/port.js';
import { freshEmbedded, freshSchema, sharedEmbedded, useEmbedded } from '../../support/stores.js';

useEmbedded();

interface Answer {
  readonly granted: number;
  readonly next_state: unknown;
  readonly open_at: number;
}

it('the function of the database grants the same starts as the model', async () => {
  const schema = freshSchema();
  await opened(freshEmbedded({ schema }));
  const text = `select to_json(s)::text as json from ${namesIn(schema).table('key_starts')}(
    $1::text::jsonb, $2::integer, $3::float8, $4::integer, $5::integer, $6::float8) s`;
  const ask = async (values: unknown[]): Promise<Answer> => {
    const { rows } = await sharedEmbedded().query<{ json: string }>(text, values);
    return JSON.parse(rows[0]?.json ?? '') as Answer;
  };
  const rates = fc
    .record({ limit: fc.integer({ min: 1, max: 40 }), perMs: fc.integer({ min: 1, max: 90_000 }) })
    .chain(({ limit, perMs }) =>
      fc.record({
        limit: fc.constant(limit),
        perMs: fc.constant(perMs),
        burst: fc.integer({ min: 1, max: limit }),
      }),
    );
  const asks = fc.array(fc.record({ wanted: fc.nat({ max: 9 }), pause: fc.nat({ max: 3_000 }) }), {
    maxLength: 12,
  });
  await fc.assert(
    fc.asyncProperty(rates, asks, async (rate, series) => {
      let [state, stored, now]: [typeof NO_STARTS, unknown, number] = [NO_STARTS, null, 1_700_000_000_000];
      for (const { wanted, pause } of series) {
        now += pause;
        const expected = grantStarts(state, rate, { wanted, now, withinMs: 0 });
        const values = [
          stored === null ? null : JSON.stringify(stored),
          rate.limit,
          rate.perMs,
          rate.burst,
          wanted,
          now,
        ];
        const answer = await ask(values);
        expect(answer.granted).toBe(expected.granted);
        expect(Math.abs(answer.open_at - expected.freeAt)).toBeLessThan(0.01);
        const starts = expected.state.starts.map(({ end, count }) => [end, count]);
        expect(answer.next_state).toMatchObject({ starts });
        state = expected.state;
        stored = answer.next_state;
      }
    }),
    { numRuns: 60 },
  );
});

it('the function of the database gives the same starts back as the model', async () => {
  const schema = freshSchema();
  await opened(freshEmbedded({ schema }));
  const text = `select ${namesIn(schema).table('key_unstarted')}(
    $1::text::jsonb, $2::integer, $3::float8, array(select to_timestamp(t::float8 / 1000) from json_array_elements_text($4::text::json) t))::text as json`;
  const began = 1_700_000_000_000;
  const series = fc.array(fc.record({ pause: fc.nat({ max: 900 }), isUnstarted: fc.boolean() }), {
    maxLength: 12,
  });
  const rates = fc.record({
    limit: fc.integer({ min: 1, max: 20 }),
    perMs: fc.integer({ min: 1, max: 90_000 }),
  });
  await fc.assert(
    fc.asyncProperty(rates, series, async ({ limit, perMs }, starts) => {
      const rate = { limit, perMs, burst: limit };
      let [state, now] = [NO_STARTS, began];
      const times: number[] = [];
      for (const { pause, isUnstarted } of starts) {
        now += pause;
        ({ state } = grantStarts(state, rate, { wanted: 1, now, withinMs: 0 }));
        if (isUnstarted) times.push(now);
      }
      const slice = sliceMs(rate);
      const unused = times.map((at) => ({ end: Math.ceil(at / slice) * slice, count: 1 }));
      const expected = givenBack(state, rate, unused);
      const stored = { next: state.next, starts: state.starts.map(({ end, count }) => [end, count]) };
      const { rows } = await sharedEmbedded().query<{ json: string }>(text, [
        JSON.stringify(stored),
        limit,
        perMs,
        JSON.stringify(times),
      ]);
      const answer = JSON.parse(rows[0]?.json ?? '') as { next: number; starts: unknown };
      expect(answer.starts).toEqual(expected.starts.map(({ end, count }) => [end, count]));
      // Each step may round by a quarter of a microsecond, which is the distance of such numbers.
      expect(Math.abs(answer.next - expected.next)).toBeLessThan(0.01);
    }),
    { numRuns: 60 },
  );
});
