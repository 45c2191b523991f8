import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { evolve, plansInForce, type InForce } from '../../../src/reactive/planner/plans-in-force.js';
import { compileTask, type EvolutionConfig } from '../../../src/reactive/definition.js';
import type { Cluster } from '../../../src/store/port.js';
import type { PublishedPlan, TaskPlan, TaskState } from '../../../src/store/reactive/reactive.js';

const NOW = new Date('2026-01-01T00:00:00Z');
const DAY = 86_400_000;

const planOf = (evolution: EvolutionConfig = {}): TaskPlan =>
  compileTask({ task: 'sync', collection: 'orders', handler: () => undefined, evolution }).plan;

const published = (id: string, handlerVersion = 1, seenAt = 0, trigger = 't'): PublishedPlan => ({
  id,
  trigger,
  plan: planOf({ handlerVersion }),
  firstSeenAt: new Date(seenAt),
});

const clusterOf = (...definitions: readonly (readonly string[])[]): Cluster => ({
  now: NOW,
  paused: new Set(),
  instances: definitions.map((ids, index) => ({
    instanceId: `i${String(index)}`,
    life: `l${String(index)}`,
    names: [],
    tasks: ids.map((definition) => ({ task: 'sync', definition, trigger: 't', version: 1 })),
    leftMs: 1_000,
    dead: false,
  })),
});

const stateOf = (fields: Partial<TaskState> = {}): TaskState => ({
  task: 'sync',
  definition: 'a',
  trigger: 't',
  version: 1,
  handlerVersion: 1,
  wanted: 1,
  done: 1,
  lastSeenAt: NOW,
  ...fields,
});

const inForce = (plan: PublishedPlan, state?: TaskState): InForce => ({
  published: plan,
  plan: plan.plan,
  state,
  last: plan.plan,
  seen: true,
});

describe('the definition in force', () => {
  it('the highest version among live instances is in force', () => {
    const plans = [published('a', 1), published('b', 2), published('c', 3)];
    expect(plansInForce(plans, [], clusterOf(['a'], ['b'])).get('sync')?.published.id).toBe('b');
  });

  it('the latest of equal versions is in force', () => {
    const plans = [published('a', 1, 10), published('b', 1, 20)];
    expect(plansInForce(plans, [], clusterOf(['a'], ['b'])).get('sync')?.published.id).toBe('b');
  });

  it('the older definition is in force again once the newer instances are gone', () => {
    const plans = [published('a', 1), published('b', 2)];
    expect(
      plansInForce(plans, [stateOf({ definition: 'b' })], clusterOf(['a'])).get('sync')?.published.id,
    ).toBe('a');
  });

  it('the last definition stays in force for a week while no instance has it', () => {
    const plans = [published('a', 1), published('b', 2)];
    const state = stateOf({ definition: 'b' });
    expect(plansInForce(plans, [state], clusterOf()).get('sync')).toMatchObject({
      published: { id: 'b' },
      seen: false,
    });
    const long = stateOf({ definition: 'b', lastSeenAt: new Date(NOW.getTime() - 8 * DAY) });
    expect(plansInForce(plans, [long], clusterOf()).size).toBe(0);
  });

  it('definitions of dead or late instances do not count', () => {
    const cluster = clusterOf(['b']);
    const late = { ...cluster, instances: cluster.instances.map((one) => ({ ...one, leftMs: -1 })) };
    expect(plansInForce([published('b', 2)], [], late).size).toBe(0);
  });
});

describe('evolution of a task', () => {
  it('a task that is new or returns after a week is reconciled', () => {
    const first = evolve(inForce(published('a')), NOW);
    expect(first).toMatchObject({
      changed: true,
      state: { wanted: 1, done: 0, reason: 'first registration' },
    });
    const old = stateOf({ wanted: 4, done: 4, lastSeenAt: new Date(NOW.getTime() - 8 * DAY) });
    expect(evolve(inForce(published('a'), old), NOW).state).toMatchObject({ wanted: 5, done: 4 });
  });

  it('an unchanged definition changes nothing', () => {
    expect(evolve(inForce(published('a'), stateOf()), NOW)).toMatchObject({
      changed: false,
      state: stateOf(),
    });
  });

  it('a changed filter or projection leads to a reconciliation, unless it is switched off', () => {
    const changed = published('b', 1, 0, 'other');
    expect(evolve(inForce(changed, stateOf()), NOW)).toMatchObject({
      changed: true,
      state: { wanted: 2, done: 1 },
    });
    const off = { ...changed, plan: planOf({ reconcileOnTriggerChange: false }) };
    expect(evolve(inForce(off, stateOf()), NOW).state).toMatchObject({ wanted: 1, trigger: 'other' });
  });

  it('a task that moved to another collection is reconciled even without reconcileOnTriggerChange', () => {
    const moved = {
      ...published('b', 1, 0, 'other'),
      plan: { ...planOf({ reconcileOnTriggerChange: false }), source: { collection: 'elsewhere' } },
    };
    const last = planOf({ reconcileOnTriggerChange: false });
    expect(evolve({ ...inForce(moved, stateOf()), last }, NOW)).toMatchObject({
      request: 'collection changed',
      state: { wanted: 2, done: 1 },
    });
  });

  it('a raised version reprocesses tasks by its policy, once', () => {
    const raised = {
      ...published('b', 2),
      plan: planOf({ handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' }),
    };
    const first = evolve(inForce(raised, stateOf()), NOW);
    expect(first).toMatchObject({ reprocess: 'reprocess_all', state: { handlerVersion: 2 } });
    expect(evolve(inForce(raised, first.state), NOW).reprocess).toBeUndefined();
  });

  it('a task that returns after a week with a raised version is reprocessed and reconciled', () => {
    const raised = {
      ...published('b', 2),
      plan: planOf({ handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' }),
    };
    const away = stateOf({ lastSeenAt: new Date(NOW.getTime() - 8 * DAY), leftOutSince: NOW });
    expect(evolve(inForce(raised, away), NOW)).toMatchObject({
      reprocess: 'reprocess_all',
      isNew: true,
      state: { handlerVersion: 2, wanted: 2, done: 1, leftOutSince: null },
    });
    const lower = stateOf({ handlerVersion: 3, lastSeenAt: new Date(0) });
    expect(evolve(inForce(raised, lower), NOW)).toMatchObject({ state: { handlerVersion: 3 } });
  });

  it('a task that was left out and is planned again is recorded', () => {
    const back = evolve(inForce(published('a'), stateOf({ leftOutSince: NOW, leftOutReason: 'x' })), NOW);
    expect(back).toMatchObject({ changed: true, state: { leftOutSince: null, leftOutReason: null } });
  });

  it('the stored version never decreases, whatever the order of deployments', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 5 }), { maxLength: 20 }), (versions) => {
        let state = stateOf({ handlerVersion: 1 });
        const reset: number[] = [];
        for (const version of versions) {
          const plan = planOf({ handlerVersion: version, onHandlerVersionChange: 'reprocess_all' });
          const evolved = evolve(inForce({ ...published('x', version), plan }, state), NOW);
          expect(evolved.state.handlerVersion).toBeGreaterThanOrEqual(state.handlerVersion);
          if (evolved.reprocess !== undefined) reset.push(version);
          state = evolved.state;
        }
        expect(reset).toEqual([...new Set(reset)].sort((a, b) => a - b));
        expect(state.handlerVersion).toBe(Math.max(1, ...versions));
      }),
    );
  });
});
