import type {
  DocumentsFilter,
  DocumentState,
  ErrorGroups,
  FoundDocument,
  NamedSchedule,
} from '../../index.js';
import { groupFailures, idText } from '../../mill/tools.js';
import { iso, may, offered, present, type RequestContext } from '../request-context.js';
import type { WorkDetail, WorkItem, WorkPage } from '../contract.js';
import { countShown, searched, type Search } from '../pages/error-search.js';
import { badRequest, notFound } from '../http/errors.js';
import { factsOf } from '../pages/facts.js';
import type { Kind } from './kind.js';
import type { Mill } from '../options.js';
import type { WorkFilter, WorkQuery } from '../http/parameters.js';
import { partsOf, placesOf, refOfParts, shownKey } from '../redaction/reference.js';

const STATES: readonly DocumentState[] = ['due', 'waiting', 'failed', 'parked'];
/** Counts above this are reported as "at least". */
const COUNTED = 1_000;
const FAILURES = 1_000;
const SAMPLE = 10;
const KEYS_MS = 60_000;

function toFilter({ status, error, fields, time, from, to }: WorkFilter): DocumentsFilter {
  if ((from !== undefined || to !== undefined) && time !== 'dueAt')
    throw badRequest('"time" must be dueAt for documents.');
  return {
    ...(status.length === 0 ? {} : { state: status as readonly DocumentState[] }),
    ...(error === undefined ? {} : { error }),
    ...(Object.keys(fields).length === 0 ? {} : { data: fields }),
    ...(from === undefined && to === undefined ? {} : { sleepUntil: present({ from, to }) }),
  };
}

/** Whether the id equals, or contains, the value of a hidden field. */
function isNameHidden({ redactor }: RequestContext, { document, title, id }: FoundDocument): boolean {
  const fields = Object.entries(document ?? {});
  return fields.some(([key, value]) => {
    if (value === null || value === undefined || !redactor.hides([key])) return false;
    const text = idText(value);
    return text !== '' && (title === text || title.includes(JSON.stringify(value)) || id.includes(text));
  });
}

function toItem(context: RequestContext, name: string, document: FoundDocument): WorkItem {
  const { redactor } = context;
  const { failure, title } = document;
  const ref = refOfParts([name, document.id]);
  return {
    kind: 'documents',
    ...shownKey(context, { ref, title, isNameHidden: isNameHidden(context, document) }),
    name,
    status: document.state,
    dueAt: document.sleepUntil instanceof Date ? iso(document.sleepUntil) : null,
    createdAt: null,
    updatedAt: iso(failure?.at),
    attempts: failure?.count ?? 0,
    ...present({
      error: failure ? redactor.text(failure.reason) : undefined,
      recurring: typeof document.interval === 'string' && document.interval !== '' ? true : undefined,
    }),
  };
}

const scheduleOf = (mill: Mill, name: string): NamedSchedule => {
  const found = mill.documentSchedules().find((one) => one.name === name);
  if (found === undefined) throw notFound('This process has no such document schedule.');
  return found;
};

const searchOf = (
  mill: Mill,
  name: string,
  filter: DocumentsFilter,
  order: 1 | -1,
): Search<FoundDocument> => ({
  error: filter.error,
  textOf: ({ failure }) => failure?.reason,
  find: (page) => scheduleOf(mill, name).schedule.find(filter, { ...page, order }),
});

/** Lists one schedule at a time: documents of two collections have no common order. */
async function find(context: RequestContext, query: WorkQuery): Promise<WorkPage> {
  const { mill } = context;
  const schedules = mill.documentSchedules();
  const [name = schedules[0]?.name, ...others] = query.name;
  if (others.length > 0) throw badRequest('"name" may be given once for documents.');
  if (query.sort !== undefined && query.sort !== 'dueAt')
    throw badRequest('"sort" must be dueAt for documents.');
  if (name === undefined) return { items: [], next: null, previous: null, partial: false };
  const search = searchOf(mill, name, toFilter(query), query.sort === undefined ? 1 : query.order);
  const page = await searched(context, search, query);
  return {
    items: page.items.map((document) => toItem(context, name, document)),
    ...placesOf(context, query, page),
    partial: page.partial === true,
  };
}

async function detail(context: RequestContext, ref: string): Promise<WorkDetail> {
  const { mill, redactor } = context;
  const [name = '', id = ''] = partsOf(ref, 2);
  const { schedule } = scheduleOf(mill, name);
  const [document] = (await schedule.find({ id }, { limit: 1 })).items;
  if (document === undefined) throw notFound('The document does not exist, or was deleted.');
  const data = may(context, 'payload');
  return {
    ...toItem(context, name, document),
    why: whyOf(document, schedule.isRunning()),
    actions: offered(context, ['run-now']),
    timeline: [],
    facts: factsOf({
      interval: document.interval,
      zone: document.timezone,
      'repeat until': document.repeatUntil instanceof Date ? document.repeatUntil : undefined,
      'removed when it ends': document.autoRemove,
      'first failure': document.failure?.firstAt,
      'last failure': document.failure?.at,
    }),
    hidden: !data,
    ...(data ? { payload: redactor.value(document.document) } : {}),
  };
}

