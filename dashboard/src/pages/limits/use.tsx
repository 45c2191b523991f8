import type { VNode } from 'preact';
import type { LimitRow } from '../../../../src/dashboard/contract.js';
import { count } from '../../format.js';

/** How much of a limit is in use, and what waits for it. */
export function Use({ limit: { limits, use } }: { readonly limit: LimitRow }): VNode {
  const { concurrency, rate } = limits;
  return (
    <dl class="limit-use">
      {use.running !== undefined && <Part label="Running" value={use.running} most={concurrency} />}
      {rate && <Part label={`Starts in ${rate.per}`} value={use.startsInWindow} most={rate.limit} />}
      <Part label="Waiting" value={use.waiting} />
    </dl>
  );
}

interface PartProps {
  readonly label: string;
  readonly value: number;
  readonly most?: number | undefined;
}

function Part({ label, value, most }: PartProps): VNode {
  return (
    <div>
      <dt>{label}</dt>
      <dd>
        <b>{count(value)}</b>
        {most !== undefined && (
          <>
            <span class="muted">of {count(most)}</span>
            <progress value={Math.min(value, most)} max={most} aria-label={label} />
          </>
        )}
      </dd>
    </div>
  );
}
