import { CircleHelp } from 'lucide';
import type { VNode } from 'preact';
import type { Why } from '../../../../src/dashboard/contract.js';
import { Icon } from '../../ui/icon.js';
import { Prose } from '../../ui/prose.js';

/** Explains why the work waits, which its state alone does not tell. */
export function WhyNot({ why }: { readonly why: readonly Why[] }): VNode {
  if (why.length === 0) return <></>;
  return (
    <section class="why" aria-label="Why it is not running">
      <Icon of={CircleHelp} size={20} />
      <div>
        <h2>Why is this not running?</h2>
        <ul>
          {why.map(({ code, text }) => (
            <li key={`${code} ${text}`}>
              <Prose text={text} />
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}
