import type { Command } from 'commander';
import type { BreakerOptions, LimitChanges, RateOptions } from '../../index.js';
import { CliError, Exit } from '../exit.js';

/** What `tidemill limits set` changes; `none` takes a limit away. */
export interface ChangeFlags {
  readonly concurrency?: string;
  readonly rate?: string;
  readonly burst?: string;
  readonly keyConcurrency?: string;
  readonly keyRate?: string;
  readonly keyBurst?: string;
  readonly breaker?: string;
}

const NONE = 'none';

export const withChanges = (command: Command): Command =>
  command
    .optionsGroup('Set (none takes it away):')
    .option('--concurrency <number>', 'how many may run at once in the cluster')
    .option('--rate <limit/time>', 'how many may start per time, such as 100/1m')
    .option('--burst <number>', 'with --rate: how many of them may start at once')
    .option('--key-concurrency <number>', 'how many of one key may run at once')
    .option('--key-rate <limit/time>', 'how many of one key may start per time')
    .option('--key-burst <number>', 'with --key-rate: how many of them may start at once')
    .option('--breaker <failures/within/pause>', 'stops starts after failures, such as 20/1m/30s');

export function changesOf(flags: ChangeFlags): LimitChanges {
  const perKey = numbersOf('key-', flags.keyConcurrency, flags.keyRate, flags.keyBurst);
  const changes = {
    ...numbersOf('', flags.concurrency, flags.rate, flags.burst),
    ...(flags.breaker === undefined ? {} : { breaker: breakerOf(flags.breaker) }),
    ...(Object.keys(perKey).length === 0 ? {} : { perKey }),
  };
  if (Object.keys(changes).length > 0) return changes;
  throw new CliError(
    Exit.USAGE,
    'Pass what to change, such as --concurrency 5, --rate 100/1m or --rate none.',
  );
}

export const changes = (flags: ChangeFlags): boolean =>
  [
    flags.concurrency,
    flags.rate,
    flags.burst,
    flags.keyConcurrency,
    flags.keyRate,
    flags.keyBurst,
    flags.breaker,
  ].some((flag) => flag !== undefined);

/** Whether a limit would be gone, so that more may start than before. */
export const takesAway = ({ concurrency, rate, breaker, perKey }: LimitChanges): boolean =>
  [concurrency, rate, breaker, perKey?.concurrency, perKey?.rate].includes(null);

function numbersOf(
  prefix: string,
  concurrency: string | undefined,
  rate: string | undefined,
  burst: string | undefined,
): Pick<LimitChanges, 'concurrency' | 'rate'> {
  if (burst !== undefined && (rate === undefined || rate === NONE))
    throw new CliError(
      Exit.USAGE,
      `--${prefix}burst belongs to --${prefix}rate, such as --${prefix}rate 100/1m --${prefix}burst 5.`,
    );
  return {
    ...(concurrency === undefined
      ? {}
      : { concurrency: concurrency === NONE ? null : wholeOf(`${prefix}concurrency`, concurrency) }),
    ...(rate === undefined ? {} : { rate: rate === NONE ? null : rateOf(prefix, rate, burst) }),
  };
}

function wholeOf(option: string, text: string): number {
  if (/^\d+$/u.test(text)) return Number(text);
  throw new CliError(Exit.USAGE, `--${option} must be a whole number, or none; got "${text}".`);
}

function rateOf(prefix: string, text: string, burst: string | undefined): RateOptions {
  const [limit = '', per = '', ...others] = text.split('/');
  if (per === '' || others.length > 0 || !/^\d+$/u.test(limit))
    throw new CliError(Exit.USAGE, `--${prefix}rate must be such as 100/1m, or none; got "${text}".`);
  return {
    limit: Number(limit),
    per: duration(per),
    ...(burst === undefined ? {} : { burst: wholeOf(`${prefix}burst`, burst) }),
  };
}

function breakerOf(text: string): BreakerOptions | null {
  if (text === NONE) return null;
  const [failures = '', within = '', pause = '', ...others] = text.split('/');
  if (within === '' || pause === '' || others.length > 0 || !/^\d+$/u.test(failures))
    throw new CliError(Exit.USAGE, `--breaker must be such as 20/1m/30s, or none; got "${text}".`);
  return { failures: Number(failures), within: duration(within), pause: duration(pause) };
}

/** `100/s` is `100/1s`. */
const duration = (text: string): string => (/^\d/u.test(text) ? text : `1${text}`);
