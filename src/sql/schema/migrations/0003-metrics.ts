import type { Names } from '../names.js';
import type { Migration } from './migration.js';

/** What the cluster has counted, by series. Rows are few, and each is written about once a minute. */
const countsTable = ({ metricCounts }: Names): string => `
  create table ${metricCounts} (
    series text collate "C" primary key,
    counts jsonb not null,
    day integer not null
  )`;

/** What each instance last reported. `number` is that of the last share that was counted. */
const sharesTable = ({ metricShares }: Names): string => `
  create table ${metricShares} (
    id text collate "C" primary key,
    number bigint not null,
    at timestamptz(3) not null,
    share jsonb not null
  )`;

/** What happened in each minute, by the share that reported it. The empty share holds the backlogs. */
const minutesTable = ({ metricMinutes }: Names): string => `
  create table ${metricMinutes} (
    minute timestamptz(3) not null,
    share text collate "C" not null,
    cells jsonb not null,
    primary key (minute, share)
  )`;

export const metrics: Migration = {
  version: 3,
  name: 'metrics',
  up: (names) => [
    countsTable(names),
    sharesTable(names),
    minutesTable(names),
    // The trace context of the request for a job, or of the planning of a task.
    `alter table ${names.jobs} add column trace jsonb`,
    `alter table ${names.table('tasks')} add column trace jsonb`,
  ],
};
