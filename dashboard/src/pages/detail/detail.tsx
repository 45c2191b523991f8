import { ArrowLeft } from 'lucide';
import type { VNode } from 'preact';
import type { Action, WorkDetail, WorkKind } from '../../../../src/dashboard/contract.js';
import { act } from '../../actions.js';
import { detailPath, workPath } from '../../filter.js';
import { useLive } from '../../live.js';
import { go } from '../../router.js';
import { KIND_NOUNS, may, useSession } from '../../session.js';
import { ActionButton } from '../../ui/action-button.js';
import { Id } from '../../ui/copy.js';
import { Icon } from '../../ui/icon.js';
import { Link } from '../../ui/link.js';
import { LiveControl } from '../../ui/live-control.js';
import { Page } from '../../ui/page.js';
import { Problem, Skeleton } from '../../ui/states.js';
import { Status } from '../../ui/status.js';
import { Data } from './data.js';
import { Facts } from './facts.js';
import { LastError } from './last-error.js';
import { PayloadEditor } from './payload-editor.js';
import { Timeline } from './timeline.js';
import { WhyNot } from './why-not.js';

interface DetailProps {
  readonly kind: string;
  readonly id: string;
}

export function Detail({ kind, id }: DetailProps): VNode {
  const live = useLive<WorkDetail>(detailPath(kind as WorkKind, id));
  const { data, error } = live;
  return (
    <Page
      title={data?.name ?? 'Work'}
      lead={data ? <Lead detail={data} /> : <Id value={id} />}
      controls={<LiveControl live={live} />}
    >
      {error && <Problem error={error} retry={live.refresh} />}
      {data ? <Shown detail={data} refresh={live.refresh} /> : !error && <Skeleton rows={3} height={180} />}
    </Page>
  );
}

function Lead({ detail: { kind, name, title, status } }: { readonly detail: WorkDetail }): VNode {
  return (
    <>
      <Link to={workPath(kind, { names: [name] })} class="back">
        <Icon of={ArrowLeft} size={14} /> All {name} {KIND_NOUNS[kind][1]}
      </Link>
      <Status of={status} />
      <Id value={title} />
    </>
  );
}

interface ShownProps {
  readonly detail: WorkDetail;
  readonly refresh: () => void;
}

function Shown({ detail, refresh }: ShownProps): VNode {
  return (
    <>
      <Actions detail={detail} refresh={refresh} />
      <div class="detail">
        <div class="detail-main">
          <WhyNot why={detail.why} />
          <Progress value={detail.progress} />
          <LastError detail={detail} />
          <Data detail={detail} />
        </div>
        <div class="detail-side">
          <Facts detail={detail} />
          <Timeline entries={detail.timeline} />
        </div>
      </div>
    </>
  );
}

function Actions({ detail, refresh }: ShownProps): VNode {
  const session = useSession();
  const { kind, id, title, actions } = detail;
  if (!may(session, 'act') || actions.length === 0) return <></>;
  const run = async (action: Action): Promise<void> => {
    const done = await act('act', { action, kind, id });
    if (done && action === 'remove') go(workPath(kind, { names: [detail.name] }));
    else refresh();
  };
  const retry = async (data: unknown): Promise<boolean> => {
    const done = await act('act', { action: 'retry', kind, id, data });
    refresh();
    return done;
  };
  return (
    <div class="detail-actions" role="group" aria-label="Actions">
      {actions.map((action) => (
        <ActionButton
          key={action}
          action={action}
          what={`the ${KIND_NOUNS[kind][0]} ${title}`}
          run={() => run(action)}
        />
      ))}
      {detail.editable === true && <PayloadEditor detail={detail} retry={retry} />}
    </div>
  );
}

function Progress({ value }: { readonly value: unknown }): VNode {
  if (typeof value !== 'number') return <></>;
  return (
    <section class="panel detail-progress">
      <label>
        Progress <progress value={value} max={100} /> <b>{Math.round(value)} %</b>
      </label>
    </section>
  );
}
