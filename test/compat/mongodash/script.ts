/** Calls of every kind, and what came of them, as one line of JSON. Runs on mongodash and here; the results must be equal. */
import * as library from 'tidemill/compat/mongodash';

const {
  assertNoReactiveTaskErrors,
  countReactiveTasks,
  cronTask,
  getCollection,
  getCronTasksList,
  getMongoClient,
  getPrometheusMetrics,
  getReactiveTasks,
  getRegisteredCronTaskIds,
  init,
  isLockAlreadyAcquiredError,
  LockAlreadyAcquiredError,
  OperationalTaskController,
  processInBatches,
  reactiveTask,
  registerPostCommitHook,
  resolveWhitelistFilter,
  retryReactiveTasks,
  runCronTask,
  scheduleCronTaskImmediately,
  startCronTasks,
  startReactiveTasks,
  stopCronTasks,
  stopReactiveTasks,
  TaskConditionFailedError,
  triggerCronTask,
  waitUntil,
  waitUntilReactiveTasksIdle,
  withLock,
  withTransaction,
} = library;

const uri = process.argv[2] ?? '';
const results: Record<string, unknown> = {};
const errors: string[] = [];
const infos: { code: string; taskId?: unknown }[] = [];

/** What a call comes to, leaving out the wording of errors. */
async function outcome(call: () => unknown): Promise<unknown> {
  try {
    return { value: (await call()) ?? null };
  } catch {
    return 'rejected';
  }
}

const codesOf = (taskId: string): string[] =>
  infos.filter((info) => info.taskId === taskId && info.code.startsWith('cron')).map(({ code }) => code);

results['exports'] = Object.keys(library)
  .filter((name) => name !== 'default' && name !== 'module.exports' && !name.startsWith('__'))
  .sort();
results['codes'] = Object.entries(library).filter(([name]) => name.startsWith('CODE_'));

results['before init'] = [
  await outcome(() => getMongoClient()),
  await outcome(() => getCollection('x')),
  await outcome(() => withLock('x', () => Promise.resolve())),
  await outcome(() => withTransaction(() => Promise.resolve())),
  await outcome(() => runCronTask('x')),
  await outcome(() => scheduleCronTaskImmediately('x')),
  await outcome(() => reactiveTask({ task: 'x', collection: 'x', handler: () => Promise.resolve() })),
  getRegisteredCronTaskIds(),
];
const early = cronTask('early', 'CRON 0 3 * * *', () => undefined);

results['init'] = [
  await outcome(() => init({})),
  await outcome(() => init({ uri, mongoClient: {} as never })),
  await outcome(() => init({ uri, cronExpressionParserOptions: { endDate: new Date() } as never })),
  await outcome(() =>
    init({ uri: 'mongodb://127.0.0.1:1/x', clientOptions: { serverSelectionTimeoutMS: 50 } }),
  ),
  await outcome(() =>
    init({
      uri,
      onError: (error) => {
        errors.push(error.message);
        throw new Error('of the listener');
      },
      onInfo: (info) => infos.push(info),
      cronTaskFilter: ({ taskId }) => taskId !== 'refused',
      monitoring: { pushIntervalMs: 1_000 },
    }),
  ),
  await outcome(() => init({ uri })),
];
await early;

// Cron tasks
const ran: Record<string, number> = {};
const counted = (name: string) => () => void (ran[name] = (ran[name] ?? 0) + 1);
const intervals = [0, -1, Number.NaN, Infinity, '* * * * *', 'CRON nonsense', 'soon', '0s', null];
results['bad intervals'] = [];
for (const [at, interval] of intervals.entries())
  (results['bad intervals'] as unknown[]).push(
    await outcome(() => cronTask(`bad ${at}`, interval as never, () => undefined)),
  );
