import type { Sink } from '../terminal.js';

export interface ProgressBar {
  /** Shows how many are done. Pass `total` when it becomes known or has changed. */
  show(done: number, total?: number): void;
  /** Removes the bar from the screen. */
  end(): void;
}

const WIDTH = 30;

export const bar = (share: number, width: number = WIDTH): string => {
  const filled = Math.round(Math.min(1, Math.max(0, share)) * width);
  return `${'█'.repeat(filled)}${'░'.repeat(width - filled)}`;
};

/** Redraws a bar in place on a terminal; writes nothing anywhere else. */
export function progressBar(to: Sink, total?: number): ProgressBar {
  let whole = total;
  const draw = (text: string): void => {
    if (to.isTTY === true) to.write(`\r\u001B[2K${text}`);
  };
  return {
    show: (done, newTotal) => {
      whole = newTotal ?? whole;
      const counts = done.toLocaleString('en-US');
      draw(
        whole === undefined || whole === 0
          ? counts
          : `${bar(done / whole)} ${String(Math.min(100, Math.floor((done / whole) * 100))).padStart(3)} %  ${counts} of ${whole.toLocaleString('en-US')}`,
      );
    },
    end: () => draw(''),
  };
}
