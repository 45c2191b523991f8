import { Cell } from './cell.js';

/** What just happened, in words: shown for 8 s, and read out by screen readers. */
export interface Notice {
  readonly id: number;
  readonly tone: 'good' | 'bad';
  readonly text: string;
}

const SHOWN_MS = 8_000;
export const notices = new Cell<readonly Notice[]>([]);
let last = 0;

export function announce(text: string, tone: Notice['tone'] = 'good'): void {
  last += 1;
  const id = last;
  notices.value = [...notices.value.slice(-2), { id, tone, text }];
  setTimeout(() => dismiss(id), SHOWN_MS);
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}
