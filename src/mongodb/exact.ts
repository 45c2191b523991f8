/** Reads documents with their ids exactly as they are stored. */
import {
  BSON,
  type AggregateOptions,
  type AggregationCursor,
  type BSONSerializeOptions,
  type Collection,
  type Document,
  type Filter,
  type FindCursor,
  type FindOptions,
} from 'mongodb';

/**
 * A subdocument whose key order a JavaScript object cannot keep: objects move keys such as `2024` to the front, and to
 * MongoDB a different order is a different value. The driver writes a Map in the order of its entries.
 */
export class OrderedDocument extends Map<string, unknown> {
  /** For display and for JSON, where the order does not matter. */
  toJSON(): object {
    return Object.fromEntries(this);
  }
}

/** How to read values that are sent back: 64-bit integers, binary data and regular expressions keep their type. */
export const EXACT = { promoteLongs: false, promoteBuffers: false, bsonRegExp: true } as const;

const INTEGER_LIKE = /^(?:0|[1-9]\d*)$/u;
const EMBEDDED: ReadonlySet<number> = new Set([3, 4]);

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/**
 * Reports whether the driver may have reordered a value. Few ids are subdocuments at all, so the bytes are parsed only
 * for those.
 */
function mayBeReordered(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(mayBeReordered);
  if (!isPlain(value)) return false;
  return Object.entries(value).some(([key, item]) => INTEGER_LIKE.test(key) || mayBeReordered(item));
}

/** Reports whether a value contains a Map, whose order JSON does not keep. */
export function isOrdered(value: unknown): boolean {
  if (value instanceof Map) return true;
  if (Array.isArray(value)) return value.some(isOrdered);
  return isPlain(value) && Object.values(value).some(isOrdered);
}

/** Returns a text that no other document has. A document that JSON would reorder is encoded as its bytes. */
export const exactText = (document: Document): string =>
  isOrdered(document)
    ? JSON.stringify({ bytes: Buffer.from(BSON.serialize(document)).toString('base64') })
    : BSON.EJSON.stringify(document, { relaxed: false });

interface Element {
  readonly name: string;
  /** The bytes of a subdocument or an array. */
  readonly inner?: Uint8Array;
}

function elementsOf(bytes: Uint8Array): Element[] {
  return Array.from(BSON.onDemand.parseToElements(bytes), ([type, nameAt, nameLength, at, length]) => ({
    name: Buffer.from(bytes.subarray(nameAt, nameAt + nameLength)).toString(),
    ...(EMBEDDED.has(type) ? { inner: bytes.subarray(at, at + length) } : {}),
  }));
}

/** Returns the value that `bytes` hold, in their order; `value` is how the driver reads them. */
function inOrder(bytes: Uint8Array, value: unknown): unknown {
  if (!Array.isArray(value) && !isPlain(value)) return value;
  const elements = elementsOf(bytes);
  const entries = elements.map(({ name, inner }): [string, unknown] => {
    const item: unknown = Reflect.get(value, name);
    return [name, inner === undefined ? item : inOrder(inner, item)];
  });
  if (Array.isArray(value)) return entries.map(([, item]) => item);
  const keys = Object.keys(value);
  return entries.every(([name], at) => name === keys[at])
    ? Object.fromEntries(entries)
    : new OrderedDocument(entries);
}

const sizes = new WeakMap<object, number>();

/** How many bytes a document had that `readExact` read, as a record's `bytes`. */
export function bytesOf(document: object): { readonly bytes?: number } {
  const bytes = sizes.get(document);
  return bytes === undefined ? {} : { bytes };
}

/** Reads a document. The given fields, which hold ids or lists of ids, keep their stored order. */
export function readExact(
  bytes: Uint8Array,
  options: BSONSerializeOptions,
  fields: readonly string[] = ['_id'],
): Document {
  const document = BSON.deserialize(bytes, options);
  sizes.set(document, bytes.length);
  const reordered = fields.filter((field) => mayBeReordered(document[field]));
  if (reordered.length === 0) return document;
  const elements = elementsOf(bytes);
  for (const field of reordered) {
    const inner = elements.find(({ name }) => name === field)?.inner;
    if (inner !== undefined) document[field] = inOrder(inner, document[field]);
  }
  return document;
}

/**
 * Reads an id from a list that was requested as bytes: a subdocument is still bytes, any other id is already a value.
 */
export function exactId(id: unknown): unknown {
  return id instanceof Uint8Array ? inOrder(id, BSON.deserialize(id, EXACT)) : id;
}

/** Reads a row of a cursor, or a single result, that was requested as bytes. */
export const exactRow =
  (options: BSONSerializeOptions, fields?: readonly string[]) =>
  (row: object): Document =>
    row instanceof Uint8Array ? readExact(row, options, fields) : row;

export const RAW = { raw: true } as const;

/** Like `collection.find`, with exact ids. */
export const findExact = <T extends Document>(
  collection: Collection<T>,
  filter: Filter<T>,
  options: FindOptions = {},
  reading: BSONSerializeOptions = EXACT,
): FindCursor<T> => {
  const read = exactRow(reading);
  return collection.find(filter, { ...options, ...RAW }).map((row) => read(row) as T);
};

/** Accepts a collection of any document type. */
interface Aggregating {
  aggregate(pipeline: Document[], options: AggregateOptions): AggregationCursor;
}

/** Like `collection.aggregate`, with exact ids in the given fields. Default: `_id`. */
export const aggregateExact = (
  collection: Aggregating,
  pipeline: Document[],
  options: AggregateOptions = {},
  fields?: readonly string[],
  reading: BSONSerializeOptions = EXACT,
): AggregationCursor<Document> =>
  collection.aggregate(pipeline, { ...options, ...RAW }).map(exactRow(reading, fields));
