import { BSONRegExp, Code } from 'mongodb';
import { expect, inject, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { ids, values } from '../support/bson.js';
import { aMill, until } from '../support/mills.js';
import { freshUri, rawClient } from '../support/stores.js';

const client = rawClient(inject('mongoUri'));

it('returns every BSON type from data, result, progress and log unchanged', async () => {
  const mill = aMill(mongodb({ uri: freshUri() }));
  const given = Object.fromEntries(values.map(([what, value]) => [what, { value, list: [value] }]));
  const expected = Object.fromEntries(
    values.map(([what, value, back = value]) => [what, { value: back, list: [back] }]),
  );
  let seen: unknown;
  mill.job('mirror', (job) => {
    seen = job.data;
    job.progress(given);
    job.log('given', given);
    return given;
  });
  const { id } = await mill.enqueue('mirror', given);
  expect((await mill.jobs.get(id))?.data).toStrictEqual(expected);
  await mill.start();
  await mill.jobs.result(id);
  expect(seen).toStrictEqual(expected);
  const done = await mill.jobs.get(id);
  expect(done?.result).toStrictEqual(expected);
  expect(done?.progress).toStrictEqual(expected);
  expect(done?.logs?.[0]?.fields).toStrictEqual(expected);
});

it('rejects a lone surrogate inside a BSON value', async () => {
  const mill = aMill(mongodb({ uri: freshUri() }));
  const wrong = [new Code('\ud800'), new Code('f', { a: '\ud800' }), new BSONRegExp('\ud800')];
  for (const value of wrong) await expect(mill.enqueue('x', { value })).rejects.toThrow('data.value');
});

it('rejects a regular expression whose flags BSON cannot hold', async () => {
  const mill = aMill(mongodb({ uri: freshUri() }));
  for (const pattern of [/a/u, /a/s, /a/y, /a/d])
    await expect(mill.enqueue('x', { list: [pattern] })).rejects.toThrow('data.list[0]');
});

/** The server's own `$push` changes these, so that they cannot be stored in a list of ids. */
const UNLISTED = ['the least key', 'the greatest key', 'code'];
const usable = ids.filter(([what]) => !UNLISTED.includes(what));

it('runs jobs that another program inserted with an id of almost any BSON type', async () => {
  const uri = freshUri();
  const mill = aMill(mongodb({ uri }));
  const ran: unknown[] = [];
  mill.job('foreign', { concurrency: 20 }, (job) => void ran.push(job.data));
  await mill.start();
  const jobs = client.db(new URL(uri).pathname.slice(1)).collection('tidemill_jobs');
  const at = new Date();
  await jobs.insertMany(
    usable.map(([what, _id]) => ({
      _id: _id as never,
      v: 1,
      name: 'foreign',
      data: what,
      status: 'pending',
      nextRunAt: at,
      priority: 0,
    })),
  );
  await until(
    'all are completed',
    async () => (await jobs.countDocuments({ status: 'completed' })) === usable.length,
  );
  expect(ran.sort()).toEqual(usable.map(([what]) => what).sort());
});
