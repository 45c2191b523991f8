import type { VNode } from 'preact';
import type { WorkDetail } from '../../../../src/dashboard/contract.js';
import { workPath } from '../../filter.js';
import { CopyButton } from '../../ui/copy.js';
import { Link } from '../../ui/link.js';
import { Section } from '../../ui/page.js';

/** The newest failure: its message, and its stack below. */
export function LastError({ detail }: { readonly detail: WorkDetail }): VNode {
  const { error, timeline, kind, name } = detail;
  if (error === undefined) return <></>;
  const stack = timeline.findLast((entry) => entry.error !== undefined)?.error?.stack;
  return (
    <Section title="Error" class="error-panel">
      <p class="error-text">{error}</p>
      {stack !== undefined && <Stack text={stack} />}
      <p>
        <Link to={workPath(kind, { names: [name], error: firstLine(error) })}>
          Find others with this error
        </Link>
      </p>
    </Section>
  );
}

export function Stack({ text }: { readonly text: string }): VNode {
  return (
    <div class="stack">
      <CopyButton text={text} what="stack" />
      <pre tabIndex={0} aria-label="Stack">
        {text}
      </pre>
    </div>
  );
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? '';
}
