/**
 * Ids that the store makes begin with the time of creation: 9 digits of milliseconds, to the base 32, so that they sort
 * like that time. The primary key then has jobs in the order of their age, and needs no index beside it for that.
 */
import { randomBytes } from 'node:crypto';

const TIME_DIGITS = 9;
const SERIAL_DIGITS = 5;
const OWN_DIGITS = 8;
const LENGTH = TIME_DIGITS + SERIAL_DIGITS + OWN_DIGITS;
/** More jobs than one call can hold: two of them with the same time must not share a number. */
const SERIALS = 32 ** SERIAL_DIGITS;

const digits = (value: number | bigint, width: number): string => value.toString(32).padStart(width, '0');

/** Where ids of this time begin. They sort after all ids of an earlier one. */
export const idTime = (ms: number): string =>
  digits(Math.min(Math.max(0, Math.floor(ms)), 32 ** TIME_DIGITS - 1), TIME_DIGITS);

const own = digits(BigInt(`0x${randomBytes(5).toString('hex')}`), OWN_DIGITS);
let serial = 0;

export function newId(createdAt: number): string {
  serial = (serial + 1) % SERIALS;
  return idTime(createdAt) + digits(serial, SERIAL_DIGITS) + own;
}

/**
 * The times whose ids count as timed, from April 2022 to September 2039: those ids begin with 1g to 1v. Hardly any id
 * that callers choose does (no UUID, number or hash), so a list by age does not have to pass over theirs.
 */
const FROM_MS = 48 * 2 ** 35;
const TO_MS = 64 * 2 ** 35;
/** The range of timed ids in the primary key, without its end. */
export const TIMED_IDS: readonly [from: string, to: string] = [idTime(FROM_MS), idTime(TO_MS)];

/** True if the order of ids is the order of creation for this job, whoever made its id. */
export function isTimed(id: string, createdAt: Date): boolean {
  const ms = createdAt.getTime();
  return ms >= FROM_MS && ms < TO_MS && id.length === LENGTH && id.startsWith(idTime(ms));
}
