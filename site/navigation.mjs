/**
 * The sidebar is docs/README.md, which GitHub shows beside the pages: a heading is a group, an item of its list is a page. A group that is
 * named like a folder of docs/ also has the pages of that folder that its list leaves out.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs';

const docs = new URL('../docs/', import.meta.url);

/** @typedef {{ text: string, link: string }} Page */
/** @typedef {{ text: string, items: Page[] }} Group */

/** @returns {Group[]} */
export function navigation() {
  const [, ...sections] = readFileSync(new URL('README.md', docs), 'utf8').split(/^## /mu);
  return sections.map(groupOf);
}

/**
 * @param {string} section a heading, and what follows it
 * @returns {Group}
 */
function groupOf(section) {
  const [text = ''] = section.split('\n');
  const items = [...section.matchAll(/^- \[([^\]]+)\]\(([^)]+)\)/gmu)].map(([, title = '', target = '']) => {
    return { text: title, link: placeOf(target) };
  });
  const listed = new Set(items.map(({ link }) => link));
  const more = pagesIn(text.toLowerCase()).filter(({ link }) => !listed.has(link));
  return { text, items: [...items, ...more] };
}

/**
 * The pages of a folder of docs/ by their titles, in the order of their file names.
 * @param {string} folder
 * @returns {Page[]}
 */
export function pagesIn(folder) {
  if (!existsSync(new URL(folder, docs))) return [];
  const names = readdirSync(new URL(folder, docs)).filter(
    (name) => name.endsWith('.md') && name !== 'README.md',
  );
  return names.map((name) => {
    const [, title = name] =
      /^# (.+)$/mu.exec(readFileSync(new URL(`${folder}/${name}`, docs), 'utf8')) ?? [];
    return { text: title, link: `/${folder}/${name.replace(/\.md$/u, '')}` };
  });
}

/** @param {string} target a link of docs/README.md */
function placeOf(target) {
  if (target === '../bench/README.md') return '/benchmark';
  if (target === '../examples' || target === 'adr') return `/${target.replace('../', '')}/`;
  return `/${target.replace(/\.md$/u, '')}`;
}