results['bad interval functions'] = [
  await outcome(() =>
    cronTask(
      'bad date',
      () => new Date(Number.NaN),
      () => undefined,
    ),
  ),
  await outcome(() =>
    cronTask(
      'bad function',
      () => {
        throw new Error('of the interval');
      },
      () => undefined,
    ),
  ),
];
results['good intervals'] = [
  await outcome(() => cronTask('milliseconds', 3_600_000, counted('milliseconds'))),
  await outcome(() => cronTask('duration', '1h 30m', counted('duration'))),
  await outcome(() => cronTask('cron', 'CRON 0 3 1 1 *', counted('cron'))),
  await outcome(() => cronTask('six fields', 'cron 0 0 3 * * *', counted('six fields'))),
  await outcome(() => cronTask('date', () => new Date(Date.now() + 3_600_000), counted('date'))),
  await outcome(() => cronTask('function', () => Promise.resolve('1h'), counted('function'))),
  await outcome(() => cronTask('cron', 1_000, counted('again'))),
];
await cronTask('refused', 50, counted('refused'));
await cronTask('fails', 3_600_000, () => {
  throw new TypeError('no paper');
});
await cronTask('inner', 3_600_000, async () => {
  await runCronTask('date');
});
results['run'] = [
  await outcome(() => runCronTask('milliseconds')),
  await outcome(() => runCronTask('unknown')),
  await outcome(() => runCronTask('fails')),
  await outcome(() => runCronTask('inner')),
];
results['codes of a run'] = codesOf('milliseconds');
results['codes of a failure'] = codesOf('fails');

results['schedule'] = [
  await outcome(() => scheduleCronTaskImmediately('duration')),
  await outcome(() => triggerCronTask('cron')),
  await outcome(() => scheduleCronTaskImmediately('unknown')),
];
await waitUntil(() => ran['duration'] === 1 && ran['cron'] === 1);
await waitUntil(() => codesOf('cron').length === 3);
stopCronTasks();
await scheduleCronTaskImmediately('function');
const { items: waiting } = await getCronTasksList({ filter: '^function$' });
results['stopped'] = [ran['function'] ?? 0, waiting[0]?.status, waiting[0]?.runImmediately];
results['run while stopped'] = await outcome(() => runCronTask('six fields'));
startCronTasks();
await waitUntil(() => ran['function'] === 1);
await waitUntil(() => codesOf('function').length === 3);
let together = 0;
let most = 0;
const alone = async (): Promise<void> => {
  most = Math.max(most, ++together);
  await new Promise((resolve) => setTimeout(resolve, 50));
  together -= 1;
};
await cronTask('one', 50, alone);
await cronTask('other', 50, alone);
await waitUntil(() =>
  ['one', 'other'].every((id) => codesOf(id).filter((code) => code.endsWith('Finished')).length > 1),
);
results['at once'] = most;
stopCronTasks();
const list = await getCronTasksList({ limit: 100, sort: { field: '_id', direction: 1 } });
results['list'] = list.items
  .filter(({ _id }) => _id !== 'one' && _id !== 'other')
  .map(({ _id, status, runImmediately, lastRun, isRegistered, nextRunAt }) => ({
    _id,
    status: status === 'scheduled' ? status : lastRun === null ? 'idle' : status,
    runImmediately,
    error: _id === 'inner' ? typeof lastRun?.error : (lastRun?.error?.trim() ?? null),
    hasRun: lastRun !== null,
    isRegistered,
    isLater: nextRunAt > new Date() || _id === 'refused',
  }));
results['page'] = await getCronTasksList({ filter: 'mill|dur', limit: 1, skip: 1 }).then(
  ({ items, ...page }) => ({
    ...page,
    items: items.length,
  }),
);
results['ids'] = getRegisteredCronTaskIds();
results['runs'] = ran;

// Locks
const failing = (): Promise<never> => Promise.reject(new Error('of the callback'));
results['locks'] = [
  await outcome(() => withLock(5, () => Promise.resolve('five'))),
  await outcome(() => withLock('a', failing)),
  await outcome(() => withLock('a', () => Promise.resolve('free again'))),
  await outcome(() =>
    withLock('a', () =>
      withLock('a', () => Promise.resolve(), { maxWaitForLock: 50 }).catch((error: unknown) => [
        error instanceof LockAlreadyAcquiredError,
        (error as { key?: unknown }).key,
        isLockAlreadyAcquiredError(error),
        isLockAlreadyAcquiredError(error, 'a'),
        isLockAlreadyAcquiredError(error, 'b'),
      ]),
    ),
  ),
  isLockAlreadyAcquiredError(new Error('x')),
];

// Transactions
const books = getCollection<{ _id: string }>('books');
await getMongoClient().db().createCollection('books');
const hooks: string[] = [];
results['transactions'] = [
  await outcome(() =>
    withTransaction(async (session) => {
      await books.insertOne({ _id: 'kept' }, { session });
      registerPostCommitHook(session, () => void hooks.push('kept'));
      registerPostCommitHook(session, () => Promise.reject(new Error('of the hook')));
      return 'done';
    }),
  ),
  await outcome(() =>
    withTransaction(async (session) => {
      await books.insertOne({ _id: 'dropped' }, { session });
      registerPostCommitHook(session, () => void hooks.push('dropped'));
      throw new Error('rolled back');
    }),
  ),
  await outcome(() => registerPostCommitHook(getMongoClient().startSession(), () => undefined)),
  await books.find().toArray(),
  hooks,
];

