import { reactiveNames } from '../../reactive/names.js';
import type { Migration } from './migration.js';

/**
 * Planning in several partitions. The record of partition 0 stays where it was, with the number of partitions; those
 * from 1 on have records of their own, which older versions do not know.
 */
export const partitions: Migration = {
  version: 9,
  name: 'partitions',
  compatibleSince: 5,
  up: (names) => {
    const own = reactiveNames(names);
    return [
      `alter table ${own.planner} add column partitions integer not null default 1, add column next integer,
         add column idle boolean not null default false`,
      `create table ${own.partitions} (
        partition integer primary key,
        life text collate "C",
        instance_id text not null,
        term bigint not null,
        idle boolean not null default false
      )`,
      `create table ${own.partitionStates} (
        partition integer not null,
        task text collate "C" not null,
        state jsonb not null,
        wanted bigint not null,
        handler_version bigint not null,
        term bigint not null,
        primary key (partition, task)
      )`,
      // The number of partitions that an instance is set to; null: its version knows none.
      `alter table ${names.instances} add column plans integer`,
    ];
  },
};
