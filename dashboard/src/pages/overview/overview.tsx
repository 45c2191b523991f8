import { CircleAlert, CircleCheck, CirclePause } from 'lucide';
import type { VNode } from 'preact';
import type { Overview as Answer, WorkKind } from '../../../../src/dashboard/contract.js';
import { act } from '../../actions.js';
import { useLive } from '../../live.js';
import { go } from '../../router.js';
import { may, useSession } from '../../session.js';
import { ActionButton } from '../../ui/action-button.js';
import { Icon } from '../../ui/icon.js';
import { Link } from '../../ui/link.js';
import { LiveControl } from '../../ui/live-control.js';
import { Page } from '../../ui/page.js';
import { Problem, Skeleton, Stale } from '../../ui/states.js';
import { Charts } from './charts.js';
import { Instances } from './instances.js';
import { Names } from './names.js';
import { Planner } from './planner.js';
import { Tiles } from './tiles.js';

const RANGES = ['15m', '1h', '6h', '24h'] as const;

export function Overview({ query }: { readonly query: URLSearchParams }): VNode {
  const session = useSession();
  const range = RANGES.find((known) => known === query.get('range')) ?? '1h';
  const chosen = readName(query);
  const live = useLive<Answer>(`overview?${overviewQuery(range, chosen)}`);
  const { data, error } = live;
  return (
    <Page
      title="Overview"
      lead="What runs, how fast, and what waits, on all instances that share this store."
      controls={
        <>
          {may(session, 'act') && data?.paused !== true && <PauseAll refresh={live.refresh} />}
          <RangePicker range={range} chosen={chosen} />
          <LiveControl live={live} />
        </>
      }
    >
      {error && <Problem error={error} retry={live.refresh} />}
      {chosen && <Chosen range={range} name={chosen.name} />}
      {data ? (
        <Stale when={live.stale}>
          <Picture data={data} range={range} chosen={chosen} refresh={live.refresh} />
        </Stale>
      ) : (
        !error && <Skeleton rows={4} height={190} />
      )}
    </Page>
  );
}

interface Name {
  readonly kind: WorkKind;
  readonly name: string;
}

function readName(query: URLSearchParams): Name | undefined {
  const name = query.get('name');
  const kind = query.get('kind');
  return name === null || kind === null ? undefined : { kind: kind as WorkKind, name };
}

function overviewQuery(range: string, chosen: Name | undefined): string {
  return new URLSearchParams({ range, ...chosen }).toString();
}

interface PictureProps {
  readonly data: Answer;
  readonly range: string;
  readonly chosen: Name | undefined;
  readonly refresh: () => void;
}

function Picture({ data, range, chosen, refresh }: PictureProps): VNode {
  return (
    <>
      <Everything paused={data.paused} refresh={refresh} />
      <Health health={data.health} />
      <Tiles overview={data} />
      <Charts series={data.series} />
      <Names names={data.names} range={range} chosen={chosen} />
      <Planner planner={data.planner} />
      <Instances instances={data.instances} />
    </>
  );
}

/** While all work is paused, the buttons of single names change nothing, so this stands above everything. */
function Everything({ paused, refresh }: { readonly paused: boolean; readonly refresh: () => void }): VNode {
  const session = useSession();
  if (!paused) return <></>;
  return (
    <div class="health tone-wait" role="status">
      <Icon of={CirclePause} />
      <span>All work of the cluster is paused. Running work ends normally.</span>
      {may(session, 'act') && (
        <ActionButton
          action="resume"
          what="all work"
          run={() => act('everything', { action: 'resume' }).then(refresh)}
        />
      )}
    </div>
  );
}

/** Asks first, unlike the pause of a name: it stops everything. */
function PauseAll({ refresh }: { readonly refresh: () => void }): VNode {
  return (
    <ActionButton
      action="pause"
      what="all work"
      words={{
        label: 'Pause all',
        meaning:
          'No instance starts any work of the cluster until you resume it. Running work ends normally.',
        danger: true,
      }}
      run={() => act('everything', { action: 'pause' }).then(refresh)}
    />
  );
}

function RangePicker({
  range,
  chosen,
}: {
  readonly range: string;
  readonly chosen: Name | undefined;
}): VNode {
  return (
    <div class="segments" role="group" aria-label="How far back">
      {RANGES.map((each) => (
        <button
          key={each}
          type="button"
          aria-pressed={each === range}
          onClick={() => go(`?${overviewQuery(each, chosen)}`)}
        >
          {each}
        </button>
      ))}
    </div>
  );
}

function Chosen({ range, name }: { readonly range: string; readonly name: string }): VNode {
  return (
    <p class="chosen">
      The charts show <strong>{name}</strong> only. <Link to={`?range=${range}`}>Show everything</Link>
    </p>
  );
}

/** How soon instances learn of new work. */
const WAKE_UPS: Readonly<Record<string, string>> = {
  stream: 'Instances learn of new work at once.',
  direct: 'The process learns of its own new work at once.',
  poll: 'Instances poll for new work.',
};

function Health({ health: { ok, reasons, troubles, wakeUp } }: { readonly health: Answer['health'] }): VNode {
  const said = [...reasons, ...troubles];
  return (
    <div
      class={`health ${ok && said.length === 0 ? 'tone-good' : ok ? 'tone-wait' : 'tone-bad'}`}
      role="status"
    >
      <Icon of={ok && said.length === 0 ? CircleCheck : CircleAlert} />
      {said.length === 0 ? (
        <span>{ok ? 'Healthy.' : 'This instance is not healthy.'}</span>
      ) : (
        <ul>
          {said.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
      {wakeUp !== undefined && <span class="muted">{WAKE_UPS[wakeUp] ?? wakeUp}</span>}
    </div>
  );
}
