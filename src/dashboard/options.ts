import { OptionError, type Tidemill } from '../index.js';
import {
  checkBoolean,
  checkFunction,
  checkInteger,
  checkKeys,
  checkText,
  forConsole,
  show,
} from '../mill/tools.js';
import type { Right } from './contract.js';
import { SECRETS } from './redaction/secret-names.js';

/** The part of a mill that the dashboard uses. */
export type Mill = Pick<
  Tidemill,
  | 'jobs'
  | 'tasks'
  | 'schedules'
  | 'limits'
  | 'audit'
  | 'instances'
  | 'paused'
  | 'pause'
  | 'resume'
  | 'why'
  | 'health'
  | 'time'
  | 'documentSchedules'
  | 'on'
  | 'off'
  | 'instanceId'
  | 'metrics'
>;

/**
 * What a caller may do, and who it is. `null`, `undefined`, `false` or an empty list denies access. A `Response` is
 * sent as it is, for example a redirect to a login page.
 */
export type Granted =
  | readonly Right[]
  | { readonly rights: readonly Right[]; readonly actor?: string }
  | Response
  | null
  | undefined
  | false;

export interface DashboardOptions {
  /** The mill whose store the dashboard shows. It need not be started in this process. */
  readonly mill: Mill;
  /** Decides what a caller may do. A caller whom it grants nothing is denied everything. */
  readonly authorize: (request: Request) => Granted | Promise<Granted>;
  /** The path at which browsers reach the dashboard, whatever a framework or a proxy cuts off. Default: '/'. */
  readonly basePath?: string;
  /**
   * Names and paths whose values are never shown. `password` matches at any depth; `card.number` and `*.token` match
   * keys nested in that order, at any depth. A list of your own replaces the default. Default: names that usually hold
   * secrets, such as `password`, `token`, `authorization`.
   */
  readonly redact?: readonly string[];
  /** Denies every change, whatever `authorize` grants. Default: false. */
  readonly readOnly?: boolean;
  /**
   * Set this if a proxy of yours terminates TLS and sets `x-forwarded-proto`: cookies are then `Secure`. Without such a
   * proxy any client can send the header. Default: false.
   */
  readonly trustProxy?: boolean;
  /**
   * At least 16 characters, the same for all processes that serve one dashboard. Links to work whose key is hidden,
   * and further pages of tasks and documents, then work at each of them. Default: random per process.
   */
  readonly secret?: string;
  /** The most live streams open at a time. */
  readonly maxStreams?: {
    /** In all. Default: 500. */
    readonly total?: number;
    /** For each actor that `authorize` names. Default: 20. */
    readonly perViewer?: number;
  };
  /** Receives the errors that callers see only as an internal or store error. Default: `console.error`. */
  readonly onError?: (error: unknown) => void;
}

export interface DashboardSettings {
  readonly mill: Mill;
  readonly authorize: DashboardOptions['authorize'];
  /** Begins with a slash and does not end with one; empty for the root. */
  readonly basePath: string;
  readonly redact: readonly string[];
  readonly readOnly: boolean;
  readonly trustProxy: boolean;
  readonly secret: string | undefined;
  readonly maxStreams: { readonly total: number; readonly perViewer: number };
  readonly onError: (error: unknown) => void;
}

const WHERE = 'createDashboard';
const KEYS = [
  'mill',
  'authorize',
  'basePath',
  'redact',
  'readOnly',
  'trustProxy',
  'secret',
  'maxStreams',
  'onError',
];
const LEAST_SECRET = 16;

export function checkDashboard(options: DashboardOptions): DashboardSettings {
  checkKeys(WHERE, options, KEYS);
  if (typeof options !== 'object')
    throw new OptionError(`${WHERE}: options are missing; call createDashboard({ mill, authorize }).`);
  const { mill, authorize, basePath = '/', redact = SECRETS, readOnly = false } = options;
  if (typeof (mill as Partial<Mill> | undefined)?.jobs?.find !== 'function')
    throw new OptionError(`${WHERE}: mill must be an instance of Tidemill (got ${show(mill)}).`);
  checkAuthorize(authorize);
  const onError =
    options.onError ?? ((error: unknown) => console.error('tidemill dashboard:', forConsole(error)));
  checkFunction(WHERE, 'onError', onError);
  return {
    mill,
    authorize,
    basePath: checkBasePath(basePath),
    redact: checkRedact(redact),
    readOnly: checkBoolean(WHERE, 'readOnly', readOnly),
    trustProxy: checkBoolean(WHERE, 'trustProxy', options.trustProxy ?? false),
    secret: checkSecret(options.secret),
    maxStreams: checkStreams(options.maxStreams),
    onError: safely(onError),
  };
}

function checkSecret(secret: unknown): string | undefined {
  if (secret === undefined) return undefined;
  if (checkText(WHERE, 'secret', secret).length >= LEAST_SECRET) return secret as string;
  // The message does not repeat the value: even a short one may be a real secret.
  throw new OptionError(`${WHERE}: secret must have at least ${String(LEAST_SECRET)} characters.`);
}

function checkStreams(given: DashboardOptions['maxStreams']): DashboardSettings['maxStreams'] {
  const where = `${WHERE}: maxStreams`;
  checkKeys(where, given, ['total', 'perViewer']);
  const count = (option: 'total' | 'perViewer', most: number): number =>
    checkInteger(where, option, given?.[option] ?? most, 1, 1_000_000);
  return { total: count('total', 500), perViewer: count('perViewer', 20) };
}

/** Neither an exception nor a rejection of `onError` may end the request or the process. */
const safely =
  (onError: (error: unknown) => unknown) =>
  (error: unknown): void => {
    try {
      const answer = onError(error);
      if (answer instanceof Promise) answer.catch(() => undefined);
    } catch {
      // There is nowhere left to report to.
    }
  };

/** Without `authorize` every request would be denied; failing here points to the cause. */
function checkAuthorize(authorize: unknown): void {
  if (authorize === undefined)
    throw new OptionError(
      `${WHERE}: authorize is missing; without it every request is denied. Say who may see the dashboard: authorize: (request) => ` +
        "isAdmin(request) ? ['view', 'payload', 'act'] : null.",
    );
  checkFunction(WHERE, 'authorize', authorize);
}

function checkBasePath(given: unknown): string {
  let path = checkText(WHERE, 'basePath', given);
  while (path.endsWith('/')) path = path.slice(0, -1);
  if (path === '' || /^(?:\/[\w.~-]+)+$/u.test(path)) return path;
  throw new OptionError(
    `${WHERE}: basePath must be a path such as '/tidemill', of letters, digits, and . _ ~ -; got ${show(given)}.`,
  );
}

function checkRedact(given: unknown): readonly string[] {
  if (!Array.isArray(given))
    throw new OptionError(
      `${WHERE}: redact must be a list such as ['password', 'card.number'], got ${show(given)}.`,
    );
  return given.map((one: unknown) => {
    const path = checkText(WHERE, 'redact', one);
    if (path.split('.').every((key) => key !== '') && !path.endsWith('*')) return path;
    throw new OptionError(`${WHERE}: redact has ${show(path)}; pass a name or a path such as 'card.number'.`);
  });
}
