import type { Names } from '../names.js';
import type { Migration } from './migration.js';

/**
 * Jobs. Every column but the name has a default or may be null, so that a row inserted by hand runs like any other.
 * Texts that are compared have the collation "C": the same order everywhere, and cheap. Each job leaves two dead rows
 * behind, so autovacuum starts at a tenth of its default scale factor (ADR 14).
 */
const jobsTable = ({ jobs }: Names): string => `
  create table ${jobs} (
    id text collate "C" primary key default gen_random_uuid()::text,
    name text collate "C" not null,
    data jsonb,
    status text collate "C" not null default 'pending'
      check (status in ('pending', 'processing', 'completed', 'failed', 'cancelled')),
    priority smallint not null default 0 check (priority between -10 and 10),
    next_run_at timestamptz(3) not null default now() check (isfinite(next_run_at)),
    created_at timestamptz(3) not null default now(),
    updated_at timestamptz(3) not null default now(),
    finished_at timestamptz(3),
    expires_at timestamptz(3),
    locked_at timestamptz(3),
    claimed_by text collate "C",
    lease_token text collate "C",
    started_token text collate "C",
    last_heartbeat timestamptz(3),
    heartbeat_interval double precision,
    fail_count integer not null default 0,
    fail_reason text,
    fail_kind text,
    first_failed_at timestamptz(3),
    unique_key text collate "C",
    retry_policy jsonb,
    timeout_ms double precision,
    cancel_requested_at timestamptz(3),
    result jsonb,
    progress jsonb,
    logs jsonb,
    history jsonb,
    repeat_interval text,
    timezone text,
    start_at timestamptz(3),
    repeat_until timestamptz(3),
    missed text,
    paused boolean,
    schedule_key text collate "C",
    schedule_rev integer,
    schedule_id text collate "C",
    scheduled_for timestamptz(3)
  ) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000)`;

/**
 * Each index with the queries it serves. Running jobs are few and change often, so the indexes for lists leave them
 * out: a claim writes two index entries instead of five.
 */
const jobsIndexes = ({ jobs }: Names): readonly string[] => [
  // claim: the head of the queue of each name and priority.
  `create index jobs_claim on ${jobs} (name, priority desc, next_run_at, id) where status = 'pending'`,
  // peek: the earliest due time of each name; find pending jobs by due time. The condition on `next_run_at` always
  // holds. It keeps PostgreSQL from using this index for claims, where it would read every priority (ADR 14).
  `create index jobs_due on ${jobs} (name, next_run_at, id)
     where status = 'pending' and next_run_at > '-infinity'`,
  // insert and retry: one live job per name and unique key.
  `create unique index jobs_unique on ${jobs} (name, unique_key)
     where unique_key is not null and status in ('pending', 'processing')`,
  // heartbeat, reclaim, strays: the work in flight, by holder and age.
  `create index jobs_held on ${jobs} (claimed_by, locked_at) where status = 'processing'`,
  // schedules: list and lookup.
  `create index jobs_schedules on ${jobs} (name, schedule_key) where repeat_interval is not null`,
  // find by name and status, newest first; names and counts for stats.
  `create index jobs_by_name on ${jobs} (name, status, created_at desc, id desc) where status <> 'processing'`,
  // find by status, last changed first.
  `create index jobs_by_status on ${jobs} (status, updated_at desc, id desc) where status <> 'processing'`,
  // find without a filter, newest first.
  `create index jobs_by_age on ${jobs} (created_at desc, id desc) where status <> 'processing'`,
  // retention.
  `create index jobs_expiry on ${jobs} (expires_at) where expires_at is not null`,
];

const instancesTable = ({ instances }: Names): readonly string[] => [
  `create table ${instances} (
    life text collate "C" primary key,
    instance_id text collate "C" not null,
    names jsonb not null,
    tasks jsonb not null,
    policies jsonb not null,
    host text not null,
    pid integer not null,
    lease_until timestamptz(3) not null,
    dead boolean not null
  )`,
  // one live registration per instance id.
  `create unique index instances_alive on ${instances} (instance_id) where not dead`,
];

const pausesTable = ({ pauses }: Names): string => `
  create table ${pauses} (
    kind text collate "C" not null,
    name text collate "C" not null,
    until timestamptz(3),
    primary key (kind, name)
  )`;

const locksTable = ({ locks }: Names): readonly string[] => [
  `create table ${locks} (
    key text collate "C" primary key,
    token text collate "C",
    held_by text,
    lease_until timestamptz(3) not null,
    fence bigint not null
  )`,
  // sweep: locks that have been unused for long.
  `create index locks_age on ${locks} (lease_until)`,
];

export const jobs: Migration = {
  version: 1,
  name: 'jobs',
  up: (names) => [
    jobsTable(names),
    ...jobsIndexes(names),
    ...instancesTable(names),
    pausesTable(names),
    ...locksTable(names),
  ],
};
