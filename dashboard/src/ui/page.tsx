import type { ComponentChildren, VNode } from 'preact';
import { useEffect } from 'preact/hooks';

interface PageProps {
  readonly title: string;
  /** What this page is for, in a sentence. */
  readonly lead?: ComponentChildren;
  readonly controls?: ComponentChildren;
  readonly children: ComponentChildren;
}

export function Page({ title, lead, controls, children }: PageProps): VNode {
  useEffect(() => {
    document.title = `${title} · Tidemill`;
  }, [title]);
  return (
    <>
      <header class="page-head">
        <div>
          <h1>{title}</h1>
          {lead !== undefined && <p class="lead">{lead}</p>}
        </div>
        <div class="page-controls">{controls}</div>
      </header>
      {children}
    </>
  );
}

interface SectionProps {
  readonly title: string;
  readonly note?: ComponentChildren;
  readonly children: ComponentChildren;
  readonly class?: string;
}

export function Section({ title, note, children, ...rest }: SectionProps): VNode {
  return (
    <section class={`panel ${rest.class ?? ''}`}>
      <header>
        <h2>{title}</h2>
        {note !== undefined && <span class="muted">{note}</span>}
      </header>
      {children}
    </section>
  );
}
