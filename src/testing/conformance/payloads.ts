/** Values that have broken queues before. All of them must come back equal from every store and every transition. */
export const nasty: Readonly<Record<string, unknown>> = {
  'a field path as text': { note: '$secret', other: '$$ROOT', now: '$$NOW' },
  'an operator as key': { $set: { status: 'completed' }, $where: 'sleep(1000)', $literal: 1 },
  'an operator at the top': { $inc: 1 },
  'dots in keys': { 'a.b': 1, 'a..c': { '.': 2 }, '': 'empty' },
  'a database reference': { $ref: 'users', $id: 'x', $db: 'app' },
  'a prototype as key': parsed('{"__proto__":{"polluted":true},"constructor":{"name":1},"toString":null}'),
  'lists under names that objects inherit': parsed(
    '{"__proto__":[{"a":1}],"constructor":[{"a":{"toString":[[{}]]}}],"valueOf":[[1]],"firstBatch":[{"nextBatch":[{}]}]}',
  ),
  'integer-like keys': { 10: 'ten', 9: 'nine', b: 'b', 1: 'one', a: 'a' },
  dates: {
    epoch: new Date(0),
    early: new Date('0001-01-01T00:00:00Z'),
    late: new Date('9999-12-31T23:59:59.999Z'),
  },
  'text of every kind': {
    emoji: '👩‍👩‍👧',
    rtl: 'שלום',
    line: 'a\u2028b',
    quote: `'";--`,
    long: 'x'.repeat(70_000),
  },
  numbers: { negative: -0.5, tiny: 5e-324, big: 2 ** 53 - 1, huge: 1.7976931348623157e308, int: 2 ** 31 },
  'empty things': { object: {}, array: [], text: '', nothing: null, nested: [[], [[]], {}] },
  'deep nesting': deep(70),
  'a text alone': 'just text',
  'a number alone': 0,
  'false alone': false,
  'null alone': null,
  'an array alone': [1, [2, { three: [null] }]],
  'fields of the library': { _id: 1, status: 'failed', leaseToken: 'x', name: 'other', _at: 3, part: 9 },
};

function deep(levels: number): unknown {
  let value: unknown = 'bottom';
  for (let level = 0; level < levels; level += 1)
    value = level % 2 === 0 ? { [`k${String(level)}`]: value } : [value];
  return value;
}

function parsed(text: string): unknown {
  return JSON.parse(text);
}