/** Reports only what this process knows: document schedulers do not register in the store. */
function whyOf({ state, sleepUntil }: FoundDocument, isRunning: boolean): WorkDetail['why'] {
  const idle = {
    code: 'no-instance',
    text: 'The scheduler of this collection is not running in this process; another process may run it.',
  } as const;
  if (state === 'waiting')
    return [
      {
        code: 'not-due',
        text: `Not due until ${String(iso(sleepUntil))}. If the document is running, this is the end of its lock.`,
      },
      ...(isRunning ? [] : [idle]),
    ];
  if (state !== 'due') return [];
  return isRunning ? [{ code: 'waiting', text: 'The document is due and waits for its turn.' }] : [idle];
}

/** Counts the documents of each state, up to a thousand. */
export async function documentCounts(mill: Mill): Promise<
  readonly {
    readonly kind: 'documents';
    readonly name: string;
    readonly counts: Readonly<Record<string, number>>;
    readonly capped: readonly string[];
  }[]
> {
  return Promise.all(
    mill.documentSchedules().map(async ({ name, schedule }) => {
      // A missing table, or a store that cannot count, must not fail the whole page.
      const counts = await Promise.all(
        STATES.map(
          async (state) => [state, await schedule.count({ state }, { limit: COUNTED + 1 })] as const,
        ),
      ).catch(() => []);
      return {
        kind: 'documents' as const,
        name,
        counts: Object.fromEntries(counts.map(([state, count]) => [state, Math.min(count, COUNTED)])),
        capped: counts.filter(([, count]) => count > COUNTED).map(([state]) => state),
      };
    }),
  );
}

export async function documentErrors(mill: Mill): Promise<ErrorGroups> {
  const pages = await Promise.all(
    mill.documentSchedules().map(async ({ name, schedule }) => {
      const { items, next } = await schedule
        .find({ state: 'failed' }, { limit: FAILURES })
        .catch(() => ({ items: [], next: null }));
      const lines = items.flatMap(({ failure }) =>
        failure ? [{ name, message: failure.reason, at: failure.at }] : [],
      );
      return { lines, more: next !== null };
    }),
  );
  return {
    groups: groupFailures(pages.flatMap(({ lines }) => lines)),
    partial: pages.some(({ more }) => more),
  };
}

/** Reads some documents of each state, since a single one may lack the hidden field. */
async function sampleOf({ schedule }: NamedSchedule): Promise<readonly FoundDocument[]> {
  const pages = await Promise.all(STATES.map((state) => schedule.find({ state }, { limit: SAMPLE })));
  return pages.flatMap(({ items }) => items);
}

const SAID = {
  due: 'The document is due now.',
  running: 'The document is already running; no other run was started.',
  changed: 'The document changed meanwhile, so it was left alone.',
  missing: 'The document no longer exists.',
} as const;

export const documents: Kind = {
  bulk: [],
  nameActions: [],
  find,
  detail,
  title: (ref) => {
    const [name = '', id = ''] = partsOf(ref, 2);
    return `document ${id} of ${name}`;
  },
  hidesKeys: async (context, { name }) => {
    const { mill, cache } = context;
    const named = mill.documentSchedules().filter((one) => name.length === 0 || name.includes(one.name));
    const samples = named.map((one) =>
      cache.get(`key of documents ${one.name}`, () => sampleOf(one), KEYS_MS),
    );
    return (await Promise.all(samples)).flat().some((document) => isNameHidden(context, document));
  },
  act: async ({ mill }, action, ref) => {
    if (action !== 'run-now') throw badRequest(`Documents have no action "${action}".`);
    const [name = '', id = ''] = partsOf(ref, 2);
    const outcome = await scheduleOf(mill, name).schedule.runNow(id);
    return { outcome, message: SAID[outcome] };
  },
  count: async (context, chosen, _action, limit) => {
    const { mill } = context;
    if ('ids' in chosen) return chosen.ids.length;
    const [name = mill.documentSchedules()[0]?.name ?? ''] = chosen.filter.name;
    const filter = toFilter(chosen.filter);
    return filter.error === undefined
      ? scheduleOf(mill, name).schedule.count(filter, { limit })
      : countShown(context, searchOf(mill, name, filter, 1), limit);
  },
  many: () => Promise.reject(badRequest('Documents have no bulk actions.')),
};
