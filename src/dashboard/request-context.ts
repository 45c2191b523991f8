import type { Reason, WhyTarget } from '../index.js';
import type { Viewer } from './http/access.js';
import type { ResponseCache } from './response-cache.js';
import type { Action, Right } from './contract.js';
import type { DashboardSettings, Mill } from './options.js';
import { REDACTED } from './redaction/redact-text.js';
import type { Redactor } from './redaction/redact.js';
import type { Seal } from './redaction/seal.js';

/** What every response is made from: the mill, the viewer, and what must not be shown. */
export interface RequestContext {
  readonly mill: Mill;
  readonly settings: DashboardSettings;
  readonly redactor: Redactor;
  readonly seal: Seal;
  readonly viewer: Viewer;
  /** Recent results, shared by all requests. */
  readonly cache: ResponseCache;
}

export const may = ({ viewer }: RequestContext, right: Right): boolean => viewer.rights.includes(right);

/** A viewer without the right `act` is offered no actions. */
export const offered = (context: RequestContext, actions: readonly Action[]): readonly Action[] =>
  may(context, 'act') ? actions : [];

/** Why work waits. The reasons can contain names, which are redacted, and keys, which are data. */
export const whyOf = async (context: RequestContext, target: WhyTarget): Promise<readonly Reason[]> =>
  (await context.mill.why(target)).map((reason) => {
    const text = may(context, 'payload') ? reason.text : withoutKeys(reason.text);
    return { ...reason, text: context.redactor.text(text) };
  });

/** Leaves keys out of a reason: those that it quotes, and those in ids of schedules. */
const withoutKeys = (text: string): string =>
  text
    .replaceAll(/\bkey "(?:[^"\\]|\\.)*"/gu, `key ${REDACTED}`)
    .replaceAll(/\b(schedule:([^\s:@]+):)([^\s@]+)/gu, (whole, head: string, name: string, key: string) =>
      key === name ? whole : head + REDACTED,
    );

export const iso = (at: Date | null | undefined): string | null => at?.toISOString() ?? null;

/** Drops undefined fields, for the optional parts of a response. */
export function present<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never;
}
