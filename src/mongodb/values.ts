/** Converts values that were read as BSON types to what users see. */
import {
  Binary,
  type BSONRegExp,
  type BSONSymbol,
  type DBRef,
  type Double,
  type Int32,
  type Long,
} from 'mongodb';

/** Checks the brand, not the class: the user's client may come from another copy of the driver. */
const isOf = (value: object, type: string): boolean => Reflect.get(value, '_bsontype') === type;
const isBinary = (value: object): value is Binary => isOf(value, 'Binary');
const isLong = (value: object): value is Long => isOf(value, 'Long');
const isNumber = (value: object): value is Int32 | Double => isOf(value, 'Int32') || isOf(value, 'Double');
const isSymbol = (value: object): value is BSONSymbol => isOf(value, 'BSONSymbol');
const isReference = (value: object): value is DBRef => isOf(value, 'DBRef');
export const isBsonRegExp = (value: object): value is BSONRegExp => isOf(value, 'BSONRegExp');

const isPlain = (value: object): value is Record<string, unknown> =>
  Object.getPrototypeOf(value) === Object.prototype;

/** BSON options as JavaScript flags. The driver writes the flag `g` as the option `s`. */
const FLAGS: Readonly<Record<string, string>> = { i: 'i', m: 'm', s: 'g' };

/**
 * Converts to a JavaScript regular expression. Returns the value unchanged if JavaScript does not support its options
 * or its syntax.
 */
export function regExpOf(value: BSONRegExp): RegExp | BSONRegExp {
  const flags = Array.from(value.options, (option) => FLAGS[option]);
  if (flags.includes(undefined)) return value;
  try {
    return new RegExp(value.pattern, flags.join(''));
  } catch {
    return value;
  }
}

/** Returns binary data of the default subtype as a Buffer; any other subtype stays a Binary. */
const bytesOf = (value: Binary): Buffer | Binary => {
  if (value.sub_type !== Binary.SUBTYPE_DEFAULT) return value;
  const { buffer, byteOffset } = value.buffer;
  return Buffer.from(buffer, byteOffset, value.length());
};

interface Reading {
  /**
   * The driver reads every `{ $ref, $id }` as a DBRef. `plain` turns it back into a plain object, so that a payload is
   * returned as it was stored; `kept` leaves it.
   */
  readonly references: 'plain' | 'kept';
}

function plainReference({ collection, oid, db, fields }: DBRef): object {
  return { $ref: collection, $id: oid, ...(db === undefined ? {} : { $db: db }), ...fields };
}

/** Converts a single BSON value; returns undefined if its type has no conversion. */
function simpleOf(value: object): unknown {
  if (isBinary(value)) return bytesOf(value);
  if (isBsonRegExp(value)) return regExpOf(value);
  if (isNumber(value)) return value.valueOf();
  if (isSymbol(value)) return value.value;
  if (!isLong(value)) return undefined;
  const number = value.toNumber();
  return Number.isSafeInteger(number) ? number : value;
}

/** Converts in place, so the caller must be the only owner of the value. */
export function readable(value: unknown, reading: Reading): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) value[index] = readable(item, reading);
    return value;
  }
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.length);
  const simple = simpleOf(value);
  if (simple !== undefined) return simple;
  if (isReference(value))
    return reading.references === 'plain' ? readable(plainReference(value), reading) : value;
  if (!isPlain(value)) return value;
  for (const [key, item] of Object.entries(value))
    if (typeof item === 'object' && item !== null) value[key] = readable(item, reading);
  return value;
}
