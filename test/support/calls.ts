/** The tables "you wrote | you write" of the pages about other libraries. */

const PREAMBLE = `import {
  defineJob, FatalError, Tidemill, type JobContext, type JobHandler,
} from 'tidemill';
import { createDashboard } from 'tidemill/dashboard';

declare const mill: Tidemill;
declare const job: JobContext;
declare const handler: JobHandler<unknown>;
declare const authorize: Parameters<typeof createDashboard>[0]['authorize'];
declare const client: { query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }> };
declare const url: string, name: string, id: string, key: string, timezone: string;
declare const data: { readonly user: number };
declare const date: Date;
`;

/** The first code of each right-hand side, as a program. Cells that begin with words have none, and SQL is left out. */
export function callsOf(page: string): string {
  const [, table = ''] = page.split('| you wrote | you write |\n|---|---|\n');
  const rows = (table.split('\n\n')[0] ?? '').split('\n');
  const calls = rows.flatMap((row) => {
    const cell = /^\| .* \| (?<cell>.*) \|$/u.exec(row)?.groups?.['cell'] ?? '';
    const code = /^`(?<code>[^`]+)`/u.exec(cell)?.groups?.['code'];
    return code === undefined || code.startsWith('select ') ? [] : [code];
  });
  if (calls.length < 10) throw new Error('The page has no table of what you write.');
  return [
    PREAMBLE,
    ...calls.map((call, at) => `export async function row${String(at)}() {\n  ${call};\n}`),
  ].join('\n');
}
