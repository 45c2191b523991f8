import { readFile, readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';

/** What a viewer loads, compressed. Raise it only for something that viewers would miss. */
const BUDGET_BYTES = 62_000;
const built = resolve(import.meta.dirname, '../../dist/dashboard');

async function files(): Promise<{ name: string; text: string }[]> {
  const entries = await readdir(built, { recursive: true, withFileTypes: true });
  const found = entries.filter((entry) => entry.isFile());
  return Promise.all(
    found.map(async ({ name, parentPath }) => ({
      name,
      text: await readFile(join(parentPath, name), 'utf8'),
    })),
  );
}

describe('the built page of the dashboard', () => {
  it('the dashboard page stays within its size budget', async () => {
    const loaded = (await files()).filter(({ name }) => /\.(js|css)$/u.test(name));
    const sizes = loaded.map(({ name, text }) => [name, gzipSync(text, { level: 9 }).length] as const);
    const total = sizes.reduce((sum, [, size]) => sum + size, 0);
    expect(sizes.length).toBeGreaterThan(1);
    expect(total, JSON.stringify(sizes)).toBeLessThan(BUDGET_BYTES);
  });

  it('the dashboard page has no inline script, style or handler', async () => {
    const html = (await files()).find(({ name }) => name === 'index.html')!.text;
    expect(html).not.toMatch(/<script(?![^>]*\ssrc=)/u);
    expect(html).not.toMatch(/<style|\sstyle=|\son[a-z]+=/u);
  });

  it('the dashboard page names no other host, except the namespaces of its markup', async () => {
    const running = (await files()).filter(({ name }) => /\.(html|js|css)$/u.test(name));
    const hosts = running.flatMap(({ text }) => [...text.matchAll(/https?:\/\/[\w.-]+/gu)].map(String));
    expect(hosts.filter((host) => host !== 'http://www.w3.org')).toEqual([]);
  });

  it('the dashboard page includes the licenses of its dependencies', async () => {
    const text = (await files()).find(({ name }) => name === 'licenses.txt')!.text;
    for (const part of ['preact', 'uplot', 'lucide']) expect(text).toContain(part);
  });

  it('the dashboard page loads its assets by relative URLs, so that it works below any path', async () => {
    const html = (await files()).find(({ name }) => name === 'index.html')!.text;
    const addresses = [...html.matchAll(/(?:src|href)="([^"]*)"/gu)].map(([, address]) => address!);
    expect(addresses.length).toBeGreaterThan(1);
    expect(addresses.filter((address) => !address.startsWith('./'))).toEqual([]);
  });
});
