import { FilePenLine } from 'lucide';
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { WorkDetail } from '../../../../src/dashboard/contract.js';
import { Dialog } from '../../ui/dialog.js';
import { Icon } from '../../ui/icon.js';

interface PayloadEditorProps {
  readonly detail: WorkDetail;
  /** Retries the job with this payload; returns whether it succeeded. */
  readonly retry: (data: unknown) => Promise<boolean>;
}

/** A button that opens the payload in an editor, and retries the job with what was made of it. */
export function PayloadEditor({ detail, retry }: PayloadEditorProps): VNode {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button
        type="button"
        class="button"
        title="Correct the payload, then retry the job with it."
        onClick={() => setOpen(true)}
      >
        <Icon of={FilePenLine} size={14} />
        Edit and retry
      </button>
      {open && <Editor detail={detail} retry={retry} onClose={() => setOpen(false)} />}
    </>
  );
}

function Editor({ detail, retry, onClose }: PayloadEditorProps & { readonly onClose: () => void }): VNode {
  const [text, setText] = useState(() => JSON.stringify(detail.payload, undefined, 2));
  const [busy, setBusy] = useState(false);
  const problem = problemOf(text);
  const save = async (): Promise<void> => {
    setBusy(true);
    if (await retry(JSON.parse(text))) onClose();
    else setBusy(false);
  };
  return (
    <Dialog title={`Retry the job ${detail.title} with a corrected payload`} onClose={onClose}>
      <textarea
        class="payload-editor"
        aria-label="Payload, as JSON"
        aria-invalid={problem !== undefined}
        spellcheck={false}
        rows={14}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <p class={problem === undefined ? 'muted' : 'tone-bad'} aria-live="polite">
        {problem ??
          'Values that you do not change keep their stored form; [redacted] stands for a hidden value. Both versions are written to the audit log.'}
      </p>
      <footer>
        <button type="button" class="button" onClick={onClose}>
          Do nothing
        </button>
        <button
          type="button"
          class="button primary"
          disabled={busy || problem !== undefined}
          onClick={() => void save()}
        >
          Retry
        </button>
      </footer>
    </Dialog>
  );
}

function problemOf(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return `Invalid JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
}
