import type { SourceDocument } from '../../../mill/tools.js';
import { humanInterval, isHuman } from './human-interval.js';
import { dateOf, textOf } from '../mongo-collection.js';
import { isOwnTime } from '../own-time.js';
import { OWN_KEY, OWN_TIME, type ImportedJob, type ImportedSchedule } from '../reading.js';

export type Recurring =
  | { readonly kind: 'left'; readonly reason: string; readonly detail?: string }
  | {
      readonly kind: 'schedule';
      readonly schedule: Omit<ImportedSchedule, 'name' | 'data'>;
      readonly differs: readonly string[];
    };

interface Facts {
  /** The id of a job for a run that is overdue begins with it. */
  readonly id: string;
  readonly timezone: string;
  readonly now: Date;
  /** When a run began whose process is dead. */
  readonly lostAt: Date | undefined;
  /** Its failures so far, if its next run is a retry. */
  readonly past: ImportedJob['past'];
}

interface Times {
  readonly times: string;
  readonly isDistance: boolean;
  readonly differs: readonly string[];
}

const NO_ZONE =
  'it names no zone: its times were those of the old process, and are read in the zone of --timezone';
const FROM_THE_CLOCK = 'its interval counted from the last run there; here it follows the clock';

/** Undefined for a job that does not recur. */
export function recurring(
  document: SourceDocument,
  { id, timezone, now, lostAt, past }: Facts,
): Recurring | undefined {
  const interval = document['repeatInterval'] ?? '';
  const repeatAt = textOf(document['repeatAt']);
  if (interval === '' && repeatAt === undefined) return undefined;
  const { skipDays } = document;
  const found = interval === '' ? timeOfDay(repeatAt ?? '', skipDays) : timesOf(interval, skipDays);
  if ('reason' in found) return found;
  const [startDate, repeatUntil] = [dateOf(document['startDate']), dateOf(document['endDate'])];
  if (repeatUntil !== undefined && repeatUntil <= now)
    return { kind: 'left', reason: 'its endDate has passed' };
  const nextRunAt = dateOf(document['nextRunAt']);
  const zone = textOf(document['repeatTimezone']);
  const paused = document['disabled'] === true;
  const late = nextRunAt !== undefined && nextRunAt <= now && !paused ? nextRunAt : lostAt;
  const isOwn =
    nextRunAt !== undefined && !paused && !found.isDistance && isOwnTime(found.times, zone, nextRunAt);
  const runAt = late ?? (isOwn ? nextRunAt : undefined);
  // A run that was cut off was at a time of the schedule.
  const isMoved = isOwn && runAt === nextRunAt;
  const isSingle = document['type'] === 'single';
  const startAt = found.isDistance ? (nextRunAt ?? startDate) : startDate;
  return {
    kind: 'schedule',
    schedule: {
      times: found.times,
      timezone: zone ?? timezone,
      startAt,
      repeatUntil,
      // Of a `single` job there is one per name, which is our default key, too.
      uniqueKey: isSingle ? undefined : id,
      paused,
      separateRun:
        runAt === undefined
          ? undefined
          : {
              id: `${id}@${runAt.toISOString()}`,
              runAt,
              isOwnTime: isMoved,
              past: isMoved ? past : undefined,
            },
    },
    differs: [
      ...found.differs,
      ...(isSingle ? [] : [OWN_KEY]),
      ...(isMoved && late === undefined ? [OWN_TIME] : []),
      ...(zone === undefined && !found.isDistance ? [NO_ZONE] : []),
    ],
  };
}

/** As Agenda reads it: a number is milliseconds, words are an interval, and the rest is cron text. */
function timesOf(interval: unknown, skipDays: unknown): Times | (Recurring & { kind: 'left' }) {
  const text = String(interval).trim();
  const isNumber = /^\d+(?:\.\d+)?$/u.test(text);
  if (!isNumber && !isHuman(text)) return cronWithout(text, skipDays);
  const ms = humanInterval(text);
  if (ms === undefined)
    return { kind: 'left', reason: 'its interval has words that cannot be read for certain', detail: text };
  if (isSet(skipDays))
    return {
      kind: 'left',
      reason: 'it has an interval and skipDays, which no schedule has together',
      detail: text,
    };
  return { times: `@every ${String(ms)}ms`, isDistance: true, differs: [FROM_THE_CLOCK] };
}

const isSet = (skipDays: unknown): boolean =>
  Array.isArray(skipDays) ? skipDays.length > 0 : (skipDays ?? '') !== '';

/** Days that are skipped become the days of the week of a cron text that names no days by itself. */
function cronWithout(text: string, skipDays: unknown): Times | (Recurring & { kind: 'left' }) {
  if (!isSet(skipDays)) return { times: text, isDistance: false, differs: [] };
  const fields = text.split(/\s+/u);
  const days = [0, 1, 2, 3, 4, 5, 6].filter((day) => !(skipDays as readonly unknown[]).includes(day));
  const namesNoDay = /^\d/u.test(text) || text.startsWith('*');
  if (
    !Array.isArray(skipDays) ||
    !namesNoDay ||
    fields.slice(-3).some((field) => field !== '*') ||
    days.length === 0
  )
    return {
      kind: 'left',
      reason: 'it has skipDays that a cron text cannot say',
      detail: `${text}, skipDays ${JSON.stringify(skipDays)}`,
    };
  return { times: [...fields.slice(0, -1), days.join(',')].join(' '), isDistance: false, differs: [] };
}

/** `3:30pm`, `15:30` or `3pm`; Agenda takes any phrase. */
function timeOfDay(text: string, skipDays: unknown): Times | (Recurring & { kind: 'left' }) {
  const found = /^(?<hour>\d{1,2})(?::(?<minute>\d\d))?\s*(?<half>am|pm)?$/iu.exec(text.trim());
  const { hour = '', minute = '0', half } = found?.groups ?? {};
  const known = found !== null && (half !== undefined || text.includes(':'));
  const hours =
    half === undefined ? Number(hour) : (Number(hour) % 12) + (half.toLowerCase() === 'pm' ? 12 : 0);
  if (!known || hours > 23 || Number(minute) > 59)
    return { kind: 'left', reason: 'its repeatAt is not a plain time of day', detail: text };
  return cronWithout(`${String(Number(minute))} ${String(hours)} * * *`, skipDays);
}
