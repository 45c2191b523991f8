/** Marks tasks whose row is gone or no longer matches. */
import type { Partition } from '../../../store/reactive/partitions.js';
import type { Poisoned, TaskPlan } from '../../../store/reactive/reactive.js';
import { aroundLocks } from '../../connection/around-locks.js';
import { run } from '../../connection/errors.js';
import { Arguments, pinned } from '../../tables/arguments.js';
import { isolated } from './isolate.js';
import { found, given, holds, namesOf } from '../place.js';
import { blockedKeys, whereOf } from './plan.js';
import type { Shape } from '../../tables/shape.js';
import type { SqlSources } from '../sources.js';
import { inTurn, turnOf, withShape } from '../statements.js';
import { conditionOf } from '../../tables/translate.js';

/**
 * Two common table expressions: `given`, the batch, and `still`, its keys whose row exists and matches `filter`, if
 * there is one. Without a table `still` is empty.
 */
export function stillThere(
  shape: Shape | undefined,
  plan: TaskPlan,
  keys: readonly string[],
  filter: unknown,
  args: Arguments,
): string {
  const list = args.json(keys);
  if (shape === undefined)
    return `given as materialized (select key from json_array_elements_text(${list}) as e(key)),
      still as materialized (select key from given where false)`;
  const condition = holds(shape, conditionOf(whereOf(plan), shape, filter, args));
  return `${given(shape, list)}, ${found(shape)},
    still as materialized (select f.key from found f where ${condition})`;
}

/** Returns the keys whose task another transaction holds. */
function unmatchStatement(
  sources: SqlSources,
  shape: Shape | undefined,
  plan: TaskPlan,
  keys: readonly string[],
  { skipLocked, odd }: { readonly skipLocked: boolean; readonly odd: boolean },
): { readonly text: string; readonly args: Arguments } {
  const { tasks } = namesOf(sources.sql);
  const args = new Arguments();
  const still = stillThere(shape, plan, keys, plan.filter, args);
  const task = args.add(plan.task, 'text');
  const free = `free as materialized (
      select k.key from ${tasks} k where k.task = ${task} and k.key in (select key from gone) for update skip locked
    ), `;
  // A task that could not be planned stays marked as such until the filter can be evaluated.
  const counted = odd ? 'k.matched' : '(k.matched or k.unplannable)';
  const text = `with ${still}, gone as materialized (
      select k.key from ${tasks} k join given g on g.key = k.key
      where k.task = ${task} and ${counted} and k.key not in (select key from still)
      order by k.key
    ), ${skipLocked ? free : ''}written as (
      update ${tasks} k set matched = false${odd ? '' : ', unplannable = false'}
      where k.task = ${task} and ${counted} and k.key in (select key from ${skipLocked ? 'free' : 'gone'})
    )
    select to_json(key)::text from gone where ${skipLocked ? 'key not in (select key from free)' : 'false'}`;
  return { text, args };
}

export async function unmatch(
  sources: SqlSources,
  of: TaskPlan,
  ids: readonly unknown[],
  limitMs: number,
  partition: Partition,
): Promise<readonly Poisoned[]> {
  const { sql } = sources;
  const once = (shape: Shape | undefined, some: readonly string[], odd = false): Promise<readonly string[]> =>
    aroundLocks<readonly string[]>(
      (skipLocked) => {
        const { text, args } = unmatchStatement(sources, shape, of, some, { skipLocked, odd });
        return inTurn(sql, [turnOf(of.task, partition)], limitMs, (on) =>
          pinned<string>(on, namesOf(sql).pinned, text, args),
        );
      },
      () => some,
    );
  return run('unmatch', () =>
    withShape(sources, of.source, async (shape) => {
      const held: string[] = [];
      const choked = await isolated(sources.suspects, of.task, ids as readonly string[], async (some) => {
        const blocked = await once(shape, some);
        held.push(...blocked);
        return blocked.length < some.length;
      });
      // A row on which the filter fails does not match. Planning it has already reported why.
      const odd = choked.filter(({ blocked }) => !blocked).map(({ item }) => item);
      if (odd.length > 0) held.push(...(await once(undefined, odd, true)));
      return blockedKeys([...held, ...choked.filter(({ blocked }) => blocked).map(({ item }) => item)]);
    }),
  );
}
