import { randomBytes } from 'node:crypto';
import { Tidemill, type Store } from '../../index.js';
import { openStore } from '../../mill/opening/open-store.js';
import { CliError, Exit } from '../exit.js';
import type { Shop } from './shop/shop.js';
import { shopOf } from './shop/shops.js';

/** Where the demo runs: a store, and the application's own data beside it. */
export interface Place {
  readonly url: string;
  /** A database or schema of the demo's own, so that it does not touch your data. */
  readonly space: string;
  /** What the screen calls the database. */
  readonly title: string;
  /** Whether the database lives inside the process that opens it, so that no other can reach it. */
  readonly inProcess: boolean;
}

/** The values of `--store`. */
export const CHOICES = 'embedded (the default), postgres://…, mongodb://… or file:./folder';

const EMBEDDED = 'embedded PostgreSQL';
const TITLES: readonly (readonly [RegExp, string])[] = [
  [/^mongodb(?:\+srv)?:\/\/./u, 'MongoDB'],
  [/^postgres(?:ql)?:\/\/./u, 'PostgreSQL'],
  [/^(?:file:.|embedded:$)/u, EMBEDDED],
];

export function placeFor(choice: string): Place {
  const url = choice === 'embedded' ? 'embedded:' : choice;
  const [, title] = TITLES.find(([pattern]) => pattern.test(url)) ?? [];
  if (title === undefined)
    throw new CliError(
      Exit.USAGE,
      `--store must be ${CHOICES}.${choice.startsWith('memory') ? ' The memory store cannot watch data for changes.' : ''}`,
    );
  return {
    url,
    space: `tidemill_demo_${randomBytes(4).toString('hex')}`,
    title,
    inProcess: title === EMBEDDED,
  };
}

/** Few connections each, because the demo has many processes. */
export const openPlace = ({ url, space }: Pick<Place, 'url' | 'space'>): Promise<Store> =>
  openStore(url, { schema: space, database: space, connections: 4 });

/** Opens the place while `work` runs, then removes what the demo created there. */
export async function inPlace(
  place: Place,
  work: (store: Store, shop: Shop) => Promise<void>,
): Promise<void> {
  const store = await openPlace(place);
  await using keeper = new Tidemill({ store, logger: false });
  await keeper.jobs.stats().catch((error: unknown) => {
    const why = error instanceof Error ? error.message : String(error);
    throw new CliError(
      Exit.FAILED,
      `The demo cannot use its database: ${place.title} does not respond.\n${why}\n` +
        'Start the server that the URL names, or pass another store with --store.',
    );
  });
  const shop = shopOf(keeper, store, place.space);
  try {
    await shop.prepare();
    await work(store, shop);
  } finally {
    await shop.drop();
    await store.erase?.();
  }
}
