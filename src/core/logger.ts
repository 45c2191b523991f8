import { inspect } from 'node:util';

/** The part of a pino logger that the library uses. Loggers with `console`'s argument order need a small adapter. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const QUIET_MS = 10_000;

/** Control and format characters: they move the cursor, change colours or reverse text. Tabs and newlines may stay. */
const UNSEEN = /(?![\t\n])[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** Replaces terminal control characters. Names and error messages are untrusted input. */
export function forConsole(value: unknown): unknown {
  const text = typeof value === 'string' ? value : inspect(value);
  return text.search(UNSEEN) < 0 ? value : text.replaceAll(UNSEEN, ' ');
}

/** Marks the fields of a line that the default logger never leaves out. Other loggers do not write symbols. */
const UNSKIPPED = Symbol('unskipped');

export const unskipped = (fields: object): object => ({ ...fields, [UNSKIPPED]: true });

/** The default logger: warnings and errors go to `console.error`, at most one line every ten seconds. */
function consoleLogger(): Logger {
  let quietUntil = 0;
  let swallowed = 0;
  const line = (fields: object, message: string): void => {
    const now = performance.now();
    if (now < quietUntil && !(UNSKIPPED in fields)) {
      swallowed += 1;
      return;
    }
    const error = (fields as { error?: unknown }).error;
    const more = swallowed > 0 ? ` (${String(swallowed)} more since the last line)` : '';
    const said = `tidemill: ${message}${more}`.replaceAll('\n', ' ');
    console.error(forConsole(said), ...(error === undefined ? [] : [forConsole(error)]));
    quietUntil = now + QUIET_MS;
    swallowed = 0;
  };
  const nothing = (): void => undefined;
  return { debug: nothing, info: nothing, warn: line, error: line };
}

/** A logger whose methods may return something, such as a promise, although `Logger` declares void. */
type Answering = Readonly<Record<keyof Logger, (fields: object, message: string) => unknown>>;

/** Wraps the given logger so that it never throws: a broken logger must not affect the engine. */
export function safeLogger(given: Logger | false | undefined): Logger {
  const target: Answering | false = given ?? consoleLogger();
  const call =
    (level: keyof Logger) =>
    (fields: object, message: string): void => {
      if (target === false) return;
      try {
        // An unhandled rejection of an async method would end the process.
        const answer = target[level](fields, message);
        if (answer instanceof Promise) answer.catch(() => undefined);
      } catch {
        // There is nowhere left to report this.
      }
    };
  return { debug: call('debug'), info: call('info'), warn: call('warn'), error: call('error') };
}
