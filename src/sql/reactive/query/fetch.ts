/** The row of a task, if it is still as it was when the task was planned. */
import { OptionError, StoreError } from '../../../core/errors.js';
import { checkKeys } from '../../../core/options.js';
import { Fetcher, type Read } from '../../../store/helpers/fetcher.js';
import {
  ONLY_MONGODB_FETCHES_BY,
  type FetchRequest,
  type TaskPlan,
} from '../../../store/reactive/reactive.js';
import type { Queryable } from '../../connection/driver.js';
import { isAnswered, run } from '../../connection/errors.js';
import { Arguments, pinnedTexts } from '../../tables/arguments.js';
import { parseExact } from '../../tables/exact.js';
import { found, given, holds, namesOf, RUNNING } from '../place.js';
import { whereOf } from '../plan/plan.js';
import { leaseKey, revived } from '../record.js';
import type { Shape } from '../../tables/shape.js';
import { checkProjection } from '../plan/filter.js';
import { isAsPlanned, projected } from '../plan/snapshot.js';
import type { SqlSources } from '../sources.js';
import { withShape } from '../statements.js';
import { conditionOf } from '../../tables/translate.js';

type Request = FetchRequest<Queryable>;

function check({ task }: TaskPlan, options: Request['options']): void {
  const where = `getDocument of ${task}`;
  const foreign = ONLY_MONGODB_FETCHES_BY.find((option) => options[option] !== undefined);
  if (foreign !== undefined)
    throw new OptionError(`${where}: ${foreign} is an option of the MongoDB store; leave it out.`);
  checkKeys(where, options, ['projection', 'transaction']);
  const { projection } = options;
  if (projection !== undefined && Object.keys(projection as object).length > 0)
    checkProjection(where, 'projection', projection);
}

/** The snapshot never leaves the server: numbers sent to a client and back may differ in their digits. */
function fetchStatement(
  sources: SqlSources,
  shape: Shape | undefined,
  { plan, options }: Request,
  keys: readonly string[],
  tokens: readonly (string | null)[],
): { readonly text: string; readonly args: Arguments } {
  const { tasks, picked } = namesOf(sources.sql);
  const args = new Arguments();
  const where = whereOf(plan);
  const list = args.json(keys);
  const held = `held as materialized (
      select k.key, k.lease_token as token, k.overtaken, k.last_observed_values as snapshot, k.source from ${tasks} k
      where k.task = ${args.add(plan.task, 'text')} and k.key in (select json_array_elements_text(${list}))
        and k.status in ${RUNNING}
        and k.lease_token in (select json_array_elements_text(${args.json([...new Set(tokens)])}))
    )`;
  if (shape === undefined)
    return {
      args,
      text: `with ${held} select json_build_object('key', key, 'token', token)::text from held`,
    };
  const wanted = options['projection'] as object | undefined;
  const isWhole = wanted === undefined || Object.keys(wanted).length === 0;
  const document = isWhole ? 'row_to_json(f.doc)' : projected(where, shape, wanted, 'f.doc', args, picked);
  const condition = holds(shape, conditionOf(where, shape, plan.filter, args));
  const asPlanned = isAsPlanned(where, shape, plan.watchProjection, 'f.doc', args, picked);
  const text = `with ${given(shape, list)}, ${found(shape)}, ${held}
    select json_build_object('key', h.key, 'token', h.token, 'document', (
      select ${document} from found f where f.key = h.key and not h.overtaken and ${condition} and ${asPlanned}
    ))::text from held h`;
  return { text, args };
}

/** Fetches rows for handlers. */
export const sqlFetcher = (sources: SqlSources): Fetcher<Queryable> =>
  new Fetcher({
    check: ({ plan, options, transaction }) => {
      check(plan, options);
      // Checked for each caller: one inside a transaction may share the query of one outside.
      if (transaction === undefined) sources.sql.driver.checkOutside?.();
    },
    textOf: (values) => JSON.stringify(values),
    read: (requests, transaction) =>
      transaction === undefined
        ? run('fetch a row', () => read(sources, requests, sources.sql.driver))
        : read(sources, requests, transaction),
    // If the filter fails on one row, the others are not affected.
    isOwn: (error) => !(error instanceof StoreError && error.transient) || isAnswered(error.cause),
  });

async function read(
  sources: SqlSources,
  requests: readonly Request[],
  on: Queryable,
): Promise<readonly Read[]> {
  const [first] = requests as readonly [Request];
  const keys = requests.map(({ lease }) => leaseKey(lease).key);
  const tokens = requests.map(({ lease }) => lease.token);
  const readAs = async (shape: Shape | undefined): Promise<readonly Read[]> => {
    const { text, args } = fetchStatement(sources, shape, first, keys, tokens);
    const texts = await pinnedTexts(on, namesOf(sources.sql).pinned, text, args);
    const byKey = new Map(
      texts.map((json) => {
        const row = parseExact(json) as { key: string; token: string; document: unknown };
        return [row.key, row] as const;
      }),
    );
    return keys.map((key, index) => {
      const row = byKey.get(key);
      if (row === undefined || row.token !== tokens[index]) return undefined;
      const document = row.document ?? undefined;
      return document === undefined ? { missing: true } : { document: revived(document, shape) };
    });
  };
  // A failed statement ends the caller's transaction, so there is no second try inside one.
  if (on !== sources.sql.driver) return readAs(await sources.open(first.plan.source));
  return withShape(sources, first.plan.source, readAs);
}
