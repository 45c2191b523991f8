import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Action, WorkItem, WorkPage } from '../../../../src/dashboard/contract.js';
import { bulkActions } from '../../actions.js';
import { type Filter, inWords, isNarrowed, readFilter, writeFilter, writeTarget } from '../../filter.js';
import { type Live, useLive } from '../../live.js';
import { KIND_NOUNS, useSession } from '../../session.js';
import { BulkDialog, type BulkRequest } from '../../ui/bulk-dialog.js';
import { Link } from '../../ui/link.js';
import { LiveControl } from '../../ui/live-control.js';
import { Page } from '../../ui/page.js';
import { Empty, Problem, Skeleton, Stale } from '../../ui/states.js';
import { BulkBar, type Scope } from './bulk-bar.js';
import { FilterBar } from './filter-bar.js';
import { Pager } from './pager.js';
import { useSelection } from './selection.js';
import { WorkTable } from './table.js';

const ROW_HEIGHT = 53;
const ROWS = 10;

export function WorkList({ query }: { readonly query: URLSearchParams }): VNode {
  const session = useSession();
  const filter = readFilter(query, session.kinds);
  const cursor = query.get('cursor');
  const asked = writeFilter(filter);
  if (cursor !== null) asked.set('cursor', cursor);
  const live = useLive<WorkPage>(`work?${asked.toString()}`);
  return (
    <Page
      title="Work"
      lead="Pending, running and ended work. The address contains the filter, so you can share it."
      controls={<LiveControl live={live} />}
    >
      <FilterBar filter={filter} />
      {live.error && <Problem error={live.error} retry={live.refresh} />}
      {live.data === undefined ? (
        !live.error && <Skeleton rows={ROWS} height={ROW_HEIGHT} />
      ) : (
        <Stale when={live.stale}>
          <Found
            list={asked.toString()}
            filter={filter}
            page={live.data}
            live={live}
            paged={cursor !== null}
          />
        </Stale>
      )}
    </Page>
  );
}

interface FoundProps {
  readonly list: string;
  readonly filter: Filter;
  readonly page: WorkPage;
  readonly live: Live<WorkPage>;
  readonly paged: boolean;
}

function Found({ list, filter, page, live, paged }: FoundProps): VNode {
  const session = useSession();
  const actions = bulkActions(session, filter.kind);
  const selection = useSelection(list);
  const [scope, setScope] = useState<Scope>('selected');
  const [request, setRequest] = useState<BulkRequest>();
  const close = (): void => {
    setRequest(undefined);
    live.refresh();
  };
  const begin = (action: Action): void => {
    if (!live.stale) setRequest(requestOf(action, scope, filter, selection.ids));
  };
  return (
    <>
      {/* Outside the table: the dialog stays until the action has ended, even if the list is empty by then. */}
      {request && <BulkDialog request={request} onClose={close} />}
      {page.items.length === 0 ? (
        <NothingFound filter={filter} paged={paged} partial={page.partial} />
      ) : (
        <>
          <WorkTable
            items={page.items}
            selectable={actions.length > 0}
            selection={selection}
            kind={filter.kind}
          />
          <Pager filter={filter} page={page} />
          {actions.length > 0 && (
            <BulkBar
              actions={actions}
              scope={scope}
              setScope={setScope}
              selected={selection.ids.size}
              clear={selection.clear}
              begin={begin}
            />
          )}
        </>
      )}
    </>
  );
}

function requestOf(
  action: Action,
  scope: Scope,
  filter: Filter,
  ids: ReadonlySet<WorkItem['id']>,
): BulkRequest {
  const { kind } = filter;
  if (scope === 'selected') return { action, target: { kind, ids: [...ids] }, words: '' };
  return { action, target: { kind, query: writeTarget(filter).toString() }, words: inWords(filter) };
}

interface NothingProps {
  readonly filter: Filter;
  readonly paged: boolean;
  readonly partial: boolean;
}

function NothingFound({ filter, paged, partial }: NothingProps): VNode {
  const everything = `work?kind=${filter.kind}`;
  if (paged) {
    return (
      <Empty title="This page is empty now">
        <Link to={`work?${writeFilter(filter).toString()}`}>Go to the first page</Link>
      </Empty>
    );
  }
  if (isNarrowed(filter)) {
    return (
      <Empty title={partial ? 'Nothing found before the time limit' : 'Nothing matches'}>
        <p>
          {partial
            ? 'The search took too long. Narrow it by a status, a name or a time.'
            : 'The filter may be too narrow.'}
        </p>
        <Link to={everything}>Show all {KIND_NOUNS[filter.kind][1]}</Link>
      </Empty>
    );
  }
  return (
    <Empty title={`There are no ${KIND_NOUNS[filter.kind][1]} yet`}>
      <p>{HOW_TO_BEGIN[filter.kind]}</p>
    </Empty>
  );
}

const HOW_TO_BEGIN = {
  jobs: 'Jobs come from mill.enqueue() and mill.schedule(). Ended jobs stay for their retention: 7 days, failed jobs 30.',
  tasks: 'Tasks come from mill.reactiveTask(): one for each document that matches its filter.',
  documents: 'Your own documents, each with its due time, passed to mill.documents().',
} as const;