// Batches
const numbers = getCollection<{ _id: number }>('numbers');
await numbers.insertMany(Array.from({ length: 10 }, (_, _id) => ({ _id })));
const batches: number[][] = [];
const keep = (operations: number[]): Promise<void> => Promise.resolve(void batches.push(operations));
results['batches'] = [
  await processInBatches(numbers, {}, ({ _id }) => (_id % 2 === 0 ? _id : null), keep, { batchSize: 2 }),
  await processInBatches(numbers, [{ $match: { _id: { $lt: 3 } } }], ({ _id }) => [_id, _id], keep, {
    batchSize: 3,
  }),
  await processInBatches(numbers, { _id: -1 }, ({ _id }) => _id, keep),
  await processInBatches(numbers, {}, ({ _id }) => _id, keep, { shouldStop: () => batches.length > 4 }),
  batches,
];

// Reactive tasks
const things = getCollection<{ _id: string; kind: string; size: number }>('things');
const seen: string[] = [];
const define = (
  task: string,
  kind: string,
  handler: Parameters<typeof reactiveTask>[0]['handler'],
  more: object = {},
): Promise<void> =>
  reactiveTask({
    task,
    collection: 'things',
    filter: { kind },
    watchProjection: { size: 1 },
    debounce: 20,
    handler,
    ...more,
  });
await define('plain', 'plain', async (context) => {
  seen.push(`plain ${String(context.docId)} ${JSON.stringify((await context.getDocument())['size'])}`);
});
let deferrals = 0;
await define('defers', 'defers', (context) => {
  if (++deferrals === 1) context.deferCurrent(50);
  return Promise.resolve();
});
await define('completes', 'completes', async ({ markCompleted }) => {
  await markCompleted();
  await markCompleted();
});
await define('skips', 'skips', () => Promise.reject(new TaskConditionFailedError('nothing to do')));
await define('leaves', 'leaves', async ({ docId, getDocument }) => {
  await things.updateOne({ _id: docId as never }, { $set: { kind: 'left' } });
  await getDocument();
  seen.push('not reached');
});
await define('fails', 'fails', () => Promise.reject(new Error('broken')), {
  retryPolicy: { type: 'series', intervals: ['20ms', '20ms'], maxAttempts: 3 },
  executionHistoryLimit: 2,
});
results['definitions'] = [
  await outcome(() => define('plain', 'plain', () => Promise.resolve())),
  await outcome(() => define('excludes', 'x', () => Promise.resolve(), { watchProjection: { size: 0 } })),
  await outcome(() => define('odd wait', 'x', () => Promise.resolve(), { debounce: 'soon' })),
  await outcome(() =>
    define('odd keep', 'x', () => Promise.resolve(), { cleanupPolicy: { keepFor: 'long' } }),
  ),
];
const since = new Date();
await startReactiveTasks();
await startReactiveTasks();
const kinds = ['plain', 'defers', 'completes', 'skips', 'leaves', 'fails', 'other'];
await things.insertMany(kinds.map((kind) => ({ _id: kind, kind, size: 1 })));
await waitUntil(async () => (await countReactiveTasks({ status: ['completed', 'failed'] })) === 6);
await things.updateOne({ _id: 'plain' }, { $set: { size: 2 } });
await waitUntil(() => seen.length === 2);
await things.updateOne({ _id: 'plain' }, { $set: { other: 2 } as never });
await waitUntilReactiveTasksIdle();
const order = (a: { task: string }, b: { task: string }): number => (a.task < b.task ? -1 : 1);
results['tasks'] = (await getReactiveTasks({})).items.sort(order).map((record) => ({
  task: record.task,
  sourceDocId: record.sourceDocId,
  status: record.status,
  attempts: record.attempts > 1,
  nextRunAt: record.nextRunAt,
  lastError: record.lastError ?? null,
  succeeded: (record.lastSuccess ?? null) !== null,
  history: record.executionHistory
    ?.map(({ status, error }) => ({ status, failed: error !== undefined }))
    .slice(-1),
  historyLength: (record.executionHistory?.length ?? 0) <= 5,
}));
results['seen'] = seen;
results['deferrals'] = deferrals;
results['queries'] = [
  (await getReactiveTasks({ task: ['plain', 'fails'] }, { limit: 1, skip: 1 })).items.length,
  await getReactiveTasks({ task: 'plain' }).then(({ items, ...page }) => ({ ...page, items: items.length })),
  await countReactiveTasks({ hasError: true }),
  await countReactiveTasks({ hasError: false, status: 'completed' }),
  await countReactiveTasks({ errorMessage: /^BROK/iu }),
  await countReactiveTasks({ errorMessage: 'ROKE' }),
  await countReactiveTasks({ sourceDocFilter: { _id: 'plain' as never } }),
  await countReactiveTasks({ _id: (await getReactiveTasks({ task: 'plain' })).items[0]?._id as string }),
  await outcome(() => getReactiveTasks({ task: 'unknown' })),
  await outcome(() => countReactiveTasks({ task: 'unknown' })),
  await outcome(() => retryReactiveTasks({ task: 'unknown' })),
];
results['retry'] = [
  await retryReactiveTasks({ task: 'plain', sourceDocFilter: { size: 2 } }),
  await retryReactiveTasks({ task: 'plain', sourceDocFilter: { size: 99 } }),
];
await waitUntil(() => seen.length === 3);
await waitUntilReactiveTasksIdle({ whitelist: [{ collection: 'things', task: 'plain' }] });

