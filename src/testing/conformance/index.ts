/**
 * `tidemill/testing/conformance`: every fact about a store, for stores that are not Tidemill's own. It runs under any
 * test runner that has `describe` and `it`, such as node:test and Vitest. docs/write-a-store.md follows an example.
 */
import { OptionError } from '../../core/errors.js';
import { checkKeys } from '../../core/options.js';
import {
  CAPABILITIES,
  missing,
  registerFacts,
  type Capability,
  type Chapter,
  type Runner,
} from './chapters.js';
import { claim } from './facts/claim.js';
import { existing, expiring, updating } from './facts/existing.js';
import { hostile } from './facts/hostile.js';
import { interleavings } from './facts/interleaving.js';
import { insight } from './facts/insight.js';
import { instances, leases } from './facts/lease.js';
import { keyedExisting } from './facts/keyed-existing.js';
import { keys } from './facts/keys.js';
import { permits } from './facts/limits.js';
import { life } from './facts/life.js';
import { lockPort, withLock } from './facts/lock.js';
import { managing } from './facts/manage.js';
import { measures } from './facts/metrics.js';
import { payloads } from './facts/payload.js';
import { rates } from './facts/rates.js';
import { reserved } from './facts/reserve.js';
import { running } from './facts/run.js';
import { schedules } from './facts/schedule.js';
import { settle } from './facts/settle.js';
import { unique } from './facts/unique.js';

export type { Capability };

/** The runner's functions, and the store to be tested. */
export interface StoreTests extends Runner {
  /** `describe` of the test runner. */
  readonly describe: (title: string, body: () => void) => unknown;
}

/** What `testStore` has registered. */
export interface TestedFacts {
  readonly run: readonly string[];
  /** Left out, each with the capabilities that it needs and the store does without. */
  readonly leftOut: readonly { readonly fact: string; readonly needs: readonly Capability[] }[];
}

/** In the order in which a new store learns them. */
const chapters: readonly Chapter[] = [
  claim,
  settle,
  instances,
  running,
  unique,
  existing,
  expiring,
  updating,
  payloads,
  managing,
  life,
  leases,
  reserved,
  interleavings,
  hostile,
  insight,
  schedules,
  lockPort,
  withLock,
  measures,
  permits,
  rates,
  keys,
  keyedExisting,
];

/**
 * Registers every fact about a store with a test runner. Tidemill works on a store that passes as on its own stores.
 */
export function testStore(options: StoreTests): TestedFacts {
  const without = checkedWithout(options);
  for (const chapter of chapters)
    options.describe(chapter.title, () => registerFacts(chapter, { ...options, without }));
  const all = chapters.flatMap(({ title, facts }) =>
    facts.map((one) => ({ fact: `${title}: ${one.title}`, needs: missing(one, without) })),
  );
  return {
    run: all.filter(({ needs }) => needs.length === 0).map(({ fact }) => fact),
    leftOut: all.filter(({ needs }) => needs.length > 0),
  };
}

function checkedWithout(options: StoreTests): readonly Capability[] {
  checkKeys('testStore()', options, ['describe', 'it', 'open', 'without', 'close']);
  const { without = [] } = options;
  const unknown = without.find((capability) => !CAPABILITIES.includes(capability));
  if (unknown !== undefined)
    throw new OptionError(
      `testStore(): without has the unknown capability "${unknown}". The capabilities are ${CAPABILITIES.join(', ')}.`,
    );
  return without;
}
