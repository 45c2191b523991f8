import { hideCredentials } from '../../core/text/credentials.js';
import { asError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { shellArgument, shellWord } from '../../core/text/shell.js';
import { judgeLimits } from '../limits/doctor.js';
import type { DocumentSchedules } from '../document-schedules.js';
import { retired } from '../../reactive/planner/plans-in-force.js';
import {
  check,
  destroying,
  failure,
  fine,
  skipped,
  warning,
  type Finding,
  type Verdict,
} from '../../store/inspect.js';
import { EVERYTHING, isAlive, type Cluster, type InstanceState, type Store } from '../../store/port.js';

/** If the clocks of server and process differ by more than this, a `runAt` computed here means another moment there. */
const MOST_SKEW_MS = 1_000;
/** How many names a finding lists. */
const MOST_NAMED = 10;

/**
 * Inspects the server, what the store created there, and the cluster. Changes nothing. Checks are independent: one that
 * cannot be made is `skipped`, with the reason.
 */
export async function diagnose(
  open: () => Promise<Store>,
  documents: DocumentSchedules,
): Promise<readonly Finding[]> {
  let store: Store;
  try {
    store = await open();
  } catch (error) {
    return [{ check: 'connection', ...unreachable(asError(error)) }];
  }
  const inspected = (await store.inspect?.()) ?? [];
  const { live, findings } = await ofCluster(store);
  const all = [
    { check: 'connection', ...fine(`the ${store.kind} store responds`) },
    ...inspected,
    ...(await check('clock', async () => judgeClock(store.clock.now() - Date.now()))),
    ...findings,
    ...(await check('document schedules', () => judgeDocuments(documents))),
  ];
  return live > 0 ? all : all.map(harmless);
}

/**
 * Replaces a destructive fix while no instance is alive: what looks left over may be needed once the application
 * starts.
 */
const harmless = ({ destroys, ...finding }: Finding): Finding =>
  destroys === true
    ? {
        ...finding,
        fix: 'start your application, which may need it, then run the doctor again. If the application does not start, see its error',
      }
    : finding;

async function ofCluster(
  store: Store,
): Promise<{ readonly live: number; readonly findings: readonly Finding[] }> {
  let cluster: Cluster;
  try {
    cluster = await store.instances.list();
  } catch (error) {
    const unseen = skipped(`could not be read: ${hideCredentials(asError(error).message)}`);
    return { live: 0, findings: [{ check: 'instances', ...unseen }] };
  }
  const live = cluster.instances.filter(isAlive);
  return { live: live.length, findings: await judged(store, cluster, live) };
}

async function judged(
  store: Store,
  cluster: Cluster,
  live: readonly InstanceState[],
): Promise<readonly Finding[]> {
  return [
    ...(await check('instances', async () => judgeInstances(live))),
    ...(await check('jobs', () => judgeJobs(store, live))),
    ...(await check('paused', async () => judgePaused(cluster))),
    ...(await check('limits', () => judgeLimits(store))),
    ...(await check('reactive tasks', () => judgeDefinitions(store, cluster, live))),
  ];
}

const unreachable = (error: Error): Verdict =>
  failure(
    hideCredentials(error.message),
    'start the server that the URL names, or correct host, port, user and database in it',
  );

function judgeClock(skewMs: number): Verdict {
  const seconds = (Math.abs(skewMs) / 1000).toFixed(1);
  if (Math.abs(skewMs) <= MOST_SKEW_MS)
    return fine(`${seconds} s between the server's clock and this machine's`);
  const direction = skewMs > 0 ? 'behind' : 'ahead of';
  return warning(
    `this machine is ${seconds} s ${direction} the server: a runAt computed here means another moment there`,
    'sudo timedatectl set-ntp true   # on the machine whose clock is wrong',
  );
}

const listed = (names: readonly string[]): string =>
  names.length > MOST_NAMED
    ? `${names.slice(0, MOST_NAMED).join(', ')} and ${String(names.length - MOST_NAMED)} more`
    : names.join(', ');

function judgeInstances(live: readonly InstanceState[]): Verdict {
  if (live.length === 0)
    return warning('no instance is alive, so no work runs', 'start a process that calls mill.start()');
  return fine(`${String(live.length)} alive: ${listed(live.map(({ instanceId }) => instanceId))}`);
}

async function judgeJobs(store: Store, live: readonly InstanceState[]): Promise<Verdict> {
  const { names } = await store.jobs.stats(1_000);
  const run = new Set(live.flatMap((one) => one.names));
  const orphans = names.filter(({ name, counts }) => counts.pending > 0 && !run.has(name));
  if (orphans.length === 0) return fine('a live instance runs every name that has pending jobs');
  const named = orphans.map(({ name }) => name);
  const found = `pending jobs that no live instance runs: ${listed(named)}`;
  const start = `start an instance with a handler for ${listed(named.map(show))}`;
  if (live.length === 0) return warning(found, start);
  return destroying(warning(found, `${start}, or: tidemill cancel --name ${shellWord(named[0] ?? '')}`));
}

function judgePaused({ paused }: Cluster): Verdict {
  if (paused.has(EVERYTHING)) return warning('all work of the cluster is paused', 'tidemill resume --all');
  const names = [...paused].sort();
  if (names.length === 0) return fine('no name is paused');
  return warning(
    `paused until you resume them: ${listed(names)}`,
    names.map((name) => `tidemill resume ${shellArgument(name)}`).join('\n'),
  );
}

/** Compares the definitions in the database with those that live instances run. */
async function judgeDefinitions(
  store: Store,
  cluster: Cluster,
  live: readonly InstanceState[],
): Promise<readonly Verdict[]> {
  if (store.reactive === undefined) return [skipped(`the ${store.kind} store has no data to watch`)];
  const states = (await store.reactive.planner.states()).filter((state) => !retired(state, cluster));
  if (states.length === 0) return [skipped('none is defined')];
  const adverts = live.flatMap(({ tasks }) => tasks);
  const verdicts = states.flatMap(({ task, leftOutSince, leftOutReason }): Verdict[] => {
    if (leftOutSince instanceof Date)
      return [
        failure(
          `${show(task)} has not been planned since ${leftOutSince.toISOString()}: ${leftOutReason ?? 'left out'}`,
          'grant the database role of the leading instance what the message asks for, or let only instances that have it plan: call ' +
            "mill.start({ roles: ['work', 'maintain'] }) on the others. Missed changes are reconciled then",
        ),
      ];
    const definitions = new Set(
      adverts.filter((one) => one.task === task).map(({ definition }) => definition),
    );
    if (definitions.size === 1) return [];
    if (definitions.size > 1)
      return [
        warning(
          `live instances have ${String(definitions.size)} different definitions of ${show(task)}`,
          'finish the deployment, so that all instances run the same code',
        ),
      ];
    return [
      destroying(
        warning(
          `${show(task)} is planned, but no live instance runs it`,
          `start an instance that defines ${show(task)}, or if it left the code: tidemill forget ${shellArgument(task)}`,
        ),
      ),
    ];
  });
  return verdicts.length > 0
    ? verdicts
    : [fine(`${String(states.length)} defined, each run by a live instance`)];
}

async function judgeDocuments(documents: DocumentSchedules): Promise<Verdict | readonly Verdict[]> {
  const advice = await documents.indexFaults();
  if (advice === undefined) return skipped('none is defined on this mill');
  if (advice.length === 0) return fine('an index serves each search for due documents');
  return advice.map((text) => {
    const [found = text, fix = 'create an index on the due time'] = text.split(/; create one: /u);
    return warning(found, fix);
  });
}
