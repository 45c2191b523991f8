/**
 * What `Store.inspect` returns for `mill.doctor()`, and helpers for writing checks. Begin with `check`: each check
 * runs by itself, so that one that fails hides no other. A check reads, and changes nothing.
 */
import { reasonOf } from '../core/errors.js';

export interface Finding {
  /** What was looked at. */
  readonly check: string;
  /** `skipped`: it could not be looked at, or there is nothing to look at. */
  readonly status: 'ok' | 'warn' | 'fail' | 'skipped';
  /** What was found, in words. */
  readonly found: string;
  /** The command or step that mends it; with every `warn` and `fail`. */
  readonly fix?: string;
  /**
   * The fix deletes something. The doctor shows it only while an instance is alive: the application may merely be
   * down.
   */
  readonly destroys?: true;
}

/** A finding without the name of its check; made by the functions below. */
export type Verdict = Omit<Finding, 'check'>;

export const fine = (found: string): Verdict => ({ status: 'ok', found });
export const skipped = (found: string): Verdict => ({ status: 'skipped', found });
export const warning = (found: string, fix: string): Verdict => ({ status: 'warn', found, fix });
export const failure = (found: string, fix: string): Verdict => ({ status: 'fail', found, fix });
/** Marks a verdict whose fix deletes something. */
export const destroying = (verdict: Verdict): Verdict => ({ ...verdict, destroys: true });

/**
 * Runs one check. Returns its findings under its name; if `look` rejects, for want of a right for instance, one
 * `skipped` finding with the reason. It never rejects itself.
 */
export async function check(
  name: string,
  look: () => Promise<Verdict | readonly Verdict[]>,
): Promise<readonly Finding[]> {
  const verdicts = await look().catch((error: unknown) =>
    skipped(`could not be checked: ${reasonOf(error)}`),
  );
  return [verdicts].flat().map((verdict) => ({ check: name, ...verdict }));
}

/** Compares a version such as '8.2.1' or '14.3 (Debian 14.3-1)' with the lowest that is supported. */
export function judgeVersion(product: string, version: string, least: readonly [number, number]): Verdict {
  const [major = 0, minor = 0] = version.split('.').map((part) => Number.parseInt(part, 10));
  const wanted = least.join('.').replace(/\.0$/u, product === 'MongoDB' ? '.0' : '');
  const old = major < least[0] || (major === least[0] && minor < least[1]);
  return old
    ? failure(
        `${product} ${version} is too old; ${wanted} or newer is required`,
        `upgrade the server to ${product} ${wanted} or newer`,
      )
    : fine(`${product} ${version}`);
}
