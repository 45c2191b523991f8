import type { Document, MongoClient } from 'mongodb';
import type { ContenderName } from '../contender.js';

export const SOURCE = 'items';
export const TASKS = 'items_tasks';
export const TASK = 'noop';

/** The content of a watched document. */
export interface Data {
  readonly n: number;
  /** How often it has been updated. */
  readonly v?: number;
}

/** Which instance to open, and the settings of its task. */
export interface ReactivePlace {
  readonly database: string;
  readonly variant: string;
  /** Whether the handler reads its document. */
  readonly fetch?: boolean;
  /** Milliseconds; undefined: the library's default. */
  readonly debounce?: number | undefined;
  /** False: this instance plans but runs no handler. */
  readonly runs?: boolean;
}

/** One library's reactive tasks in this process, reduced to what is measured. */
export interface ReactiveContender {
  /** Starts to plan and to work; `run` is the handler's first line. */
  start(run: (data: Data) => void): Promise<void>;
  /** Writes `count` documents itself and works on them. Only a contender that follows no changes has this. */
  drive?(count: number): Promise<void>;
  /**
   * Looks at every document, for the first time or again, and resolves at the end. Absent if the library has no call
   * for it.
   */
  reconcile?(pass: number): Promise<void>;
  /** Returns true while this instance is the leader. */
  leads(): Promise<boolean>;
  /** Its own figures that belong in the results. */
  extra?(): Record<string, unknown>;
  stop(): Promise<void>;
}

export interface ReactiveModule {
  /** Settings by variant, as they are written into the results. */
  readonly variants: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Returns a filter that finds the task of a document in `TASKS`. */
  taskOf(id: unknown): Document;
  /** A filter for tasks in `TASKS` that are to run, or run; an index serves it. */
  readonly unfinished: Document;
  open(client: MongoClient, place: ReactivePlace): Promise<ReactiveContender>;
}

/** Resolves when `pass` passes have been counted. */
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
