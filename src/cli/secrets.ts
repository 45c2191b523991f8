/** Store URLs contain credentials. Whatever is printed of a URL, or of an error about one, passes through here. */
import { hideParameters, hideUserinfo, SECRET_PARAMETER, urlParts } from '../mill/tools.js';

/** Returns scheme, hosts and database, without user, password and query parameters. */
export function safeUrl(url: string): string {
  const { head, rest } = urlParts(url);
  return `${head}${rest.split('?')[0] ?? ''}`;
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

/** As written, and URL-decoded. */
const spelled = (text: string): string[] => [text, decoded(text)].filter((one) => one !== '');

function hiddenOf(url: string): Hidden {
  const { userinfo, rest } = urlParts(url);
  const colon = userinfo.indexOf(':');
  const user = colon < 0 ? userinfo : userinfo.slice(0, colon);
  const password = colon < 0 ? '' : userinfo.slice(colon + 1);
  const query = new URLSearchParams(rest.slice(rest.indexOf('?') + 1));
  const valuesOf = (wanted: (key: string) => boolean): string[] =>
    [...query].filter(([key]) => wanted(key)).map(([, value]) => value);
  return {
    users: [user, ...valuesOf((key) => key === 'user')].flatMap(spelled),
    secrets: [password, ...valuesOf((key) => SECRET_PARAMETER.test(key))].flatMap(spelled),
  };
}

/**
 * Returns a function that removes the users and secrets in these URLs from a text. Drivers quote what they were
 * given.
 */
export function hider(urls: readonly string[]): (text: string) => string {
  const hidden = urls.map(hiddenOf);
  const secrets = [...new Set(hidden.flatMap((one) => one.secrets))].sort((a, b) => b.length - a.length);
  // A user name may be an ordinary word, so it is hidden only after a quote, `user` or `role`.
  const users = [...new Set(hidden.flatMap((one) => one.users))].map(
    (user) => new RegExp(`(["'\`]|\\b(?:user[ =]|role ))${escaped(user)}(?![\\w])`, 'gu'),
  );
  return (text) => {
    let safe = hideParameters(hideUserinfo(text, ''), '***');
    for (const secret of secrets) safe = safe.replaceAll(secret, '***');
    for (const user of users) safe = safe.replaceAll(user, '$1***');
    return safe;
  };
}
