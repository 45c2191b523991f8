/** What users get of values that were read as BSON has them. */
import {
  Binary,
  type BSONRegExp,
  type BSONSymbol,
  type DBRef,
  type Double,
  type Int32,
  type Long,
} from 'mongodb';

/** By their brand: a client that the user made may come from another copy of the driver. */
const isOf = (value: object, type: string): boolean => Reflect.get(value, '_bsontype') === type;
const isBinary = (value: object): value is Binary => isOf(value, 'Binary');
const isLong = (value: object): value is Long => isOf(value, 'Long');
const isNumber = (value: object): value is Int32 | Double => isOf(value, 'Int32') || isOf(value, 'Double');
const isSymbol = (value: object): value is BSONSymbol => isOf(value, 'BSONSymbol');
const isReference = (value: object): value is DBRef => isOf(value, 'DBRef');
export const isBsonRegExp = (value: object): value is BSONRegExp => isOf(value, 'BSONRegExp');

const isPlain = (value: object): value is Record<string, unknown> =>
  Object.getPrototypeOf(value) === Object.prototype;

/** Options as the driver reads them: it writes `g` as `s`. */
const FLAGS: Readonly<Record<string, string>> = { i: 'i', m: 'm', s: 'g' };

/** A regular expression as JavaScript has it; one that it has not, by its options or its syntax, stays what it is. */
export function regExpOf(value: BSONRegExp): RegExp | BSONRegExp {
  const flags = Array.from(value.options, (option) => FLAGS[option]);
  if (flags.includes(undefined)) return value;
  try {
    return new RegExp(value.pattern, flags.join(''));
  } catch {
    return value;
  }
}

/** Bytes of no special kind are a Buffer, anything else that has a subtype keeps it. */
const bytesOf = (value: Binary): Buffer | Binary => {
  if (value.sub_type !== Binary.SUBTYPE_DEFAULT) return value;
  const { buffer, byteOffset } = value.buffer;
  return Buffer.from(buffer, byteOffset, value.length());
};

interface Reading {
  /** The driver makes a class of its own of every `{ $ref, $id }`; a payload comes back as it went in. */
  readonly references: 'plain' | 'kept';
}

function plainReference({ collection, oid, db, fields }: DBRef): object {
  return { $ref: collection, $id: oid, ...(db === undefined ? {} : { $db: db }), ...fields };
}

/** Undefined for what is no value of BSON that comes back as another one. */
function simpleOf(value: object): unknown {
  if (isBinary(value)) return bytesOf(value);
  if (isBsonRegExp(value)) return regExpOf(value);
  if (isNumber(value)) return value.valueOf();
  if (isSymbol(value)) return value.value;
  if (!isLong(value)) return undefined;
  const number = value.toNumber();
  return Number.isSafeInteger(number) ? number : value;
}

/** In place, for a value that nobody else has. */
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
