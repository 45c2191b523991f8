import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Small files that take long, because they start servers and processes and wait for them. */
const SLOW = /\/test\/(?:chaos|tooling|servers)\/|\/(?:kill|browser|folder\.embedded)\.test\.ts$/u;

/**
 * Runs the largest files first, except that small slow files do not come last, when nothing else is left to run beside
 * them.
 */
export default class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isSlow = ({ moduleId }: TestSpecification): boolean => SLOW.test(moduleId);
    return [...sorted.filter(isSlow), ...sorted.filter((file) => !isSlow(file))];
  }
}
