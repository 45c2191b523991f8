/** What a caller learns of an error: never more than concerns it. */
import { OptionError, StoreError, TidemillError } from '../../index.js';

export interface Problem {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

/** An error response whose message is meant for the caller. */
export class Refusal extends Error implements Problem {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const badRequest = (message: string): Refusal => new Refusal(400, 'bad_request', message);
export const notFound = (message = 'Not found.'): Refusal => new Refusal(404, 'not_found', message);
export const conflict = (message: string): Refusal => new Refusal(409, 'conflict', message);

export const tooLong = (): Refusal =>
  new Refusal(503, 'too_long', 'The search took too long. Narrow the filter.');

export const stopped = (): Refusal => new Refusal(503, 'stopped', 'The mill has stopped.');

const STATUS: Readonly<Record<string, number>> = {
  SCHEDULE_MISSING: 404,
  SCHEDULE_ENDED: 409,
  TASK_MISSING: 404,
  TIME_LIMIT: 503,
};

const HIDDEN: Problem = {
  status: 500,
  code: 'internal',
  message: 'Internal error. See the log of the server.',
};
const AWAY: Problem = {
  status: 503,
  code: 'store',
  message: 'The store is not available. See the log of the server.',
};

/** Database messages can contain names and addresses, so only the mill's own messages about input are passed on. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Refusal) return error;
  if (error instanceof OptionError)
    return error.cause === undefined
      ? { status: 400, code: 'bad_request', message: error.message }
      : { status: 400, code: 'bad_request', message: 'The database refused the values of this request.' };
  if (error instanceof StoreError) return AWAY;
  if (error instanceof TidemillError) {
    const status = STATUS[error.code];
    if (status !== undefined) return { status, code: error.code.toLowerCase(), message: error.message };
  }
  return HIDDEN;
}

/** Whether the host should be told of the error as well. */
export const isInternal = (error: unknown): boolean =>
  !(error instanceof Refusal) && problemOf(error).status >= 500;
