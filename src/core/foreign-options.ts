/**
 * Option names of BullMQ, Bee-Queue, pg-boss, Agenda and graphile-worker, with what each is called here. Of the pairs of
 * a name, the first whose option is known to the call applies: its second text says how to write it.
 */
type Called = readonly (readonly [known: string, here: string])[];

/** These tell the calls apart: `enqueue`, `schedule` and definitions have a priority, `mill.work` has `replace`. */
const JOB = 'priority';
const WORK = 'replace';

const attempts: Called = [
  ['retryPolicy', 'retryPolicy: { maxAttempts }'],
  ['maxAttempts', 'maxAttempts'],
];
/** Of libraries that do not count the first attempt. */
const retries: Called = [
  ['retryPolicy', 'retryPolicy: { maxAttempts }, which counts the first attempt, too,'],
  ['maxAttempts', 'maxAttempts, which counts the first attempt, too,'],
];
const backoff: Called = [['retryPolicy', "retryPolicy: { type: 'exponential', min }"]];
const retryDelay: Called = [
  ['retryPolicy', "retryPolicy: { type: 'fixed', interval }"],
  ['interval', 'interval'],
  ['factor', 'min'],
];
const timeout: Called = [['timeout', 'timeout']];
const id: Called = [['id', 'id, or uniqueKey to block only while the job is pending or runs,']];
const uniqueKey: Called = [
  ['uniqueKey', 'uniqueKey'],
  [JOB, 'uniqueKey, an option of enqueue,'],
];
const due: Called = [
  ['runAt', 'runAt (a Date) or delay (a duration)'],
  ['startAt', 'startAt'],
];
const repeat: Called = [
  ['missed', "the first argument of schedule, '@every 90s' or a cron text,"],
  [JOB, "mill.schedule('@every 90s', name, data), or with a cron text,"],
];
/** Options of schedules only. */
const scheduled = (option: string): Called => [
  [option, option],
  [JOB, `${option}, an option of mill.schedule,`],
];
const kept = (status: string): Called => [
  ['retention', `retention: { ${status} }`],
  [JOB, `retention: { ${status} }, an option of the definition and of the mill,`],
];
const lease: Called = [
  ['leaseDuration', 'leaseDuration'],
  [JOB, 'leaseDuration, an option of new Tidemill,'],
  [WORK, 'leaseDuration, an option of new Tidemill,'],
];
const concurrency: Called = [['concurrency', 'concurrency']];
const poll: Called = [['pollInterval', 'pollInterval: { min, max }']];
const store: Called = [['store', 'store']];
/** Of the stores' own options, `uri` is MongoDB's and `url` PostgreSQL's. */
const server: Called = [...store, ['uri', 'uri'], ['url', 'url']];

/** By the name in lower case, without `_` and `-`. */
const FOREIGN = new Map<string, Called>(
  Object.entries({
    attempts,
    maxattempts: attempts,
    attemptlimit: attempts,
    retrylimit: retries,
    maxretries: retries,
    retries,
    backoff,
    retrybackoff: backoff,
    backoffstrategy: backoff,
    retrydelay: retryDelay,
    retrydelaymax: [
      ['retryPolicy', "retryPolicy: { type: 'exponential', max }"],
      ['factor', 'max'],
    ],
    delay: [
      ['interval', 'interval'],
      ['factor', 'min'],
    ],
    expireinseconds: timeout,
    expireinminutes: timeout,
    expireinhours: timeout,
    timeoutms: timeout,
    jobid: id,
    taskid: id,
    messageid: id,
    singletonkey: uniqueKey,
    jobkey: uniqueKey,
    dedupekey: uniqueKey,
    deduplication: uniqueKey,
    deduplicationid: uniqueKey,
    startafter: due,
    delayuntil: due,
    runafter: due,
    scheduledat: due,
    nextrunat: due,
    runat: [['startAt', 'startAt']],
    repeat,
    every: repeat,
    cron: repeat,
    pattern: repeat,
    repeatevery: repeat,
    repeatinterval: repeat,
    tz: scheduled('timezone'),
    timezone: scheduled('timezone'),
    startdate: scheduled('startAt'),
    startat: scheduled('startAt'),
    enddate: scheduled('repeatUntil'),
    endat: scheduled('repeatUntil'),
    repeatuntil: scheduled('repeatUntil'),
    removeoncomplete: kept('completed'),
    removeonsuccess: kept('completed'),
    deleteafterseconds: kept('completed'),
    retentionseconds: kept('completed'),
    keepuntil: kept('completed'),
    removeonfail: kept('failed'),
    removeonfailure: kept('failed'),
    locklifetime: lease,
    defaultlocklifetime: lease,
    lockduration: lease,
    visibilitytimeout: lease,
    stallinterval: lease,
    stalledinterval: lease,
    maxconcurrency: concurrency,
    defaultconcurrency: concurrency,
    teamsize: concurrency,
    teamconcurrency: concurrency,
    localconcurrency: concurrency,
    concurrentjobs: concurrency,
    processevery: poll,
    pollinginterval: poll,
    pollingintervalseconds: poll,
    initialdelay: retryDelay,
    ttl: [['lease', 'lease']],
    handler: [['onDocument', 'onDocument']],
    name: [['task', 'task']],
    db: [
      ['store', 'store'],
      ['transaction', 'transaction'],
      ['database', 'database'],
    ],
    dbname: [['database', 'database']],
    connection: server,
    connectionstring: server,
    mongo: store,
    pgpool: store,
    url: server,
    uri: server,
  } satisfies Record<string, Called>),
);

/** " That is called … here." for an option that another library has; '' if there is nothing to say. */
export function calledHere(key: string, known: readonly string[]): string {
  const plain = key.replaceAll(/[_-]/gu, '').toLowerCase();
  // Another spelling of an option of this call, which the caller suggests.
  if (known.some((one) => one.toLowerCase() === plain)) return '';
  const called = FOREIGN.get(plain);
  const here = called?.find(([option]) => known.includes(option))?.[1];
  return here === undefined ? '' : ` That is called ${here} here.`;
}
