/** Reads statements as PostgreSQL does, to tell which text is neither a quoted name nor a quoted constant. */

const QUOTED =
  /(?<name>"(?:[^"]|"")*")|(?<constant>[eE]'(?:[^'\\]|\\[\s\S]|'')*'|'(?:[^']|'')*')|--[^\n]*|\/\*[\s\S]*?\*\/|[A-Za-z_][\w$]*/gu;

function textOfConstant(token: string): string {
  const inner = token.slice(token.indexOf("'") + 1, -1).replaceAll("''", "'");
  return token.startsWith("'") ? inner : inner.replaceAll(/\\(?<char>[\s\S])/gu, '$<char>');
}

export interface Reading {
  /** Everything that is not quoted, including comments. */
  readonly bare: string;
  readonly constants: readonly string[];
}

/** An unterminated name or constant leaves its quote behind, and everything that follows it. */
export function readStatement(text: string): Reading {
  const constants: string[] = [];
  const bare = text.replaceAll(QUOTED, (token, ...rest) => {
    const { name, constant } = rest.at(-1) as Readonly<Record<string, string | undefined>>;
    if (constant !== undefined) constants.push(textOfConstant(constant));
    return name === undefined && constant === undefined ? token : ' ';
  });
  return { bare, constants };
}
