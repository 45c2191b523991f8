/**
 * The README of the package. The repository's links to files that the package does not have, so npm packs a copy
 * without these links:
 *
 *   node scripts/package-readme.mjs            before packing (prepack): puts the copy in place of README.md
 *   node scripts/package-readme.mjs --restore  after packing (postpack): puts the original back
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';

const README = 'README.md';
/** npm packs every file whose name begins with README, hence the other name. */
const ORIGINAL = '.readme-of-the-repository.md';
const NOTE =
  'Guides, examples and other files that this page names are in the repository, not in the package.';
/** Sections that only make sense beside the files of the repository. */
const LEFT_OUT = ['Documentation'];

/**
 * Reduces the introduction to what the library is, leaves out pictures, and turns links to files into their text.
 * @param {string} text
 */
export function packageReadme(text) {
  const [head = '', ...sections] = text.split(/^(?=## )/mu);
  const [title = '', summary = ''] = head.split('\n\n');
  const kept = sections.filter((section) => !LEFT_OUT.includes(section.slice(3, section.indexOf('\n'))));
  return [title, summary, NOTE, kept.join('')]
    .join('\n\n')
    .replaceAll(/<picture>.*?<\/picture>\n*/gsu, '')
    .replaceAll(/!\[[^\]]*\]\([^)]*\)\n*/gu, '')
    .replaceAll(/\[([^\]]*)\]\((?![a-z]+:|#)[^)]*\)/gu, '$1');
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  // A packing that was killed leaves the original under its other name.
  if (existsSync(ORIGINAL)) renameSync(ORIGINAL, README);
  if (argv[2] !== '--restore') {
    const text = readFileSync(README, 'utf8');
    renameSync(README, ORIGINAL);
    writeFileSync(README, packageReadme(text));
  }
}
