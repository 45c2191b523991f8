import type { Finding, Tidemill } from '../../src/index.js';

/** What the doctor finds in one check. */
export async function findingsOf(mill: Tidemill, check: string): Promise<readonly Finding[]> {
  return (await mill.doctor()).filter((finding) => finding.check === check);
}

export async function findingOf(mill: Tidemill, check: string): Promise<Finding> {
  const [finding] = await findingsOf(mill, check);
  if (finding === undefined) throw new Error(`the doctor says nothing about ${check}`);
  return finding;
}
