import { CalendarRange } from 'lucide';
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { type Filter, TIMES } from '../../filter.js';
import { Icon } from '../../ui/icon.js';
import { Popover } from '../../ui/popover.js';
import type { FilterPartProps } from './filter-part.js';

const MINUTE = 60_000;
const BACK: readonly (readonly [label: string, ms: number])[] = [
  ['15 min', 15 * MINUTE],
  ['1 h', 60 * MINUTE],
  ['24 h', 24 * 60 * MINUTE],
  ['7 d', 7 * 24 * 60 * MINUTE],
];
export const TIME_WORDS: Readonly<Record<string, string>> = {
  createdAt: 'created',
  updatedAt: 'changed',
  dueAt: 'due',
};

export function TimeFilter({ filter, change }: FilterPartProps): VNode {
  const [time, setTime] = useState(filter.time || 'createdAt');
  const narrowed = filter.from !== '' || filter.to !== '';
  const pick = (each: string): void => {
    setTime(each);
    if (narrowed) change({ time: each });
  };
  const since = (ms: number): Partial<Filter> => ({
    time,
    from: new Date(Date.now() - ms).toISOString(),
    to: '',
  });
  return (
    <Popover
      label={
        <>
          <Icon of={CalendarRange} size={14} /> Time
        </>
      }
    >
      {(close) => (
        <>
          <div class="segments" role="group" aria-label="Which time">
            {TIMES.map((each) => (
              <button key={each} type="button" aria-pressed={each === time} onClick={() => pick(each)}>
                {TIME_WORDS[each]}
              </button>
            ))}
          </div>
          <div class="segments" role="group" aria-label="How far back">
            {BACK.map(([label, ms]) => (
              <button
                key={label}
                type="button"
                onClick={() => {
                  change(since(ms));
                  close();
                }}
              >
                {label}
              </button>
            ))}
          </div>
          <Moment label="From" value={filter.from} set={(from) => change({ time, from })} />
          <Moment label="To" value={filter.to} set={(to) => change({ time, to })} />
        </>
      )}
    </Popover>
  );
}

interface MomentProps {
  readonly label: string;
  readonly value: string;
  readonly set: (iso: string) => void;
}

function Moment({ label, value, set }: MomentProps): VNode {
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="datetime-local"
        value={toLocal(value)}
        onChange={(event) => set(toIso(event.currentTarget.value))}
      />
    </label>
  );
}

/** The input uses the viewer's local time without a zone; the address always has the exact moment. */
function toLocal(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return '';
  return new Date(date.getTime() - date.getTimezoneOffset() * MINUTE).toISOString().slice(0, 16);
}

function toIso(local: string): string {
  const date = new Date(local);
  return Number.isNaN(date.getTime()) ? '' : date.toISOString();
}
