type Method = (...args: never[]) => Promise<unknown>;
type MethodOf<T, K extends keyof T> = Extract<T[K], Method>;

/** Listens to one method of a store, and can answer in its place. */
export interface Spy<F extends Method> {
  readonly calls: readonly Parameters<F>[];
  /** How many calls have been answered without an error. */
  readonly answered: number;
  /** Answers every call from now on. */
  always(answer: F): void;
  /** Answers the next call that no other answer is waiting for. */
  once(answer: F): void;
  /** Takes the spy off. */
  restore(): void;
}

export function spyOn<T extends object, K extends keyof T>(target: T, key: K): Spy<MethodOf<T, K>> {
  type F = MethodOf<T, K>;
  const calls: Parameters<F>[] = [];
  const next: F[] = [];
  let answered = 0;
  let usual = (target[key] as F).bind(target) as F;
  const own = Object.getOwnPropertyDescriptor(target, key);
  const heard = async (...args: Parameters<F>): Promise<unknown> => {
    calls.push(args);
    const answer = await (next.shift() ?? usual)(...args);
    answered += 1;
    return answer;
  };
  Object.defineProperty(target, key, { value: heard, configurable: true, writable: true });
  return {
    calls,
    get answered() {
      return answered;
    },
    always: (answer) => void (usual = answer),
    once: (answer) => void next.push(answer),
    restore: () => {
      if (own === undefined) Reflect.deleteProperty(target, key);
      else Object.defineProperty(target, key, own);
    },
  };
}
