/** What `mill.doctor()` checks on PostgreSQL. */
import { shellArgument } from '../../core/text/shell.js';
import {
  check,
  destroying,
  failure,
  fine,
  judgeVersion,
  skipped,
  warning,
  type Finding,
  type Verdict,
} from '../../store/inspect.js';
import type { Outbox } from '../../store/reactive/reactive.js';
import type { Sql } from '../connection/connection.js';
import { outboxOf } from '../reactive/feed/outbox.js';
import { driftText, mending, mendsByDropping, schemaDrift } from './drift.js';
import { compatibleSince, NEWEST, versionOf } from './migrate.js';
import { quoted } from './names.js';
import { rows } from '../connection/rows.js';

const OLDEST_VERSION = [14, 0] as const;
/** A transaction that stays open for longer keeps dead rows from being vacuumed, and a queue makes many of them. */
const LONG_MS = 60_000;
const CROWDED_SHARE = 0.8;

export interface Inspected {
  readonly sql: Sql;
  /** True for a server that others may use as well, false for one inside this process. */
  readonly shared: boolean;
  readonly leftovers: () => Promise<readonly string[]>;
  readonly longMs?: number;
}

export async function inspect(what: Inspected): Promise<readonly Finding[]> {
  const { sql, shared, leftovers, longMs = LONG_MS } = what;
  const schema = await check('schema', () => judgeSchema(sql));
  // If the version cannot be read, the check above says why.
  const usable = (await versionOf(sql.driver, sql.names).catch(() => 0)) === NEWEST;
  return [
    ...(await check('version', async () => {
      const [version = ''] = await rows<string>(sql.driver, VERSION);
      return judgeVersion('PostgreSQL', version, OLDEST_VERSION);
    })),
    ...schema,
    ...(usable ? await check('leftover triggers', async () => judgeLeftovers(await leftovers())) : []),
    ...(usable ? await check('outbox', async () => judgeOutbox(await outboxOf(sql))) : []),
    ...(shared ? await ofServer(sql, longMs) : []),
  ];
}

const ofServer = async ({ driver }: Sql, longMs: number): Promise<readonly Finding[]> => [
  ...(await check('open transactions', async () =>
    judgeTransactions(await rows<OpenTransaction>(driver, LONG_TRANSACTIONS, [longMs])),
  )),
  ...(await check('autovacuum', async () => judgeVacuum((await rows<string>(driver, AUTOVACUUM))[0]))),
  ...(await check('connections', async () => {
    const [crowd] = await rows<Crowd>(driver, CROWD);
    return crowd === undefined ? skipped('the server does not tell') : judgeCrowd(crowd);
  })),
];

const VERSION = `select to_json(current_setting('server_version'))::text as json`;
const AUTOVACUUM = `select to_json(current_setting('autovacuum'))::text as json`;

async function judgeSchema(sql: Sql): Promise<Verdict | readonly Verdict[]> {
  const { driver, names } = sql;
  const version = await versionOf(driver, names);
  const schema = quoted(names.schema);
  if (version === 0)
    return warning(
      `nothing of Tidemill is in the schema ${schema} yet`,
      'start your application once, which creates the tables; or correct the database in the URL, or --schema',
    );
  if (version > NEWEST && (await compatibleSince(driver, names)) <= NEWEST)
    return fine(
      `${schema} is at version ${String(version)}, which a newer Tidemill created; this one knows ${String(NEWEST)} and works with it`,
    );
  if (version > NEWEST)
    return failure(
      `the schema ${schema} is at version ${String(version)}, which a newer Tidemill created; this one knows ${String(NEWEST)}`,
      'npm install tidemill@latest',
    );
  if (version < NEWEST)
    return failure(
      `the schema ${schema} is at version ${String(version)}, and this Tidemill needs ${String(NEWEST)}`,
      `start an instance of this version, which migrates it; or run the SQL of store.migrationScript(${String(version)})`,
    );
  const drift = await schemaDrift(sql);
  if (drift.length === 0)
    return fine(`${schema} is at version ${String(version)}, as the migrations create it`);
  return drift.map((one) => {
    const verdict = failure(driftText(one), mending(one, names.schema));
    return mendsByDropping(one) ? destroying(verdict) : verdict;
  });
}

