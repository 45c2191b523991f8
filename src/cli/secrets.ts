/** Store URLs carry credentials. What is printed of one, or of an error about it, goes through here. */

const PARTS = /^([a-z+]+):(?:\/\/)?(?:(.*)@)?([^@]*)$/isu;
const SECRET_KEY = /pass|pwd|secret|token|key|cred|auth/iu;

/** Scheme, hosts and database: never a user, a password, or what follows the question mark. */
export function safeUrl(url: string): string {
  const [, scheme = '', , rest = ''] = PARTS.exec(url) ?? [];
  const slashes = url.startsWith(`${scheme}://`) ? '//' : '';
  return `${scheme}:${slashes}${rest.split('?')[0] ?? ''}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const escaped = (text: string): string => text.replaceAll(/[.*+?^${}()|[\]\\]/gu, String.raw`\$&`);

interface Hidden {
  readonly users: readonly string[];
  readonly secrets: readonly string[];
}

function hiddenOf(url: string): Hidden {
  const [, , credentials = ''] = PARTS.exec(url) ?? [];
  const colon = credentials.indexOf(':');
  const user = colon < 0 ? credentials : credentials.slice(0, colon);
  const password = colon < 0 ? '' : credentials.slice(colon + 1);
  const query = new URLSearchParams(url.split('?')[1] ?? '');
  const ofQuery = [...query].filter(([key]) => SECRET_KEY.test(key)).map(([, value]) => value);
  const spelled = (text: string): string[] => [text, decoded(text)].filter((one) => one !== '');
  return { users: spelled(user), secrets: [...spelled(password), ...ofQuery.flatMap(spelled)] };
}

/** Takes whatever these URLs hold of users and secrets out of a text. Drivers quote what they were given. */
export function hider(urls: readonly string[]): (text: string) => string {
  const hidden = urls.map(hiddenOf);
  const secrets = hidden.flatMap((one) => one.secrets).sort((a, b) => b.length - a.length);
  const users = hidden.flatMap((one) => one.users);
  return (text) => {
    let safe = text.replaceAll(/:\/{1,2}[^\s"'`]*@/gu, '://');
    for (const secret of secrets) safe = safe.replaceAll(secret, '***');
    // A user's name may be an ordinary word: only where it is quoted, or said to be a user's.
    for (const user of users)
      safe = safe.replaceAll(
        new RegExp(`(["'\`]|\\b(?:user|role) )${escaped(user)}(?![\\w])`, 'gu'),
        '$1***',
      );
    return safe;
  };
}
