import type { ChildProcess } from 'node:child_process';
import { expect, it, onTestFinished } from 'vitest';
import { until } from '../../support/mills.js';
import { forkScript } from '../../support/scripts.js';
import { Tables } from './tables.js';

interface Said {
  readonly event: string;
  readonly id?: number;
  readonly version?: number;
}

class Instance {
  readonly said: Said[] = [];
  readonly child: ChildProcess;

  constructor(tables: Tables, instanceId: string) {
    const script = new URL('instance.ts', import.meta.url);
    this.child = forkScript(script, [tables.url, tables.schema, instanceId]);
    this.child.on('message', (said: Said) => this.said.push(said));
    onTestFinished(() => void this.child.kill('SIGKILL'));
  }

  heard(event: string): Promise<Said> {
    return until(`${event} was heard`, () => this.said.find((one) => one.event === event));
  }
}

it('a leader that is killed with changes in hand loses none of them', async () => {
  const tables = await Tables.make('create table docs (id integer primary key, version integer)');
  const first = new Instance(tables, 'first');
  await first.heard('leads');
  const second = new Instance(tables, 'second');
  await second.heard('started');
  const versions = new Map<number, number>();
  for (let version = 1; version <= 40; version += 1) {
    const id = (version % 10) + 1;
    versions.set(id, version);
    await tables.ask(
      `insert into docs values ($1, $2) on conflict (id) do update set version = excluded.version`,
      [id, version],
    );
    if (version === 20) first.child.kill('SIGKILL');
  }
  await second.heard('leads');
  await until('the last state of each was handled', () => {
    const last = new Map(
      [...first.said, ...second.said].flatMap(({ event, id, version }) =>
        event === 'handled' && id !== undefined && version !== undefined ? [[id, version] as const] : [],
      ),
    );
    return [...versions].every(([id, version]) => last.get(id) === version);
  });
  await until('nothing is left', async () => {
    const [row] = await tables.ask(`select count(*)::int as n from ${tables.schema}.changes`);
    return row?.['n'] === 0;
  });
  expect(versions.size).toBe(10);
});
