/** What docs/reference/options.md has, in its order. */
export interface Section {
  readonly title: string;
  /** The call that takes the options, as code. */
  readonly call: string;
  /** Where the options are declared; see `Source.typeAt`. */
  readonly place: string;
  /** The page that teaches the call, from docs/. */
  readonly guide: string;
  /** A sentence below the call. */
  readonly note?: string;
  /** Leave out what the type inherits; the note says where that is. */
  readonly own?: boolean;
  /** The keys restrict what is found, so the default of each is no restriction. */
  readonly isFilter?: boolean;
  /** Names of types whose mention links here. Default: that of `place`. */
  readonly types?: readonly string[];
}

export interface Chapter {
  readonly title: string;
  readonly sections: readonly Section[];
}

const mill: Chapter = {
  title: 'The mill',
  sections: [
    {
      title: 'Mill',
      call: 'new Tidemill(options)',
      place: 'src/mill/options.ts#TidemillOptions',
      guide: 'jobs.md#a-mill',
    },
    {
      title: 'Retention',
      call: 'retention',
      place: 'src/jobs/definition.ts#Retention',
      guide: 'jobs.md#a-mill',
      note: 'An option of the mill and of a job definition, whose default is that of the mill. 0 deletes finished jobs at once.',
    },
    {
      title: 'Reactive settings',
      call: 'new Tidemill({ reactive })',
      place: 'src/reactive/options.ts#ReactiveOptions',
      guide: 'reactive-tasks.md#options-of-a-task',
    },
    {
      title: 'Monitoring',
      call: 'new Tidemill({ monitoring })',
      place: 'src/metrics/options.ts#MonitoringOptions',
      guide: 'metrics.md#options',
    },
    {
      title: 'Start',
      call: 'mill.start(options?)',
      place: 'src/mill/lifecycle.ts#StartOptions',
      guide: 'reactive-tasks.md#several-databases-several-services',
    },
    {
      title: 'Stop',
      call: 'mill.stop(options?)',
      place: 'src/mill/lifecycle.ts#StopOptions',
      guide: 'jobs.md#a-mill',
    },
  ],
};