// Helpers of tests
results['errors found'] = [
  await outcome(() => assertNoReactiveTaskErrors({ since })),
  await outcome(() => assertNoReactiveTaskErrors({ since: new Date(Date.now() + 60_000) })),
  await outcome(() => assertNoReactiveTaskErrors({ since, excludeErrors: [/^brok/u] })),
  await outcome(() => assertNoReactiveTaskErrors({ since, excludeErrors: ['other'] })),
  await outcome(() =>
    assertNoReactiveTaskErrors({ since, whitelist: [{ collection: 'things', task: 'plain' }] }),
  ),
  await outcome(() =>
    assertNoReactiveTaskErrors({
      since,
      whitelist: [{ collection: 'things', filter: { _id: 'fails' as never } }],
    }),
  ),
];
results['whitelists'] = await Promise.all(
  [
    [{ collection: 'other' }],
    [{ collection: 'things' }],
    [{ collection: 'things', task: 'plain' }],
    [{ collection: 'things', filter: { size: 2 } }],
    [{ collection: 'things', filter: { size: 99 }, task: 'plain' }],
  ].map((rules) => resolveWhitelistFilter(rules, things as never)),
);
results['waits'] = [
  await outcome(() => waitUntil(() => false, { timeoutMs: 100 })),
  await outcome(() => waitUntil(() => true, { stabilityDurationMs: 60 })),
];
results['metrics'] = (await (await getPrometheusMetrics())?.metrics())?.includes(
  'reactive_tasks_duration_seconds',
);

// What its page asks for
const controller = new OperationalTaskController(library._scheduler);
const info = await controller.getInfo();
results['info'] = [
  info.reactiveTasks.map(({ name, collection, stats }) => ({
    name,
    collection,
    failed: stats.failed,
    success: stats.success,
  })),
  info.cronTasks
    .map(({ id, lastRunError }) => [id, lastRunError?.trim() ?? null])
    .filter(([id]) => id === 'fails' || id === 'cron')
    .sort(),
];
const page = { collection: 'things', status: 'failed', sourceDocId: 'fails' };
const found = await controller.getReactiveTasks(page);
results['controller'] = [
  found.items.map(({ task, lastObservedValues }) => [task, lastObservedValues === undefined]),
  found.stats.errorCount,
  (await controller.getReactiveTasks({ collection: 'nothing' })).total,
  await controller.retryReactiveTasks({ task: 'plain', sourceDocId: 'plain' }),
  (await controller.getCronTasks({ filter: 'cron' })).total,
  await controller.triggerCronTask({ taskId: 'cron' }),
  await outcome(() => controller.triggerCronTask({ taskId: '' })),
];
await waitUntil(() => seen.length === 4);

results['errors'] = [...new Set(errors)].sort();
results['codes of tasks'] = [
  ...new Set(
    infos
      .map(({ code }) => code)
      .filter((code) => /(?:Task(?:Started|Finished|Failed)|Initialized|trigger)/iu.test(code)),
  ),
].sort();
await stopReactiveTasks();
await stopReactiveTasks();
await things.insertOne({ _id: 'late', kind: 'plain', size: 1 });
await startReactiveTasks();
await waitUntil(() => seen.length === 5);
await stopReactiveTasks();
console.log(JSON.stringify(results));
await getMongoClient().close();
