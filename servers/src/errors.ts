export interface ServerErrorDetails {
  /** The server's own words, usually the telling lines of its log. */
  readonly why?: string;
  /** The command or setting that fixes it. */
  readonly fix: string;
  readonly cause?: unknown;
}

/** A server that could not be found, started or reached. The message has the reason and the fix. */
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
