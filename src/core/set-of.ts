const known = new WeakMap<readonly string[], ReadonlySet<string>>();

/** Returns the texts of a list that never changes as a set. A list of thousands is turned into a set once only. */
export function setOf(list: readonly string[]): ReadonlySet<string> {
  const set = known.get(list) ?? new Set(list);
  known.set(list, set);
  return set;
}
