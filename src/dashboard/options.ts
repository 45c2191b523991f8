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

/** All that the dashboard asks of a mill. */
export type Mill = Pick<
  Tidemill,
  | 'jobs'
  | 'tasks'
  | 'schedules'
  | 'audit'
  | 'instances'
  | 'why'
  | 'health'
  | 'time'
  | 'documentSchedules'
  | 'on'
  | 'off'
  | 'instanceId'
  | 'metrics'
>;

/** What a caller may do, and who it is. Nothing: it is nobody. A `Response` is sent as it is: a redirect to a login, say. */
export type Granted =
  | readonly Right[]
  | { readonly rights: readonly Right[]; readonly actor?: string }
  | Response
  | null
  | undefined
  | false;

export interface DashboardOptions {
  /** A mill on the store that is to be looked at. It need not be started here. */
  readonly mill: Mill;
  /** Says what a caller may do. Everything is denied to whom it grants nothing. */
  readonly authorize: (request: Request) => Granted | Promise<Granted>;
  /** The path below which the dashboard is reached, as browsers see it. Default: '/'. */
  readonly basePath?: string;
  /**
   * Names and paths whose values are never shown: `password` anywhere, `card.number` and `*.token` wherever keys follow
   * each other like that. Default: names that usually hold secrets; a list of your own takes their place.
   */
  readonly redact?: readonly string[];
  /** Nobody may change anything. Default: false. */
  readonly readOnly?: boolean;
  /**
   * A proxy that you run ends TLS, and its `x-forwarded-proto` says so: cookies are then `Secure`. Default: false, since anybody
   * can send such a header where no proxy replaces it.
   */
  readonly trustProxy?: boolean;
  /**
   * Of at least 16 characters, and the same for all processes that serve one dashboard: links to work whose key is hidden, and
   * further pages of tasks and documents, then work at each of them. Default: random, for each process.
   */
  readonly secret?: string;
  /** How many live streams may be open. Default: 500 in all, 20 for each actor that `authorize` names. */
  readonly maxStreams?: { readonly total?: number; readonly perViewer?: number };
  /** Told of errors of which callers only hear that there was one. Default: console.error. */
  readonly onError?: (error: unknown) => void;
}

export interface DashboardSettings {
  readonly mill: Mill;
  readonly authorize: DashboardOptions['authorize'];
  /** Begins with a slash and does not end with one; empty at the root. */
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
    throw new OptionError(`${WHERE}: options are needed: createDashboard({ mill, authorize }).`);
  const { mill, authorize, basePath = '/', redact = SECRETS, readOnly = false } = options;
  if (typeof (mill as Partial<Mill> | undefined)?.jobs?.find !== 'function')
    throw new OptionError(`${WHERE}: mill must be a mill, made by new Tidemill(…); got ${show(mill)}.`);
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
  // What was given may be one all the same, and is not repeated.
  throw new OptionError(`${WHERE}: secret must have at least ${String(LEAST_SECRET)} characters.`);
}

function checkStreams(given: DashboardOptions['maxStreams']): DashboardSettings['maxStreams'] {
  const where = `${WHERE}: maxStreams`;
  checkKeys(where, given, ['total', 'perViewer']);
  const count = (option: 'total' | 'perViewer', most: number): number =>
    checkInteger(where, option, given?.[option] ?? most, 1, 1_000_000);
  return { total: count('total', 500), perViewer: count('perViewer', 20) };
}

/** A listener that throws, or rejects, must not end the request that it is told of, nor the process. */
const safely =
  (onError: (error: unknown) => unknown) =>
  (error: unknown): void => {
    try {
      const answer = onError(error);
      if (answer instanceof Promise) answer.catch(() => undefined);
    } catch {
      // Nowhere left to report to.
    }
  };

/** Without it nobody could get in, and whoever forgot it would look for the reason elsewhere. */
function checkAuthorize(authorize: unknown): void {
  if (authorize === undefined)
    throw new OptionError(
      `${WHERE}: authorize is missing, and without it everything is denied. Say who may look: authorize: (request) => ` +
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
    throw new OptionError(
      `${WHERE}: redact has ${show(path)}; a name or a path is meant, such as 'card.number'.`,
    );
  });
}
