import { useEffect } from 'preact/hooks';
import { paused } from './live.js';
import { go } from './router.js';

const CHORD_MS = 1_500;

/** The keys that the help lists. `useKeys` implements them. */
export const KEYS: readonly (readonly [keys: string, meaning: string])[] = [
  ['?', 'Show these keys'],
  ['/', 'Go to the filter'],
  ['j  k', 'Next and previous row'],
  ['Enter', 'Open the row'],
  ['x', 'Select the row'],
  ['p', 'Pause or resume live updates'],
  ['g o', 'Overview'],
  ['g w', 'Work'],
  ['g s', 'Schedules'],
  ['g l', 'Limits'],
  ['g f', 'Failures'],
  ['g a', 'Audit log'],
  ['Esc', 'Close a dialog, leave a field'],
];

const PAGES: Readonly<Record<string, string>> = {
  o: '',
  w: 'work',
  s: 'schedules',
  l: 'limits',
  f: 'failures',
  a: 'audit',
};

export function useKeys(showHelp: () => void): void {
  useEffect(() => {
    let chordUntil = 0;
    const press = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isTyping(event)) {
        leaveField(event);
        return;
      }
      if (document.querySelector('dialog[open]') !== null) return;
      const inChord = performance.now() < chordUntil;
      chordUntil = !inChord && event.key === 'g' ? performance.now() + CHORD_MS : 0;
      if (inChord ? switchPage(event.key) : single(event.key, showHelp)) event.preventDefault();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [showHelp]);
}

function switchPage(key: string): boolean {
  const page = PAGES[key];
  if (page === undefined) return false;
  go(page);
  return true;
}

/** Returns whether the key has a meaning. */
function single(key: string, showHelp: () => void): boolean {
  switch (key) {
    case '?':
      showHelp();
      return true;
    case '/':
      return focus(document.querySelector<HTMLElement>('[data-filter]'));
    case 'j':
      return move(1);
    case 'k':
      return move(-1);
    case 'x':
      return select();
    case 'p':
      paused.value = !paused.value;
      return true;
    default:
      return false;
  }
}

const rows = (): HTMLElement[] => [...document.querySelectorAll<HTMLElement>('[data-row]')];
const isFocused = (row: HTMLElement): boolean => row.contains(document.activeElement);

function move(step: 1 | -1): boolean {
  const all = rows();
  const at = all.findIndex(isFocused);
  const next = at === -1 ? 0 : Math.min(all.length - 1, Math.max(0, at + step));
  return focus(all[next]?.querySelector<HTMLElement>('[data-opens-row]'));
}

function select(): boolean {
  const box = rows().find(isFocused)?.querySelector<HTMLElement>('input[type=checkbox]');
  box?.click();
  return box !== undefined && box !== null;
}

function focus(element: HTMLElement | null | undefined): boolean {
  element?.focus();
  element?.scrollIntoView({ block: 'nearest' });
  return element !== null && element !== undefined;
}

function isTyping({ target }: KeyboardEvent): boolean {
  if (target instanceof HTMLInputElement) return target.type !== 'checkbox';
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function leaveField(event: KeyboardEvent): void {
  if (event.key === 'Escape' && event.target instanceof HTMLElement) event.target.blur();
}
