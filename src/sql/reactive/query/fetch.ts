/** The row of a task, if it is still as it was when the task was planned. */
import { LeaseLostError, OptionError, StoreError } from '../../../core/errors.js';
import { Batcher } from '../../../core/batches/batcher.js';
import { checkKeys } from '../../../core/options.js';
import {
  ONLY_MONGODB_FETCHES_BY,
  type Fetched,
  type FetchRequest,
  type TaskPlan,
} from '../../../store/reactive.js';
import type { Queryable } from '../../connection/driver.js';
import { isAnswered, run } from '../../connection/errors.js';
import { Arguments, pinnedTexts } from '../../tables/arguments.js';
import { parseExact } from '../../tables/exact.js';
import { found, given, holds, namesOf, RUNNING } from '../place.js';
import { whereOf } from '../plan/plan.js';
import { leaseKey, revived } from '../record.js';
import type { Shape } from '../../tables/shape.js';
import { checkProjection, isAsPlanned, projected } from '../plan/snapshot.js';
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
  { plan, lease, options }: Request,
  keys: readonly string[],
): { readonly text: string; readonly args: Arguments } {
  const { tasks, picked } = namesOf(sources.sql);
  const args = new Arguments();
  const where = whereOf(plan);
  const list = args.json(keys);
  const held = `held as materialized (
      select k.key, k.overtaken, k.last_observed_values as snapshot, k.source from ${tasks} k
      where k.task = ${args.add(plan.task, 'text')} and k.key in (select json_array_elements_text(${list}))
        and k.status in ${RUNNING} and k.lease_token = ${args.add(lease.token, 'text')}
    )`;
  if (shape === undefined)
    return { args, text: `with ${held} select json_build_object('key', key)::text from held` };
  const wanted = options['projection'] as object | undefined;
  const isWhole = wanted === undefined || Object.keys(wanted).length === 0;
  const document = isWhole ? 'row_to_json(f.doc)' : projected(where, shape, wanted, 'f.doc', args, picked);
  const condition = holds(shape, conditionOf(where, shape, plan.filter, args));
  const asPlanned = isAsPlanned(where, shape, plan.watchProjection, 'f.doc', args, picked);
  const text = `with ${given(shape, list)}, ${found(shape)}, ${held}
    select json_build_object('key', h.key, 'document', (
      select ${document} from found f where f.key = h.key and not h.overtaken and ${condition} and ${asPlanned}
    ))::text from held h`;
  return { text, args };
}

/** Fetches of one task, claim and projection share a query. */
export class SqlFetcher {
  readonly #sources: SqlSources;
  readonly #gathering = new Batcher<Request, Fetched | undefined>({
    ask: (requests) => run('fetch a row', () => this.#read(requests, this.#sources.sql.driver)),
    // If the filter fails on one row, the others are not affected.
    isOwn: (error) => !(error instanceof StoreError && error.transient) || isAnswered(error.cause),
  });

  constructor(sources: SqlSources) {
    this.#sources = sources;
  }

  async fetch(request: Request): Promise<Fetched> {
    const { plan, lease, options, transaction } = request;
    check(plan, options);
    // Checked for each caller: one inside a transaction may share the query of one outside.
    if (transaction === undefined) this.#sources.sql.driver.checkOutside?.();
    const kind = JSON.stringify([plan.task, lease.token, options]);
    const fetched =
      transaction === undefined
        ? await this.#gathering.ask(kind, request)
        : (await this.#read([request], transaction))[0];
    if (fetched !== undefined) return fetched;
    throw new LeaseLostError(`This attempt no longer holds the task "${plan.task}".`);
  }

  async #read(requests: readonly Request[], on: Queryable): Promise<readonly (Fetched | undefined)[]> {
    const [first] = requests as readonly [Request];
    const keys = requests.map(({ lease }) => leaseKey(lease).key);
    const read = async (shape: Shape | undefined): Promise<readonly (Fetched | undefined)[]> => {
      const { text, args } = fetchStatement(this.#sources, shape, first, keys);
      const texts = await pinnedTexts(on, namesOf(this.#sources.sql).pinned, text, args);
      const byKey = new Map(
        texts.map((json) => {
          const { key, document } = parseExact(json) as { key: string; document: unknown };
          return [key, document ?? undefined];
        }),
      );
      return keys.map((key) => {
        if (!byKey.has(key)) return undefined;
        const document = byKey.get(key);
        return document === undefined ? { missing: true } : { document: revived(document, shape) };
      });
    };
    // A failed statement ends the caller's transaction, so there is no second try inside one.
    if (on !== this.#sources.sql.driver) return read(await this.#sources.open(first.plan.source));
    return withShape(this.#sources, first.plan.source, read);
  }
}