function judgeLeftovers(tables: readonly string[]): Verdict | readonly Verdict[] {
  if (tables.length === 0) return fine('none');
  return tables.map((table) =>
    destroying(
      warning(
        `changes of ${table} are captured, although no live instance runs a task on it`,
        `tidemill drop-triggers ${shellArgument(table)}`,
      ),
    ),
  );
}

/** From this share of its limit on, the outbox is worth a warning. */
const FULL_SHARE = 0.5;

const PLANS_AGAIN =
  "start an instance with the role 'plan', which every instance has by default; it records changes again and reconciles every task";

export function judgeOutbox({ changes, ageMs, limit, stopped, missed }: Outbox): Verdict {
  const size = `about ${String(changes)} changes wait to be planned; the limit is ${String(limit)}`;
  if (stopped)
    return failure(
      `the outbox is full, and changes of watched tables are not recorded: ${size}`,
      PLANS_AGAIN,
    );
  if (missed)
    return warning(
      'changes were not recorded while the outbox was full, and are not reconciled yet: the leader waits for transactions that wrote meanwhile',
      "select pid, xact_start, state from pg_stat_activity where xact_start is not null order by 2;   -- end the oldest; or start an instance with the role 'plan'",
    );
  if (changes < limit * FULL_SHARE) return fine(size);
  return warning(
    `${size}; the oldest has waited for ${String(Math.round(ageMs / 1_000))} s`,
    "start an instance with the role 'plan', or run `tidemill forget` for tasks that you no longer need",
  );
}

interface OpenTransaction {
  readonly pid: number;
  readonly who: string;
  readonly state: string;
  readonly seconds: number;
}

/** $1 milliseconds. The server shows the times of other roles' sessions only to privileged roles. */
const LONG_TRANSACTIONS = `
  select json_build_object('pid', pid, 'who', coalesce(nullif(application_name, ''), 'a session without a name'),
    'state', state, 'seconds', round(extract(epoch from clock_timestamp() - xact_start)))::text as json
  from pg_catalog.pg_stat_activity
  where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
    and xact_start < clock_timestamp() - $1::double precision * interval '1 millisecond'
  order by xact_start limit 10`;

function judgeTransactions(open: readonly OpenTransaction[]): Verdict | readonly Verdict[] {
  if (open.length === 0) return fine('none has been open for more than a minute');
  return open.map(({ pid, who, state, seconds }) =>
    destroying(
      warning(
        `${who} (pid ${String(pid)}) has had a transaction open for ${String(seconds)} s, ${state}: dead rows of jobs stay until it ends`,
        `select pg_terminate_backend(${String(pid)});   -- and: alter system set idle_in_transaction_session_timeout = '1min'; select pg_reload_conf();`,
      ),
    ),
  );
}

export const judgeVacuum = (setting: string | undefined): Verdict =>
  setting === 'off'
    ? failure(
        'autovacuum is off: dead rows of jobs are never cleaned up, and every claim gets slower',
        'alter system set autovacuum = on; select pg_reload_conf();',
      )
    : fine('on');

interface Crowd {
  readonly used: number;
  readonly most: number;
}

const CROWD = `
  select json_build_object(
    'used', (select count(*) from pg_catalog.pg_stat_activity where backend_type = 'client backend'),
    'most', current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
  )::text as json`;

export function judgeCrowd({ used, most }: Crowd): Verdict {
  const found = `${String(used)} of ${String(most)} connections are in use`;
  if (used < most * CROWDED_SHARE) return fine(found);
  return warning(
    `${found}; an instance opens up to \`connections\` (10), and up to three more`,
    `alter system set max_connections = ${String(most * 2)};   -- and restart; or lower \`connections\`, or put a pooler in between`,
  );
}
