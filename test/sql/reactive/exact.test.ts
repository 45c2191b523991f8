import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseExact } from '../../../src/sql/tables/exact.js';

describe('numbers in JSON', () => {
  it.each([
    ['9007199254740991', 9_007_199_254_740_991],
    ['9007199254740993', '9007199254740993'],
    ['-9007199254740993', '-9007199254740993'],
    ['0.1', 0.1],
    ['0.30000000000000004', 0.30000000000000004],
    ['1.5000000000000000000', 1.5],
    ['1234567890123456.789', '1234567890123456.789'],
    ['0.000000000000000000001', 1e-21],
    ['100000000000000000000', '100000000000000000000'],
  ])('parses the number %s without loss', (json, value) => {
    expect(parseExact(json)).toBe(value);
    expect(parseExact(`{"a":[${json}],"b":"${json} and \\"${json}\\""}`)).toEqual({
      a: [value],
      b: `${json} and "${json}"`,
    });
  });

  it('parses numbers like JSON.parse wherever a JavaScript number can hold them', () => {
    fc.assert(
      fc.property(fc.double({ noDefaultInfinity: true, noNaN: true }), fc.string(), (number, key) => {
        fc.pre(!Number.isInteger(number) || Number.isSafeInteger(number));
        const json = JSON.stringify({ key, list: [number] });
        expect(parseExact(json)).toEqual(JSON.parse(json));
      }),
    );
  });
});
