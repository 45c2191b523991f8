import type { VNode } from 'preact';
import type { Action, SchedulePage, ScheduleRow } from '../../../src/dashboard/contract.js';
import { act } from '../actions.js';
import { workPath } from '../filter.js';
import { exactTime, inZone } from '../format.js';
import { useLive } from '../live.js';
import { may, useSession } from '../session.js';
import { ActionButton } from '../ui/action-button.js';
import { Link } from '../ui/link.js';
import { LiveControl } from '../ui/live-control.js';
import { MorePages, pagePath } from '../ui/more-pages.js';
import { Page } from '../ui/page.js';
import { Empty, Problem, Skeleton } from '../ui/states.js';
import { Status } from '../ui/status.js';
import { Span, Time } from '../ui/time.js';

export function Schedules({ query }: { readonly query: URLSearchParams }): VNode {
  const cursor = query.get('cursor');
  const live = useLive<SchedulePage>(pagePath('schedules', cursor));
  const { data, error } = live;
  return (
    <Page
      title="Schedules"
      lead="Recurring jobs: when each runs next, in its own zone, and how its last run went."
      controls={<LiveControl live={live} />}
    >
      {error && <Problem error={error} retry={live.refresh} />}
      {data ? (
        <>
          <List items={data.items} refresh={live.refresh} />
          <MorePages page="schedules" cursor={cursor} next={data.next} />
        </>
      ) : (
        !error && <Skeleton rows={5} height={120} />
      )}
    </Page>
  );
}

interface ListProps {
  readonly items: readonly ScheduleRow[];
  readonly refresh: () => void;
}

function List({ items, refresh }: ListProps): VNode {
  if (items.length === 0) {
    return (
      <Empty title="There are no schedules yet">
        <p>A schedule is a recurring job:</p>
        <pre>{`await mill.schedule('0 3 * * *', 'daily-report', {}, { timezone: 'Europe/Prague' });`}</pre>
      </Empty>
    );
  }
  return (
    <ul class="schedules">
      {items.map((schedule) => (
        <Schedule key={schedule.id} schedule={schedule} refresh={refresh} />
      ))}
    </ul>
  );
}

interface ScheduleProps {
  readonly schedule: ScheduleRow;
  readonly refresh: () => void;
}

function Schedule({ schedule, refresh }: ScheduleProps): VNode {
  const { name, key, cron, timezone, last, error, failCount } = schedule;
  return (
    <li class="panel schedule" data-row>
      <div class="schedule-what">
        <h2>
          <Link to={workPath('jobs', { names: [name] })} opensRow>
            {name}
          </Link>
          {key !== name && <small>{key}</small>}
          <State schedule={schedule} />
        </h2>
        <p>
          <code class="cron">{cron}</code> <span class="muted">in {timezone}</span>
        </p>
        {last && (
          <p class="schedule-last">
            Last run <Time at={last.startedAt} /> <Status of={last.status} /> <Span ms={last.durationMs} />
          </p>
        )}
        {error !== undefined && (
          <p class="row-error tone-bad" title={error}>
            {failCount > 0 ? `Failed ${failCount} times: ` : 'Last error: '}
            {error}
          </p>
        )}
      </div>
      <NextRuns schedule={schedule} />
      <Actions schedule={schedule} refresh={refresh} />
    </li>
  );
}

function State({ schedule: { paused, running, next } }: { readonly schedule: ScheduleRow }): VNode {
  if (running) return <Status of="running" />;
  if (paused) return <Status of="paused" />;
  return next.length === 0 ? <Status of="done" /> : <></>;
}

function NextRuns({ schedule: { next, timezone, paused } }: { readonly schedule: ScheduleRow }): VNode {
  const [first] = next;
  if (first === undefined) {
    return (
      <p class="schedule-next muted">{paused ? 'Paused: no run is planned.' : 'Ended: no run is planned.'}</p>
    );
  }
  return (
    <div class="schedule-next">
      <p>
        Next run <Time at={first} />
      </p>
      <ol class="runs">
        {next.map((at) => (
          <li key={at}>
            <time dateTime={at} title={`In your time zone: ${exactTime(at)}`}>
              {inZone(at, timezone)}
            </time>
          </li>
        ))}
      </ol>
    </div>
  );
}

function Actions({ schedule, refresh }: ScheduleProps): VNode {
  const session = useSession();
  if (!may(session, 'act')) return <></>;
  const { id, name, key, paused } = schedule;
  const offered: readonly Action[] = ['run-now', paused ? 'resume' : 'pause', 'remove'];
  return (
    <div class="schedule-actions">
      {offered.map((action) => (
        <ActionButton
          key={action}
          action={action}
          what={`the schedule ${name}${key === name ? '' : ` ${key}`}`}
          run={() => act('schedules', { action, id }).then(refresh)}
        />
      ))}
    </div>
  );
}
