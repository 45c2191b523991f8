/**
 * Checks a collection of mongodb-cron. Nothing is copied: `mill.documents` works on such documents where they are, and
 * uses the same four fields.
 */
import { OptionError } from '../../../index.js';
import { parseSchedule, type SourceDocument } from '../../../mill/tools.js';
import { CliError, Exit } from '../../exit.js';
import { MongoCollection } from '../mongo-collection.js';
import { batches, type Count, type Reading, type Source, type SourceOptions } from '../reading.js';

const MAPPING = [
  [
    'the documents',
    'stay in their collection: mill.documents({ collection, onDocument }) works on them as they are',
  ],
  ['sleepUntil, interval, repeatUntil, autoRemove', 'the same fields; other paths by the option fields'],
  ['a document without sleepUntil, or with null', 'is not due, as before'],
] as const;

const FIELD = 'sleepUntil';
const OTHER_PATH = [
  'no document has sleepUntil',
  'this check knows the default fields only: if you pass sleepUntilFieldPath to MongoCron, pass it to mill.documents as fields.sleepUntil',
] as const;

export async function openMongodbCron(options: SourceOptions): Promise<Source> {
  if (options.collection === undefined)
    throw new CliError(Exit.USAGE, 'Name the collection of the documents with --from-collection.');
  const documents = await MongoCollection.open(options.url, options.collection);
  const [hasAny, hasField] = await Promise.all([
    documents.count({}),
    documents.count({ [FIELD]: { $exists: true } }),
  ]);
  const hasIndex = (await documents.indexes()).some(({ key }) => Object.keys(key)[0] === FIELD);
  return {
    place: documents.place,
    mapping: [
      ...MAPPING,
      ...(hasAny > 0 && hasField === 0 ? [OTHER_PATH] : []),
      ...(hasIndex
        ? []
        : [
            [
              'no index on sleepUntil',
              `each poll would read all documents: createIndex({ ${FIELD}: 1 })`,
            ] as const,
          ]),
    ],
    count: () => countsOf(documents),
    read: () =>
      batches(
        documents.all({ $or: [{ [FIELD]: { $ne: null } }, { interval: { $type: 'string' } }] }),
        (document) => check(document, options),
      ),
    version: (record) => documents.version(record),
    remove: async (records) => records.map(() => false),
    [Symbol.asyncDispose]: () => documents[Symbol.asyncDispose](),
  };
}

async function countsOf(documents: MongoCollection): Promise<readonly Count[]> {
  const due = { [FIELD]: { $type: 'date', $lte: new Date() } };
  const later = { [FIELD]: { $type: 'date', $gt: new Date() } };
  const other = { [FIELD]: { $ne: null, $not: { $type: 'date' } } };
  const [isDue, isLater, isOther, all] = await Promise.all(
    [due, later, other, {}].map((filter) => documents.count(filter)),
  );
  return [
    { state: 'due now', count: isDue ?? 0 },
    { state: 'due later, or running there', count: isLater ?? 0 },
    { state: 'sleepUntil is no date', count: isOther ?? 0 },
    {
      state: 'not due: no sleepUntil',
      count: (all ?? 0) - (isDue ?? 0) - (isLater ?? 0) - (isOther ?? 0),
      finished: true,
    },
  ];
}

function check(document: SourceDocument, { timezone }: SourceOptions): Reading {
  const common = { key: String(document._id), name: String(document._id), record: document };
  const { sleepUntil, interval } = document;
  const left = (reason: string, detail?: string): Reading => ({
    kind: 'left',
    ...common,
    reason,
    ...(detail === undefined ? {} : { detail }),
  });
  if (sleepUntil === undefined || sleepUntil === null)
    return left('it has an interval but no sleepUntil, so it never runs, there or here');
  if (!(sleepUntil instanceof Date))
    return left(
      'its sleepUntil is no date: mongodb-cron runs it at once, mill.documents does not',
      JSON.stringify(sleepUntil),
    );
  if (typeof interval !== 'string' || interval === '') return { kind: 'served', ...common };
  const fields = interval.trim().split(/\s+/u).length;
  if (!interval.startsWith('@') && fields < 5)
    return left('its cron text has fewer than five fields, which mongodb-cron fills up', interval);
  try {
    parseSchedule('import', interval, timezone);
  } catch (error) {
    if (error instanceof OptionError)
      return left('its cron text is not valid here', error.message.replace(/^import: /u, ''));
    throw error;
  }
  return {
    kind: 'served',
    ...common,
    differs: ['its times were those of the old process: set the option timezone if that was not UTC'],
  };
}
