import { recorded } from '../audit.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { CliError, Exit } from '../exit.js';
import type { CommandBuilder } from '../command-builder.js';

/** Only tables have triggers, so only the SQL stores have this method. */
interface WithTriggers {
  dropTriggers(table: string): Promise<boolean>;
}

export function addDropTriggers(builder: CommandBuilder): void {
  const command = builder.command('drop-triggers <table>', {
    summary: 'PostgreSQL: drops the triggers of a table that no reactive task watches any more',
    about: 'Refused while a live instance runs a task on the table. Records of earlier runs stay.',
    examples: [['tidemill drop-triggers public.orders', 'the fix that doctor names for leftover triggers']],
  });
  withStore(command).action(
    builder.action((table: string, flags: StoreFlags) =>
      onStore(flags, builder.terminal, 'work', (session) => dropTriggers(session, table)),
    ),
  );
}

async function dropTriggers(session: Session, table: string): Promise<Exit> {
  const { mill, store, out } = session;
  // The first call opens the store.
  await mill.jobs.stats();
  if (!('dropTriggers' in store)) throw new CliError(Exit.USAGE, `A ${store.kind} store has no triggers.`);
  const outcome = await recorded(session, { action: 'tables.dropTriggers', target: table }, async () =>
    (await (store as unknown as WithTriggers).dropTriggers(table)) ? 'dropped' : 'missing',
  );
  const dropped = outcome === 'dropped';
  out.print(dropped ? `Dropped the triggers of ${table}.` : `${table} has no Tidemill triggers.`);
  out.document({ table, dropped });
  return dropped ? Exit.OK : Exit.NOTHING_FOUND;
}
