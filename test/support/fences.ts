/** A block of code of a Markdown page. */
interface Fence {
  readonly language: string;
  /** The file that the text before it named, which several tabs share. */
  readonly file: string | undefined;
  /** The tab that shows it, if it is one of several. */
  readonly tab: string | undefined;
  readonly text: string;
}

/** The blocks of a page in order. Tabs are written as on GitHub (`**Title**` before the block) or as on the site (`ts [Title]`). */
export function fencesOf(page: string): Fence[] {
  const parts = page.split(/^```/mu);
  let file: string | undefined;
  return parts.flatMap((part, index) => {
    if (index % 2 === 0) return [];
    const before = parts[index - 1] ?? '';
    const [head = '', ...lines] = part.split('\n');
    const [, language = '', siteTab] = /^(\w*)(?: \[(.+)\])?/u.exec(head) ?? [];
    const tab = siteTab ?? /\*\*(.+)\*\*\s*$/u.exec(before)?.[1];
    const named = [...before.matchAll(/`([\w.-]+\.ts)`/gu)].at(-1)?.[1];
    file = named ?? (tab === undefined ? undefined : file);
    return [{ language, file, tab, text: lines.join('\n') }];
  });
}

/**
 * The right-hand sides of the table `| you wrote | you write |` of a page for those who come from another library, as
 * modules. A comment before the table has the lines that each of them follows.
 */
export function linesToWrite(page: string): string[] {
  const [, before = ''] = /<!-- before each line:\n([\s\S]*?)-->/u.exec(page) ?? [];
  const [, rows = ''] = /^\| you wrote \| you write \|\n.*\n((?:\|.*\n)+)/mu.exec(page) ?? [];
  return rows.split('\n').flatMap((row) => {
    const [, code] = /\| `([^`]+)` \|$/u.exec(row) ?? [];
    if (code === undefined) return [];
    return code.startsWith('import ') ? [`${code};`] : [`${before}\n${code};`];
  });
}
