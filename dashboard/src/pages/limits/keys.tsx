import type { VNode } from 'preact';
import type { LimitRow } from '../../../../src/dashboard/contract.js';
import { count } from '../../format.js';
import { Time } from '../../ui/time.js';

const MOST_COUNTED = 1_000;

/** The keys that have waited longest. */
export function Keys({ limit: { name, keys = [] } }: { readonly limit: LimitRow }): VNode {
  if (keys.length === 0) return <></>;
  return (
    <div class="scroll limit-keys" role="region" aria-label={`Keys of ${name} that wait`} tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col" class="grow">
              Key that waits longest
            </th>
            <th scope="col" class="num">
              Running
            </th>
            <th scope="col" class="num">
              Waiting
            </th>
            <th scope="col">Due since</th>
            <th scope="col">Rate free</th>
          </tr>
        </thead>
        <tbody>
          {keys.map(({ key, running, due, dueSince, freeAt }, i) => (
            <tr key={i}>
              <th scope="row">{key === '' ? <span class="muted">no key</span> : <code>{key}</code>}</th>
              <td class="num">{count(running)}</td>
              <td class="num">
                {count(due)}
                {due >= MOST_COUNTED && '+'}
              </td>
              <td>
                <Time at={dueSince} />
              </td>
              <td>
                <Time at={freeAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
