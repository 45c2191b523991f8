/**
 * What the site makes of Markdown that GitHub shows as it is: tabs, pictures in two themes, diagrams. Pure functions of the text.
 */

const TABS = /<!-- tabs -->\n+([\s\S]*?)\n+<!-- \/tabs -->/gu;
const TAB = /\*\*(.+?)\*\*\n+```(\w+)/gu;
const PICTURE =
  /<picture>\s*<source[^>]* srcset="([^"]+)">\s*<img alt="([^"]*)" src="([^"]+)">\s*<\/picture>/gu;
const DIAGRAM = /^!\[([^\]]*)\]\(([^)\s]+)\.svg\)$/gmu;
const DARK = '@media (prefers-color-scheme: dark)';

/**
 * The same page for the site.
 * @param {string} text
 */
export function forSite(text) {
  return text
    .replaceAll(TABS, (_whole, /** @type {string} */ blocks) => {
      return `::: code-group\n\n${blocks.replaceAll(TAB, '```$2 [$1]')}\n\n:::`;
    })
    .replaceAll(
      PICTURE,
      (_whole, /** @type {string} */ dark, /** @type {string} */ alt, /** @type {string} */ light) =>
        inBothThemes(alt, light, dark),
    )
    .replaceAll(DIAGRAM, (_whole, /** @type {string} */ alt, /** @type {string} */ path) => {
      const local = path.startsWith('.') ? path : `./${path}`;
      return `<div class="diagram">${inBothThemes(alt, `${local}-light.svg`, `${local}-dark.svg`)}</div>`;
    });
}

/**
 * A drawing that follows the system's theme, pinned to one theme: readers of the site can choose another one than their system's.
 * @param {string} svg
 * @param {'light' | 'dark'} theme
 */
export function pinned(svg, theme) {
  return svg.replaceAll(DARK, theme === 'dark' ? '@media all' : '@media not all');
}

/**
 * The theme hides one of the two; a hidden image that is lazy is not loaded.
 * @param {string} alt
 * @param {string} light
 * @param {string} dark
 */
function inBothThemes(alt, light, dark) {
  return [
    `<img class="light-only" loading="lazy" alt="${alt}" src="${light}">`,
    `<img class="dark-only" loading="lazy" alt="${alt}" src="${dark}">`,
  ].join('');
}
