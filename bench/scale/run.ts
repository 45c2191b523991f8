/** Runs at scale: `npm run bench -- --scale full --jobs 10000000 --on postgres`. Each runs alone, for minutes or hours. */
import { parseArgs } from 'node:util';
import type { Row } from '../lib/bench.js';
import { chosen } from '../lib/flags.js';
import { record, tables } from '../lib/report.js';
import { full } from './full.js';
import { instances } from './instances.js';
import { names } from './names.js';
import { PLACES } from './places.js';
import { sharded } from './sharded.js';
import { through } from './through.js';

/** What every run is given. */
export interface Scale {
  readonly on: readonly (keyof typeof PLACES)[];
  /** How many jobs: of each kind for `full`, in all for `through`. */
  readonly jobs: number;
  readonly instances: number;
  readonly names: number;
  add(row: Row): void;
}

const RUNS = { full, instances, names, through, sharded };

const { values: flags } = parseArgs({
  options: {
    scale: { type: 'string', default: 'full' },
    on: { type: 'string', default: Object.keys(PLACES).join(',') },
    jobs: { type: 'string', default: '1000000' },
    instances: { type: 'string', default: '100' },
    names: { type: 'string', default: '10000' },
  },
});

const rows: Row[] = [];
const scale: Scale = {
  on: chosen('on', flags.on, Object.keys(PLACES) as (keyof typeof PLACES)[]),
  jobs: Number(flags.jobs),
  instances: Number(flags.instances),
  names: Number(flags.names),
  add: (row) => {
    rows.push(row);
    console.error(`${row.section}: ${row.contender} ${row.variant} ${JSON.stringify(row.figures)}`);
  },
};
const [name] = chosen('scale', flags.scale, Object.keys(RUNS) as (keyof typeof RUNS)[]);
const began = new Date();
await RUNS[name!](scale);
console.log(tables(rows));
const { on, jobs, instances: count, names: defined } = scale;
const settings = { on, jobs, instances: count, names: defined };
record(`scale-${name!}-${on.join('-')}`, { began, settings, rows });
process.exit(0);
