/** How watchers of jobs learn of changes, and how writers learn that there are watchers (ADR 27). */
import type { ChangeHandlers, ChangeStore } from '../../store/jobs/changes.js';
import type { Watch } from '../../store/port.js';
import { WATCHING } from '../cluster/cluster.js';
import { message, parsed, type Message } from '../cluster/notifier.js';
import type { Sql } from '../connection/connection.js';
import { classifyError, run } from '../connection/errors.js';

type Wake = Extract<Message, { readonly what: 'jobs' }>;

/** How long writers tell of changes after the last word of a watcher, and how often a watcher gives it. */
const WATCHED_MS = 30_000;
const AGAIN_MS = 10_000;

export const changeStore = (sql: () => Sql): ChangeStore => ({
  hears: 'most',
  watch: (filter, handlers) => watch(sql(), setOf(filter.ids), handlers),
});

const setOf = (ids: readonly string[] | undefined): ReadonlySet<string> | undefined =>
  ids === undefined ? undefined : new Set(ids);

/** A wake-up names the first job only. */
const isOfOne = (wake: Wake): wake is Wake & { readonly key: string } =>
  wake.key !== undefined && wake.due?.length === 1 && wake.due[0]?.[1] === 1;

/** One row for all watchers. It may stay when they leave: it is over soon. */
async function announce({ driver, names, notifier }: Sql): Promise<void> {
  const text = `insert into ${names.pauses} as p (kind, name, until)
    values ('${WATCHING}', 'jobs', statement_timestamp() + $1::double precision * interval '1 millisecond')
    on conflict (kind, name) do update set until = greatest(p.until, excluded.until)`;
  await run('watch jobs', () => driver.query(text, [WATCHED_MS]));
  notifier.watched = true;
  notifier.notify(message('watched'));
}

/**
 * A notification that names no job, such as a wake-up for a new one, rings as well: writers that have not heard of the
 * watcher yet still send those.
 */
async function watch(
  sql: Sql,
  ids: ReadonlySet<string> | undefined,
  handlers: ChangeHandlers,
): Promise<Watch | { readonly unavailable: string }> {
  const { driver, names, clock } = sql;
  const changed = (told?: readonly string[]): void => {
    if (told === undefined || ids === undefined || told.some((id) => ids.has(id))) handlers.changed(told);
  };
  const listening = await run('listen', () =>
    driver.listen(names.channel, {
      message: (text) => {
        const said = parsed(text);
        if (said?.what === 'changed') changed(said.ids);
        else if (said?.what === 'jobs') changed(isOfOne(said) ? [said.key] : undefined);
      },
      broken: (error) => handlers.broken(classifyError('listen', error)),
    }),
  );
  if ('unavailable' in listening) return listening;
  let isOpen = true;
  let timer = { cancel: (): void => undefined };
  const again = (): void => {
    if (!isOpen) return;
    timer = clock.timer(AGAIN_MS, () => void announce(sql).then(again, again));
  };
  try {
    await announce(sql);
  } catch (error) {
    await listening.close();
    throw error;
  }
  again();
  return {
    close: async () => {
      isOpen = false;
      timer.cancel();
      await listening.close();
    },
  };
}
