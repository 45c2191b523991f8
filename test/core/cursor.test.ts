import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeCursor,
  encodeCursor,
  isBackCursor,
  pageOfItems,
  readDirection,
  type Cursor,
} from '../../src/core/cursor.js';

const any = (_cursor: Cursor): _cursor is Cursor => true;
const none = (_cursor: Cursor): _cursor is Cursor => false;

const cursors = fc.record({
  at: fc.option(fc.date({ noInvalidDate: true })),
  key: fc.string({ unit: 'binary' }),
  back: fc.boolean(),
  sort: fc.jsonValue({ maxDepth: 2 }),
});

/** A list of numbers as a store pages it: `limit` items after the cursor, in the direction of the read. */
function listOf(length: number, limit: number): (text?: string) => ReturnType<typeof pageOfItems<number>> {
  return (text) => {
    const from = text === undefined ? undefined : decodeCursor('list', text, any);
    const all = Array.from({ length }, (_none, index) => index);
    const ordered = readDirection(1, from) === 1 ? all : all.reverse();
    const start = from === undefined ? 0 : ordered.indexOf(Number(from.key)) + 1;
    const items = ordered.slice(start, start + limit);
    const found = { items, more: start + limit < length };
    return pageOfItems(found, { from }, (item, back) => ({ at: null, key: String(item), back }));
  };
}

describe('cursors', () => {
  it('returns any cursor unchanged after it was text', () => {
    fc.assert(
      fc.property(cursors, (cursor) => {
        const text = encodeCursor(cursor);
        const read = decodeCursor('list', text, any);
        expect({ ...read, sort: JSON.stringify(read.sort) }).toEqual({
          ...cursor,
          sort: JSON.stringify(cursor.sort),
        });
        expect(isBackCursor(text)).toBe(cursor.back);
      }),
    );
  });

  it('refuses any text that is not a cursor, or not one of this list, and says where cursors come from', () => {
    const message = /^find: cursor must be `next` or `previous` of an earlier page, got /u;
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(() => decodeCursor('find', text, none)).toThrow(message);
        expect(isBackCursor(text)).toBe(false);
      }),
    );
    const own = encodeCursor({ at: new Date(0), key: 'a', back: false });
    expect(() => decodeCursor('find', own, none)).toThrow(message);
    for (const raw of [null, 1, [], {}, { at: 'yesterday', key: 'a' }, { at: null, key: 1 }]) {
      const text = Buffer.from(JSON.stringify(raw)).toString('base64url');
      expect(() => decodeCursor('find', text, any)).toThrow(message);
    }
  });

  it('leads through a whole list and back, page by page', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 1, max: 8 }), (length, limit) => {
        const list = listOf(length, limit);
        const forward = [list()];
        for (let next = forward[0]?.next; typeof next === 'string'; next = forward.at(-1)?.next)
          forward.push(list(next));
        const all = Array.from({ length }, (_none, index) => index);
        expect(forward.flatMap(({ items }) => items)).toEqual(all);
        const backward = [forward.at(-1) as (typeof forward)[number]];
        for (let back = backward[0]?.previous; typeof back === 'string'; back = backward[0]?.previous)
          backward.unshift(list(back));
        expect(backward.flatMap(({ items }) => items)).toEqual(all);
      }),
    );
  });
});
