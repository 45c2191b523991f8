type CleanUp = () => Promise<unknown>;

const afterTest: CleanUp[] = [];
const afterFile: CleanUp[] = [];

/**
 * Runs after every test of every file. Files of one worker share their modules, so a hook that a helper module registers
 * itself would only hold for the first file that loads it.
 */
export const cleanUpAfterEach = (work: CleanUp): void => void afterTest.push(work);

/** Runs after the last test of every file. */
export const cleanUpAfterAll = (work: CleanUp): void => void afterFile.push(work);

const runAll = async (works: readonly CleanUp[]): Promise<void> => {
  for (const work of works) await work();
};

export const cleanUpTest = (): Promise<void> => runAll(afterTest);
export const cleanUpFile = (): Promise<void> => runAll(afterFile);
