import { TidemillError } from '../core/errors.js';

/** The marks that fake timers leave on what they replace: those of Vitest, Sinon and Jest, and Jest's legacy ones. */
const isFake = (timer: object): boolean =>
  Object.hasOwn(timer, 'clock') || Reflect.get(timer, '_isMockFunction') === true;

/** Throws if the test has installed fake timers: the engine would then wait for ever between two of its steps. */
export function refuseFakeTimers(where: string): void {
  if (!isFake(setTimeout) && !isFake(setImmediate)) return;
  throw new TidemillError(
    'FAKE_TIMERS',
    `${where}: fake timers are installed, so the work of the mill would never end. A test mill needs none: its clock moves with ` +
      "advance(). To fake the date only: vi.useFakeTimers({ toFake: ['Date'] }), or with Jest " +
      "jest.useFakeTimers({ doNotFake: ['setTimeout', 'setImmediate', 'performance'] }). To end it: useRealTimers().",
  );
}
