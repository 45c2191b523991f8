import type { Collection } from 'mongodb';

/** Multiplies the one job that the library wrote itself, for a backlog in exactly its own shape. */
export async function copies(jobs: Collection, count: number): Promise<void> {
  const [original] = await jobs.find({}, { projection: { _id: 0 } }).toArray();
  if (original === undefined) throw new Error('the library wrote no job');
  for (let left = count - 1; left > 0; left -= 1_000) {
    const batch = Array.from({ length: Math.min(left, 1_000) }, () => ({ ...original }));
    await jobs.insertMany(batch, { ordered: false });
  }
}
