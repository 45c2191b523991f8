import { EyeOff } from 'lucide';
import type { VNode } from 'preact';
import type { WorkDetail } from '../../../../src/dashboard/contract.js';
import { Icon } from '../../ui/icon.js';
import { Json } from '../../ui/json.js';
import { Section } from '../../ui/page.js';
import { Time } from '../../ui/time.js';

const PAYLOAD_TITLE = { jobs: 'Payload', tasks: 'Watched values', documents: 'Document' } as const;

export function Data({ detail }: { readonly detail: WorkDetail }): VNode {
  const { kind, hidden, payload, result, progress, logs, source } = detail;
  if (hidden) return <Hidden />;
  return (
    <>
      {payload !== undefined && <Value title={PAYLOAD_TITLE[kind]} value={payload} />}
      {source !== undefined && <Source source={source} />}
      {result !== undefined && <Value title="Result" value={result} />}
      {progress !== undefined && typeof progress !== 'number' && <Value title="Progress" value={progress} />}
      {logs !== undefined && logs.length > 0 && <Logs logs={logs} />}
    </>
  );
}

function Hidden(): VNode {
  return (
    <Section title="Data">
      <p class="hidden-note">
        <Icon of={EyeOff} /> You cannot see payloads, results, logs and source documents without the right{' '}
        <code>payload</code>.
      </p>
    </Section>
  );
}

function Value({ title, value }: { readonly title: string; readonly value: unknown }): VNode {
  return (
    <Section title={title}>
      <Json value={value} what={title.toLowerCase()} />
    </Section>
  );
}

function Source({
  source: { collection, document },
}: {
  readonly source: NonNullable<WorkDetail['source']>;
}): VNode {
  return (
    <Section title="Source document" note={`in ${collection}, as it is now`}>
      {document === null ? (
        <p class="muted">Deleted. The task is cleaned up when its retention has passed.</p>
      ) : (
        <Json value={document} what="document" />
      )}
    </Section>
  );
}

function Logs({ logs }: { readonly logs: NonNullable<WorkDetail['logs']> }): VNode {
  return (
    <Section title="Log" note="written by the handler; the last 100 lines are kept">
      <ol class="logs">
        {logs.map(({ at, message, fields }, i) => (
          <li key={i}>
            <Time at={at} />
            <span>{message}</span>
            {fields !== undefined && <code>{JSON.stringify(fields)}</code>}
          </li>
        ))}
      </ol>
    </Section>
  );
}
