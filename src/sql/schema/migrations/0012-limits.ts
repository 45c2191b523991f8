import type { Names } from '../names.js';
import { keyedFunctions } from './0012-enqueue.js';
import { keyFunctions, startsFunction, unstartedFunction } from './0012-keys.js';
import { keyTriggers } from './0012-triggers.js';
import { JOB_KEY, keyedJobs, type KeyedTable } from './keyed-table.js';
import type { Migration } from './migration.js';

/** Scopes, each with its definition and its state as `src/store/limits/scope.ts` knows it. */
const limitsTable = ({ table }: Names): string => `
  create table ${table('limits')} (
    scope text collate "C" primary key,
    kind text collate "C" not null,
    name text collate "C" not null,
    limits jsonb not null,
    code jsonb,
    changes jsonb,
    rev integer not null,
    state jsonb not null,
    version bigint not null
  ) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)`;

/**
 * The keys of which something waits. `at` says when a claim has to look at the key again: infinity if only the end of
 * some of its work can help. `rule` identifies the limits by which it was looked at last, `held` says that they hold up
 * due work. Only claims write here, one at a time for each name.
 */
export const keysTables = ({
  keys,
  wakes,
  called,
}: Pick<KeyedTable, 'keys' | 'wakes' | 'called'>): readonly string[] => [
  `create table ${keys} (
    name text collate "C" not null,
    key text collate "C" not null,
    rule text collate "C" not null,
    at timestamptz not null,
    held boolean not null default false,
    served_at timestamptz,
    free_at timestamptz,
    starts jsonb,
    primary key (name, key)
  ) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000)`,
  // claim: the keys that can run, the one that waits longest first; keys that were looked at by another rule.
  `create index ${called('keys')}_ready on ${keys} (name, rule, at)`,
  // claim: when the first key that holds up due work can run.
  `create index ${called('keys')}_held on ${keys} (name, at) where held`,
  // Append only, so that no transaction waits for another one. adds: something of the key waits. frees: something
  // of it ended, or waits no longer. unstarted: the claim of that time was no start.
  `create table ${wakes} (
    name text collate "C" not null,
    key text collate "C" not null,
    at timestamptz not null,
    adds boolean not null,
    frees boolean not null,
    unstarted timestamptz
  ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)`,
  `create index ${called('key_wakes')}_by_name on ${wakes} (name)`,
];

/** Jobs without a key are in none of them. */
const keyIndexes = ({ jobs }: Names): readonly string[] => [
  // claim by keys: the head of each key by priority.
  `create index if not exists jobs_keyed on ${jobs} ((${JOB_KEY}), priority desc, next_run_at, id)
     where status = 'pending' and limit_key is not null`,
  // claim by keys: the head of each key by its order.
  `create index if not exists jobs_ordered on ${jobs} ((${JOB_KEY}), limit_order, next_run_at, id)
     where status = 'pending' and limit_key is not null`,
  // claim by keys: what runs of each key.
  `create index if not exists jobs_keyed_held on ${jobs} ((${JOB_KEY}))
     where status = 'processing' and limit_key is not null`,
];

export const limits: Migration = {
  version: 12,
  name: 'limits',
  compatibleSince: 6,
  up: (names) => [
    // limit_key: by which key limits count the job. limit_order: its place among the jobs of its key. A step back keeps
    // them, and the functions that write them.
    `alter table ${names.jobs}
       add column if not exists limit_key text collate "C",
       add column if not exists limit_order text collate "C"`,
    ...keyedFunctions(names),
    limitsTable(names),
    ...keysTables(keyedJobs(names)),
    ...keyIndexes(names),
    ...keyTriggers(keyedJobs(names)),
    startsFunction(names),
    unstartedFunction(names),
    ...keyFunctions(names, keyedJobs(names)),
  ],
};
