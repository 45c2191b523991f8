import type { Collection } from 'mongodb';

export interface Doc {
  readonly _id: number;
  readonly version: number;
  /** Half of the documents wander in and out of the filter. */
  readonly active: boolean;
}

/** Raises a version, lets a document leave or come back, or deletes it; what is gone is made anew. */
export async function writeOnce(docs: Collection<Doc>, documents: number): Promise<void> {
  const _id = Math.floor(Math.random() * documents);
  const dice = Math.random();
  try {
    if (dice < 0.03) await docs.deleteOne({ _id });
    else {
      const active = _id % 2 === 0 || dice < 0.8;
      await docs.updateOne({ _id }, { $inc: { version: 1 }, $set: { active } }, { upsert: true });
    }
  } catch {
    // The primary is away just now, or the same document was made elsewhere.
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
