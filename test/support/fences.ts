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
