/** Next.js calls this once per process, before the server takes requests. */
export async function register(): Promise<void> {
  if (process.env.NEXT_RUNTIME !== 'nodejs') return;
  const { mill } = await import('./lib/mill.js');

  // The worker in this process. With WORKER=apart, worker.ts runs the jobs instead.
  if (process.env.WORKER !== 'apart') {
    const { addHandlers } = await import('./lib/handlers.js');
    addHandlers(mill);
    await mill.start();
  }

  process.once('SIGTERM', () => void stop());
  process.once('SIGINT', () => void stop());

  // Ends live pages of the dashboard, for which Next.js would wait, then running jobs and connections. If Next.js handles
  // the signal, it exits once its requests have ended.
  async function stop(): Promise<void> {
    await mill.stop();
    if (process.env.NEXT_MANUAL_SIG_HANDLE) process.exit();
  }
}
