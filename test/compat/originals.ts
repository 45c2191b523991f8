/** The libraries that `tidemill/compat` stands in for, as npm has them. */
import { createRequire } from 'node:module';
import { fetchPackages } from '../../scripts/fetch.mjs';

const load = createRequire(new URL('../originals/package.json', import.meta.url));

/** A package of test/originals. It has a driver of its own: give it clients of that one. */
export async function original<T>(name: string): Promise<T> {
  await fetchPackages('test/originals');
  return load(name) as T;
}
