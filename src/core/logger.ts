import { inspect } from 'node:util';

/** The part of a pino logger that the library uses; console-like loggers need a small adapter. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const QUIET_MS = 10_000;

/** What moves a cursor, changes colours, or turns the direction of text around; line ends of a stack are none of it. */
const UNSEEN = /(?![\t\n])[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** A value for the console. Names and errors come from elsewhere: one that would obey a terminal is put into harmless text. */
export function forConsole(value: unknown): unknown {
  const text = typeof value === 'string' ? value : inspect(value);
  return text.search(UNSEEN) < 0 ? value : text.replaceAll(UNSEEN, ' ');
}

/** Without a logger: warnings and errors go to console.error, at most one line in ten seconds. */
function consoleLogger(): Logger {
  let quietUntil = 0;
  let swallowed = 0;
  const line = (fields: object, message: string): void => {
    const now = performance.now();
    if (now < quietUntil) {
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

/** What a logger's methods give back is not asked of them, and may be a promise all the same. */
type Answering = Readonly<Record<keyof Logger, (fields: object, message: string) => unknown>>;

/** A logger that never throws, whatever it was given: a broken one must not reach the engine. */
export function safeLogger(given: Logger | false | undefined): Logger {
  const target: Answering | false = given ?? consoleLogger();
  const call =
    (level: keyof Logger) =>
    (fields: object, message: string): void => {
      if (target === false) return;
      try {
        // An async method is a method, too: its rejection would end the process.
        const answer = target[level](fields, message);
        if (answer instanceof Promise) answer.catch(() => undefined);
      } catch {
        // A logger that throws has nowhere left to report to.
      }
    };
  return { debug: call('debug'), info: call('info'), warn: call('warn'), error: call('error') };
}
