import { StoreError } from '../../../core/errors.js';
import { bisect as halved, type Choked } from '../../../core/batches/bisect.js';
import { isStatementFault, isTimeLimit, isTransient } from '../../errors.js';

export const bisect = <T>(
  items: readonly T[],
  statement: (items: readonly T[]) => Promise<void>,
): Promise<readonly Choked<T>[]> =>
  halved(items, statement, (error) => {
    if (isTimeLimit(error)) return 'blocked';
    if (isStatementFault(error)) return 'again';
    const waits = error instanceof StoreError ? error.transient : isTransient(error);
    return waits ? 'again' : 'choked';
  });
