/** Parses a list of names given on the command line. */
export function chosen<T extends string>(flag: string, given: string, known: readonly T[]): readonly T[] {
  const names = given.split(',').map((name) => name.trim());
  const unknown = names.filter((name) => !known.includes(name as T));
  if (unknown.length > 0)
    throw new Error(`--${flag}: ${unknown.join(', ')} unknown; known are ${known.join(', ')}`);
  return names as T[];
}
