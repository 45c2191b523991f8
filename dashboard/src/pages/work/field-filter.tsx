import { Braces } from 'lucide';
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { Icon } from '../../ui/icon.js';
import { Popover } from '../../ui/popover.js';
import type { FilterPartProps } from './filter-part.js';

const OF_WHAT = {
  jobs: ['Payload', 'Work whose payload has this value.', 'customer.id'],
  tasks: ['Source', 'Work whose source document has this value.', 'status'],
  documents: ['Field', 'Documents that have this value.', 'status'],
} as const;

export function FieldFilter({ filter, change }: FilterPartProps): VNode {
  const [path, setPath] = useState('');
  const [value, setValue] = useState('');
  const [label, meaning, example] = OF_WHAT[filter.kind];
  const add = (close: () => void): void => {
    change({ fields: [...filter.fields, `${path.trim()}:${value}`] });
    setPath('');
    setValue('');
    close();
  };
  return (
    <Popover
      label={
        <>
          <Icon of={Braces} size={14} /> {label}
        </>
      }
    >
      {(close) => (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            add(close);
          }}
        >
          <p class="muted">{meaning}</p>
          <label class="field">
            <span>Path</span>
            <input
              required
              value={path}
              placeholder={example}
              onInput={(event) => setPath(event.currentTarget.value)}
            />
          </label>
          <label class="field">
            <span>Value</span>
            <input value={value} placeholder="42" onInput={(event) => setValue(event.currentTarget.value)} />
          </label>
          <p class="muted">
            Numbers, <code>true</code>, <code>null</code> and <code>"quoted text"</code> are read as JSON.
          </p>
          <button type="submit" class="button primary">
            Add
          </button>
        </form>
      )}
    </Popover>
  );
}
