export interface ServerErrorDetails {
  /** What the server itself said, usually the telling lines of its log. */
  readonly why?: string;
  /** The command, or the setting, that puts it right. */
  readonly fix: string;
  readonly cause?: unknown;
}

/** A server that could not be found, started or reached. The message carries the reason and the way out. */
export class ServerError extends Error {
  override readonly name = 'ServerError';
  readonly code = 'SERVER_FAILED';

  constructor(what: string, { why, fix, cause }: ServerErrorDetails) {
    const reason = why ? `\n\n${indent(why)}\n` : '';
    super(`${what}${reason}\nTo fix it: ${fix}`, cause === undefined ? {} : { cause });
  }
}

function indent(text: string): string {
  return text
    .trim()
    .split('\n')
    .map((line) => `    ${line}`)
    .join('\n');
}
