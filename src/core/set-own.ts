/** Sets a property of an object, also `__proto__`: an assignment to that would give the object another prototype. */
export function setOwn(target: object, key: string, value: unknown): void {
  // Assignments are several times as fast, and nearly every key is another one.
  if (key === '__proto__')
    Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
  else (target as Record<string, unknown>)[key] = value;
}
