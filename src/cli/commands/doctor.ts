import type { Finding } from '../../index.js';
import { onStore, withStore, type Session, type StoreFlags } from '../context.js';
import { Exit } from '../exit.js';
import { gathered, type CommandBuilder } from '../command-builder.js';
import { clean, plural, wrap, type Style } from '../render/text.js';

interface Flags extends StoreFlags {
  readonly documents?: readonly string[];
  readonly strict?: boolean;
}

const MARKS: Readonly<Record<Finding['status'], readonly [mark: string, style: Style]>> = {
  ok: ['ok  ', 'green'],
  warn: ['warn', 'yellow'],
  fail: ['fail', 'red'],
  skipped: ['-   ', 'dim'],
};
const LABEL_WIDTH = 20;

export function addDoctor(builder: CommandBuilder): void {
  const command = builder.command('doctor', {
    summary: 'checks the server, the indexes or the schema, and the cluster, with a fix for each problem',
    about: 'Changes nothing. Exits with 4 if a check fails.',
    examples: [
      ['tidemill doctor --store postgres://localhost/app', 'what is wrong, and how to fix it'],
      ['tidemill doctor --documents tenants', 'also checks whether an index serves this document schedule'],
      ['tidemill doctor --strict --json', 'for a deployment: warnings count, too'],
    ],
  });
  withStore(
    command
      .option(
        '--documents <collection>',
        'a collection or table whose documents have schedules (repeatable)',
        gathered,
      )
      .option('--strict', 'exit with 4 for warnings too'),
  ).action(
    builder.action((flags: Flags) =>
      onStore(flags, builder.terminal, 'inspect', (session) => doctor(session, flags)),
    ),
  );
}

async function doctor({ mill, out, place }: Session, flags: Flags): Promise<Exit> {
  for (const collection of flags.documents ?? []) mill.documents({ collection, onDocument: () => undefined });
  out.print(out.paint('bold', `Checking ${place}`), '');
  const findings = await mill.doctor();
  for (const finding of findings) out.print(...lines(finding, out.paint, out.width ?? 100));
  const count = (status: Finding['status']): number => findings.filter((one) => one.status === status).length;
  const [failed, warned] = [count('fail'), count('warn')];
  out.print('', verdict(failed, warned));
  const safe = findings.map((finding) => ({ ...finding, found: out.safe(finding.found) }));
  out.document({ store: place, ok: failed === 0, findings: safe });
  return failed > 0 || (flags.strict === true && warned > 0) ? Exit.PROBLEMS_FOUND : Exit.OK;
}

const verdict = (failed: number, warned: number): string =>
  failed + warned === 0
    ? 'No problems found.'
    : `${plural(failed, 'failure')}, ${plural(warned, 'warning')}.`;

/** The fix is never wrapped, so that it can be copied. */
function lines(
  { check, status, found, fix }: Finding,
  paint: (style: Style, text: string) => string,
  width: number,
): string[] {
  const [mark, style] = MARKS[status];
  const indent = ' '.repeat(mark.length + 2 + LABEL_WIDTH);
  const [first = '', ...rest] = wrap(clean(found), Math.max(30, width - indent.length - 1));
  const text = (line: string): string => (status === 'skipped' ? paint('dim', line) : line);
  return [
    `${paint(style, mark)}  ${check.padEnd(LABEL_WIDTH)}${text(first)}`,
    ...rest.map((line) => `${indent}${text(line)}`),
    ...(fix === undefined
      ? []
      : fix
          .split('\n')
          .map((line, i) => `${i === 0 ? `${indent.slice(5)}fix: ` : indent}${paint('cyan', clean(line))}`)),
  ];
}
