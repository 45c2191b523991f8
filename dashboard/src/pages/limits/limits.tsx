import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { LimitRow, LimitsPage } from '../../../../src/dashboard/contract.js';
import { ACTIONS, act } from '../../actions.js';
import { workPath } from '../../filter.js';
import { useLive } from '../../live.js';
import { ActionButton } from '../../ui/action-button.js';
import { Icon } from '../../ui/icon.js';
import { Link } from '../../ui/link.js';
import { LiveControl } from '../../ui/live-control.js';
import { Page } from '../../ui/page.js';
import { Empty, Problem, Skeleton } from '../../ui/states.js';
import { Status } from '../../ui/status.js';
import { Time } from '../../ui/time.js';
import { Keys } from './keys.js';
import { LimitDialog } from './limit-dialog.js';
import { Use } from './use.js';

const KIND_WORDS = {
  job: 'job',
  task: 'reactive task',
  documents: 'document schedule',
  shared: 'shared limit',
} as const;

/** What a dialog changes: a limit, or a job that has none yet. */
type Chosen = Pick<LimitRow, 'kind' | 'name' | 'limits'>;

export function Limits(): VNode {
  const live = useLive<LimitsPage>('limits');
  const { data, error } = live;
  const [chosen, choose] = useState<Chosen>();
  const close = (): void => {
    choose(undefined);
    live.refresh();
  };
  return (
    <Page
      title="Limits"
      lead="How much may run at once and start per time, in the whole cluster, and what waits for it."
      controls={<LiveControl live={live} />}
    >
      {error && <Problem error={error} retry={live.refresh} />}
      {data ? (
        <>
          <List items={data.items} change={choose} refresh={live.refresh} />
          <LimitAnother names={data.unlimited} choose={choose} />
        </>
      ) : (
        !error && <Skeleton rows={4} height={132} />
      )}
      {/* Outside the list, which changes while the dialog is open. */}
      {chosen && <LimitDialog limit={chosen} onClose={close} />}
    </Page>
  );
}

interface ListProps {
  readonly items: readonly LimitRow[];
  readonly change: (limit: Chosen) => void;
  readonly refresh: () => void;
}

function List({ items, change, refresh }: ListProps): VNode {
  if (items.length === 0) {
    return (
      <Empty title="There are no limits yet">
        <p>A limit holds in the whole cluster, whatever runs where:</p>
        <pre>{`defineJob('call-api', { limits: { concurrency: 20, rate: { limit: 100, per: '1m' } } });`}</pre>
      </Empty>
    );
  }
  return (
    <ul class="limits">
      {items.map((limit) => (
        <Limit key={`${limit.kind} ${limit.name}`} limit={limit} change={change} refresh={refresh} />
      ))}
    </ul>
  );
}

interface LimitProps {
  readonly limit: LimitRow;
  readonly change: (limit: Chosen) => void;
  readonly refresh: () => void;
}

function Limit({ limit, change, refresh }: LimitProps): VNode {
  return (
    <li class="panel limit" data-row>
      <div class="limit-what">
        <h2>
          <Name limit={limit} />
          <small>{KIND_WORDS[limit.kind]}</small>
          <Breaker limit={limit} />
        </h2>
        <p>{limit.text}</p>
        <Source limit={limit} />
      </div>
      <Use limit={limit} />
      <Actions limit={limit} change={change} refresh={refresh} />
      <Keys limit={limit} />
    </li>
  );
}

/** Leads to the work that it limits, if that is in the list of work. */
function Name({ limit: { kind, name } }: { readonly limit: LimitRow }): VNode {
  if (kind === 'shared') return <span>{name}</span>;
  const of = kind === 'job' ? 'jobs' : kind === 'task' ? 'tasks' : 'documents';
  return (
    <Link to={workPath(of, { names: [name] })} opensRow>
      {name}
    </Link>
  );
}

function Breaker({ limit: { breaker } }: { readonly limit: LimitRow }): VNode {
  if (breaker === undefined) return <></>;
  return (
    <>
      <Status of={`breaker_${breaker.state}`} />
      {breaker.until !== null && (
        <small>
          tries one start <Time at={breaker.until} />
        </small>
      )}
    </>
  );
}

/** Says who the values are of, if not the code that all instances run. */
function Source({ limit: { set, differs } }: { readonly limit: LimitRow }): VNode {
  return (
    <>
      {set && (
        <p class="tone-wait">
          Changed by hand
          {set.at !== null && (
            <>
              {' '}
              <Time at={set.at} />
            </>
          )}
          ; the code says: {set.code}
        </p>
      )}
      {differs && (
        <p class="tone-bad">
          <code>{differs.by}</code> defines it differently: {differs.text}. The latest start wins.
        </p>
      )}
    </>
  );
}

function Actions({ limit, change, refresh }: LimitProps): VNode {
  const { kind, name, actions } = limit;
  return (
    <div class="limit-actions">
      {actions.map((action) =>
        action === 'set-limit' ? (
          <ChangeButton key={action} name={name} open={() => change(limit)} />
        ) : (
          <ActionButton
            key={action}
            action={action}
            what={action.endsWith('breaker') ? `of ${name}` : `the limit of ${name}`}
            run={() => act('limits', { action, kind, name }).then(refresh)}
          />
        ),
      )}
    </div>
  );
}

function ChangeButton({ name, open }: { readonly name: string; readonly open: () => void }): VNode {
  const { label, icon, meaning } = ACTIONS['set-limit'];
  return (
    <button
      type="button"
      class="button"
      title={meaning}
      aria-label={`${label} the limit of ${name}`}
      onClick={open}
    >
      <Icon of={icon} size={14} />
      {label} …
    </button>
  );
}

interface LimitAnotherProps {
  readonly names: readonly string[];
  readonly choose: (limit: Chosen) => void;
}

/** In an incident, a name without a limit may need one at once. */
function LimitAnother({ names, choose }: LimitAnotherProps): VNode {
  if (names.length === 0) return <></>;
  return (
    <form class="limit-another">
      <label>
        Limit another job{' '}
        <select
          value=""
          onChange={({ currentTarget }) => {
            choose({ kind: 'job', name: currentTarget.value, limits: {} });
            currentTarget.value = '';
          }}
        >
          <option value="">Choose …</option>
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
    </form>
  );
}
