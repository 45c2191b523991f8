/** What the dashboard needs of each of the three kinds of work. */
import type { RequestContext } from '../request-context.js';
import type { ActAnswer, Action, WorkDetail, WorkPage } from '../contract.js';
import type { WorkFilter, WorkQuery } from '../http/parameters.js';

/** The work that a bulk action is about. */
export type Chosen = { readonly ids: readonly string[] } | { readonly filter: WorkFilter };

export interface ManyRequest {
  readonly action: Action;
  readonly chosen: Chosen;
  /** Work that changed later is left alone. */
  readonly asOf: Date;
  readonly signal: AbortSignal;
  /** Receives how many items have been changed so far. */
  readonly progress: (count: number) => Promise<void>;
}

export interface Kind {
  /** Actions on everything that a filter matches. */
  readonly bulk: readonly Action[];
  /** Actions on a name. */
  readonly nameActions: readonly Action[];
  find(context: RequestContext, query: WorkQuery): Promise<WorkPage>;
  detail(context: RequestContext, id: string): Promise<WorkDetail>;
  /** Acts on one item and returns the outcome. `title` is for the audit log. */
  act(
    context: RequestContext,
    action: Action,
    id: string,
    replacement?: { readonly data: unknown },
  ): Promise<ActAnswer>;
  title(id: string): string;
  /** Whether `_id` holds something hidden, for any work that the filter may match. */
  hidesKeys(context: RequestContext, filter: WorkFilter): Promise<boolean>;
  /** Counts the items that an action would affect; stops counting at `limit`. */
  count(context: RequestContext, chosen: Chosen, action: Action | undefined, limit: number): Promise<number>;
  many(context: RequestContext, request: ManyRequest): Promise<number>;
}
