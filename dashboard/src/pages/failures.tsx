import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type {
  Action,
  FailureGroup,
  Failures as Answer,
  Session,
  WorkKind,
} from '../../../src/dashboard/contract.js';
import { ACTIONS, bulkActions } from '../actions.js';
import { type Filter, inWords, readFilter, workPath, writeTarget } from '../filter.js';
import { count } from '../format.js';
import { useLive } from '../live.js';
import { go } from '../router.js';
import { KIND_NOUNS, KIND_WORDS, useSession } from '../session.js';
import { BulkDialog, type BulkRequest } from '../ui/bulk-dialog.js';
import { Icon } from '../ui/icon.js';
import { Link } from '../ui/link.js';
import { LiveControl } from '../ui/live-control.js';
import { Page } from '../ui/page.js';
import { Empty, Problem, Skeleton } from '../ui/states.js';
import { Time } from '../ui/time.js';

const OFFERED: readonly Action[] = ['retry', 'remove'];

export function Failures({ query }: { readonly query: URLSearchParams }): VNode {
  const { kinds } = useSession();
  const kind = kinds.find((known) => known === query.get('kind'));
  const live = useLive<Answer>(kind === undefined ? 'failures' : `failures?kind=${kind}`);
  const { data, error } = live;
  const [request, setRequest] = useState<BulkRequest>();
  const close = (): void => {
    setRequest(undefined);
    live.refresh();
  };
  return (
    <Page
      title="Failures"
      lead="Work that has used up its attempts, grouped by error. Fix the cause, then retry the group."
      controls={<LiveControl live={live} />}
    >
      {kinds.length > 1 && <KindPicker kinds={kinds} chosen={kind} />}
      {error && <Problem error={error} retry={live.refresh} />}
      {data ? <Groups answer={data} begin={setRequest} /> : !error && <Skeleton rows={5} height={112} />}
      {/* Outside the groups: the last group may disappear while its retry is still being watched. */}
      {request && <BulkDialog request={request} onClose={close} />}
    </Page>
  );
}

interface KindPickerProps {
  readonly kinds: readonly WorkKind[];
  readonly chosen: WorkKind | undefined;
}

function KindPicker({ kinds, chosen }: KindPickerProps): VNode {
  return (
    <div class="segments" role="group" aria-label="Kind of work">
      <button type="button" aria-pressed={chosen === undefined} onClick={() => go('failures')}>
        All
      </button>
      {kinds.map((kind) => (
        <button
          key={kind}
          type="button"
          aria-pressed={kind === chosen}
          onClick={() => go(`failures?kind=${kind}`)}
        >
          {KIND_WORDS[kind]}
        </button>
      ))}
    </div>
  );
}

interface GroupsProps {
  readonly answer: Answer;
  readonly begin: (request: BulkRequest) => void;
}

function Groups({ answer: { groups, partial }, begin }: GroupsProps): VNode {
  if (groups.length === 0) {
    return (
      <Empty title="Nothing has failed for good">
        <p>Failed attempts are retried by their policy first. Work without attempts left appears here.</p>
      </Empty>
    );
  }
  return (
    <>
      {partial && <p class="muted">Only the newest failures were read; the counts cover those.</p>}
      <ul class="groups">
        {groups.map((group) => (
          <Group key={`${group.kind} ${group.name} ${group.pattern}`} group={group} begin={begin} />
        ))}
      </ul>
    </>
  );
}

interface GroupProps {
  readonly group: FailureGroup;
  readonly begin: (request: BulkRequest) => void;
}

function Group({ group, begin }: GroupProps): VNode {
  const session = useSession();
  const { kind, name, pattern, example, firstAt, lastAt } = group;
  const filter = filterOf(group, session);
  // Without a text to search for, an action would affect every failure of the name.
  const narrowed = group.search !== '';
  const offered = bulkActions(session, kind).filter((action) => narrowed && OFFERED.includes(action));
  return (
    <li class="panel group" data-row>
      <div class="group-count">
        <b>{count(group.count)}</b>
        <span>{KIND_NOUNS[kind][group.count === 1 ? 0 : 1]}</span>
      </div>
      <div class="group-what">
        <h2>
          <Link to={workPath(kind, filter)} opensRow>
            {name}
          </Link>
        </h2>
        <p class="error-text" title={example}>
          {pattern}
        </p>
        <p class="muted">
          First <Time at={firstAt} />, last <Time at={lastAt} />
        </p>
      </div>
      <div class="group-actions">
        {offered.map((action) => (
          <button
            key={action}
            type="button"
            class={ACTIONS[action].danger === true ? 'button danger' : 'button'}
            aria-label={`${ACTIONS[action].label} all of ${name}: ${pattern}`}
            onClick={() => begin(requestOf(action, kind, filter))}
          >
            <Icon of={ACTIONS[action].icon} size={14} />
            {ACTIONS[action].label} …
          </button>
        ))}
      </div>
    </li>
  );
}

function filterOf({ kind, name, search }: FailureGroup, { statuses }: Session): Filter {
  const failed = statuses[kind].filter((status) => status === 'failed');
  return {
    ...readFilter(new URLSearchParams({ kind }), [kind]),
    names: [name],
    statuses: failed,
    error: search,
  };
}

function requestOf(action: Action, kind: WorkKind, filter: Filter): BulkRequest {
  return { action, target: { kind, query: writeTarget(filter).toString() }, words: inWords(filter) };
}
