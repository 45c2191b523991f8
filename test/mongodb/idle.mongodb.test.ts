import { MongoClient } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill, rarely, until } from '../support/mills.js';
import { atRest } from '../../src/testing/conformance/rest.js';
import { freshUri } from '../support/stores.js';

const WATCHED_MS = 20_000;

describe('commands of an idle instance on MongoDB', () => {
  it('an idle instance sends at most one command every two seconds', async () => {
    const client = new MongoClient(freshUri(), { monitorCommands: true });
    const sent: string[] = [];
    client.on('commandStarted', (event) => sent.push(event.commandName));
    const mill = aMill(mongodb({ client }));
    for (const name of ['a', 'b', 'c']) mill.job(name, () => undefined);
    await mill.start();
    await mill.enqueue('a', {}, { delay: '1h' });
    // The poll interval doubles from 100 ms to 5 s: from its last step on the instance is really idle.
    await until('it has settled', () => sent.filter((name) => name === 'aggregate').length >= 8);
    const [before, began] = [sent.length, performance.now()];
    await new Promise((resolve) => setTimeout(resolve, WATCHED_MS));
    const commands = sent.slice(before);
    const seconds = (performance.now() - began) / 1_000;
    // Where the time that is watched begins decides about two more.
    expect(commands.length).toBeLessThanOrEqual(seconds * 0.5 + 2);
    expect(commands).toContain('findAndModify');
    expect(mill.health()).toMatchObject({ ok: true, wakeUp: 'stream' });
    await mill.stop();
    await client.db().dropDatabase();
    await client.close();
  });

  it('running one local job takes three commands: insert, paused names, and outcome', async () => {
    const client = new MongoClient(freshUri(), { monitorCommands: true });
    const store = mongodb({ client });
    // Neither a poll nor a renewal happens in between.
    const mill = aMill(store, { pollInterval: rarely, leaseDuration: '1h' });
    mill.job('x', () => 'ran');
    await atRest(store, mill, 'x');
    const sent: string[] = [];
    client.on('commandStarted', ({ commandName, command }) => {
      if (commandName === 'getMore' || commandName === 'find') return;
      sent.push(commandName === 'aggregate' ? `aggregate ${String(command['hint'])}` : commandName);
    });
    const job = await mill.enqueue('x', {});
    await until('it is recorded', async () => (await mill.jobs.get(job.id))?.status === 'completed');
    await new Promise((resolve) => setTimeout(resolve, 60));
    for (const once of ['insert', 'update']) expect(sent.filter((name) => name === once)).toHaveLength(1);
    expect(sent).not.toContain('findAndModify');
    expect(sent).not.toContain('aggregate tidemill_claim');
    expect(sent).toHaveLength(3);
    await mill.stop();
    await client.db().dropDatabase();
    await client.close();
  });
});
