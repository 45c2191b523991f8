import type { Document, UpdateFilter } from 'mongodb';
import {
  dayOf,
  KEEP_COUNTS_DAYS,
  KEEP_SHARES_MS,
  PEAKS,
  SUMS,
  type Cell,
  type Counts,
  type MetricsStore,
  type SeriesPoint,
  type SeriesQuery,
  type Share,
  type Shared,
  type Waiting,
} from '../../store/metrics.js';
import { run, type Mongo } from '../context.js';
import { isDuplicate } from '../errors.js';

const TOTALS = 'totals';

/** Converts a series to a field name, which has neither dots nor dollars, and back. */
const toField = (series: string): string =>
  encodeURIComponent(series.replaceAll(/\p{Surrogate}/gu, '\uFFFD')).replaceAll('.', '%2E');
const fromField = (field: string): string => decodeURIComponent(field);

const minuteId = (share: string, at: Date): string => `minute:${share}:${at.toISOString()}`;
const waitingId = (at: Date): string => `waiting:${at.toISOString()}`;

function additions({ growth }: Share, day: number): Pick<UpdateFilter<Document>, '$inc' | '$max'> {
  const added: Record<string, number> = {};
  const days: Record<string, number> = {};
  for (const [series, fields] of growth) {
    const path = `series.${toField(series)}`;
    days[`${path}.day`] = day;
    for (const [field, value] of Object.entries(fields)) added[`${path}.counts.${field}`] = value;
  }
  return growth.size === 0 ? {} : { $inc: added, $max: days };
}

async function push(mongo: Mongo, share: Share): Promise<void> {
  const { id, number, growth, ...said } = share;
  const path = `shares.${id}`;
  const isNew = { $or: [{ [`${path}.number`]: { $lt: number } }, { [path]: { $exists: false } }] };
  const send = async (): Promise<void> => {
    await mongo.metrics.updateOne(
      { _id: TOTALS, ...isNew },
      {
        ...additions(share, dayOf(mongo.clock.now())),
        $set: { [`${path}.number`]: number, [`${path}.said`]: said },
        $currentDate: { [`${path}.at`]: true },
      },
      { upsert: true },
    );
  };
  try {
    await send();
  } catch (error) {
    if (!isDuplicate(error)) throw error;
    // Another instance created the document at the same moment, or this share is already counted; a second try tells.
    await send().catch((again: unknown) => {
      if (!isDuplicate(again)) throw again;
    });
  }
}

interface Totals {
  readonly series?: Readonly<
    Record<string, { readonly counts?: Readonly<Record<string, number>>; readonly day: number }>
  >;
  readonly shares?: Readonly<
    Record<string, { readonly at: Date; readonly said: Omit<Shared, 'id' | 'ageMs'> }>
  >;
  readonly now: Date;
}

async function totals(mongo: Mongo): Promise<Totals | undefined> {
  const pipeline = [{ $match: { _id: TOTALS } }, { $project: { series: 1, shares: 1, now: '$$NOW' } }];
  const [found] = await mongo.metrics.aggregate<Totals & Document>(pipeline).toArray();
  return found;
}

async function read(mongo: Mongo): Promise<{ counts: Counts; shares: readonly Shared[] }> {
  const { series = {}, shares = {}, now = new Date(0) } = (await totals(mongo)) ?? {};
  return {
    counts: new Map(Object.entries(series).map(([field, { counts = {} }]) => [fromField(field), counts])),
    shares: Object.entries(shares).map(([id, { at, said }]) => ({
      id,
      ...said,
      ageMs: now.getTime() - at.getTime(),
    })),
  };
}

/** Forgets old shares and series. If one of them changed since it was read, nothing is deleted until the next call. */
async function forget(mongo: Mongo): Promise<void> {
  const found = await totals(mongo);
  if (found === undefined) return;
  const { series = {}, shares = {}, now } = found;
  const gone = Object.entries(shares).filter(([, { at }]) => at.getTime() < now.getTime() - KEEP_SHARES_MS);
  const still = Object.entries(series).filter(([, { day }]) => day < dayOf(now.getTime()) - KEEP_COUNTS_DAYS);
  if (gone.length + still.length === 0) return;
  const same = [
    ...gone.map(([id, { at }]) => [`shares.${id}.at`, at]),
    ...still.map(([field, { day }]) => [`series.${field}.day`, day]),
  ] as [string, unknown][];
  const paths = [...gone.map(([id]) => `shares.${id}`), ...still.map(([field]) => `series.${field}`)];
  await mongo.metrics.updateOne(
    { _id: TOTALS, ...Object.fromEntries(same) },
    { $unset: Object.fromEntries(paths.map((path) => [path, ''])) },
  );
}

function seriesPipeline({ from, to, kind, name }: SeriesQuery): Document[] {
  const wanted = {
    ...(kind === undefined ? {} : { 'cells.kind': kind }),
    ...(name === undefined ? {} : { 'cells.name': { $eq: name } }),
  };
  return [
    { $match: { minute: { $gte: from, $lte: to } } },
    { $unwind: '$cells' },
    { $match: wanted },
    {
      $group: {
        _id: { at: '$minute', kind: '$cells.kind', name: '$cells.name' },
        ...Object.fromEntries(SUMS.map((field) => [field, { $sum: `$cells.${field}` }])),
        ...Object.fromEntries(PEAKS.map((field) => [field, { $max: { $ifNull: [`$cells.${field}`, 0] } }])),
        due: { $max: '$cells.due' },
        lagMs: { $max: '$cells.lagMs' },
      },
    },
    { $sort: { '_id.at': 1, '_id.kind': 1, '_id.name': 1 } },
  ];
}

function pointOf({ _id, due, lagMs, ...sums }: Document): SeriesPoint {
  return {
    ...(_id as object),
    ...sums,
    ...(typeof due === 'number' ? { backlog: due } : {}),
    ...(typeof lagMs === 'number' ? { lagMs } : {}),
  } as unknown as SeriesPoint;
}

export function metricsStore(mongo: () => Mongo): MetricsStore {
  const save = async (
    minutes: readonly { id: string; at: Date; cells: readonly (Cell | Waiting)[] }[],
  ): Promise<void> => {
    const operations = minutes.map(({ id, at, cells }) => ({
      updateOne: { filter: { _id: id }, update: { $set: { minute: at, cells: [...cells] } }, upsert: true },
    }));
    await run('save metrics', () => mongo().metrics.bulkWrite(operations, { ordered: false }));
  };

  return {
    push: (share) => run('push metrics', () => push(mongo(), share)),
    read: () => run('read metrics', () => read(mongo())),
    leave: async (id) => {
      await run('leave', () =>
        mongo().metrics.updateOne({ _id: TOTALS }, { $unset: { [`shares.${id}`]: '' } }),
      );
    },
    saveMinutes: (share, minutes) =>
      save(minutes.map(({ at, cells }) => ({ id: minuteId(share, at), at, cells }))),
    saveWaiting: (at, waiting) => save([{ id: waitingId(at), at, cells: waiting }]),
    series: (query) =>
      run('read metrics', async () =>
        (await mongo().metrics.aggregate(seriesPipeline(query)).toArray()).map(pointOf),
      ),
    forget: () => run('delete old metrics', () => forget(mongo())),
  };
}
