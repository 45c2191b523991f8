import { ChevronRight } from 'lucide';
import type { VNode } from 'preact';
import type { AuditPage, AuditRow } from '../../../src/dashboard/contract.js';
import { many } from '../format.js';
import { useLive } from '../live.js';
import { Icon } from '../ui/icon.js';
import { LiveControl } from '../ui/live-control.js';
import { Page } from '../ui/page.js';
import { Empty, Problem, Skeleton } from '../ui/states.js';
import { Time } from '../ui/time.js';
import { Step } from './work/pager.js';

export function Audit({ query }: { readonly query: URLSearchParams }): VNode {
  const cursor = query.get('cursor');
  const live = useLive<AuditPage>(
    cursor === null ? 'audit' : `audit?${new URLSearchParams({ cursor }).toString()}`,
  );
  const { data, error } = live;
  return (
    <Page
      title="Audit log"
      lead="Who did what from this dashboard, kept in the store itself."
      controls={<LiveControl live={live} />}
    >
      {error && <Problem error={error} retry={live.refresh} />}
      {data ? <Rows page={data} /> : !error && <Skeleton rows={10} height={45} />}
    </Page>
  );
}

function Rows({ page: { items, next } }: { readonly page: AuditPage }): VNode {
  if (items.length === 0) {
    return (
      <Empty title="Nobody has done anything yet">
        <p>
          Every retry, cancellation, removal, pause and run from this dashboard is written here, with its
          outcome.
        </p>
      </Empty>
    );
  }
  return (
    <>
      <div class="panel">
        <div class="scroll" role="region" aria-label="Audit log" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">Who</th>
                <th scope="col">Action</th>
                <th scope="col" class="grow">
                  On what
                </th>
                <th scope="col">Outcome</th>
              </tr>
            </thead>
            <tbody>
              {items.map((row, i) => (
                <Row key={`${row.at} ${i}`} row={row} />
              ))}
            </tbody>
          </table>
        </div>
      </div>
      <nav class="pager" aria-label="Pages of the list">
        <span class="muted">{many(items.length, 'entry', 'entries')}</span>
        <Step to={next === null ? undefined : `audit?${new URLSearchParams({ cursor: next }).toString()}`}>
          Older <Icon of={ChevronRight} />
        </Step>
      </nav>
    </>
  );
}

function Row({ row: { at, actor, action, target, outcome } }: { readonly row: AuditRow }): VNode {
  return (
    <tr>
      <td>
        <Time at={at} />
      </td>
      <td>{actor}</td>
      <td>{action}</td>
      <td class="wrap">{target}</td>
      <td class="wrap">{outcome}</td>
    </tr>
  );
}
