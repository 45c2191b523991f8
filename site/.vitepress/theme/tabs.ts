/** A reader has one store: the tab chosen in one group of code is chosen in all, on every page. */

const KEY = 'tidemill-tab';
/** While tabs are chosen by code, their events say nothing about the reader. */
let choosing = false;

export function rememberTab({ target }: Event): void {
  if (choosing || !(target instanceof HTMLInputElement) || !target.matches('.vp-code-group input')) return;
  const title = titleOf(target);
  if (title === undefined) return;
  localStorage.setItem(KEY, title);
  // A group above may grow or shrink; the one that was clicked stays where it is.
  const before = target.getBoundingClientRect().top;
  chooseTabs();
  window.scrollBy(0, target.getBoundingClientRect().top - before);
}

export function chooseTabs(): void {
  const chosen = localStorage.getItem(KEY);
  if (chosen === null) return;
  choosing = true;
  for (const input of document.querySelectorAll<HTMLInputElement>('.vp-code-group input'))
    if (!input.checked && titleOf(input) === chosen) input.click();
  choosing = false;
}

function titleOf(input: HTMLInputElement): string | undefined {
  return input.labels?.[0]?.textContent.trim();
}
