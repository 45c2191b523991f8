import { randomBytes } from 'node:crypto';
import { pause } from '../../core/clock.js';
import type { TidemillError } from '../../core/errors.js';
import type { Watch, WatchHandlers } from '../../store/port.js';
import { hear, parsed, type Message } from './notifier.js';
import type { Sql } from '../connection/connection.js';
import { run, classifyError } from '../connection/errors.js';

/**
 * How long to wait for the notification. Behind a transaction pooler, which gives every statement another connection,
 * it never arrives.
 */
const HEARD_WITHIN_MS = 2_000;

const DEAF =
  'this process did not receive a notification that it sent to itself; a transaction pooler may be in between. ' +
  'Set `listenUrl` to a URL that bypasses it';

/** Listens on the channel of the schema. Sends itself a notification first, to make sure that it receives any. */
export async function watch(
  sql: Sql,
  handlers: WatchHandlers,
): Promise<Watch | { readonly unavailable: string }> {
  const { driver, names, clock } = sql;
  const nonce = randomBytes(8).toString('hex');
  const heard = new AbortController();
  let broken: TidemillError | undefined;
  const listening = await run('listen', () =>
    driver.listen(names.channel, {
      message: (text) => {
        const said = parsed(text);
        if (said?.what === 'nonce' && said.nonce === nonce) heard.abort();
        else if (said?.what === 'watched') sql.notifier.watched = true;
        else hear(text, handlers);
      },
      broken: (error) => {
        broken = classifyError('listen', error);
        heard.abort();
        handlers.broken(broken);
      },
      idle: (error) => handlers.fault?.(classifyError('idle connection', error)),
    }),
  );
  if ('unavailable' in listening) return listening;
  const text = JSON.stringify({ what: 'nonce', nonce } satisfies Message);
  await run('listen', () =>
    driver.query('select pg_notify($1::text, $2::text)::text as json', [names.channel, text]),
  ).catch(async (error: unknown) => {
    await listening.close();
    throw error;
  });
  const unheard = await pause(clock, HEARD_WITHIN_MS, heard.signal);
  // If the connection was lost meanwhile, the silence says nothing about a pooler.
  if (broken !== undefined) throw broken;
  if (unheard) {
    await listening.close();
    return { unavailable: DEAF };
  }
  return listening;
}
