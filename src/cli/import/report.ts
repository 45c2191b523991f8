import type { Output } from '../output.js';
import { clean } from '../render/text.js';
import type { Count } from './reading.js';
import type { Group, Results } from './runner.js';

const counted = (count: number): string => count.toLocaleString('en-US');

export function printCounts(out: Output, counts: readonly Count[]): void {
  out.print('', out.paint('bold', 'Found'));
  out.table(
    [
      { head: 'STATE', text: ({ state }: Count) => state },
      { head: 'RECORDS', text: ({ count }: Count) => counted(count), align: 'right' },
      { head: '', text: ({ finished }: Count) => (finished === true ? 'finished: not imported' : '') },
    ],
    counts,
  );
}

export function printMapping(out: Output, mapping: readonly (readonly [string, string])[]): void {
  out.print('', out.paint('bold', 'What becomes of it'));
  const width = Math.max(...mapping.map(([there]) => there.length));
  for (const [there, here] of mapping) out.print(`  ${there.padEnd(width)}  ${here}`);
}

export interface Ending {
  readonly dryRun: boolean;
  readonly move: boolean;
  readonly checksOnly: boolean;
}

export function printResults(out: Output, results: Results, { dryRun, move, checksOnly }: Ending): void {
  const { jobs, schedules, served, otherNames, removed, differs, left } = results;
  const here = (count: number): string =>
    count === 0 ? '' : `, and ${counted(count)} that were here already`;
  out.print('', out.paint('bold', heading(dryRun, checksOnly)));
  if (checksOnly) out.print(`  documents  ${counted(served)} that mill.documents serves where they are`);
  else {
    out.print(`  jobs       ${counted(jobs.created)} to run${here(jobs.here)}`);
    out.print(`  failed     ${counted(jobs.failed)}, to look at and to retry`);
    out.print(`  schedules  ${counted(schedules.created)}${here(schedules.here)}`);
  }
  if (move) out.print(`  removed    ${counted(removed)} from the source`);
  if (otherNames > 0) out.print(`  skipped    ${counted(otherNames)} of other names`);
  if (!dryRun && !move && !checksOnly && jobs.created > 0) out.print('', REPEATED);
  groups(out, 'Not quite as it was', differs);
  groups(out, checksOnly ? 'To look at' : 'Not imported', left);
}

const REPEATED =
  '  The source still has these jobs. A repeated import finds them here by id, until they have ended and their retention, or somebody, has removed them: then it would import them, and they would run again. --move rules that out.';

const heading = (dryRun: boolean, checksOnly: boolean): string =>
  checksOnly ? 'Checked' : dryRun ? 'Would import' : 'Imported';

function groups(out: Output, title: string, found: readonly Group[]): void {
  if (found.length === 0) return;
  out.print('', out.paint('bold', title));
  for (const { reason, count, examples } of found) {
    out.print(`  ${counted(count).padStart(6)}  ${clean(reason)}`);
    const more = count > examples.length ? ', …' : '';
    out.print(out.paint('dim', `          ${examples.map((one) => clean(out.safe(one))).join(', ')}${more}`));
  }
}

/** One line for the audit log. */
export const summaryOf = ({ jobs, schedules, removed }: Results): string =>
  `${counted(jobs.created)} jobs, ${counted(jobs.failed)} failed jobs and ${counted(schedules.created)} schedules imported; ` +
  `${counted(removed)} records removed from the source`;
