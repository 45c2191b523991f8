import type { MongoClient } from 'mongodb';
import type { MillEvents } from '../../src/mill/events.js';
import type { Logger, Tidemill } from '../../src/index.js';

/** What a handler saw of a document: its version. */
export interface Versioned {
  readonly _id: unknown;
  readonly version: number;
}

/** Which versions of which documents were handled, in order. */
export class Handled {
  readonly runs: { readonly id: string; readonly version: number }[] = [];

  note(id: unknown, version: number): void {
    this.runs.push({ id: String(id), version });
  }

  /** How often a document was handled. */
  times(id: unknown): number {
    return this.runs.filter((run) => run.id === String(id)).length;
  }

  /** The documents whose current version was not handled last. */
  async missing(client: MongoClient, collection: string, database?: string): Promise<string[]> {
    const last = new Map(this.runs.map(({ id, version }) => [id, version]));
    const documents = await client.db(database).collection<Versioned>(collection).find().toArray();
    return documents
      .filter(({ _id, version }) => last.get(String(_id)) !== version)
      .map(({ _id, version }) => `${String(_id)}@${String(version)}`);
  }
}

/** Every event of one name, from now on. */
export function collect<K extends keyof MillEvents>(mill: Tidemill, event: K): MillEvents[K][] {
  const seen: MillEvents[K][] = [];
  mill.on(event, (payload) => seen.push(payload));
  return seen;
}

export interface Logged {
  readonly level: string;
  readonly text: string;
  readonly fields: object;
}

/** A logger that keeps its lines. */
export function keepLines(): { readonly logger: Logger; readonly lines: Logged[] } {
  const lines: Logged[] = [];
  const keep =
    (level: string) =>
    (fields: object, text: string): void => {
      lines.push({ level, text, fields });
    };
  return {
    lines,
    logger: { debug: keep('debug'), info: keep('info'), warn: keep('warn'), error: keep('error') },
  };
}

/** Coordination documents, for tests that read or damage them. */
export const globalsOf = (client: MongoClient) =>
  client.db().collection<{ _id: string; [field: string]: unknown }>('_tidemill_globals');
