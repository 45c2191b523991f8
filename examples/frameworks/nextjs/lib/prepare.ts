import { addHandlers } from '@/lib/handlers';
import { mill } from '@/lib/mill';

/** Prepares the process of Next.js: its worker, and its end. */
export async function prepare(): Promise<void> {
  // The worker in this process. With WORKER=apart, worker.ts runs the jobs instead.
  if (process.env.WORKER !== 'apart') {
    addHandlers(mill);
    await mill.start();
  }
  process.once('SIGTERM', () => void stop());
  process.once('SIGINT', () => void stop());
}

/**
 * Ends live pages of the dashboard, for which Next.js would wait, then running jobs and connections. If Next.js handles the
 * signal, it exits once its requests have ended.
 */
async function stop(): Promise<void> {
  await mill.stop();
  if (process.env.NEXT_MANUAL_SIG_HANDLE) process.exit();
}
