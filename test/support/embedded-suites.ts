/**
 * The suites for every store that also run on the embedded one, besides the chapters of the conformance suite, which all
 * do. It runs the statements of the PostgreSQL store in WebAssembly, so any other suite only repeats what it finds there.
 * These concern what it has of its own: one connection, which transactions and the planner share, notifications inside the
 * process, and a driver that passes values in its own way. test/embedded has what no other store has.
 */
export const EMBEDDED_SUITES: readonly string[] = [
  'an outage of the database',
  'an outage that outlasts the locks of documents',
  'claims in any order',
  'drain and runDue of any mill',
  'find, count and runNow on documents',
  'keys of reactive tasks',
  'kinds of documents',
  'large payloads',
  'limits of jobs',
  'markCompleted',
  'payloads beyond the limit',
  'planning of changes',
  'random interleavings with shrinking',
  'reading tasks',
  'tasks and documents in the dashboard',
  'use of limits',
];

export const runsOn = (store: string, suite: string): boolean =>
  store !== 'embedded' || EMBEDDED_SUITES.includes(suite);
