import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Small files that take long: they start servers and processes and wait for them, or run a chapter of the conformance
 * suite, whose size is elsewhere.
 */
const SLOW = new RegExp(
  [
    String.raw`/test/(?:chaos|conformance|tooling|servers)/`,
    String.raw`/(?:kill|browser|folder\.embedded|idle\.mongodb|occupied\.postgres|left-out|set-aside)\.test\.ts$`,
  ].join('|'),
  'u',
);

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
