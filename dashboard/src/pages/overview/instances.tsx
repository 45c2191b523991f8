import { Crown } from 'lucide';
import type { VNode } from 'preact';
import type { InstanceRow } from '../../../../src/dashboard/contract.js';
import { many } from '../../format.js';
import { Icon } from '../../ui/icon.js';
import { Section } from '../../ui/page.js';
import { Empty } from '../../ui/states.js';
import { Span } from '../../ui/time.js';

const NAMES_SHOWN = 4;

export function Instances({ instances }: { readonly instances: readonly InstanceRow[] }): VNode {
  const alive = instances.filter((instance) => instance.alive).length;
  return (
    <Section title="Instances" note={`${many(alive, 'is', 'are')} alive`}>
      {instances.length === 0 ? (
        <Empty title="No instance is running">
          <p>
            Work waits until a process calls <code>await mill.start()</code> on this store.
          </p>
        </Empty>
      ) : (
        <div class="scroll" role="region" aria-label="Instances" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">Instance</th>
                <th scope="col">Where</th>
                <th scope="col" class="grow">
                  Runs
                </th>
                <th scope="col" class="num">
                  Lease left
                </th>
              </tr>
            </thead>
            <tbody>
              {instances.map((instance) => (
                <Row key={instance.instanceId} instance={instance} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  );
}

function Row({ instance }: { readonly instance: InstanceRow }): VNode {
  const { instanceId, host, pid, names, tasks, alive, leader, leaseLeftMs } = instance;
  const runs = [...names, ...tasks];
  return (
    <tr class={alive ? '' : 'dim'}>
      <th scope="row">
        <code>{instanceId}</code>
        {leader && (
          <span class="badge">
            <Icon of={Crown} size={12} /> leader
          </span>
        )}
      </th>
      <td class="muted">
        {host ?? '–'}
        {pid !== undefined && ` · ${pid}`}
      </td>
      <td title={runs.join(', ')}>
        {runs.length === 0 ? <span class="muted">nothing</span> : runs.slice(0, NAMES_SHOWN).join(', ')}
        {runs.length > NAMES_SHOWN && ` and ${runs.length - NAMES_SHOWN} more`}
      </td>
      <td class="num">{alive ? <Span ms={leaseLeftMs} /> : <span class="tone-bad">over</span>}</td>
    </tr>
  );
}
