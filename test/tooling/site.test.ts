import { readFile, readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { forSite, pinned } from '../../site/markdown.mjs';
import { navigation } from '../../site/navigation.mjs';
import { fencesOf } from '../support/fences.js';

const root = resolve(import.meta.dirname, '../..');
const docs = join(root, 'docs');

describe('the sidebar of the docs site', () => {
  it('has every page of docs/ once', async () => {
    const files = (await readdir(docs, { recursive: true })).filter(
      (name) => name.endsWith('.md') && name !== 'README.md' && !name.startsWith('adr/'),
    );
    const links = navigation().flatMap(({ items }) => items.map(({ link }) => link));
    const places = files.map((name) => `/${name.replace(/\.md$/u, '')}`);
    expect(links.filter((link) => places.includes(link)).sort()).toEqual(places.sort());
  });
});

describe('a page of docs/ on the site', () => {
  it('shows blocks between the marks of tabs as tabs', () => {
    const page = [
      'before\n\n<!-- tabs -->\n\n**MongoDB**\n\n```ts\none();\n```\n',
      '**PostgreSQL**\n\n```ts\ntwo();\n```\n\n<!-- /tabs -->\n\n**bold** text',
    ].join('\n');
    expect(forSite(page)).toBe(
      'before\n\n::: code-group\n\n```ts [MongoDB]\none();\n```\n\n```ts [PostgreSQL]\ntwo();\n```\n\n:::\n\n**bold** text',
    );
  });

  it('shows pictures and diagrams in the theme that the reader chose', () => {
    const picture =
      '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="./d.png">\n  <img alt="what" src="./l.png">\n</picture>';
    expect(forSite(picture)).toMatch(/<img class="light-only" .*l\.png"><img class="dark-only" .*d\.png">/u);
    expect(forSite('![how](images/plan.svg)')).toMatch(
      /\.\/images\/plan-light\.svg.*\.\/images\/plan-dark\.svg/u,
    );
  });

  it('has tabs of the same names in the same order everywhere', async () => {
    for (const name of await readdir(join(docs, 'guides'))) {
      const fences = fencesOf(await readFile(join(docs, 'guides', name), 'utf8'));
      const tabs = [...new Set(fences.map(({ tab }) => tab).filter((tab) => tab !== undefined))];
      expect([[], ['MongoDB', 'PostgreSQL', 'Embedded']], name).toContainEqual(tabs);
    }
  });
});

describe('a diagram', () => {
  it('has colours for both themes, and can be pinned to either', async () => {
    const images = join(docs, 'images');
    const drawings = (await readdir(images)).filter((name) => name.endsWith('.svg'));
    expect(drawings).toEqual([
      'job-states.svg',
      'limit-crash.svg',
      'limit-permits.svg',
      'planner.svg',
      'takeover.svg',
    ]);
    for (const name of drawings) {
      const svg = await readFile(join(images, name), 'utf8');
      const [light, dark] = svg.split('@media (prefers-color-scheme: dark)');
      const variables = [...(light ?? '').matchAll(/(--[\w-]+):/gu)].map(([, variable]) => variable);
      for (const variable of variables) expect(dark, name).toContain(`${variable ?? ''}:`);
      expect(pinned(svg, 'dark')).toContain('@media all');
      expect(pinned(svg, 'light')).toContain('@media not all');
    }
  });
});
