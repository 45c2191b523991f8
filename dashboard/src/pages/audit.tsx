import type { VNode } from 'preact';
import type { AuditPage, AuditRow } from '../../../src/dashboard/contract.js';
import { useLive } from '../live.js';
import { LiveControl } from '../ui/live-control.js';
import { MorePages, pagePath } from '../ui/more-pages.js';
import { Page } from '../ui/page.js';
import { Empty, Problem, Skeleton } from '../ui/states.js';
import { Time } from '../ui/time.js';

export function Audit({ query }: { readonly query: URLSearchParams }): VNode {
  const cursor = query.get('cursor');
  const live = useLive<AuditPage>(pagePath('audit', cursor));
  const { data, error } = live;
  return (
    <Page
      title="Audit log"
      lead="Who did what from this dashboard or the command line. The log is kept in the store."
      controls={<LiveControl live={live} />}
    >
      {error && <Problem error={error} retry={live.refresh} />}
      {data ? <Rows page={data} cursor={cursor} /> : !error && <Skeleton rows={10} height={45} />}
    </Page>
  );
}

interface RowsProps {
  readonly page: AuditPage;
  readonly cursor: string | null;
}

function Rows({ page: { items, next }, cursor }: RowsProps): VNode {
  if (items.length === 0) {
    return (
      <Empty title="No actions yet">
        <p>
          Every retry, cancellation, removal, pause and run from this dashboard is recorded here, with its
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
      <MorePages page="audit" cursor={cursor} next={next} />
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
      <td class={outcome.includes('end unknown') ? 'wrap unknown' : 'wrap'}>{outcome}</td>
    </tr>
  );
}
