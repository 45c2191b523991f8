import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { CopyButton } from './copy.js';

const OPEN_DEPTH = 2;
const CHILDREN_SHOWN = 100;
const TEXT_SHOWN = 500;

/** A value as a collapsible tree. Everything in it becomes a text node, whatever it contains. */
export function Json({ value, what }: { readonly value: unknown; readonly what: string }): VNode {
  return (
    <div class="json">
      <CopyButton text={JSON.stringify(value, null, 2)} what={what} />
      <Node value={value} depth={0} />
    </div>
  );
}

interface NodeProps {
  readonly name?: string;
  readonly value: unknown;
  readonly depth: number;
}

function Node({ name, value, depth }: NodeProps): VNode {
  const label = name === undefined ? null : <span class="json-key">{name}: </span>;
  if (typeof value === 'object' && value !== null)
    return <Branch label={label} value={value} depth={depth} />;
  return (
    <div class="json-leaf">
      {label}
      <Leaf value={value} />
    </div>
  );
}

function Branch({ label, value, depth }: { label: VNode | null; value: object; depth: number }): VNode {
  const isList = Array.isArray(value);
  const entries: readonly (readonly [string, unknown])[] = Object.entries(value);
  const [shown, show] = useState(CHILDREN_SHOWN);
  if (entries.length === 0) {
    return (
      <div class="json-leaf">
        {label}
        <span class="muted">{isList ? '[]' : '{}'}</span>
      </div>
    );
  }
  return (
    <details open={depth < OPEN_DEPTH}>
      <summary>
        {label}
        <span class="muted">{isList ? `[${entries.length}]` : `{${entries.length}}`}</span>
      </summary>
      <div class="json-children">
        {entries.slice(0, shown).map(([key, child]) => (
          <Node key={key} name={key} value={child} depth={depth + 1} />
        ))}
        {entries.length > shown && (
          <button type="button" class="link-button" onClick={() => show(shown + CHILDREN_SHOWN)}>
            Show more ({entries.length - shown} are left)
          </button>
        )}
      </div>
    </details>
  );
}

function Leaf({ value }: { readonly value: unknown }): VNode {
  const [whole, showWhole] = useState(false);
  if (typeof value !== 'string')
    return <span class={`json-${value === null ? 'null' : typeof value}`}>{String(value)}</span>;
  const long = value.length > TEXT_SHOWN && !whole;
  return (
    <>
      <span class="json-string">{JSON.stringify(long ? `${value.slice(0, TEXT_SHOWN)}…` : value)}</span>
      {long && (
        <button type="button" class="link-button" onClick={() => showWhole(true)}>
          Show all {value.length} characters
        </button>
      )}
    </>
  );
}
