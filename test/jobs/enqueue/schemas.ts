import type { StandardSchemaV1 } from '@standard-schema/spec';

/** A hand-written Standard Schema: `read` returns the value, or throws what is wrong with it. */
export function aSchema<Input, Output = Input>(
  read: (value: unknown) => Output | Promise<Output>,
): StandardSchemaV1<Input, Output> {
  const validate = async (value: unknown): Promise<StandardSchemaV1.Result<Output>> => {
    try {
      return { value: await read(value) };
    } catch (problem) {
      return { issues: [problem as StandardSchemaV1.Issue] };
    }
  };
  return { '~standard': { version: 1, vendor: 'test', validate } };
}

/** One problem, and its path. */
export class Issue extends Error {
  readonly path: StandardSchemaV1.Issue['path'];
  constructor(message: string, path: readonly (PropertyKey | StandardSchemaV1.PathSegment)[] = []) {
    super(message);
    this.path = path;
  }
}

export interface Email {
  readonly to: string;
}

export const emailSchema: StandardSchemaV1<Email> = aSchema<Email>((value) => {
  const { to } = value as { to?: unknown };
  if (typeof to !== 'string') throw new Issue('expected a string', ['to']);
  return { to };
});

/** Text in, Date out. */
export const dateSchema: StandardSchemaV1<{ readonly at: string }, { readonly at: Date }> = aSchema(
  (value) => {
    const at = new Date((value as { at: string }).at);
    if (Number.isNaN(at.getTime())) throw new Issue('not a date', [{ key: 'at' }]);
    return { at };
  },
);