const jobs: Chapter = {
  title: 'Jobs',
  sections: [
    {
      title: 'Job definition',
      call: 'defineJob(name, options?)',
      place: 'src/jobs/definition.ts#defineJob(options)',
      guide: 'jobs.md#definitions-and-handlers',
    },
    {
      title: 'Job handler',
      call: 'mill.work(definition, options?, handler)',
      place: 'src/jobs/definition.ts#WorkOptions',
      guide: 'jobs.md#definitions-and-handlers',
      note: '`mill.job(name, options?, handler)` takes these and those of a [definition](#job-definition).',
    },
    {
      title: 'Batch handler',
      call: 'mill.batch(definition, options?, handler)',
      place: 'src/jobs/definition.ts#BatchOptions',
      guide: 'jobs.md#batches',
    },
    {
      title: 'Limits of a job',
      call: 'defineJob(name, { limits })',
      place: 'src/engine/limits/options.ts#KeyedLimits',
      guide: 'flow-control.md',
    },
    {
      title: 'Limits per key',
      call: 'limits: { perKey }',
      place: 'src/engine/limits/options.ts#PerKeyOptions',
      guide: 'flow-control.md#keys',
    },
    {
      title: 'Rate',
      call: 'limits: { rate }',
      place: 'src/engine/limits/options.ts#RateOptions',
      guide: 'flow-control.md#rates',
    },
    {
      title: 'Breaker',
      call: 'defineJob(name, { breaker })',
      place: 'src/engine/limits/options.ts#BreakerOptions',
      guide: 'flow-control.md#breakers',
    },
    {
      title: 'Shared limit',
      call: 'mill.limit(name, options)',
      place: 'src/engine/limits/options.ts#SharedLimitOptions',
      guide: 'flow-control.md#shared-limits',
    },
    {
      title: 'Changes of a limit',
      call: 'mill.limits.set(name, changes)',
      place: 'src/mill/limits/manager.ts#LimitChanges',
      guide: 'flow-control.md#while-it-runs',
    },
    {
      title: 'Keys that wait',
      call: 'mill.limits.keys(name, options)',
      place: 'src/mill/limits/manager.ts#KeysOptions',
      guide: 'flow-control.md#while-it-runs',
    },
    {
      title: 'Enqueue',
      call: 'mill.enqueue(name, data?, options?)',
      place: 'src/jobs/enqueue/enqueuer.ts#EnqueueOptions',
      guide: 'jobs.md#enqueue',
      note: 'Each item of `enqueueMany` takes them as well, beside `name` or `job`, and `data`.',
    },
    {
      title: 'Enqueue many',
      call: 'mill.enqueueMany(items, options?)',
      place: 'src/mill/job-types.ts#EnqueueManyOptions',
      guide: 'jobs.md#enqueue',
    },
    {
      title: 'Debounce of a job',
      call: 'enqueue(…, { debounce })',
      place: 'src/jobs/enqueue/existing.ts#DebounceOptions',
      guide: 'jobs.md#unique-keys',
    },
    {
      title: 'Schedule',
      call: 'mill.schedule(times, name, data?, options?)',
      place: 'src/jobs/enqueue/enqueuer.ts#ScheduleOptions',
      guide: 'scheduling.md',
      note: "`times` is a cron expression, `'@every 90s'` or `{ every: '90s' }`.",
    },
    {
      title: 'Retry policies',
      call: 'retryPolicy',
      place: 'src/reactive/definition.ts#TaskRetryPolicy',
      types: ['RetryPolicy', 'TaskRetryPolicy'],
      guide: 'jobs.md#retries',
      note: 'An option of job definitions, `enqueue`, `schedule`, document schedules and reactive tasks. `type` is `fixed`, `linear`, `exponential`, `series` or `cron`; without it, the other options apply to the default delays.',
    },
    {
      title: 'Find jobs',
      call: 'mill.jobs.find(filter?, options?)',
      place: 'src/jobs/manage/page.ts#FindOptions',
      guide: 'jobs.md#managing',
    },
    {
      title: 'Job filter',
      call: 'filter',
      place: 'src/jobs/manage/filter.ts#JobsFilter',
      isFilter: true,
      guide: 'jobs.md#managing',
      note: 'The filter of `find`, `count`, `cancelMany`, `retryMany` and `removeMany`. The last three refuse an empty filter and take `{ all: true }` instead.',
    },
    {
      title: 'Count jobs',
      call: 'mill.jobs.count(filter?, options?)',
      place: 'src/jobs/manage/manager.ts#CountOptions',
      guide: 'jobs.md#managing',
      note: '`mill.tasks.count` takes them too.',
    },
    {
      title: 'Cancel a job',
      call: 'mill.jobs.cancel(id, options?)',
      place: 'src/jobs/manage/manager.ts#Jobs.cancel(options)',
      guide: 'jobs.md#managing',
    },
    {
      title: 'Retry a job',
      call: 'mill.jobs.retry(id, options?)',
      place: 'src/jobs/manage/manager.ts#Jobs.retry(options)',
      guide: 'jobs.md#managing',
    },
    {
      title: 'Change a job',
      call: 'mill.jobs.update(id, changes)',
      place: 'src/jobs/manage/update.ts#UpdateChanges',
      guide: 'jobs.md#managing',
    },
    {
      title: 'Many jobs',
      call: 'mill.jobs.cancelMany(filter, options?)',
      place: 'src/jobs/manage/manager.ts#ManyOptions',
      guide: 'jobs.md#managing',
      note: '`retryMany` and `removeMany` take the same.',
    },
    {
      title: 'Result of a job',
      call: 'mill.jobs.result(id, options?)',
      place: 'src/jobs/manage/manager.ts#ResultOptions',
      guide: 'jobs.md#managing',
    },
    {
      title: 'Watching jobs',
      call: 'mill.jobs.watch(id | filter, options?)',
      place: 'src/jobs/manage/manager.ts#WatchOptions',
      guide: 'jobs.md#watching',
    },
    {
      title: 'Errors in groups',
      call: 'mill.jobs.errors(options?)',
      place: 'src/core/records/failure-groups.ts#ErrorsOptions',
      guide: 'jobs.md#managing',
      note: '`mill.tasks.errors` takes the same.',
    },
    {
      title: 'List schedules',
      call: 'mill.schedules.list(name?, options?)',
      place: 'src/jobs/manage/schedules.ts#Schedules.list(options)',
      guide: 'scheduling.md',
    },
  ],
};

