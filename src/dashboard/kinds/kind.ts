/** What each of the three kinds of work has to offer to the dashboard. */
import type { RequestContext } from '../request-context.js';
import type { ActAnswer, Action, WorkDetail, WorkPage } from '../contract.js';
import type { WorkFilter, WorkQuery } from '../http/parameters.js';

/** Which work an action on many is about. */
export type Chosen = { readonly ids: readonly string[] } | { readonly filter: WorkFilter };

export interface ManyRequest {
  readonly action: Action;
  readonly chosen: Chosen;
  /** What changed after it is left alone. */
  readonly asOf: Date;
  readonly signal: AbortSignal;
  /** Told of how many have been changed so far. */
  readonly progress: (count: number) => Promise<void>;
}

export interface Kind {
  /** What works on everything that matches. */
  readonly bulk: readonly Action[];
  /** What works on a name. */
  readonly nameActions: readonly Action[];
  find(context: RequestContext, query: WorkQuery): Promise<WorkPage>;
  detail(context: RequestContext, id: string): Promise<WorkDetail>;
  /** Does it to one of them, and says what came of it; `title` is for the audit log. */
  act(context: RequestContext, action: Action, id: string): Promise<ActAnswer>;
  title(id: string): string;
  /** Whether `_id` stands for something that is hidden, for any work that the filter may be about. */
  hidesKeys(context: RequestContext, filter: WorkFilter): Promise<boolean>;
  /** How many an action would touch; counting stops at `limit`. */
  count(context: RequestContext, chosen: Chosen, action: Action | undefined, limit: number): Promise<number>;
  many(context: RequestContext, request: ManyRequest): Promise<number>;
}
