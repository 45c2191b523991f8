import { describe, expect, it } from 'vitest';
import { Tidemill } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { mergeStates, wantedPartitions } from '../../../src/reactive/planner/partitions/division.js';
import type { PartitionRecords } from '../../../src/store/reactive/partitions.js';
import type { InstanceState } from '../../../src/store/port.js';
import type { TaskState } from '../../../src/store/reactive/reactive.js';

const instance = (plans: number | null, leftMs = 1_000): InstanceState => ({
  instanceId: 'i',
  life: `life ${String(plans)}`,
  names: [],
  tasks: [],
  leftMs,
  dead: false,
  plans,
});

const cluster = (partitions: number, ...instances: InstanceState[]) => ({
  instances,
  leader: { life: 'a', instanceId: 'i', term: 1, partitions },
});

describe('the number of partitions', () => {
  it('is the one that all planning instances are set to', () => {
    expect(wantedPartitions(cluster(1, instance(4), instance(4), instance(0)))).toBe(4);
    expect(wantedPartitions(cluster(4, instance(1)))).toBe(1);
  });

  it('stays as it is while planning instances disagree, or none is alive', () => {
    expect(wantedPartitions(cluster(3, instance(4), instance(2)))).toBe(3);
    expect(wantedPartitions(cluster(3, instance(4), instance(2, 0)))).toBe(4);
    expect(wantedPartitions(cluster(3))).toBe(3);
    expect(wantedPartitions(cluster(3, instance(0)))).toBe(3);
  });

  it.each([0, 65, 1.5, '2'])('cannot be %j', (partitions) => {
    const make = (): Tidemill =>
      new Tidemill({ store: memory(), reactive: { partitions: partitions as number } });
    expect(make).toThrow(/reactive: partitions must be .* got/u);
  });

  it('is one beside an instance of a version without partitions', () => {
    expect(wantedPartitions(cluster(4, instance(4), instance(null)))).toBe(1);
  });
});

const state = (fields: Partial<TaskState> = {}): TaskState => ({
  task: 't',
  definition: 'd',
  trigger: 'r',
  version: 2,
  handlerVersion: 2,
  wanted: 3,
  done: 3,
  lastSeenAt: new Date(0),
  ...fields,
});

const records = (...states: TaskState[]): PartitionRecords => ({ states, blocked: [] });

describe('states of new partitions', () => {
  it('need no reconciliation if every partition was done', () => {
    const [merged] = mergeStates([records(state()), records(state({ wanted: 5, done: 5 }))]);
    expect(merged).toMatchObject({ wanted: 5, done: 5, handlerVersion: 2, cleanedUpTo: null });
  });

  it.each<[string, readonly PartitionRecords[]]>([
    ['has not finished', [records(state()), records(state({ wanted: 4 }))]],
    ['has another definition', [records(state()), records(state({ definition: 'e' }))]],
    ['does not know the task', [records(state()), records()]],
    ['has left the task out', [records(state()), records(state({ leftOutSince: new Date(0) }))]],
    [
      'has blocked documents',
      [records(state()), { ...records(state()), blocked: [{ task: 't', documents: [{ id: 1, key: '1' }] }] }],
    ],
  ])('are reconciled if a partition %s', (_why, all) => {
    const [merged] = mergeStates(all);
    expect(merged?.wanted).toBe((merged?.done ?? 0) + 1);
  });

  it('repeat a reset by version that a partition has not done', () => {
    const [merged] = mergeStates([records(state()), records(state({ handlerVersion: 1 }))]);
    expect(merged?.handlerVersion).toBe(1);
  });
});
