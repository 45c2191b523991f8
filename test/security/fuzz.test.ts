import { spawn, type ChildProcess } from 'node:child_process';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { until } from '../support/mills.js';
import { randomOf, rawRequest, TARGETS, type RawRequest } from './requests.js';

const SEED = 11;
const ROUNDS = 8;

/** Sends it as it is; resolves to the status line, or to nothing if the server hung up without one. */
function send(port: number, { text, aborted }: RawRequest): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect(port, '127.0.0.1', () => {
      if (aborted) socket.write(text, 'latin1', () => socket.resetAndDestroy());
      else socket.end(text, 'latin1');
    });
    socket.on('data', (data: Buffer) => {
      answer += data.toString('latin1');
      if (answer.includes('\r\n')) socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(answer.split('\r\n')[0] ?? ''));
  });
}

describe('malformed requests to the dashboard', () => {
  let child: ChildProcess;
  let said = '';
  let complaints = '';
  let ports: { readonly mounted: number; readonly own: number };
  let link: string;

  beforeAll(async () => {
    const script = fileURLToPath(new URL('./host.ts', import.meta.url));
    child = spawn(process.execPath, ['--import', 'tsx', script], { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout!.on('data', (data: Buffer) => (said += data.toString()));
    child.stderr!.on('data', (data: Buffer) => (complaints += data.toString()));
    await until('it listens', () => said.includes('\n') || child.exitCode !== null);
    const told = JSON.parse(said) as { mounted: number; link: string };
    link = told.link;
    ports = { mounted: told.mounted, own: Number(new URL(link).port) };
  });
  afterAll(() => child.kill('SIGKILL'));

  it.each(['mounted', 'own'] as const)('malformed requests do not crash the %s server', async (server) => {
    const random = randomOf(SEED);
    const port = ports[server];
    for (let round = 0; round < ROUNDS; round += 1)
      for (const target of TARGETS) {
        const request = rawRequest(target, random, port);
        const status = await send(port, request);
        expect(child.exitCode ?? child.signalCode, JSON.stringify(request.text.slice(0, 300))).toBeNull();
        expect(status, request.text.slice(0, 300)).toMatch(/^(?:HTTP\/1\.1 [1-5]\d\d|$)/u);
      }
  });

  it('malformed targets get 400 or 404, and never reach another path or host', async () => {
    const ask = (target: string): Promise<string> =>
      send(ports.mounted, {
        text: `GET ${target} HTTP/1.1\r\nHost: localhost\r\nX-User: ada\r\nConnection: close\r\n\r\n`,
        aborted: false,
      });
    for (const target of ['//x/mill/api/session', '/\\x/mill/api/session', '//', '///mill/api/session'])
      expect(await ask(target), target).toMatch(/ 40[04] /u);
    expect(await ask('http://[')).toMatch(/ 400 /u);
    expect(await ask('/mill/api/session')).toMatch(/ 200 /u);
  });

  it('requests that end in the middle of a body do not crash the server', async () => {
    const token = 'a'.repeat(64);
    const head = [
      'POST /mill/api/act HTTP/1.1',
      'Host: localhost',
      'X-User: ada',
      'Content-Type: application/json',
      `Cookie: tidemill_csrf=${token}`,
      `X-Tidemill-Csrf: ${token}`,
    ].join('\r\n');
    for (const rest of ['Content-Length: 900', 'Transfer-Encoding: chunked'])
      for (const body of ['', '{"action":', '3e8\r\n{"action":', 'zz\r\n{'])
        for (const aborted of [true, false]) {
          const status = await send(ports.mounted, { text: `${head}\r\n${rest}\r\n\r\n${body}`, aborted });
          expect(status).toMatch(/^(?:HTTP\/1\.1 4\d\d|$)/u);
        }
    expect(child.exitCode ?? child.signalCode).toBeNull();
  });

  it('returns 500 and logs the error if the host fails, even if its logger throws', async () => {
    for (const user of ['broken', 'used']) {
      const text = `GET /mill/api/session HTTP/1.1\r\nHost: localhost\r\nX-User: ${user}\r\nConnection: close\r\n\r\n`;
      expect(await send(ports.mounted, { text, aborted: false }), user).toMatch(/ 500 /u);
    }
    await until('it is logged', () => complaints.includes('logged: Error: no session store'));
  });

  it('both servers still answer after malformed requests', async () => {
    const session = await fetch(`http://127.0.0.1:${String(ports.mounted)}/mill/api/session`, {
      headers: { 'x-user': 'ada' },
    });
    expect(session.status).toBe(200);
    expect((await fetch(link)).status).toBe(200);
  });
});
