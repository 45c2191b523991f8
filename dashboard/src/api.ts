import type { Session } from '../../src/dashboard/contract.js';
import { href } from './router.js';

/** An error response, with the server's message. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let csrf = '';

/** Must come first: it gets the token that actions need, and what the viewer may do. */
export async function openSession(): Promise<Session> {
  const session = await get<Session>('session');
  csrf = session.csrf;
  return session;
}

export function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return request<T>(path, signal === undefined ? {} : { signal });
}

export function post<T>(path: string, body: unknown): Promise<T> {
  return request<T>(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-tidemill-csrf': csrf },
    body: JSON.stringify(body),
  });
}

export function address(path: string): string {
  return href(`api/${path}`);
}

async function request<T>(path: string, init: RequestInit): Promise<T> {
  // The host may redirect to its login page. If that were followed, the login page would pass for a response.
  const response = await fetch(address(path), { ...init, redirect: 'manual' }).catch((cause: unknown) => {
    if (init.signal?.aborted === true) throw cause;
    throw new ApiError(0, 'UNREACHABLE', 'The server does not respond.');
  });
  if (response.type === 'opaqueredirect') throw new ApiError(401, 'SIGN_IN', 'You are no longer signed in.');
  const answer: unknown = await response.json().catch((cause: unknown) => {
    // Also whoever leaves the page while the answer arrives.
    if (init.signal?.aborted === true) throw cause;
    return undefined;
  });
  if (!response.ok) throw refusal(response.status, answer);
  if (answer === undefined) throw new ApiError(0, 'UNREACHABLE', 'The answer of the server broke off.');
  return answer as T;
}

/** A proxy in between may respond with anything. */
export function refusal(status: number, answer: unknown): ApiError {
  const { error } = (answer ?? {}) as { error?: { code?: string; message?: string } };
  return new ApiError(
    status,
    error?.code ?? 'UNKNOWN',
    error?.message ?? `The server responded with status ${status}.`,
  );
}

/** What the viewer can do about an error. */
export function advice({ status }: ApiError): string {
  switch (status) {
    case 0:
      return 'Is the process that serves this page running, and are you online? The page keeps trying.';
    case 400:
      return 'The server does not accept a part of the address or of a filter. Clear the filters and try again.';
    case 401:
      return 'Sign in to the application that serves this page, then reload.';
    case 403:
      return 'Ask the operators of this application: its `authorize` function decides who may see and change what.';
    case 404:
      return 'It may have been removed, or its retention has passed.';
    case 429:
      return 'Close other tabs of this dashboard. Until then the page tries again from time to time.';
    case 409:
      return 'Its state has changed. Review it and try again.';
    default:
      return 'See the log of the process that serves this page. The page keeps trying.';
  }
}
