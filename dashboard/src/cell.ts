import { useLayoutEffect, useState } from 'preact/hooks';

/** A value that several components read. It notifies them when it is set. */
export class Cell<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set value(value: T) {
    this.#value = value;
    for (const listener of this.#listeners) listener();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

export function useCell<T>(cell: Cell<T>): T {
  const [seen, see] = useState(cell.value);
  useLayoutEffect(() => {
    // The value may have been set since the render.
    see(() => cell.value);
    return cell.subscribe(() => see(() => cell.value));
  }, [cell]);
  return seen;
}
