import type { VNode } from 'preact';
import type { Overview } from '../../../../src/dashboard/contract.js';
import { count, many } from '../../format.js';
import { Section } from '../../ui/page.js';
import { Span } from '../../ui/time.js';

export function Planner({ planner }: { readonly planner: Overview['planner'] }): VNode {
  const { leader, lagMs, reconciling } = planner;
  return (
    <Section title="Planner" note="turns changes of your data into reactive tasks">
      <dl class="facts">
        <div>
          <dt>Leader</dt>
          <dd>
            {leader === null ? <span class="tone-bad">no leader; changes wait</span> : <code>{leader}</code>}
          </dd>
        </div>
        <div>
          <dt>Lag</dt>
          <dd>{lagMs === null ? 'nothing waits' : <Span ms={lagMs} />}</dd>
        </div>
        {reconciling.map(({ task, done, total }) => (
          <div key={task}>
            <dt>Reconciling</dt>
            <dd>
              {task}: {many(done, 'document')} looked at{total !== undefined && `, of about ${count(total)}`}
            </dd>
          </div>
        ))}
      </dl>
    </Section>
  );
}
