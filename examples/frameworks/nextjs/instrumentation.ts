/** Next.js calls this once per process, before the server takes requests. */
export async function register(): Promise<void> {
  // A condition around the import, and no early return: so Next.js leaves it out of its bundle for the Edge runtime.
  if (process.env.NEXT_RUNTIME === 'nodejs') {
    const { prepare } = await import('@/lib/prepare');
    await prepare();
  }
}
