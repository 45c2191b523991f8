import { Cell, useCell } from './cell.js';

/** The address of the page. The server writes it into <base>, so the page works below any path. */
const base = new URL('.', document.baseURI);

export interface Place {
  /** Below the base, without a leading slash: `work/jobs/abc`. */
  readonly path: string;
  readonly query: URLSearchParams;
}

const here = new Cell(read());
addEventListener('popstate', () => (here.value = read()));

function read(): Place {
  const inside = location.pathname.startsWith(base.pathname);
  const path = inside ? location.pathname.slice(base.pathname.length) : '';
  return { path, query: new URLSearchParams(location.search) };
}

export function usePlace(): Place {
  return useCell(here);
}

/** The full address of a path below the base. */
export function href(path: string): string {
  return new URL(path === '' ? '.' : path, base).href;
}

/** `replace` is for steps that the back button should skip, such as each letter of a text. */
export function go(path: string, { replace = false }: { readonly replace?: boolean } = {}): void {
  const address = href(path);
  if (address === location.href) return;
  const samePage = new URL(address).pathname === location.pathname;
  if (replace) history.replaceState(null, '', address);
  else history.pushState(null, '', address);
  here.value = read();
  if (!samePage) scrollTo(0, 0);
}

/** A click that the browser would follow in this tab. Others (new tab, download) are left to the browser. */
export function isPlainClick(event: MouseEvent): boolean {
  return event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
}
