/**
 * Defers `load`, an `import()`, to the first call. Later calls return the same promise, so that they cost no trip to the
 * module loader. After a failure the next call tries again.
 */
export function lazily<T>(load: () => Promise<T>): () => Promise<T> {
  let loading: Promise<T> | undefined;
  return () => {
    loading ??= load().catch((error: unknown) => {
      loading = undefined;
      throw error;
    });
    return loading;
  };
}
