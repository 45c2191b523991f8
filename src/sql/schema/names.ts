import { createHash } from 'node:crypto';
import { OptionError } from '../../core/errors.js';
import { checkText, show } from '../../core/options.js';

const LONGEST_BYTES = 63;

/** The one place where an identifier becomes SQL. */
export const quoted = (identifier: string): string => `"${identifier.replaceAll('"', '""')}"`;

/** Quoted names of everything in one schema, and the channel on which its instances wake each other. */
export interface Names {
  /** As given, unquoted. */
  readonly schema: string;
  readonly jobs: string;
  readonly instances: string;
  readonly pauses: string;
  readonly locks: string;
  readonly audit: string;
  readonly migrations: string;
  readonly metricCounts: string;
  readonly metricShares: string;
  readonly metricMinutes: string;
  readonly channel: string;
  /** Quotes the name of any other table. */
  readonly table: (name: string) => string;
}

export function namesIn(schema: string): Names {
  const table = (name: string): string => `${quoted(schema)}.${quoted(name)}`;
  return {
    schema,
    jobs: table('jobs'),
    instances: table('instances'),
    pauses: table('pauses'),
    locks: table('locks'),
    audit: table('audit'),
    migrations: table('migrations'),
    metricCounts: table('metric_counts'),
    metricShares: table('metric_shares'),
    metricMinutes: table('metric_minutes'),
    // Hashed, since a channel name is limited to the length of an identifier, and a prefix could exceed it.
    channel: `tidemill_${createHash('sha256').update(schema).digest('hex').slice(0, 24)}`,
    table,
  };
}

export function checkSchema(where: string, schema: unknown): string {
  const name = checkText(where, 'schema', schema);
  const fault = faultOf(name);
  if (fault === undefined) return name;
  throw new OptionError(`${where}: schema ${show(name)} ${fault}; use another name.`);
}

function faultOf(name: string): string | undefined {
  if (Buffer.byteLength(name) > LONGEST_BYTES) return `is longer than ${String(LONGEST_BYTES)} bytes`;
  if (name.includes('\0') || /\p{Surrogate}/u.test(name))
    return 'has a character that PostgreSQL cannot store';
  if (name.startsWith('pg_')) return 'begins with pg_, which PostgreSQL reserves';
  return undefined;
}
