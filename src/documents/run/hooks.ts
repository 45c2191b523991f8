import { asError } from '../../core/errors.js';
import type { HookContext, ScheduleErrorContext, ScheduleOptions } from '../options.js';

/** Receives errors if there is no `onError`, and errors that `onError` throws. */
export type Fallback = (error: Error, where: string) => void;

/** Calls the user's functions. None of them can end the loop. */
export class Hooks<Doc> {
  readonly #options: ScheduleOptions<Doc>;
  readonly #fallback: Fallback;
  #isIdle = false;

  constructor(options: ScheduleOptions<Doc>, fallback: Fallback) {
    this.#options = options;
    this.#fallback = fallback;
  }

  get isIdle(): boolean {
    return this.#isIdle;
  }

  get onDocument(): ScheduleOptions<Doc>['onDocument'] {
    return this.#options.onDocument;
  }

  /** Errors of `onStart` reach the caller. */
  async start(context: HookContext): Promise<void> {
    await this.#options.onStart?.(context);
  }

  async stop(context: HookContext): Promise<void> {
    this.#isIdle = false;
    await this.#call('onStop', context);
  }

  /** Calls `onIdle` once per idle period. */
  async idle(context: HookContext): Promise<void> {
    if (this.#isIdle) return;
    this.#isIdle = true;
    await this.#call('onIdle', context);
  }

  /** Ends the idle period: a document was found. */
  busy(): void {
    this.#isIdle = false;
  }

  async error(problem: unknown, context: ScheduleErrorContext<Doc>): Promise<void> {
    const { onError } = this.#options;
    const error = asError(problem);
    if (onError === undefined) {
      this.#fallback(error, context.where);
      return;
    }
    try {
      await onError(error, context);
    } catch (failure) {
      this.#fallback(asError(failure), 'onError');
    }
  }

  async #call(name: 'onStop' | 'onIdle', context: HookContext): Promise<void> {
    try {
      await this.#options[name]?.(context);
    } catch (error) {
      await this.error(error, { where: name });
    }
  }
}
