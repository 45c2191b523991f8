import type { Names } from '../names.js';
import type { Migration } from './migration.js';

/** The audit log: who did what by hand. */
const auditTable = ({ audit }: Names): readonly string[] => [
  `create table ${audit} (
    id text collate "C" primary key,
    at timestamptz(3) not null default now(),
    updated_at timestamptz(3) not null default now(),
    actor text not null,
    action text not null,
    target text not null,
    outcome text not null,
    details jsonb,
    stop_requested boolean not null default false,
    expires_at timestamptz(3) not null
  )`,
  // list: newest first.
  `create index audit_by_age on ${audit} (at desc, id desc)`,
  // retention.
  `create index audit_expiry on ${audit} (expires_at)`,
];

export const audit: Migration = {
  version: 4,
  name: 'audit',
  up: (names) => [
    ...auditTable(names),
    // How much an instance runs at once; null if an older version registered it.
    `alter table ${names.instances} add column capacity jsonb`,
  ],
};
