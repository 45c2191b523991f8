import type { Document, MongoClient } from 'mongodb';
import type { ContenderName } from '../contender.js';

export const SOURCE = 'items';
export const TASKS = 'items_tasks';
export const TASK = 'noop';

/** What a watched document says. */
export interface Data {
  readonly n: number;
  /** How often it was updated. */
  readonly v?: number;
}

/** Which instance is wanted, and what its task is to be like. */
export interface ReactivePlace {
  readonly database: string;
  readonly variant: string;
  /** The handler asks for its document. */
  readonly fetch?: boolean;
  /** Milliseconds; undefined leaves it to the library's default. */
  readonly debounce?: number | undefined;
  /** False: this instance plans, but runs no handler. */
  readonly runs?: boolean;
}

/** One library's reactive tasks in this process, reduced to what is measured. */
export interface ReactiveContender {
  /** Begins to plan and to work; `run` is the handler's first line. */
  start(run: (data: Data) => void): Promise<void>;
  /** Writes so many documents itself and works on them; only who hears of no changes has it. */
  drive?(count: number): Promise<void>;
  /** Looks at every document, for the first time or again; resolves when it is through. Absent where it cannot be asked. */
  reconcile?(pass: number): Promise<void>;
  /** True while this instance plans for all. */
  leads(): Promise<boolean>;
  /** Figures of its own that belong in the results. */
  extra?(): Record<string, unknown>;
  stop(): Promise<void>;
}

export interface ReactiveModule {
  /** Settings by variant, as they are written into the results. */
  readonly variants: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Finds the task of a document in `TASKS`. */
  taskOf(id: unknown): Document;
  /** Finds tasks in `TASKS` that have to run, or run; by an index. */
  readonly unfinished: Document;
  open(client: MongoClient, place: ReactivePlace): Promise<ReactiveContender>;
}

/** Resolves when so many passes have been counted. */
export async function passed(count: () => number, pass: number): Promise<void> {
  while (count() < pass) await new Promise((resolve) => setTimeout(resolve, 5));
}

const MODULES = {
  raw: () => import('./raw.js'),
  tidemill: () => import('./tidemill.js'),
  mongodash: () => import('./mongodash.js'),
};

export type ReactiveName = keyof typeof MODULES & ContenderName;

export const REACTIVE = Object.keys(MODULES) as readonly ReactiveName[];

export const loadReactive = async (name: ReactiveName): Promise<ReactiveModule> =>
  (await MODULES[name]()).contender;
