import { Cell } from './cell.js';

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'tidemill-theme';
const ORDER: readonly Theme[] = ['system', 'light', 'dark'];

export const theme = new Cell<Theme>(remembered());
/** The theme in effect, for charts, which draw on a canvas. */
export const isDark = new Cell(false);

const system = matchMedia('(prefers-color-scheme: dark)');
system.addEventListener('change', apply);
apply();

export function nextTheme(): void {
  const after = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length] ?? 'system';
  theme.value = after;
  try {
    localStorage.setItem(KEY, after);
  } catch {
    // Without storage the choice lasts until the page is left.
  }
  apply();
}

function apply(): void {
  const chosen = theme.value === 'system' ? (system.matches ? 'dark' : 'light') : theme.value;
  document.documentElement.dataset['theme'] = chosen;
  isDark.value = chosen === 'dark';
}

function remembered(): Theme {
  try {
    return ORDER.find((known) => known === localStorage.getItem(KEY)) ?? 'system';
  } catch {
    return 'system';
  }
}
