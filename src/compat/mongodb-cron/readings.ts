/** How mongodb-cron reads the schedule of a document, where this package is stricter. */
import type { DocumentJob } from '../../documents/index.js';

const DEFAULTS = ['0', '*', '*', '*', '*', '*'];

/** Fields that name every day. Ours would take them for a choice of days, and then either field of days is enough. */
const ALL_DAYS = /^(?:[*?]|1-31)(?:\/1)?$/u;
const ALL_WEEKDAYS = /^(?:[*?]|[01]-7)(?:\/1)?$/u;

/** Fewer than five fields are the last ones: `*` is every minute, `1 *` is every minute of January … */
function intervalOf(interval: unknown): unknown {
  if (typeof interval !== 'string' || /^\s*@/u.test(interval)) return interval || null;
  const given = interval.trim().split(/\s+/u);
  if (given.length > DEFAULTS.length) return interval;
  const fields = [...DEFAULTS.slice(0, DEFAULTS.length - given.length), ...given];
  const isAny = (field: string, index: number): boolean =>
    (index === 3 && ALL_DAYS.test(field)) || (index === 5 && ALL_WEEKDAYS.test(field));
  return fields.map((field, index) => (isAny(field, index) ? '*' : field)).join(' ');
}

/** Numbers and texts are dates as well; a value that is neither parks the document. */
function dateOf(value: unknown): unknown {
  if (typeof value !== 'number' && typeof value !== 'string') return value || null;
  const date = new Date(value);
  return value && !Number.isNaN(date.getTime()) ? date : value || null;
}

/** Changes the job, which the store has just made. */
export const asCronReadsIt = <Doc>(job: DocumentJob<Doc>): DocumentJob<Doc> =>
  Object.assign(job, {
    interval: intervalOf(job.interval) as string | null,
    repeatUntil: dateOf(job.repeatUntil) as Date | null,
    autoRemove: Boolean(job.autoRemove),
  });
