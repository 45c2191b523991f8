import { useEffect, useState } from 'preact/hooks';
import { Cell, useCell } from './cell.js';

const TICK_MS = 1_000;
const clock = new Cell(Date.now());
let readers = 0;
let timer: ReturnType<typeof setInterval> | undefined;

/** The current time, updated once a second. One timer serves all texts that tell how long ago something was. */
export function useNow(): number {
  const now = useCell(clock);
  useEffect(() => {
    readers += 1;
    timer ??= setInterval(() => (clock.value = Date.now()), TICK_MS);
    return () => {
      readers -= 1;
      if (readers > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  }, []);
  return now;
}

/** Returns true once `ms` have passed, so that nothing flickers for a short wait. */
export function useAfter(ms: number): boolean {
  const [passed, pass] = useState(false);
  useEffect(() => {
    const wait = setTimeout(() => pass(true), ms);
    return () => clearTimeout(wait);
  }, [ms]);
  return passed;
}
