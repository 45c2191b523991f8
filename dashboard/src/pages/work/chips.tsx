import { X } from 'lucide';
import type { VNode } from 'preact';
import type { Filter } from '../../filter.js';
import { exactTime } from '../../format.js';
import { Icon } from '../../ui/icon.js';
import type { FilterPartProps } from './filter-part.js';
import { TIME_WORDS } from './time-filter.js';

/** The parts of the filter, each with a button that removes it. */
export function Chips({ filter, change }: FilterPartProps): VNode {
  const chips = chipsOf(filter);
  if (chips.length === 0) return <span class="muted">No filter: everything of this kind is listed.</span>;
  return (
    <ul class="chips">
      {chips.map(({ text, without }) => (
        <li key={text}>
          <span>{text}</span>
          <button
            type="button"
            class="icon-button"
            title={`Take off ${text}`}
            onClick={() => change(without)}
          >
            <Icon of={X} size={12} />
            <span class="hidden">Take off {text}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

interface Chip {
  readonly text: string;
  readonly without: Partial<Filter>;
}

function chipsOf(filter: Filter): readonly Chip[] {
  const { names, statuses, fields, error, from, to } = filter;
  const time = TIME_WORDS[filter.time || 'createdAt'] ?? filter.time;
  return [
    ...names.map((name) => ({ text: `name: ${name}`, without: { names: without(names, name) } })),
    ...statuses.map((status) => ({
      text: `status: ${status}`,
      without: { statuses: without(statuses, status) },
    })),
    ...(error === '' ? [] : [{ text: `error: ${error}`, without: { error: '' } }]),
    ...fields.map((field) => ({
      text: field.replace(':', ' = '),
      without: { fields: without(fields, field) },
    })),
    ...(from === '' ? [] : [{ text: `${time} from ${exactTime(from)}`, without: { from: '' } }]),
    ...(to === '' ? [] : [{ text: `${time} up to ${exactTime(to)}`, without: { to: '' } }]),
  ];
}

function without(values: readonly string[], value: string): readonly string[] {
  return values.filter((each) => each !== value);
}
