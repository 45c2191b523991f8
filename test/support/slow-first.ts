import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Small files that take long, because they start servers and processes of their own and wait for them. */
const SLOW = /\/test\/(?:chaos|tooling|servers)\/|\/(?:kill|browser|folder\.embedded)\.test\.ts$/u;

/** The largest file first, except that small ones which take long do not come last, when nothing is left to do beside them. */
export default class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isSlow = ({ moduleId }: TestSpecification): boolean => SLOW.test(moduleId);
    return [...sorted.filter(isSlow), ...sorted.filter((file) => !isSlow(file))];
  }
}
