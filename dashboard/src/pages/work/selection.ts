import { useState } from 'preact/hooks';

export interface Selection {
  readonly ids: ReadonlySet<string>;
  readonly set: (ids: readonly string[], selected: boolean) => void;
  readonly clear: () => void;
}

interface Ticked {
  readonly list: string;
  readonly ids: ReadonlySet<string>;
}

/**
 * The selected rows, by id, so that a live update does not move the selection to another row. Another list starts
 * with an empty selection, so that viewers cannot act on rows they no longer see.
 */
export function useSelection(list: string): Selection {
  const [ticked, setTicked] = useState<Ticked>({ list, ids: new Set() });
  const current = (each: Ticked): ReadonlySet<string> => (each.list === list ? each.ids : new Set());
  return {
    ids: current(ticked),
    set: (changed, selected) => {
      setTicked((before) => {
        const ids = new Set(current(before));
        for (const id of changed) {
          if (selected) ids.add(id);
          else ids.delete(id);
        }
        return { list, ids };
      });
    },
    clear: () => setTicked({ list, ids: new Set() }),
  };
}
