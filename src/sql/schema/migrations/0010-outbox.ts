import type { Names } from '../names.js';
import { literal, reactiveNames, type ReactiveNames } from '../../reactive/names.js';
import type { Migration } from './migration.js';

/**
 * Decides whether the triggers record a change. `src/sql/reactive/feed/outbox.ts` explains the protocol. The usual case
 * reads two sequences. The size of the outbox is checked once for every tenth of the limit, by looking for changes that
 * are older than the limit; a few of them may have been committed late. In a transaction with an old snapshot, deleted
 * rows are still visible, but have an `xmax`.
 */
const mayCaptureFunction = (names: ReactiveNames): string => {
  const { changes, changeNumbers, outbox, captureCheck, captureGeneration, captureMissed } = names;
  const body = `
  declare
    head bigint; due bigint; generation bigint; missed bigint; most bigint;
  begin
    select n.last_value, c.last_value into head, due from ${changeNumbers} n, ${captureCheck} c;
    if head < due then return true; end if;
    select g.last_value, m.last_value into generation, missed from ${captureGeneration} g, ${captureMissed} m;
    if missed <> generation then
      select o.most into most from ${outbox} o;
      if not exists (
        select from ${changes} c where c.seq <= head - most and c.xmax = 0
        order by c.seq limit 1 offset least(most / 10, 1000)
      ) then
        perform setval(${literal(captureCheck)}, head + greatest(most / 10, 1));
        return true;
      end if;
    end if;
    if not pg_try_advisory_xact_lock_shared(${names.captureLock}) then return true; end if;
    if (select last_value from ${captureGeneration}) <> generation then return true; end if;
    if (select last_value from ${captureMissed}) <> generation then
      perform setval(${literal(captureMissed)}, generation);
    end if;
    return false;
  end`;
  // Triggers call it even after a step back, which leaves a function that always allows.
  return `create or replace function ${names.mayCapture}() returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp as ${literal(body)}`;
};

export const outbox: Migration = {
  version: 10,
  name: 'outbox',
  compatibleSince: 5,
  up: (names: Names) => {
    const own = reactiveNames(names);
    return [
      // `most`: how many changes the table of changes holds before the triggers stop recording them. `settled`: the last
      // generation whose missed changes a reconciliation was requested for.
      `create table ${own.outbox} (
        one boolean primary key default true check (one),
        most bigint not null default 10000000,
        settled bigint not null default 0
      )`,
      `insert into ${own.outbox} default values`,
      // Sequences, as the flag of the planner: reads and writes take effect at once, whatever the snapshot.
      `create sequence ${own.captureCheck} minvalue 0 start 0`,
      `create sequence ${own.captureGeneration} minvalue 0 start 1`,
      `create sequence ${own.captureMissed} minvalue 0 start 0`,
      mayCaptureFunction(own),
    ];
  },
};
