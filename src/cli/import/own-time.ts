import { parseSchedule } from '../../mill/tools.js';
import { OptionError } from '../../index.js';

const QUARTER_MS = 900_000;
/** The zones of the world, in quarters of an hour from UTC. */
const [WEST, EAST] = [-48, 56] as const;

/**
 * Reports whether the next run of a cron text is at none of its times: it is a retry, or was moved by hand. The times of
 * a text without a zone were those of the old process, whose zone is unknown, so a time in any zone is one of them.
 */
export function isOwnTime(times: string, timezone: string | undefined, at: Date): boolean {
  try {
    const cron = parseSchedule('import', times, timezone);
    const isTime = (ms: number): boolean => cron.next(new Date(ms - 1))?.getTime() === ms;
    if (timezone !== undefined) return !isTime(at.getTime());
    const quarters = Array.from({ length: EAST - WEST + 1 }, (_, n) => WEST + n);
    return !quarters.some((quarter) => isTime(at.getTime() + quarter * QUARTER_MS));
  } catch (error) {
    if (error instanceof OptionError) return false;
    throw error;
  }
}
