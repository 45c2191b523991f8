import type { ComponentChildren, VNode } from 'preact';
import type { WorkDetail } from '../../../../src/dashboard/contract.js';
import { count } from '../../format.js';
import { Link } from '../../ui/link.js';
import { Section } from '../../ui/page.js';
import { Prose } from '../../ui/prose.js';
import { Time } from '../../ui/time.js';

export function Facts({ detail }: { readonly detail: WorkDetail }): VNode {
  const { dueAt, createdAt, updatedAt, attempts, claimedBy, scheduleId, facts } = detail;
  return (
    <Section title="Facts">
      <dl class="facts">
        <Fact label="Due">
          <Time at={dueAt} />
        </Fact>
        <Fact label="Created">
          <Time at={createdAt} />
        </Fact>
        <Fact label="Changed">
          <Time at={updatedAt} />
        </Fact>
        <Fact label="Attempts">{count(attempts)}</Fact>
        {claimedBy !== undefined && (
          <Fact label="Instance">
            <code>{claimedBy}</code>
          </Fact>
        )}
        {facts.map(({ label, value }) => (
          <Fact key={label} label={label}>
            <Prose text={value} />
          </Fact>
        ))}
        {scheduleId !== undefined && (
          <Fact label="Schedule">
            <Link to="schedules">Schedules</Link>
          </Fact>
        )}
      </dl>
    </Section>
  );
}

function Fact({ label, children }: { readonly label: string; readonly children: ComponentChildren }): VNode {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}
