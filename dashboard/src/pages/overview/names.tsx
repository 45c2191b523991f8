import type { VNode } from 'preact';
import type { NameRow, Session, WorkKind } from '../../../../src/dashboard/contract.js';
import { act } from '../../actions.js';
import { workPath } from '../../filter.js';
import { compact, count, words } from '../../format.js';
import { KIND_NOUNS, may, useSession } from '../../session.js';
import { ActionButton } from '../../ui/action-button.js';
import { Icon } from '../../ui/icon.js';
import { Link } from '../../ui/link.js';
import { Section } from '../../ui/page.js';
import { Empty } from '../../ui/states.js';
import { iconOf, Status, toneOf } from '../../ui/status.js';
import { Span } from '../../ui/time.js';

interface NamesProps {
  readonly names: readonly NameRow[];
  readonly range: string;
  readonly chosen: { readonly kind: WorkKind; readonly name: string } | undefined;
}

export function Names({ names, range, chosen }: NamesProps): VNode {
  return (
    <Section title="By name" note={`done, failed, wait and run within ${range}`}>
      {names.length === 0 ? <FirstSteps /> : <NamesTable names={names} range={range} chosen={chosen} />}
    </Section>
  );
}

function FirstSteps(): VNode {
  return (
    <Empty title="Nothing has run here yet">
      <p>Define a handler, start the mill and enqueue a job. It appears here at once.</p>
      <pre>
        {`mill.job('send-email', async (job) => { … });\nawait mill.start();\nawait mill.enqueue('send-email', { to: 'ada@example.com' });`}
      </pre>
    </Empty>
  );
}

function NamesTable({ names, range, chosen }: NamesProps): VNode {
  const session = useSession();
  return (
    <div class="scroll" role="region" aria-label="Work by name" tabIndex={0}>
      <table class="names">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col" class="grow">
              Now
            </th>
            <th scope="col" class="num">
              Done
            </th>
            <th scope="col" class="num">
              Failed
            </th>
            <th scope="col" class="num">
              Wait
            </th>
            <th scope="col" class="num">
              Run
            </th>
            <th scope="col" class="num">
              Instances
            </th>
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {names.map((row) => (
            <Row
              key={`${row.kind} ${row.name}`}
              row={row}
              range={range}
              session={session}
              current={chosen?.name === row.name && chosen.kind === row.kind}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  readonly row: NameRow;
  readonly range: string;
  readonly session: Session;
  readonly current: boolean;
}

function Row({ row, range, session, current }: RowProps): VNode {
  const { kind, name, paused, done, failed, waitMs, runMs } = row;
  const query = new URLSearchParams({ range, kind, name });
  return (
    <tr data-row class={current ? 'current' : ''}>
      <th scope="row">
        <Link to={`?${query.toString()}`} opensRow title="Show charts of this name only">
          {name}
        </Link>
        <small>{KIND_NOUNS[kind][0]}</small>
        {paused && <Status of="paused" />}
      </th>
      <td>
        <Counts row={row} order={session.statuses[kind]} />
      </td>
      <td class="num">{count(done)}</td>
      <td class={failed > 0 ? 'num tone-bad' : 'num'}>{count(failed)}</td>
      <td class="num">
        <Span ms={waitMs} />
      </td>
      <td class="num">
        <Span ms={runMs} />
      </td>
      <td class="num">
        <Runners row={row} />
      </td>
      <td class="actions">
        <NameActions row={row} session={session} />
      </td>
    </tr>
  );
}

/** Instances do not advertise document schedules: every instance with the handler runs them. */
function Runners({ row: { kind, instances } }: { readonly row: NameRow }): VNode {
  if (kind === 'documents') return <span class="muted">–</span>;
  return instances === 0 ? <span class="tone-bad">none</span> : <>{count(instances)}</>;
}

/** Counts by status; each count links to the list of that work. */
function Counts({ row, order }: { readonly row: NameRow; readonly order: readonly string[] }): VNode {
  const shown = order.filter((status) => (row.counts[status] ?? 0) > 0);
  if (shown.length === 0) return <span class="muted">nothing</span>;
  return (
    <span class="counts">
      {shown.map((status) => (
        <Link
          key={status}
          to={workPath(row.kind, { names: [row.name], statuses: [status] })}
          class={`count tone-${toneOf(status)}`}
          title={`${count(row.counts[status] ?? 0)} ${words(status)}`}
        >
          <Icon of={iconOf(status)} size={13} />
          {compact(row.counts[status] ?? 0)}
          {row.capped.includes(status) && '+'}
          <span class="hidden"> {words(status)}</span>
        </Link>
      ))}
    </span>
  );
}

function NameActions({
  row: { kind, name, paused, instances },
  session,
}: {
  readonly row: NameRow;
  readonly session: Session;
}): VNode {
  if (!may(session, 'act')) return <></>;
  const offered = session.nameActions[kind]
    .filter((action) => action !== (paused ? 'pause' : 'resume'))
    // Refused while a live instance runs the task.
    .filter((action) => action !== 'forget' || instances === 0);
  return (
    <>
      {offered.map((action) => (
        <ActionButton
          key={action}
          action={action}
          what={name}
          small
          run={() => act('names', { action, kind, name })}
        />
      ))}
    </>
  );
}
