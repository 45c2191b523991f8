import type { VNode } from 'preact';
import { useCallback, useEffect, useState } from 'preact/hooks';
import type { Session } from '../../src/dashboard/contract.js';
import { ApiError, openSession } from './api.js';
import { useKeys } from './keys.js';
import { Audit } from './pages/audit.js';
import { Detail } from './pages/detail/detail.js';
import { Failures } from './pages/failures.js';
import { Limits } from './pages/limits/limits.js';
import { Overview } from './pages/overview/overview.js';
import { Schedules } from './pages/schedules.js';
import { WorkList } from './pages/work/list.js';
import { type Place, usePlace } from './router.js';
import { SessionContext } from './session.js';
import { KeysDialog } from './ui/keys-dialog.js';
import { Link } from './ui/link.js';
import { Notices } from './ui/notices.js';
import { Shell } from './ui/shell.js';
import { Empty, Problem } from './ui/states.js';

export function App(): VNode {
  const [session, setSession] = useState<Session>();
  const [error, setError] = useState<ApiError>();
  const [helping, help] = useState(false);
  const place = usePlace();
  useKeys(useCallback(() => help(true), []));

  const open = useCallback(() => {
    setError(undefined);
    openSession().then(setSession, (refused: unknown) => {
      setError(refused instanceof ApiError ? refused : new ApiError(0, 'UNKNOWN', String(refused)));
    });
  }, []);
  useEffect(open, []);

  return (
    <>
      <Shell session={session} place={place} showKeys={() => help(true)}>
        {error && <Problem error={error} retry={open} />}
        {session && (
          <SessionContext.Provider value={session}>
            <Routed place={place} />
          </SessionContext.Provider>
        )}
      </Shell>
      {helping && <KeysDialog onClose={() => help(false)} />}
      <Notices />
    </>
  );
}

function Routed({ place: { path, query } }: { readonly place: Place }): VNode {
  const [page = '', kind, id] = path.split('/');
  switch (page) {
    case '':
      return <Overview query={query} />;
    case 'work':
      if (kind !== undefined && id !== undefined) return <Detail key={path} kind={kind} id={decode(id)} />;
      return <WorkList query={query} />;
    case 'schedules':
      return <Schedules query={query} />;
    case 'limits':
      return <Limits />;
    case 'failures':
      return <Failures query={query} />;
    case 'audit':
      return <Audit query={query} />;
    default:
      return (
        <Empty title="Page not found">
          <Link to="">Go to the overview</Link>
        </Empty>
      );
  }
}

/** The address may have been typed by hand. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
