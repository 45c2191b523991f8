import type { VNode } from 'preact';
import type { TimelineEntry } from '../../../../src/dashboard/contract.js';
import { many } from '../../format.js';
import { Section } from '../../ui/page.js';
import { Status, toneOf } from '../../ui/status.js';
import { Span, Time } from '../../ui/time.js';
import { Stack } from './last-error.js';

/** The attempts that are kept, newest first. */
export function Timeline({ entries }: { readonly entries: readonly TimelineEntry[] }): VNode {
  return (
    <Section
      title="Attempts"
      note={entries.length === 0 ? undefined : `the last ${many(entries.length, 'attempt')}`}
    >
      {entries.length === 0 ? (
        <p class="muted">No attempt yet.</p>
      ) : (
        <ol class="timeline">
          {entries.toReversed().map((entry, i) => (
            <Entry key={`${entry.attempt} ${entry.startedAt ?? ''} ${i}`} entry={entry} />
          ))}
        </ol>
      )}
    </Section>
  );
}

function Entry({ entry }: { readonly entry: TimelineEntry }): VNode {
  const { attempt, status, startedAt, durationMs, instanceId, error } = entry;
  return (
    <li class={`tone-${toneOf(status)}`}>
      <div class="timeline-head">
        <Status of={status} />
        <span class="muted">attempt {attempt}</span>
      </div>
      <div class="timeline-when">
        <Time at={startedAt} />
        {durationMs !== null && (
          <span>
            took <Span ms={durationMs} />
          </span>
        )}
        {instanceId !== undefined && <code>{instanceId}</code>}
      </div>
      {error && (
        <details>
          <summary>
            {error.name}: {error.message}
          </summary>
          {error.stack !== undefined && <Stack text={error.stack} />}
        </details>
      )}
    </li>
  );
}
