import { OptionError } from '../core/errors.js';
import type { Emitter } from '../core/emitter.js';
import { show, suggestion } from '../core/options.js';
import type { JobEvents } from '../jobs/events.js';
import type { TaskEvents } from '../reactive/events.js';
import type { ScopeRef } from '../store/port.js';

/** All events of a mill. Each carries one object, with the id of the instance that emits it. */
export interface MillEvents extends JobEvents, TaskEvents {}

/** Emits the event of a breaker that has turned. */
export function emitTurn(
  events: Emitter<MillEvents>,
  { kind, name }: ScopeRef,
  turn: { readonly to: 'open' | 'trial' | 'closed'; readonly until?: Date | undefined },
  instanceId: string,
): void {
  const { to, until } = turn;
  if (to === 'open') events.emit('breaker:open', { kind, name, until: until ?? new Date(), instanceId });
  else events.emit(to === 'trial' ? 'breaker:trial' : 'breaker:close', { kind, name, instanceId });
}

const EVENTS = Object.keys({
  'job:start': true,
  'job:complete': true,
  'job:fail': true,
  'job:retry': true,
  'job:cancel': true,
  'job:expire': true,
  'job:progress': true,
  'task:start': true,
  'task:complete': true,
  'task:fail': true,
  'task:retry': true,
  'task:skip': true,
  'task:defer': true,
  'breaker:open': true,
  'breaker:trial': true,
  'breaker:close': true,
  'stale:recovered': true,
  'lease:lost': true,
  'store:lost': true,
  'store:back': true,
  'leader:gained': true,
  'leader:lost': true,
  'history:lost': true,
  'reconcile:start': true,
  'reconcile:progress': true,
  'reconcile:complete': true,
  start: true,
  stop: true,
  error: true,
} satisfies Record<keyof MillEvents, true>);

/** Throws for an event that a mill never emits. `completed` means `job:complete`: the kind of work may be left out. */
export function checkEvent(where: string, event: unknown): void {
  if (typeof event === 'string' && EVENTS.includes(event)) return;
  throw new OptionError(
    `${where}: unknown event ${show(event)}.${nearest(event)} Known events: ${EVENTS.join(', ')}.`,
  );
}

function nearest(event: unknown): string {
  if (typeof event !== 'string') return '';
  const exact = suggestion(event, EVENTS);
  if (exact !== '') return exact;
  const close = EVENTS.find((known) => suggestion(event, [known.split(':').at(-1) ?? known]) !== '');
  return close === undefined ? '' : ` Did you mean "${close}"?`;
}
