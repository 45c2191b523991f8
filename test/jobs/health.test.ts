import { describe, expect, it } from 'vitest';
import type { EngineState } from '../../src/engine/options.js';
import { healthOf } from '../../src/mill/insight/health.js';
import { checkMillOptions } from '../../src/mill/options.js';
import { memory } from '../../src/memory/index.js';

const settings = checkMillOptions({ store: memory(), leaseDuration: '30s', maxAbandoned: 2 });
const planning = { leader: false, paused: false, historyLost: 0, troubles: ['sync: refused'] };
const well: EngineState = {
  running: 1,
  buffered: 2,
  unsettled: 0,
  refused: [],
  stuckMs: 0,
  abandoned: 0,
  leaseHeld: true,
  silentMs: 100,
  wakeUp: 'direct',
  counters: { claims: 3, empty: 0, short: 1 },
};

describe('health', () => {
  it("health is ok while the lease is held and the store answers, despite a task's troubles", () => {
    expect(healthOf('memory', well, planning, settings)).toMatchObject({
      ok: true,
      reasons: [],
      troubles: ['sync: refused'],
      running: 1,
      buffered: 2,
      claims: { total: 3, empty: 0, short: 1 },
    });
  });

  it.each<[string, Partial<EngineState>, string]>([
    ['a lost lease', { leaseHeld: false }, 'the lease of this instance is lost'],
    ['a silent store', { silentMs: 21_000 }, 'the store has not answered for 21 s'],
    [
      'an answer that does not come',
      { stuckMs: 25_400 },
      'one answer of the store has been awaited for 25 s',
    ],
    [
      'an outcome that the database refuses',
      { refused: [{ name: 'mail', id: '7', reason: 'settle: Document failed validation.' }] },
      'outcomes that the database refuses: 1 (mail 7: settle: Document failed validation.)',
    ],
    ['handlers that run away', { abandoned: 2 }, '2 handlers ignore their timeout (maxAbandoned)'],
  ])('health is not ok and gives the reason for %s', (_, state, reason) => {
    expect(healthOf('memory', { ...well, ...state }, planning, settings)).toMatchObject({
      ok: false,
      reasons: [reason],
    });
  });

  it('health of a mill that was not started is not ok', () => {
    expect(healthOf('memory', undefined, planning, settings)).toMatchObject({
      ok: false,
      reasons: ['not started'],
      lastContactAt: undefined,
    });
  });
});