const reactive: Chapter = {
  title: 'Reactive tasks',
  sections: [
    {
      title: 'Reactive task',
      call: 'mill.reactiveTask(definition)',
      place: 'src/reactive/definition.ts#ReactiveTaskDefinition',
      guide: 'reactive-tasks.md#options-of-a-task',
    },
    {
      title: 'Batches of a reactive task',
      call: 'batch',
      place: 'src/reactive/definition.ts#TaskBatchOptions',
      guide: 'reactive-tasks.md#batches',
    },
    {
      title: 'Limits of a reactive task',
      call: 'limits',
      place: 'src/engine/limits/options.ts#TaskLimits',
      guide: 'flow-control.md#reactive-tasks-and-document-schedules',
    },
    {
      title: 'Limits per key of a reactive task',
      call: 'limits: { perKey }',
      place: 'src/engine/limits/options.ts#TaskPerKeyOptions',
      guide: 'flow-control.md#keys-of-reactive-tasks',
    },
    {
      title: 'Limits of a document schedule',
      call: 'limits',
      place: 'src/engine/limits/options.ts#WorkLimits',
      guide: 'flow-control.md#reactive-tasks-and-document-schedules',
      note: 'Of [document schedules](#documents).',
    },
    {
      title: 'Cleanup policy',
      call: 'cleanupPolicy',
      place: 'src/reactive/definition.ts#CleanupPolicy',
      guide: 'reactive-tasks.md#cleanup',
    },
    {
      title: 'Evolution',
      call: 'evolution',
      place: 'src/reactive/definition.ts#EvolutionConfig',
      guide: 'reactive-tasks.md#evolution',
    },
    {
      title: 'Get document',
      call: 'context.getDocument(options?)',
      place: 'src/reactive/run/context.ts#GetDocumentOptions',
      guide: 'reactive-tasks.md#the-context',
      note: 'On PostgreSQL, embedded and in memory: `projection` and `transaction` (or `session`) only.',
    },
    {
      title: 'Throttle',
      call: 'context.throttleAll(until, options?)',
      place: 'src/reactive/run/context.ts#ThrottleOptions',
      guide: 'reactive-tasks.md#the-context',
    },
    {
      title: 'Find tasks',
      call: 'mill.tasks.find(filter?, options?)',
      place: 'src/reactive/manage/manager.ts#TasksPageOptions',
      guide: 'reactive-tasks.md#managing',
    },
    {
      title: 'Task filter',
      call: 'filter',
      place: 'src/reactive/manage/tasks-filter.ts#TasksFilter',
      isFilter: true,
      guide: 'reactive-tasks.md#managing',
      note: 'The filter of `find`, `count` and `retry`. `retry` refuses an empty filter and takes `{ all: true }` instead.',
    },
  ],
};

const documents: Chapter = {
  title: 'Document schedules',
  sections: [
    {
      title: 'Documents',
      call: 'mill.documents(options)',
      place: 'src/mill/document-schedules.ts#DocumentOptions',
      guide: 'documents.md#options',
    },
    {
      title: 'Fields of a document',
      call: 'fields',
      place: 'src/store/documents.ts#DocumentFields',
      types: ['Partial<DocumentFields>'],
      guide: 'documents.md#options',
      note: 'Each is a dot path, and each may be left out.',
    },
    {
      title: 'Start a schedule',
      call: 'schedule.start(options?)',
      place: 'src/documents/scheduler.ts#Scheduler.start(options)',
      guide: 'documents.md#options',
    },
    {
      title: 'Stop a schedule',
      call: 'schedule.stop(options?)',
      place: 'src/documents/scheduler.ts#StopOptions',
      guide: 'documents.md#options',
    },
    {
      title: 'Find documents',
      call: 'schedule.find(filter?, options?)',
      place: 'src/documents/finding.ts#DocumentsPageOptions',
      guide: 'documents.md#options',
    },
    {
      title: 'Document filter',
      call: 'filter',
      place: 'src/documents/finding.ts#DocumentsFilter',
      isFilter: true,
      guide: 'documents.md#options',
    },
    {
      title: 'Count documents',
      call: 'schedule.count(filter?, options?)',
      place: 'src/documents/finding.ts#DocumentsCountOptions',
      guide: 'documents.md#options',
    },
    {
      title: 'Scheduler',
      call: 'new Scheduler(options)',
      place: 'src/documents/options.ts#SchedulerOptions',
      own: true,
      guide: 'documents.md',
      note: 'From `tidemill/documents`, for a store of your own. It takes the options of [`mill.documents`](#documents) as well, except `collection`, `database`, `fields` and `condition`.',
    },
  ],
};

