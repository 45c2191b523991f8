import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { LimitRow } from '../../../../src/dashboard/contract.js';
import { act } from '../../actions.js';
import { Dialog } from '../../ui/dialog.js';
import { changesOf, type Fields, fieldsOf } from './fields.js';

interface LimitDialogProps {
  readonly limit: Pick<LimitRow, 'kind' | 'name' | 'limits'>;
  readonly onClose: () => void;
}

/** A form with one field for each value of a limit. Only what was changed is sent. */
export function LimitDialog({ limit, onClose }: LimitDialogProps): VNode {
  const { kind, name, limits } = limit;
  const [before] = useState(() => fieldsOf(limits));
  const [fields, setFields] = useState<Fields>(before);
  const [busy, setBusy] = useState(false);
  const changes = changesOf(before, fields);
  const save = async (): Promise<void> => {
    setBusy(true);
    if (await act('limits', { action: 'set-limit', kind, name, changes })) onClose();
    else setBusy(false);
  };
  return (
    <Dialog title={`Change the limit of ${name}`} onClose={onClose}>
      <form
        class="limit-form"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <Form
          fields={fields}
          hasKeys={limits.perKey !== undefined}
          ordered={limits.perKey?.ordered === true}
          set={(change) => setFields({ ...fields, ...change })}
        />
        <p class="muted">
          Empty fields are no limit. A change holds in the whole cluster until it is reset, and is recorded in
          the audit log.
        </p>
        <footer>
          <button type="button" class="button" onClick={onClose}>
            Do nothing
          </button>
          <button type="submit" class="button primary" disabled={busy || Object.keys(changes).length === 0}>
            Change limit
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

interface FormProps {
  readonly fields: Fields;
  readonly hasKeys: boolean;
  readonly ordered: boolean;
  readonly set: (change: Partial<Fields>) => void;
}

function Form({ fields, hasKeys, ordered, set }: FormProps): VNode {
  return (
    <>
      <Group title="All together" prefix="" fields={fields} set={set} />
      <fieldset>
        <legend>Breaker</legend>
        <Field name="failures" label="Failures" {...{ fields, set }} />
        <Field name="within" label="within" {...{ fields, set }} required={fields.failures !== ''} />
        <Field name="pause" label="pause" {...{ fields, set }} required={fields.failures !== ''} />
      </fieldset>
      {hasKeys && <Group title="Each key" prefix="key" fields={fields} set={set} ordered={ordered} />}
    </>
  );
}

interface GroupProps extends Pick<FormProps, 'fields' | 'set'> {
  readonly title: string;
  readonly prefix: '' | 'key';
  readonly ordered?: boolean;
}

function Group({ title, prefix, fields, set, ordered = false }: GroupProps): VNode {
  const rate = prefix === '' ? 'rate' : 'keyRate';
  const isRated = fields[rate] !== '';
  return (
    <fieldset>
      <legend>{title}</legend>
      {!ordered && (
        <Field name={prefix === '' ? 'concurrency' : 'keyConcurrency'} label="At once" {...{ fields, set }} />
      )}
      <Field name={rate} label="Starts" {...{ fields, set }} />
      <Field name={prefix === '' ? 'per' : 'keyPer'} label="per" {...{ fields, set }} required={isRated} />
      <Field name={prefix === '' ? 'burst' : 'keyBurst'} label="burst" {...{ fields, set }} />
    </fieldset>
  );
}

const DURATIONS: ReadonlySet<keyof Fields> = new Set(['per', 'keyPer', 'within', 'pause']);

interface FieldProps extends Pick<FormProps, 'fields' | 'set'> {
  readonly name: keyof Fields;
  readonly label: string;
  readonly required?: boolean;
}

function Field({ name, label, fields, set, required = false }: FieldProps): VNode {
  const isDuration = DURATIONS.has(name);
  return (
    <label>
      <span>{label}</span>
      <input
        name={name}
        value={fields[name]}
        required={required}
        autocomplete="off"
        {...(isDuration ? { placeholder: '1m' } : { type: 'number', min: 1, step: 1 })}
        onInput={({ currentTarget }) => set({ [name]: currentTarget.value })}
      />
    </label>
  );
}
