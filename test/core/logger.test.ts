import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { safeLogger, unskipped, type Logger } from '../../src/core/logger.js';
import { checkDashboard } from '../../src/dashboard/options.js';

const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

describe('a custom logger', () => {
  it('a custom logger gets the fields first and is called as a method', () => {
    const lines: unknown[] = [];
    class Pino implements Logger {
      readonly prefix = 'p';
      debug = (fields: object, message: string): void => this.#line('debug', fields, message);
      info = (fields: object, message: string): void => this.#line('info', fields, message);
      warn(fields: object, message: string): void {
        lines.push([this.prefix, 'warn', fields, message]);
      }
      error = (fields: object, message: string): void => this.#line('error', fields, message);
      #line(level: string, fields: object, message: string): void {
        lines.push([this.prefix, level, fields, message]);
      }
    }
    const log = safeLogger(new Pino());
    for (const level of LEVELS) log[level]({ n: 1 }, 'hello');
    expect(lines).toEqual(LEVELS.map((level) => ['p', level, { n: 1 }, 'hello']));
  });

  it('a custom logger that throws does not reach the caller', () => {
    const broken = (): never => {
      throw new Error('disk full');
    };
    const log = safeLogger({ debug: broken, info: broken, warn: broken, error: broken });
    for (const level of LEVELS) expect(() => log[level]({}, 'x')).not.toThrow();
  });

  it('a custom logger whose promise rejects leaves no rejection unhandled', async () => {
    const unhandled = vi.fn();
    process.on('unhandledRejection', unhandled);
    const broken = (): unknown => Promise.reject(new Error('network down'));
    const log = safeLogger({ debug: broken, info: broken, warn: broken, error: broken });
    for (const level of LEVELS) log[level]({}, 'x');
    await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', unhandled);
    expect(unhandled).not.toHaveBeenCalled();
  });
});

describe('the default logger', () => {
  const lines: unknown[][] = [];
  beforeEach(() => {
    lines.length = 0;
    vi.useFakeTimers({ toFake: ['performance'] });
    vi.spyOn(console, 'error').mockImplementation((...line: unknown[]) => void lines.push(line));
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  it('the default logger leaves out repeated lines, but none that is marked', () => {
    const log = safeLogger(undefined);
    log.warn({}, 'one');
    log.warn({}, 'two');
    log.warn(unskipped({ n: 1 }), 'three');
    expect(lines.map(([text]) => text)).toEqual([
      'tidemill: one',
      'tidemill: three (1 more since the last line)',
    ]);
  });

  it('the default logger writes errors and warnings to console.error, with the error itself', () => {
    const error = new Error('why');
    safeLogger(undefined).error({ error }, 'claim: why');
    safeLogger(undefined).warn({}, 'careful');
    expect(lines).toEqual([['tidemill: claim: why', error], ['tidemill: careful']]);
  });

  it('the default logger and the dashboard strip control characters from messages and errors', () => {
    const hostile = 'a\u001B[2Jb\u009B31mc\u202Ed\re';
    const error = new Error(`${hostile}\nsecond line`);
    safeLogger(undefined).error({ error }, `${hostile}\nforged: line`);
    const [[message, text]] = lines as [[string, string]];
    expect(message).toBe('tidemill: a [2Jb 31mc d e forged: line');
    expect(text).toContain('a [2Jb 31mc d e\nsecond line\n');
    expect(text).toContain('logger.test.ts');
    const options = checkDashboard({ mill: { jobs: { find: vi.fn() } } as never, authorize: () => null });
    options.onError(error);
    expect(lines[1]).toEqual(['tidemill dashboard:', text]);
  });

  it('the default logger drops debug and info lines', () => {
    const log = safeLogger(undefined);
    log.debug({}, 'a');
    log.info({}, 'b');
    expect(lines).toEqual([]);
  });

  it('the default logger writes one line every ten seconds and counts the suppressed ones', () => {
    const log = safeLogger(undefined);
    log.error({}, 'first');
    for (let n = 0; n < 500; n += 1) log.error({}, 'more');
    vi.advanceTimersByTime(9_999);
    log.warn({}, 'still quiet');
    expect(lines).toEqual([['tidemill: first']]);
    vi.advanceTimersByTime(1);
    log.error({}, 'second');
    expect(lines[1]).toEqual(['tidemill: second (501 more since the last line)']);
    vi.advanceTimersByTime(10_000);
    log.error({}, 'third');
    expect(lines[2]).toEqual(['tidemill: third']);
    expect(lines).toHaveLength(3);
  });

  it('logger: false logs nothing', () => {
    const log = safeLogger(false);
    for (const level of LEVELS) log[level]({ error: new Error('x') }, 'x');
    expect(lines).toEqual([]);
  });
});
