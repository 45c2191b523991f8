import type { Source, SourceOptions } from './reading.js';

export interface Library {
  /** As people write it. */
  readonly title: string;
  /** The ids of jobs from it begin with it. */
  readonly prefix: string;
  /** The records stay where they are; they are only checked. */
  readonly checksOnly?: boolean;
  readonly open: (options: SourceOptions) => Promise<Source>;
}

/** By the name that the command takes. Only the one that is asked for is loaded. */
export const LIBRARIES: Readonly<Record<string, Library>> = {
  agenda: {
    title: 'Agenda',
    prefix: 'agenda:',
    open: async (options) => (await import('./libraries/agenda.js')).openAgenda('agenda', options),
  },
  pulse: {
    title: 'Pulse',
    prefix: 'pulse:',
    open: async (options) => (await import('./libraries/agenda.js')).openAgenda('pulse', options),
  },
  monque: {
    title: 'Monque',
    prefix: 'monque:',
    open: async (options) => (await import('./libraries/monque.js')).openMonque(options),
  },
  'mongodb-cron': {
    title: 'mongodb-cron',
    prefix: 'mongodb-cron:',
    checksOnly: true,
    open: async (options) => (await import('./libraries/mongodb-cron.js')).openMongodbCron(options),
  },
  'pg-boss': {
    title: 'pg-boss',
    prefix: 'pg-boss:',
    open: async (options) => (await import('./libraries/pg-boss.js')).openPgBoss(options),
  },
  'graphile-worker': {
    title: 'graphile-worker',
    prefix: 'graphile-worker:',
    open: async (options) => (await import('./libraries/graphile-worker.js')).openGraphile(options),
  },
};
