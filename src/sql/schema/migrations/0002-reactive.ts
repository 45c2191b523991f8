import type { Names } from '../names.js';
import { literal, reactiveNames, type ReactiveNames } from '../../reactive/names.js';
import type { Migration } from './migration.js';

/**
 * The task of one row. `key` is the exact text of its primary key, `source_doc_id` the key as users see it.
 * docs/architecture.md describes the statuses. The columns after `updated_at` are the engine's.
 */
const tasksTable = ({ tasks }: ReactiveNames): readonly string[] => [
  `create table ${tasks} (
    task text collate "C" not null,
    key text collate "C" not null,
    source_doc_id jsonb not null,
    status text collate "C" not null default 'pending'
      check (status in ('pending', 'processing', 'processing_dirty', 'completed', 'failed')),
    scheduled_at timestamptz(3) not null,
    initial_scheduled_at timestamptz(3) not null,
    attempts integer not null default 0,
    last_observed_values jsonb,
    first_error_at timestamptz(3),
    last_error text,
    last_success jsonb,
    last_finalized_at timestamptz(3),
    execution_history jsonb,
    created_at timestamptz(3) not null,
    updated_at timestamptz(3) not null,
    matched boolean not null,
    locked_at timestamptz(3),
    claimed_by text collate "C",
    lease_token text collate "C",
    started_token text collate "C",
    fail_kind text,
    waiting_since timestamptz(3),
    deferred_until timestamptz(3),
    touched boolean not null default false,
    overtaken boolean not null default false,
    primary key (task, key)
  )`,
  // peek and claim: the head of the queue of each task.
  `create index tasks_due on ${tasks} (task, scheduled_at, key) where status = 'pending'`,
  // reclaim and stray detection: the work in flight, by holder and age.
  `create index tasks_held on ${tasks} (claimed_by, locked_at) where status in ('processing', 'processing_dirty')`,
  // find by task and status, by due time; counts; resets of finished tasks.
  `create index tasks_by_status on ${tasks} (task, status, scheduled_at desc, key desc)`,
];

/**
 * Rows are deleted soon after they are inserted. A transaction may commit late with a low number, and a row may change
 * several times, so there is neither an order nor uniqueness to rely on. Vacuumed by the number of dead rows, since a
 * share of an empty table says nothing.
 */
const changesTable = ({ changes, changeNumbers, idle }: ReactiveNames): readonly string[] => [
  `create sequence ${changeNumbers}`,
  `create table ${changes} (
    seq bigint primary key default nextval(${literal(changeNumbers)}),
    source text collate "C" not null,
    key text collate "C" not null,
    kind text collate "C" not null,
    at timestamptz(3) not null default statement_timestamp()
  ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)`,
  // A sequence is read and set at once, inside or outside a transaction, and leaves no dead rows behind.
  `create sequence ${idle} minvalue 0 start 0`,
];

const registryTables = (names: ReactiveNames): readonly string[] => [
  `create table ${names.sources} (
    name text collate "C" primary key,
    capture text not null,
    signature text not null
  )`,
  `create table ${names.definitions} (
    task text collate "C" not null,
    id text collate "C" not null,
    source text collate "C" not null,
    plan jsonb not null,
    trigger text not null,
    first_seen_at timestamptz(3) not null,
    primary key (task, id)
  )`,
  `create table ${names.states} (
    task text collate "C" primary key,
    state jsonb not null,
    wanted bigint not null,
    handler_version bigint not null,
    term bigint not null
  )`,
  `create table ${names.planner} (
    one boolean primary key default true check (one),
    life text collate "C",
    instance_id text not null,
    term bigint not null
  )`,
  `create table ${names.checkpoints} (
    source text collate "C" primary key,
    checkpoint jsonb,
    term bigint not null
  )`,
];

/**
 * The session decides what a time, a float or an interval looks like as text, and what a text means as a time. Keys,
 * snapshots and filters must mean the same to every instance, so their statements run under fixed settings, inside a
 * function: the session, which may be a user's, keeps its own.
 */
const pinnedFunction = ({ pinned }: ReactiveNames): string => `
  create function ${pinned}(statement text, args text[]) returns setof text language plpgsql
    set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres'
    set extra_float_digits = 1 set bytea_output = 'hex'
  as 'begin return query execute statement using args; end'`;

export const reactive: Migration = {
  version: 2,
  name: 'reactive',
  up: (names: Names) => {
    const own = reactiveNames(names);
    return [...tasksTable(own), ...changesTable(own), ...registryTables(own), pinnedFunction(own)];
  },
};