const others: Chapter = {
  title: 'Locks, metrics, audit log',
  sections: [
    {
      title: 'Lock',
      call: 'mill.withLock(key, work, options?)',
      place: 'src/locks/locks.ts#LockOptions',
      guide: 'locks.md',
    },
    {
      title: 'Time series',
      call: 'mill.metrics.series(options?)',
      place: 'src/metrics/series.ts#SeriesOptions',
      guide: 'metrics.md',
    },
    {
      title: 'Audit log',
      call: 'mill.audit.list(options?)',
      place: 'src/mill/insight/audit.ts#Audit.list(options)',
      guide: 'operations.md',
    },
    {
      title: 'Audit entry',
      call: 'mill.audit.append(entry)',
      place: 'src/mill/insight/audit.ts#AuditInput',
      guide: 'operations.md',
    },
    {
      title: 'Amend an audit entry',
      call: 'mill.audit.amend(id, change)',
      place: 'src/store/audit.ts#AuditChange',
      guide: 'operations.md',
    },
    {
      title: 'Why',
      call: 'mill.why(target)',
      place: 'src/mill/insight/why.ts#WhyTarget',
      guide: 'operations.md',
    },
  ],
};

const dashboard: Chapter = {
  title: 'Dashboard',
  sections: [
    {
      title: 'Create the dashboard',
      call: 'createDashboard(options)',
      place: 'src/dashboard/options.ts#DashboardOptions',
      guide: 'dashboard.md',
    },
  ],
};

const testing: Chapter = {
  title: 'Testing',
  sections: [
    {
      title: 'Test mill',
      call: 'testMill(options?)',
      place: 'src/testing/test-mill.ts#TestMillOptions',
      own: true,
      guide: 'testing.md',
      note: 'It also takes the options of [`new Tidemill`](#mill), except `store`. `logger` is `false` unless you pass one.',
    },
    {
      title: 'Drain a test mill',
      call: 'testMill().drain(options?)',
      place: 'src/testing/test-mill.ts#TestDrainOptions',
      guide: 'testing.md',
      note: '`runDue` and `advance` take `timeout` only.',
    },
    {
      title: 'Drain any mill',
      call: 'drain(mill, options?)',
      place: 'src/testing/drain.ts#MillDrainOptions',
      guide: 'testing.md',
      note: '`runDue(mill, options?)` takes the same.',
    },
    {
      title: 'Expectations',
      call: 'expectEnqueued(mill, name, data?, expected?)',
      place: 'src/testing/expectations.ts#Expected',
      guide: 'testing.md',
      note: '`expectNotEnqueued` takes the same, except `times`.',
    },
    {
      title: 'Conformance suite',
      call: 'testStore(options)',
      place: 'src/testing/conformance/index.ts#StoreTests',
      guide: 'write-a-store.md',
    },
  ],
};

const stores: Chapter = {
  title: 'Stores',
  sections: [
    {
      title: 'MongoDB',
      call: 'mongodb(options)',
      place: 'src/mongodb/options.ts#MongodbOptions',
      guide: 'quick-start-mongodb.md',
      note: 'Pass either `uri` or `client`.',
    },
    {
      title: 'Index faults of MongoDB',
      call: 'store.indexFaults(options?)',
      place: 'src/mongodb/store.ts#MongodbStore.indexFaults(options)',
      guide: 'operations.md',
    },
    {
      title: 'PostgreSQL',
      call: 'postgres(options)',
      place: 'src/postgres/store.ts#PostgresOptions',
      guide: 'postgres.md',
      note: 'Pass either `url` or `pool`.',
    },
    {
      title: 'Embedded',
      call: 'embedded(options?)',
      place: 'src/embedded/store.ts#EmbeddedOptions',
      guide: 'embedded.md',
      note: 'Pass either `dir` or `database`, or neither.',
    },
    {
      title: 'Memory',
      call: 'memory(options?)',
      place: 'src/memory/store.ts#MemoryOptions',
      guide: 'testing.md#the-clock-alone',
    },
    {
      title: 'Write to a memory collection',
      call: 'store.collection(name).insert(document, options?)',
      place: 'src/memory/collection.ts#MemoryWriteOptions',
      guide: 'testing.md#documents-and-reactive-tasks',
      note: 'All writes of a collection take them.',
    },
  ],
};

export const chapters: readonly Chapter[] = [
  mill,
  jobs,
  reactive,
  documents,
  others,
  dashboard,
  testing,
  stores,
];

export const sections: readonly Section[] = chapters.flatMap((chapter) => chapter.sections);
