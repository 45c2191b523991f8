import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Action, Count, Operation, Target } from '../../../src/dashboard/contract.js';
import { ACTIONS, BULK_MEANINGS } from '../actions.js';
import { ApiError, post } from '../api.js';
import { count, many } from '../format.js';
import { useLive } from '../live.js';
import { KIND_NOUNS } from '../session.js';
import { Dialog } from './dialog.js';
import { Link } from './link.js';
import { Problem } from './states.js';

export interface BulkRequest {
  readonly action: Action;
  readonly target: Target;
  /** Describes the selected work: `named send-email, in status failed`. Empty: all of the kind. */
  readonly words: string;
}

interface BulkDialogProps {
  readonly request: BulkRequest;
  readonly onClose: () => void;
}

/** A bulk action from beginning to end: counts, asks, runs, and shows the result. */
export function BulkDialog({ request, onClose }: BulkDialogProps): VNode {
  const [counted, setCounted] = useState<Count>();
  const [operation, setOperation] = useState<Operation>();
  const [error, setError] = useState<ApiError>();
  const { action, target } = request;
  const { label } = ACTIONS[action];
  const attempt = <T,>(work: Promise<T>, then: (answer: T) => void): void => {
    work.then(then).catch((refused: unknown) => setError(asApiError(refused)));
  };

  useEffect(() => attempt(post<Count>('count', { ...target, action }), setCounted), []);

  // Work that changed after the count is left alone: the viewer was not asked about it.
  const start = ({ count: expected, asOf }: Count): void => {
    attempt(post<Operation>('actions', { action, target, expected, asOf }), setOperation);
  };
  return (
    <Dialog title={`${label} ${KIND_NOUNS[target.kind][1]}`} onClose={onClose}>
      {error && <Problem error={error} />}
      {operation ? (
        <Running first={operation} request={request} onClose={onClose} />
      ) : (
        <Question request={request} counted={counted} start={start} onClose={onClose} />
      )}
    </Dialog>
  );
}

interface QuestionProps extends BulkDialogProps {
  readonly counted: Count | undefined;
  readonly start: (counted: Count) => void;
}

function Question({ request, counted, start, onClose }: QuestionProps): VNode {
  const [asked, ask] = useState(false);
  const { label, danger = false } = ACTIONS[request.action];
  const nothing = counted?.count === 0;
  return (
    <>
      <p class="bulk-count" aria-live="polite">
        {counted ? <strong>{howMany(request, counted)}</strong> : <span class="muted">Counting …</span>}
      </p>
      <p>
        {nothing ? 'Nothing to do. Change the filter, or select other rows.' : BULK_MEANINGS[request.action]}
      </p>
      {!nothing && (
        <p class="muted">The action runs in batches in the background and is recorded in the audit log.</p>
      )}
      <footer>
        <button type="button" class="button" onClick={onClose}>
          {nothing ? 'Close' : 'Do nothing'}
        </button>
        {!nothing && (
          <button
            type="button"
            class={danger ? 'button danger-solid' : 'button primary'}
            disabled={!counted || asked}
            onClick={() => {
              ask(true);
              if (counted) start(counted);
            }}
          >
            {label} {counted && (counted.capped ? 'them' : count(counted.count))}
          </button>
        )}
      </footer>
    </>
  );
}

function howMany({ target, words }: BulkRequest, { count: found, capped }: Count): string {
  const [one, more] = KIND_NOUNS[target.kind];
  const amount = `${capped ? 'At least ' : ''}${many(found, one, more)}`;
  if (target.ids !== undefined) return `${amount}, selected one by one.`;
  return words === '' ? `All ${amount}.` : `${amount} ${words}.`;
}

function Running({ first, request, onClose }: BulkDialogProps & { readonly first: Operation }): VNode {
  const { data = first } = useLive<Operation>(`operations/${first.id}`);
  const { done, total, state, error } = data;
  const running = state === 'running';
  return (
    <>
      <progress
        class="bulk-progress"
        value={done}
        max={Math.max(total ?? 1, done, 1)}
        aria-label="Progress"
      />
      <p aria-live="polite">
        <strong>{resultOf(data)}</strong> {count(done)}
        {total !== null && ` of ${count(total)}`} {KIND_NOUNS[request.target.kind][1]}.
      </p>
      {error !== undefined && <p class="tone-bad">{error}</p>}
      {state === 'done' && total !== null && done < total && (
        <p class="muted">The rest was left alone, because its state does not allow the action.</p>
      )}
      <footer>
        {running ? (
          <button type="button" class="button" onClick={() => void post(`operations/${first.id}/stop`, {})}>
            Stop
          </button>
        ) : (
          <Link to="audit" class="button">
            Audit log
          </Link>
        )}
        <button type="button" class="button primary" onClick={onClose}>
          {running ? 'Continue in the background' : 'Close'}
        </button>
      </footer>
    </>
  );
}

function resultOf({ state }: Operation): string {
  switch (state) {
    case 'running':
      return 'Running:';
    case 'done':
      return 'Done:';
    case 'stopped':
      return 'Stopped after';
    case 'failed':
      return 'Failed after';
    default:
      return state satisfies never;
  }
}

function asApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, 'UNKNOWN', String(error));
}
