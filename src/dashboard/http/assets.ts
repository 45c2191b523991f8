import { readdirSync, readFileSync } from 'node:fs';
import { plainPage, respond } from './respond.js';

/** The files of the page. They are read once, and a request can only name one of them. */
type Files = ReadonlyMap<string, { readonly bytes: Uint8Array; readonly type: string }>;

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  json: 'application/json; charset=utf-8',
  svg: 'image/svg+xml',
  png: 'image/png',
  ico: 'image/x-icon',
};

/** Beside the built module, or beside its folder; when the sources run, where the build puts it. */
const PLACES = ['./dashboard/', '../dashboard/', '../../../dist/dashboard/'];

function read(folder: URL): Files {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  const files = new Map<string, { bytes: Uint8Array; type: string }>();
  for (const name of names) {
    const type = TYPES[name.slice(name.lastIndexOf('.') + 1)];
    const path = name.replaceAll('\\', '/');
    if (type !== undefined) files.set(path, { bytes: readFileSync(new URL(path, folder)), type });
  }
  return files;
}

function firstOf<T>(places: readonly string[], attempt: (url: URL) => T): T | undefined {
  for (const place of places) {
    try {
      return attempt(new URL(place, import.meta.url));
    } catch {
      // Try the next place.
    }
  }
  return undefined;
}

export class Assets {
  readonly #basePath: string;
  #files: Files | undefined;

  constructor(basePath: string) {
    this.#basePath = basePath;
  }

  /** Returns the file at a path below the base. Any other path is a route of the page, and gets the page. */
  answer(path: string): Response {
    this.#files ??= firstOf(PLACES, read);
    const file = path === 'index.html' ? undefined : this.#files?.get(path);
    if (file !== undefined)
      return respond(200, file.bytes, {
        'content-type': file.type,
        // The names of assets change with their content.
        'cache-control': path.startsWith('assets/') ? 'public, max-age=31536000, immutable' : 'no-cache',
      });
    // The page in place of a missing file would be taken for a script or a style.
    if (path.startsWith('assets/')) return plainPage(404, 'Not found', 'This file does not exist.');
    return this.#index();
  }

  #index(): Response {
    const index = this.#files?.get('index.html');
    if (index === undefined)
      return plainPage(
        503,
        'Page not built',
        'This copy of the package has no dashboard page. In the repository, run npm run build.',
      );
    // All links of the page are relative, and its routes may be several segments deep.
    const html = Buffer.from(index.bytes)
      .toString()
      .replace('<head>', `<head><base href="${this.#basePath}/">`);
    return respond(200, html, { 'content-type': index.type, 'cache-control': 'no-cache' });
  }
}
